"""A body on its way into the tiers, chunk by chunk while it streams to the client."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from meshcache.decisions import NoStoreReason
from meshcache.engine.chunks import CHUNK_BYTES
from meshcache.tiers.base import TierError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshcache.decisions import TierName
    from meshcache.engine.storing.fill import CopyBudget
    from meshcache.tiers.chunks import ChunkStore
    from meshcache.tiers.hooks import TierHooks

MOST_BEHIND: Final = 24
"""Chunks of one body (6 MiB) that may wait to be written. A store that falls further behind is left without it."""
_AT_ONCE: Final = 4
_PATIENCE: Final = 30.0
"""Seconds for which the last chunks may take, once the body is complete."""


class Spool:
    """Implements `engine.ports.Spool`. What it holds is reserved in `budget`. Belongs to one event loop."""

    def __init__(
        self,
        store: ChunkStore,
        hooks: TierHooks,
        *,
        where: Callable[[int], Sequence[TierName]],
        ttl: Callable[[TierName], float],
        owner: bytes,
        pool: bytes,
        budget: CopyBudget,
        expected: int,
    ) -> None:
        """`where` says which tiers take a body of so many bytes, `ttl` for how many seconds. `expected` bytes come.

        The chunks are those of `owner` in `pool`.
        """
        self._store = store
        self._rank = store.rank()
        self._hooks = hooks
        self._where = where
        self._ttl = ttl
        self._owner = owner
        self._pool = pool
        self._budget = budget
        self._size = expected
        self._buffer: deque[bytes] = deque()
        self._buffered = 0
        self._digests: list[bytes] = []
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._writing: dict[asyncio.Task[None], int] = {}
        self._room = asyncio.Event()
        self.refused: NoStoreReason | None = None
        """See `engine.ports.Spool`."""

    def add(self, data: bytes) -> bool:
        """See `engine.ports.Spool`."""
        if self.refused is None and not self._budget.take(len(data)):
            self._give_up(NoStoreReason.NO_MEMORY)
        if self.refused is not None:
            return False
        self._size = max(self._size, self._buffered + len(data) + len(self._digests) * CHUNK_BYTES)
        self._buffer.append(data)
        self._buffered += len(data)
        while self._buffered >= CHUNK_BYTES:
            self._cut(CHUNK_BYTES)
        if len(self._waiting) > MOST_BEHIND:
            for name in self._where(self._size):
                self._hooks.chunks(name, "given-up", len(self._waiting))
            self._give_up(NoStoreReason.NO_MEMORY)
        return self.refused is None

    @property
    def behind(self) -> bool:
        """See `engine.ports.Spool`."""
        return self.refused is None and len(self._waiting) > MOST_BEHIND // 2

    async def has_room(self) -> None:
        """See `engine.ports.Spool`."""
        while self.behind:
            self._room.clear()
            await self._room.wait()

    async def written(self) -> tuple[bytes, ...] | None:
        """See `engine.ports.Spool`."""
        if self._buffered and self.refused is None:
            self._cut(self._buffered)
        try:
            async with asyncio.timeout(_PATIENCE):
                while self._writing:
                    await asyncio.wait(list(self._writing))
        except TimeoutError:
            self._give_up(NoStoreReason.NO_TIER)
        return None if self.refused is not None else tuple(self._digests)

    def drop(self) -> None:
        """See `engine.ports.Spool`."""
        self._give_up(NoStoreReason.TRUNCATED)

    def _cut(self, size: int) -> None:
        """Make a chunk of the first `size` bytes in the buffer."""
        parts: list[bytes] = []
        needed = size
        while needed:
            part = self._buffer.popleft()
            if len(part) > needed:
                self._buffer.appendleft(part[needed:])
                part = part[:needed]
            parts.append(part)
            needed -= len(part)
        self._buffered -= size
        self._waiting.append((len(self._digests), parts[0] if len(parts) == 1 else b"".join(parts)))
        self._digests.append(b"")
        self._next()

    def _next(self) -> None:
        while self._waiting and len(self._writing) < _AT_ONCE:
            number, chunk = self._waiting.popleft()
            task = asyncio.get_running_loop().create_task(self._write(number, chunk))
            self._writing[task] = len(chunk)
            # Here and not in the task: one that is cancelled before it has begun runs no line of its own.
            task.add_done_callback(self._done)

    async def _write(self, number: int, chunk: bytes) -> None:
        try:
            name = self._digests[number] = await self._store.digest(chunk, self._owner, self._pool)
            tiers = self._where(self._size)
            kept = [await self._store.keep(tier, name, chunk, self._ttl(tier), self._rank) for tier in tiers]
            if not kept or not all(kept):
                self._give_up(NoStoreReason.NO_TIER)
        except TierError:
            self._give_up(NoStoreReason.NO_MEMORY)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._budget.give(self._writing.pop(task))
        if not task.cancelled() and task.exception() is not None:
            self._give_up(NoStoreReason.NO_TIER)
        self._next()
        self._room.set()

    def _give_up(self, reason: NoStoreReason) -> None:
        """Write no more; what is written ends by its expiry."""
        if self.refused is None:
            self.refused = reason
        self._room.set()
        self._budget.give(self._buffered + sum(len(chunk) for _, chunk in self._waiting))
        self._budget.give(sum(self._writing.values()))
        self._writing = dict.fromkeys(self._writing, 0)
        self._waiting.clear()
        self._buffer.clear()
        self._buffered = 0
        for task in self._writing:
            task.cancel()
