"""A few at a time, and of those that wait the one first that belongs to what began first."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from itertools import count


class Turns:
    """Turns for one kind of work. Belongs to one event loop; every `take` that returns is followed by `give`."""

    def __init__(self, most: int) -> None:
        """`most` have their turn at the same time."""
        self._free = most
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()

    async def take(self, rank: int) -> None:
        """Return when it is the turn of `rank`: the lowest comes first, and of equal ones who has asked first."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (rank, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # It was his turn in the same moment.
                self.give()
            raise

    def give(self) -> None:
        """A turn is over."""
        while self._waiting:
            *_, turn = heappop(self._waiting)
            # Those that were given up are still there.
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
