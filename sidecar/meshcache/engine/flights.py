"""How much of large answers may be on its way: Envoy takes an answer as fast as it is given, and holds in its own
memory what the client has not taken yet.

Nothing tells when a client has it all, so that is estimated: from the start of an answer on, Envoy is taken to get rid
of it at `RATE`. What would exceed the bound is not answered from the cache; it goes to the origin, where Envoy reads
no faster than the client does.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

RATE: Final = 32 << 20
"""Bytes of one answer that a client is taken to receive in a second."""
MOST_BYTES: Final = 256 << 20
"""Of one process, as estimated."""
MOST_SENDING: Final = 32
"""Answers that one process reads and sends at the same time; each takes up to a megabyte while it does."""


class Flights:
    """The large answers of one process. `take` and `landed` go in pairs."""

    __slots__ = ("_aloft", "_clock", "_limit", "_most_sending", "_sending", "_used")

    def __init__(self, clock: Callable[[], float], limit: int = MOST_BYTES, most_sending: int = MOST_SENDING) -> None:
        """`clock` measures durations in seconds."""
        self._clock = clock
        self._limit = limit
        self._most_sending = most_sending
        self._aloft: list[tuple[float, int]] = []
        self._used = 0
        self._sending = 0

    def room(self, size: int) -> bool:
        """Whether an answer of `size` bytes may begin. One always may, however large, when there is no other."""
        now = self._clock()
        while self._aloft and self._aloft[0][0] <= now:
            self._used -= heapq.heappop(self._aloft)[1]
        return self._sending < self._most_sending and (not self._used or self._used + size <= self._limit)

    def take(self, size: int) -> bool:
        """Begin with an answer of `size` bytes; False when it may not."""
        if not self.room(size):
            return False
        self._sending += 1
        self._used += size
        heapq.heappush(self._aloft, (self._clock() + size / RATE, size))
        return True

    def landed(self) -> None:
        """An answer that was begun has been handed to Envoy, or was broken off."""
        self._sending -= 1
