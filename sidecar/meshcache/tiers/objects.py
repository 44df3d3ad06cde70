"""The cold tier of one machine: a folder, shared by its worker processes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from meshcache.decisions import TierName
from meshcache.tiers.base import TierError, TierRead, Trouble
from meshcache.tiers.object_folder import ObjectFolder
from meshcache.tiers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from meshcache.tiers.board import Board
    from meshcache.tiers.presence import Presence

_SWEEP_EVERY = 60.0
_CLOSE_PATIENCE = 1.0


class ObjectTier:
    """Implements `Tier`. All file work is done in threads.

    The folder is swept in the background: every minute while it is written to, and when much was written since. Between
    two sweeps it may exceed `max_bytes` by a little.
    """

    on_board = True
    writes_at_once = 8

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        board: Board,
        *,
        presence: Presence | None = None,
        name: TierName = TierName.COLD,
        on_evict: Callable[[str, int], None] = lambda _reason, _count: None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`presence` spares look-ups of what was never written.

        `on_evict` gets `expired` or `capacity` and a number of entries.
        """
        self.name = name
        self._folder = ObjectFolder(path, max_bytes)
        self._board = board
        self._presence = presence
        self._on_evict = on_evict
        self._wall_clock = wall_clock
        self._readers = Threads("cold-read", 2)
        self._writers = Threads("cold-write", 2)
        self._sweeper = Threads("cold-sweep", 1)
        self._sweeping: asyncio.Task[None] | None = None
        self._swept_at = -_SWEEP_EVERY

    def absent(self, key: bytes) -> bool:
        """See `Tier`."""
        return self._presence is not None and not self._presence.may_hold(key, self._wall_clock())

    async def get(self, key: bytes, resource: bytes) -> TierRead:
        """See `Tier`."""
        epoch = self._board.epoch(resource)
        return TierRead(await self._readers.run(self._folder.read, key, self._wall_clock()), epoch)

    async def epoch(self, resource: bytes) -> bytes:
        """See `Tier`."""
        return self._board.epoch(resource)

    async def put(self, key: bytes, value: bytes, ttl: float) -> None:
        """See `Tier`."""
        if len(value) > self._folder.largest_value:
            raise TierError(f"{len(value)} bytes are too large for the cold folder", Trouble.TOO_LARGE)
        now = self._wall_clock()
        if self._presence is not None:
            self._presence.add(key, ttl, now)
        await self._writers.run(self._folder.write, key, value, now + ttl)
        due = self._folder.wants_sweep() or time.monotonic() - self._swept_at >= _SWEEP_EVERY
        if due and (self._sweeping is None or self._sweeping.done()):
            self._sweeping = asyncio.get_running_loop().create_task(self.sweep())

    async def delete(self, key: bytes) -> None:
        """See `Tier`."""
        await self._writers.run(self._folder.remove, key)

    async def invalidate(self, resource: bytes) -> None:
        """See `Tier`."""
        self._board.bump(resource)

    async def sweep(self) -> None:
        """Remove what has expired and what exceeds the bound, now. Never raises `TierError`: the next sweep may do."""
        self._swept_at = time.monotonic()
        with contextlib.suppress(TierError):
            swept = await self._sweeper.run(self._folder.sweep, self._wall_clock())
            if swept is not None:
                for reason, count in (("expired", swept.expired), ("capacity", swept.evicted)):
                    if count:
                        self._on_evict(reason, count)

    async def close(self) -> None:
        """See `Tier`."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for threads in (self._writers, self._readers, self._sweeper):
            await threads.close(_CLOSE_PATIENCE)
