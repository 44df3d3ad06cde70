"""What the tiers of one pod have in common, which keep their entries on its own disk."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from meshcache.tiers.base import TierError, TierRead, Trouble
from meshcache.tiers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from meshcache.decisions import TierName
    from meshcache.engine.pools import Division
    from meshcache.tiers.board import Board
    from meshcache.tiers.presence import Presence

CLOSE_PATIENCE = 1.0
"""Seconds for which closing waits for calls in threads."""


class Store(Protocol):
    """Entries on a disk: calls that block, for threads."""

    def divide(self, division: Division) -> None:
        """Keep every pool to its share from now on. From any thread."""
        ...

    def takes(self, key: bytes, size: int) -> bool:
        """Whether a value of `size` bytes may be stored under `key`."""
        ...

    def read(self, key: bytes, now: float) -> bytes | None:
        """The value under `key`, unless it has expired at `now` (Unix seconds). Raises `TierError`."""
        ...

    def extend(self, keys: Sequence[bytes], expires_at: float, now: float) -> frozenset[bytes]:
        """Those of `keys` that are not there at `now`; the others are there until `expires_at` at least."""
        ...


class Gone(Protocol):
    """How many entries left without being asked to."""

    @property
    def expired(self) -> int:
        """Their time was over."""
        ...

    @property
    def evicted(self) -> int:
        """There was no room."""
        ...


S = TypeVar("S", bound=Store)


class BoardTier(ABC, Generic[S]):
    """A `Tier` over files that the worker processes of one pod share; its epochs are those of their board.

    All file work is done in threads: a page fault never stops the event loop.
    """

    name: TierName
    on_board = True
    writes_at_once: int
    _title: ClassVar[str]
    """What messages call it."""
    _writers: Threads

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        board: Board,
        *,
        presence: Presence | None = None,
        on_evict: Callable[[str, int], None] = lambda _reason, _count: None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`path` is a folder, made when absent; `presence` spares look-ups of what was never written.

        `on_evict` gets `expired` or `capacity` and a number of entries.
        """
        self._store = self._make(path, max_bytes)
        self._board = board
        self._presence = presence
        self._on_evict = on_evict
        self._wall_clock = wall_clock
        self._readers = Threads(f"{self.name}-read", 2)

    def absent(self, key: bytes) -> bool:
        """See `Tier`."""
        return self._presence is not None and not self._presence.may_hold(key, self._wall_clock())

    def divide(self, division: Division) -> None:
        """See `Tier`."""
        self._store.divide(division)

    async def get(self, key: bytes, resource: bytes) -> TierRead:
        """See `Tier`."""
        epoch = self._board.epoch(resource)
        return TierRead(await self._readers.run(self._store.read, key, self._wall_clock()), epoch)

    async def put(self, key: bytes, value: bytes, ttl: float) -> None:
        """See `Tier`."""
        self._check(key, value)
        now = self._wall_clock()
        if self._presence is not None:
            self._presence.add(key, ttl, now)
        await self._put(key, value, now + ttl)

    async def keep(self, digest: bytes, chunk: bytes, ttl: float) -> bool:
        """See `Tier`."""
        self._check(digest, chunk)
        return await self._keep(digest, chunk, self._wall_clock() + ttl)

    async def extend(self, digests: Sequence[bytes], ttl: float) -> frozenset[bytes]:
        """See `Tier`."""
        now = self._wall_clock()
        threads = self._writers if ttl > 0 else self._readers
        return await threads.run(self._store.extend, digests, now + ttl, now)

    async def fetch(self, digest: bytes) -> bytes | None:
        """See `Tier`."""
        return await self._readers.run(self._store.read, digest, self._wall_clock())

    async def drop(self, digests: Sequence[bytes]) -> None:
        """See `Tier`."""
        for digest in digests:
            await self.delete(digest)

    async def invalidate(self, resource: bytes) -> None:
        """See `Tier`."""
        self._board.bump(resource)

    @abstractmethod
    async def delete(self, key: bytes) -> None:
        """See `Tier`."""

    @abstractmethod
    async def close(self) -> None:
        """See `Tier`."""

    @abstractmethod
    def _make(self, path: Path, max_bytes: int) -> S:
        """The store, and whatever else it takes to write to it. Called once, by the constructor."""

    @abstractmethod
    async def _put(self, key: bytes, value: bytes, expires_at: float) -> None:
        """Store a value that is not too large, until `expires_at` (Unix seconds)."""

    @abstractmethod
    async def _keep(self, digest: bytes, chunk: bytes, expires_at: float) -> bool:
        """See `keep`; until `expires_at` (Unix seconds) at least."""

    def _check(self, key: bytes, value: bytes) -> None:
        """Raise `TierError` for a value too large to be stored under `key`."""
        if not self._store.takes(key, len(value)):
            raise TierError(f"{len(value)} bytes are too large for the {self._title}", Trouble.TOO_LARGE)

    def _report(self, gone: Gone) -> None:
        for reason, count in (("expired", gone.expired), ("capacity", gone.evicted)):
            if count:
                self._on_evict(reason, count)
