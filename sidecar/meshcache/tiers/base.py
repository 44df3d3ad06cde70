"""The contract of a tier below process memory, and the errors that may leave one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshcache.decisions import TierName
    from meshcache.engine.pools import Division


class Trouble(StrEnum):
    """What kept a tier from doing what was asked; the value of the `kind` label of the error metric."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    """Credentials or rights were not enough, or the store accepts no writes."""
    FULL = "full"
    BUSY = "busy"
    """More is waiting for this tier already than may wait."""
    TOO_LARGE = "too-large"
    CORRUPT = "corrupt"
    IO = "io"
    PROTOCOL = "protocol"
    """The store answered something that makes no sense here."""
    INTERNAL = "internal"


class TierError(Exception):
    """A tier could not do what was asked: unreachable, full, too slow. It costs a hit, never an answer."""

    def __init__(self, message: str, kind: Trouble = Trouble.INTERNAL) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class TierRead:
    """What a look-up found."""

    value: bytes | None
    """The signed envelope, or None for a miss."""
    epoch: bytes
    """The invalidation epoch of the resource now (8 bytes): an envelope written under another epoch is dead.

    It goes into the envelope of whoever fills this miss, so that a fill which began before an invalidation
    cannot bring the old answer back. Empty when it is not known: then nothing may be written for this resource.
    """
    purges: int | None = 0
    """Generation of the newest purge rule in the log that is kept beside a store which pods share; None when there is
    no such log."""


class Tier(Protocol):
    """Byte storage with expiry. Implementations may raise only `TierError` and `asyncio.CancelledError`."""

    name: TierName
    on_board: bool
    """Whether its epochs are those of the board that the worker processes share. Then a bump of the board is all
    there is to an invalidation; otherwise (a store that other machines share too) `invalidate` is needed."""

    writes_at_once: int
    """How many writes are best made at the same time."""

    def absent(self, key: bytes) -> bool:
        """Whether `key` is surely not there; False when it takes a look-up to tell. Never waits."""
        ...

    def divide(self, division: Division) -> None:
        """Keep every pool to its share of the tier's capacity from now on (`engine/pools.py`). From any thread."""
        ...

    async def get(self, key: bytes, resource: bytes) -> TierRead:
        """Look up `key` (a storage key), together with the epoch of `resource` (16 bytes)."""
        ...

    async def put(self, key: bytes, value: bytes, ttl: float) -> None:
        """Store `value` under `key` for at most `ttl` seconds, replacing what is there."""
        ...

    async def delete(self, key: bytes) -> None:
        """Forget `key`; not an error when it is absent."""
        ...

    async def keep(self, digest: bytes, chunk: bytes, ttl: float) -> bool:
        """See to it that `chunk` is there under `digest` for at least `ttl` seconds more; whether it is new.

        What is there already is not written again, and never made to go earlier: others may count on it, too.
        """
        ...

    async def extend(self, digests: Sequence[bytes], ttl: float) -> frozenset[bytes]:
        """Those of `digests` that are not there; the others are there for at least `ttl` seconds more (0: for now)."""
        ...

    async def fetch(self, digest: bytes) -> bytes | None:
        """The chunk under `digest`, unverified, or None."""
        ...

    async def drop(self, digests: Sequence[bytes]) -> None:
        """Forget the chunks under `digests`; not an error when they are absent."""
        ...

    async def invalidate(self, resource: bytes) -> None:
        """Make everything stored so far for `resource` dead, by changing its epoch.

        When it raises, the change is still owed: it is remembered and made as soon as the store allows, and
        until then `get` misses for this resource in this process.
        """
        ...

    async def close(self) -> None:
        """Release what the tier holds open. Called once, last."""
        ...
