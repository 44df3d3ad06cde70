"""The contract of a tier below process memory, and the errors that may leave one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from meshcache.engine.decisions import TierName


class TierError(Exception):
    """A tier could not do what was asked: unreachable, full, too slow. It costs a hit, never an answer."""


@dataclass(frozen=True, slots=True)
class TierRead:
    """What a look-up found."""

    value: bytes | None
    """The signed envelope, or None for a miss."""
    epoch: bytes
    """The invalidation epoch of the resource now: an envelope written under another epoch is dead.

    It is to be handed back to `put` by whoever fills this miss, so that a fill which began before an
    invalidation cannot bring the old answer back.
    """


class Tier(Protocol):
    """Byte storage with expiry. Implementations may raise only `TierError` and `asyncio.CancelledError`."""

    name: TierName

    async def get(self, key: bytes, resource: bytes) -> TierRead:
        """Look up `key` (32 bytes), together with the epoch of `resource` (16 bytes)."""
        ...

    async def put(self, key: bytes, value: bytes, ttl: float) -> None:
        """Store `value` under `key` for at most `ttl` seconds, replacing what is there."""
        ...

    async def delete(self, key: bytes) -> None:
        """Forget `key`; not an error when it is absent."""
        ...

    async def invalidate(self, resource: bytes) -> None:
        """Make everything stored so far for `resource` dead, by changing its epoch."""
        ...

    async def close(self) -> None:
        """Release what the tier holds open. Called once, last."""
        ...
