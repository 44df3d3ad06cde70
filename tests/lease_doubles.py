"""Leases that a test can move in time: of one pod, and of the pods of a fleet."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from typing import TYPE_CHECKING

from meshcache.engine.ports import FleetLease

if TYPE_CHECKING:
    from cache_origin import Clock


class Pods:
    """Leases as pods have them: of one pod alone, or of the fleet. `asked` counts the keys that were asked for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[bytes, tuple[bytes, float]] = {}
        self._shunned: dict[bytes, float] = {}
        self._answered: dict[bytes, float] = {}
        self.asked: Counter[bytes] = Counter()

    def lease(self, key: bytes, seconds: float) -> FleetLease | None:
        self.asked[key] += 1
        if key in self._held and self._clock.now < self._held[key][1]:
            return None
        token = b"%d" % self.asked.total()
        self._held[key] = (token, self._clock.now + seconds)
        return FleetLease(key, token, answered=self._clock.now - self._answered.get(key, -math.inf))

    async def acquire(self, key: bytes, seconds: float) -> FleetLease | None:
        await asyncio.sleep(0)
        if self._clock.now < self._shunned.get(key, 0.0):
            return FleetLease(key, b"", shunned=True)
        return self.lease(key, seconds)

    async def release(self, lease: FleetLease, *, shun: float = 0.0, answered: bool = False) -> None:
        if shun:
            self._shunned[lease.key] = self._clock.now + shun
        held = self._held.get(lease.key)
        if held is not None and held[0] == lease.token:
            del self._held[lease.key]
            if answered:
                self._answered[lease.key] = self._clock.now


class PodLeases(Pods):
    """Those of one pod: `Leases` has no coroutines."""

    stopped = False
    """Another process has been stopped while it changes the place of a lease."""

    def lease(self, key: bytes, seconds: float) -> FleetLease | None:
        return None if self.stopped else super().lease(key, seconds)

    def has_room(self, key: bytes) -> bool:  # noqa: ARG002 - for any number of leases
        return True

    def release(self, lease: FleetLease, *, answered: bool = False) -> None:  # type: ignore[override]
        self._held.pop(lease.key, None)
        if answered:
            self._answered[lease.key] = self._clock.now

    def leased(self, key: bytes) -> bool:
        return key in self._held and self._clock.now < self._held[key][1]

    def shun(self, key: bytes, seconds: float) -> None:
        self._shunned[key] = self._clock.now + seconds

    def shunned(self, key: bytes) -> bool:
        return self._clock.now < self._shunned.get(key, 0.0)

    def readmit(self, key: bytes) -> None:
        self._shunned.pop(key, None)
