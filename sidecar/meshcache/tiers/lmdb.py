"""The warm tier of one machine: an LMDB file that its worker processes share. No server needed."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from meshcache.decisions import TierName
from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.lmdb_file import LmdbFile, Operation
from meshcache.tiers.local import CLOSE_PATIENCE, BoardTier
from meshcache.tiers.threads import Threads

if TYPE_CHECKING:
    from pathlib import Path

_BATCH = 64
_WAITING = 1024
_WAITING_BYTES = 64 << 20


class LmdbTier(BoardTier[LmdbFile]):
    """Implements `Tier`. Writes that come while one is under way are made together in the next transaction."""

    name = TierName.WARM
    writes_at_once = 64
    _title = "warm file"

    async def open(self) -> None:
        """Open the file now, for a check at start-up; optional."""
        await self._writers.run(self._store.open)

    async def delete(self, key: bytes) -> None:
        """See `Tier`."""
        await self._change(Operation(key))

    async def close(self) -> None:
        """See `Tier`."""
        if self._flushing is not None:
            await asyncio.wait({self._flushing}, timeout=CLOSE_PATIENCE)
        await self._writers.close(CLOSE_PATIENCE)
        await self._readers.close(CLOSE_PATIENCE)
        self._store.close()

    def _make(self, path: Path, max_bytes: int) -> LmdbFile:
        self._writers = Threads("warm-write", 1)
        self._waiting: deque[tuple[Operation, asyncio.Future[bool]]] = deque()
        self._waiting_bytes = 0
        self._flushing: asyncio.Task[None] | None = None
        return LmdbFile(path, max_bytes)

    async def _put(self, key: bytes, value: bytes, expires_at: float) -> None:
        await self._change(Operation(key, value, expires_at))

    async def _keep(self, digest: bytes, chunk: bytes, expires_at: float) -> bool:
        return await self._change(Operation(digest, chunk, expires_at, keep=True))

    async def _change(self, operation: Operation) -> bool:
        """Make a change; False when there was nothing to change."""
        size = len(operation.value or b"")
        if len(self._waiting) >= _WAITING or self._waiting_bytes + size > _WAITING_BYTES:
            raise TierError("too many writes wait for the warm file", Trouble.BUSY)
        loop = asyncio.get_running_loop()
        waiting: tuple[Operation, asyncio.Future[bool]] = (operation, loop.create_future())
        self._waiting.append(waiting)
        self._waiting_bytes += size
        if self._flushing is None or self._flushing.done():
            self._flushing = loop.create_task(self._flush())
        return await waiting[1]

    async def _flush(self) -> None:
        while batch := self._next_batch():
            try:
                outcome = await self._writers.run(self._store.apply, [row[0] for row in batch], self._wall_clock())
            except TierError as error:
                errors: list[TierError | None] = [error] * len(batch)
                kept: set[bytes] = set()
            else:
                errors = outcome.errors
                self._report(outcome)
                kept = outcome.kept
            for (operation, future), failure in zip(batch, errors, strict=True):
                if future.done():
                    continue
                if failure is None:
                    future.set_result(operation.key not in kept)
                else:
                    future.set_exception(failure)

    def _next_batch(self) -> list[tuple[Operation, asyncio.Future[bool]]]:
        """What waits, less what its caller has given up, up to a number and size that one transaction does quickly."""
        batch: list[tuple[Operation, asyncio.Future[bool]]] = []
        size = 0
        while self._waiting and len(batch) < _BATCH and size < self._store.largest_value:
            row = self._waiting.popleft()
            self._waiting_bytes -= len(row[0].value or b"")
            if not row[1].done():
                batch.append(row)
                size += len(row[0].value or b"")
        return batch
