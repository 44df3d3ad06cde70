"""What is told of the store that pods share: its address without secrets, and its errors as ours."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from meshcache.tiers.base import TierError, Trouble

_SCHEMES = ("redis", "rediss", "unix")


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
        case BusyLoadingError():
            return TierError("the store is loading its data", Trouble.UNREACHABLE)
        case RedisTimeoutError() | TimeoutError():
            return TierError("the store does not answer in time", Trouble.TIMEOUT)
        case RedisConnectionError() | OSError():
            return TierError("the store cannot be reached", Trouble.UNREACHABLE)
        case ResponseError() if str(error).startswith("NOAUTH"):
            return TierError("the store wants credentials", Trouble.REFUSED)
        case _:
            return TierError(f"the store answered {type(error).__name__}", Trouble.PROTOCOL)
