"""The cold tier of one machine: a folder, shared by its worker processes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from meshcache.decisions import TierName
from meshcache.tiers.base import TierError
from meshcache.tiers.local import CLOSE_PATIENCE, BoardTier
from meshcache.tiers.object_folder import ObjectFolder
from meshcache.tiers.threads import Threads

if TYPE_CHECKING:
    from pathlib import Path

_SWEEP_EVERY = 60.0


class ObjectTier(BoardTier[ObjectFolder]):
    """Implements `Tier`.

    The folder is swept in the background: every minute while it is written to, and when much was written since. Between
    two sweeps it may exceed `max_bytes` by a little.
    """

    name = TierName.COLD
    writes_at_once = 8
    _title = "cold folder"

    async def delete(self, key: bytes) -> None:
        """See `Tier`."""
        await self._writers.run(self._store.remove, key)

    async def sweep(self) -> None:
        """Remove what has expired and what exceeds the bound, now. Never raises `TierError`: the next sweep may do."""
        self._swept_at = time.monotonic()
        with contextlib.suppress(TierError):
            swept = await self._sweeper.run(self._store.sweep, self._wall_clock())
            if swept is not None:
                self._report(swept)

    async def close(self) -> None:
        """See `Tier`."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for threads in (self._writers, self._readers, self._sweeper):
            await threads.close(CLOSE_PATIENCE)

    def _make(self, path: Path, max_bytes: int) -> ObjectFolder:
        self._writers = Threads("cold-write", 2)
        self._sweeper = Threads("cold-sweep", 1)
        self._sweeping: asyncio.Task[None] | None = None
        self._swept_at = -_SWEEP_EVERY
        return ObjectFolder(path, max_bytes)

    async def _put(self, key: bytes, value: bytes, expires_at: float) -> None:
        await self._writers.run(self._store.write, key, value, expires_at)
        self._sweep_when_due()

    async def _keep(self, digest: bytes, chunk: bytes, expires_at: float) -> bool:
        new = await self._writers.run(self._store.keep, digest, chunk, expires_at, self._wall_clock())
        self._sweep_when_due()
        return new

    def _sweep_when_due(self) -> None:
        due = self._store.wants_sweep() or time.monotonic() - self._swept_at >= _SWEEP_EVERY
        if due and (self._sweeping is None or self._sweeping.done()):
            self._sweeping = asyncio.get_running_loop().create_task(self.sweep())
