"""The client of the store that pods share: its connections, its address without secrets, and its errors as ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakKeyDictionary

from redis.asyncio import BlockingConnectionPool
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from meshcache.tiers.base import TierError, Trouble

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

_SCHEMES = ("redis", "rediss", "unix")


class Pool(BlockingConnectionPool):
    """Connections that can be given up all at once, when the server they lead to is not the one to ask any more."""

    def __init__(self, **options: Any) -> None:
        """`options` are the library's."""
        self._era = 0
        self._made_in: WeakKeyDictionary[AbstractConnection, int] = WeakKeyDictionary()
        super().__init__(**options)

    def give_up(self) -> None:
        """Whoever asks from now on gets a new connection: the address is looked up again."""
        self._era += 1

    async def ensure_connection(self, connection: AbstractConnection) -> None:
        """See the library."""
        if self._made_in.get(connection, self._era) != self._era:
            await connection.disconnect(nowait=True)
        self._made_in[connection] = self._era
        await super().ensure_connection(connection)


def is_replica(error: Exception) -> bool:
    """Whether a server says by `error` that it is not the primary, which it was when the connection was made.

    After a failover it keeps its clients' connections, while a name or a virtual address leads to another one.
    """
    return isinstance(error, (ReadOnlyError, MasterDownError))


def checked_url(url: str) -> str:
    """`url` without credentials. Raises `ValueError`, whose message has none either."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError("store URL is not well formed") from None
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"store URL must begin with one of {', '.join(f'{scheme}://' for scheme in _SCHEMES)}")
    for option, _ in parse_qsl(parts.query, keep_blank_values=True):
        if option != "db" and not option.startswith("ssl_"):
            raise ValueError(f"store URL has the option {option!r}; only db and ssl_* are known")
    if parts.scheme == "unix":
        return f"unix://{parts.path}"
    if not host:
        raise ValueError("store URL names no host")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + (f":{port}" if port is not None else "")


def translated(error: Exception) -> TierError:
    """Our error for one of the client library. Of its text only what the server said is kept, never the URL."""
    match error:
        case AuthenticationError() | AuthorizationError() | NoPermissionError():
            return TierError("the store refuses our credentials", Trouble.REFUSED)
        case ReadOnlyError():
            return TierError("the store accepts no writes", Trouble.REFUSED)
        case OutOfMemoryError():
            return TierError("the store is full", Trouble.FULL)
        case MasterDownError():
            return TierError("the store is a replica without a primary", Trouble.UNREACHABLE)
        case AskError() | ClusterDownError() | ClusterCrossSlotError():
            return TierError("the store is part of a Redis Cluster, and a single server is needed", Trouble.PROTOCOL)
        case BusyLoadingError():
            return TierError("the store is loading its data", Trouble.UNREACHABLE)
        case RedisTimeoutError() | TimeoutError():
            return TierError("the store does not answer in time", Trouble.TIMEOUT)
        case RedisConnectionError() | OSError():
            return TierError("the store cannot be reached", Trouble.UNREACHABLE)
        case ResponseError() if _said(error) in ("MISCONF", "NOREPLICAS"):
            return TierError("the store accepts no writes, as it could not keep them safe", Trouble.REFUSED)
        case ResponseError() if _said(error) == "NOAUTH":
            return TierError("the store wants credentials", Trouble.REFUSED)
        case _:
            return TierError(f"the store answered {type(error).__name__}", Trouble.PROTOCOL)


def _said(error: ResponseError) -> str:
    """The word with which the server began, behind the words that the library puts before it in transactions."""
    said = str(error).rpartition("caused error: (")[2].lstrip("'\"")
    return said.partition(" ")[0]
