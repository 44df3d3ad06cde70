"""Time to live: the victim is the key that expires first, whether it is used or not."""

from __future__ import annotations

import heapq
from itertools import count

from meshcache.eviction.base import EvictionOrder

_SLACK = 64
"""Dead heap rows that are tolerated however few keys are live."""


class TtlOrder(EvictionOrder):
    """Orders by expiry, then by arrival.

    A heap whose rows for keys removed or replaced are left in place until they surface (each row carries the
    number under which it was added, which no longer matches) or until they outnumber the live ones.
    """

    __slots__ = ("_heap", "_live", "_numbers")

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[float, int, bytes]] = []
        self._live: dict[bytes, int] = {}
        self._numbers = count()

    def touch(self, key: bytes) -> None:
        """A use changes nothing: that is the point of this order."""

    def victim(self) -> bytes | None:
        """The key that expires first."""
        head = self._head()
        return None if head is None else head[2]

    def expired(self, now: float) -> bytes | None:
        """A key whose expiry is not after `now`, or None."""
        head = self._head()
        return head[2] if head is not None and head[0] <= now else None

    def _head(self) -> tuple[float, int, bytes] | None:
        heap = self._heap
        while heap:
            if self._live.get(heap[0][2]) == heap[0][1]:
                return heap[0]
            heapq.heappop(heap)
        return None

    def _added(self, key: bytes, expires_at: float) -> None:
        number = next(self._numbers)
        self._live[key] = number
        heapq.heappush(self._heap, (expires_at, number, key))
        if len(self._heap) > 2 * len(self._live) + _SLACK:
            self._heap = [row for row in self._heap if self._live.get(row[2]) == row[1]]
            heapq.heapify(self._heap)

    def _removed(self, key: bytes) -> None:
        del self._live[key]

    def _cleared(self) -> None:
        self._heap.clear()
        self._live.clear()
