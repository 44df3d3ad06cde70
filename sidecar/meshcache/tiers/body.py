"""Reading a body that is stored in chunks."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from meshcache.engine.chunks import owner_of, pieces
from meshcache.tiers.chunks import BodyLostError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from meshcache.decisions import TierName
    from meshcache.engine.chunks import Piece
    from meshcache.engine.records import StoredResponse
    from meshcache.tiers.chunks import ChunkStore

_AHEAD: Final = 2
"""Chunks that are read while the one before them is being sent."""


class Body:
    """The body of one stored response whose chunks are in one tier: the one that is named, or else found at a read."""

    def __init__(self, store: ChunkStore, stored: StoredResponse, tier: TierName) -> None:
        self._store = store
        self._stored = stored
        self._tier = tier
        self.length = stored.length
        """Bytes of the whole."""

    async def read(self, offset: int = 0, length: int | None = None) -> AsyncGenerator[bytes, None]:
        """`length` bytes from `offset` on (all that follow, when it is None), chunk by chunk, each verified.

        A few chunks are read ahead, and no more is held. Raises `BodyLostError`, perhaps in the middle, and
        `ValueError` for bytes that the body does not have. To be closed (`aclosing`) by who does not read to the end.
        """
        todo = pieces(self._stored, offset, self.length - offset if length is None else length)
        owner = owner_of(self._stored)
        tier = await self._store.locate(self._tier, self._stored)
        ahead: deque[tuple[Piece, asyncio.Task[bytes]]] = deque()
        loop = asyncio.get_running_loop()
        try:
            while True:
                while len(ahead) <= _AHEAD and (piece := next(todo, None)) is not None:
                    ahead.append((piece, loop.create_task(self._store.fetch(tier, piece.digest, owner))))
                if not ahead:
                    return
                piece, task = ahead[0]
                chunk = await task
                ahead.popleft()
                if len(chunk) < piece.stop:
                    raise BodyLostError("a chunk is too short")
                yield chunk if len(chunk) == piece.stop - piece.start else chunk[piece.start : piece.stop]
        finally:
            for _, task in ahead:
                task.cancel()
            await asyncio.gather(*(task for _, task in ahead), return_exceptions=True)
