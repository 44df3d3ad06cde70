"""Which process asks the origin: leases for the herds of this one, among the workers of the pod and among pods.

A leader here takes the key's lease on the pod's board, which is a matter of memory, and where pods share a store, its
lease there, which is a round trip. When another process has one of them, the herd waits and looks again and again,
sooner at first. When the lease comes free, the first in the queue goes on: it looks the answer up before it asks the
origin, and finds what the other process has stored.

Whoever gets a lease is told when the one before it was given back with an answer stored. It may have looked before
that, and looks again. So one request goes to the origin though the look-up and the lease are two steps.

What turned out not to be for sharing is shunned for a while (hit-for-miss): its requests are not collapsed.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from meshcache.decisions import CollapseOutcome
from meshcache.engine.collapse.herds import Herds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshcache.engine.collapse.herd import Herd, Member
    from meshcache.engine.lookup import Candidate
    from meshcache.engine.ports import FleetLeases, Meter, PodLeases, Spawn, Waits

SLOTS: Final = 8
"""How many requests for one key a pod has at the origin at a time while it releases those that waited.

It is what browsers and most clients take for a polite number of connections to one host, and enough to empty a queue of
500 in seconds at an origin that takes 50 ms."""
LEASE_SECONDS: Final = 60.0
"""How long a leader may keep others from trying; a process that dies in the middle loses its leases much sooner."""
SHUN_SECONDS: Final = 30.0
"""For how long an answer that was not for sharing keeps requests from waiting for the next one."""
SHUN_FAILED_SECONDS: Final = 1.0
"""The same after failures, which may soon be over."""
_FIRST_LOOK: Final = 0.004
"""Seconds after which another process's lease is looked at for the first time: a write to a file takes so long."""
_LAST_LOOK: Final = 0.05
"""Seconds between two looks in the end, for the pod's leases."""
_LAST_FLEET_LOOK: Final = 0.1
"""The same for those of the fleet, where a look is a round trip."""
_TRIES: Final = 5
"""Another process may be at the place of a lease for some microseconds, for this key or another one."""
_STOPPED: Final = 0.5
"""Seconds for which it is waited for where the kernel lets others run just then, as on a busy machine."""


class Leadership:
    """The herds of one process and its leases for them. Belongs to one event loop."""

    def __init__(
        self,
        *,
        leases: PodLeases,
        fleet: FleetLeases | None,
        spawn: Spawn,
        waits: Waits,
        meter: Meter,
        when_written: Callable[[Sequence[bytes], Callable[[], None]], None],
        workers: int,
    ) -> None:
        """`fleet` is None where no store is shared with other pods.

        `when_written` calls back as soon as no write of some storage keys waits or is under way.
        """
        self._leases = leases
        self._fleet = fleet
        self._spawn = spawn
        self._waits = waits
        self._meter = meter
        self._when_written = when_written
        self._has_siblings = workers > 1
        self._herds = Herds(slots=max(1, SLOTS // workers), waits=waits, settle=self._settle)

    def now(self) -> float:
        """The time by which patience is measured."""
        return self._waits.now()

    def join(
        self,
        key: bytes,
        patience: float,
        fits: Callable[[Candidate], bool],
        stands_in: Callable[[], bool],
        *,
        whole: bool = True,
    ) -> Member | None:
        """Join the herd of `key`; None when its requests are not collapsed. See `Herds.join`."""
        if self._leases.shunned(key):
            self._meter.collapsed(CollapseOutcome.HIT_FOR_MISS)
            return None
        member = self._herds.join(key, patience, fits, stands_in, whole=whole)
        if member is None or member.waits or member.herd.open:
            return member
        if self._has_siblings and not self._take(member.herd, patient=True):
            self._follow(member.herd)
        return member

    async def confirm(self, member: Member) -> None:
        """Ask the other pods whether `member` may lead; if not, it waits from now on.

        To be called, by one that leads, before it goes to the origin. Without a shared store it does nothing.
        """
        herd, fleet = member.herd, self._fleet
        if fleet is None or member.waits or herd.open or herd.fleet is not None:
            return
        lease = await fleet.acquire(herd.key, LEASE_SECONDS)
        if herd.closed:
            if lease is not None:
                self._spawn(fleet.release(lease))
        elif lease is None:
            self._follow(herd)
        elif lease.shunned:
            self._leases.shun(herd.key, SHUN_SECONDS)
            self._herds.open(herd)
        else:
            herd.fleet = lease
            self._learn(herd, lease.answered)

    @property
    def asks_others(self) -> bool:
        """Whether `confirm` has anybody to ask."""
        return self._fleet is not None

    def shun(self, key: bytes, seconds: float) -> None:
        """What came for `key` is not for sharing."""
        self._leases.shun(key, seconds)

    def readmit(self, key: bytes) -> None:
        """An answer for `key` is for sharing again."""
        self._leases.readmit(key)

    def _follow(self, herd: Herd) -> None:
        self._herds.follow(herd)
        self._spawn(self._watch(herd))

    async def _watch(self, herd: Herd) -> None:
        """Look until the other process is done, for as long as someone waits."""
        pause = _FIRST_LOOK
        began = self._waits.now()
        try:
            while True:
                await self._waits.sleep(pause)
                if herd.closed or herd.open:
                    return
                if self._leases.shunned(herd.key):
                    self._herds.open(herd)
                elif await self._takes_over(herd, patient=self._waits.now() - began < _STOPPED):
                    # Whoever goes on now looks first.
                    herd.answered_before = -inf
                    self._herds.lead(herd)
                    return
                of_pod = self._fleet is None or (self._has_siblings and herd.pod is None)
                pause = min(1.5 * pause, _LAST_LOOK if of_pod else _LAST_FLEET_LOOK)
        finally:
            if herd.closed or herd.open:
                # What was taken while the last one left.
                self._settle(herd)

    def _take(self, herd: Herd, *, patient: bool) -> bool:
        """Take the pod's lease, unless it is held already; False while another process has it.

        Also while one is at its place, if `patient`: nobody else can see then who has it.
        """
        for _ in range(_TRIES):
            if herd.pod is None:
                herd.pod = lease = self._leases.lease(herd.key, LEASE_SECONDS)
                if lease is not None:
                    self._learn(herd, lease.answered)
            if herd.pod is not None:
                return True
            if self._leases.leased(herd.key):
                return False
        # Without room for another lease: better two requests to the origin than none.
        return not (patient and self._leases.has_room(herd.key))

    def _learn(self, herd: Herd, seconds: float) -> None:
        """The lease that this process now has for a herd was given back so long ago with an answer stored."""
        herd.answered_before = max(herd.answered_before, self._waits.now() - seconds)

    async def _takes_over(self, herd: Herd, *, patient: bool) -> bool:
        """Whether this process has the leases, as far as there are any to have; see `_take`."""
        if self._has_siblings and not self._take(herd, patient=patient):
            return False
        fleet = self._fleet
        if fleet is None:
            return True
        lease = await fleet.acquire(herd.key, LEASE_SECONDS)
        if lease is None:
            return False
        if lease.shunned:
            self._leases.shun(herd.key, SHUN_SECONDS)
            self._herds.open(herd)
            return False
        herd.fleet = lease
        return True

    def _settle(self, herd: Herd) -> None:
        """Give the leases back: at once, or when the answer can be found by those who wait for it."""
        if herd.pod is None and herd.fleet is None:
            return
        pod, fleet, herd.pod, herd.fleet = herd.pod, herd.fleet, None, None
        answered = herd.answered

        def give_back() -> None:
            if pod is not None:
                self._leases.release(pod, answered=answered)
            if fleet is not None and self._fleet is not None:
                shun = SHUN_SECONDS if self._leases.shunned(herd.key) else 0.0
                self._spawn(self._fleet.release(fleet, shun=shun, answered=answered))

        if herd.written:
            self._when_written(herd.written, give_back)
        else:
            give_back()
