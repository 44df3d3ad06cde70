"""The warm tier of one machine: an LMDB file that its worker processes share. No server needed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING

from meshcache.decisions import TierName
from meshcache.tiers.base import TierError, TierRead, Trouble
from meshcache.tiers.lmdb_file import LmdbFile, Operation
from meshcache.tiers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from meshcache.tiers.board import Board
    from meshcache.tiers.presence import Presence

_BATCH = 64
_WAITING = 1024
_WAITING_BYTES = 64 << 20
_CLOSE_PATIENCE = 1.0


class LmdbTier:
    """Implements `Tier`. All file work is done in threads: a page fault never stops the event loop.

    Writes that come while one is under way are made together in the next transaction.
    """

    on_board = True
    writes_at_once = 64

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        board: Board,
        *,
        presence: Presence | None = None,
        name: TierName = TierName.WARM,
        on_evict: Callable[[str, int], None] = lambda _reason, _count: None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`path` is a folder, made when absent; `presence` spares look-ups of what was never written.

        `on_evict` gets `expired` or `capacity` and a number of entries.
        """
        self.name = name
        self._file = LmdbFile(path, max_bytes)
        self._board = board
        self._presence = presence
        self._on_evict = on_evict
        self._wall_clock = wall_clock
        self._readers = Threads("lmdb-read", 2)
        self._writer = Threads("lmdb-write", 1)
        self._waiting: deque[tuple[Operation, asyncio.Future[None]]] = deque()
        self._waiting_bytes = 0
        self._flushing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the file now, for a check at start-up; optional."""
        await self._writer.run(self._file.open)

    def absent(self, key: bytes) -> bool:
        """See `Tier`."""
        return self._presence is not None and not self._presence.may_hold(key, self._wall_clock())

    async def get(self, key: bytes, resource: bytes) -> TierRead:
        """See `Tier`."""
        epoch = self._board.epoch(resource)
        return TierRead(await self._readers.run(self._file.read, key, self._wall_clock()), epoch)

    async def epoch(self, resource: bytes) -> bytes:
        """See `Tier`."""
        return self._board.epoch(resource)

    async def put(self, key: bytes, value: bytes, ttl: float) -> None:
        """See `Tier`."""
        if len(value) > self._file.largest_value:
            raise TierError(f"{len(value)} bytes are too large for the warm file", Trouble.TOO_LARGE)
        now = self._wall_clock()
        if self._presence is not None:
            self._presence.add(key, ttl, now)
        await self._change(Operation(key, value, now + ttl))

    async def delete(self, key: bytes) -> None:
        """See `Tier`."""
        await self._change(Operation(key))

    async def invalidate(self, resource: bytes) -> None:
        """See `Tier`."""
        self._board.bump(resource)

    async def close(self) -> None:
        """See `Tier`."""
        if self._flushing is not None:
            await asyncio.wait({self._flushing}, timeout=_CLOSE_PATIENCE)
        await self._writer.close(_CLOSE_PATIENCE)
        await self._readers.close(_CLOSE_PATIENCE)
        self._file.close()

    async def _change(self, operation: Operation) -> None:
        size = len(operation.value or b"")
        if len(self._waiting) >= _WAITING or self._waiting_bytes + size > _WAITING_BYTES:
            raise TierError("too many writes wait for the warm file", Trouble.BUSY)
        loop = asyncio.get_running_loop()
        waiting = (operation, loop.create_future())
        self._waiting.append(waiting)
        self._waiting_bytes += size
        if self._flushing is None or self._flushing.done():
            self._flushing = loop.create_task(self._flush())
        await waiting[1]

    async def _flush(self) -> None:
        while batch := self._next_batch():
            try:
                outcome = await self._writer.run(self._file.apply, [row[0] for row in batch], self._wall_clock())
            except TierError as error:
                errors: list[TierError | None] = [error] * len(batch)
            else:
                errors = outcome.errors
                for reason, count in (("expired", outcome.expired), ("capacity", outcome.evicted)):
                    if count:
                        self._on_evict(reason, count)
            for (_, future), failure in zip(batch, errors, strict=True):
                if future.done():
                    continue
                if failure is None:
                    future.set_result(None)
                else:
                    future.set_exception(failure)

    def _next_batch(self) -> list[tuple[Operation, asyncio.Future[None]]]:
        """What waits, less what its caller has given up, up to a number and size that one transaction does quickly."""
        batch: list[tuple[Operation, asyncio.Future[None]]] = []
        size = 0
        while self._waiting and len(batch) < _BATCH and size < self._file.largest_value:
            row = self._waiting.popleft()
            self._waiting_bytes -= len(row[0].value or b"")
            if not row[1].done():
                batch.append(row)
                size += len(row[0].value or b"")
        return batch
