"""Eviction by itself: a trace's keys against the memory tier, in which only room decides what goes."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from meshcache.engine.records import StoredResponse
from meshcache.tiers.memory import HotEntry, MemoryTier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshcache.policy.compiled import Eviction

_RECORD = StoredResponse(
    key=b"",
    selecting=(),
    status=200,
    fields=(),
    request_time=0.0,
    response_time=0.0,
    initial_age=0.0,
    authorized=False,
    body=b"",
)


class Evicting:
    """Memory tiers of several capacities, each asked for every key, and given it where it is not there.

    By objects, each entry counts for one; by bytes, for what it takes in memory, as the tier counts it: its body and
    all that is around it.
    """

    def __init__(self, eviction: Eviction, capacities: Sequence[int], *, by_objects: bool) -> None:
        """`capacities` are objects or bytes."""
        self._eviction = eviction
        self._by_objects = by_objects
        self._caches = [MemoryTier(capacity) for capacity in capacities]
        self._misses = [0] * len(capacities)
        self._around = entry_bytes()
        self.requests = 0

    def ask(self, key: bytes, length: int) -> None:
        """One request, for an object with a body of `length` bytes."""
        self.requests += 1
        for place, memory in enumerate(self._caches):
            if memory.get(key, 0.0) is None:
                self._misses[place] += 1
                entry = HotEntry(_RECORD, epoch=b"", stored_at=0.0, expires_at=inf)
                entry.size = 1 if self._by_objects else self._around + length
                memory.put(key, entry, 0.0, self._eviction)

    @property
    def miss_ratios(self) -> list[float]:
        """Of all requests, by capacity."""
        return [misses / self.requests if self.requests else 0.0 for misses in self._misses]


def entry_bytes() -> int:
    """What an entry takes in memory besides its body, its header fields and its names."""
    return HotEntry(_RECORD, epoch=b"", stored_at=0.0, expires_at=inf).size
