"""One process's cache: what all exchanges share, and the policies in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.engine.collapse.leadership import Leadership
from meshcache.engine.exchange import Exchange
from meshcache.engine.flights import Flights
from meshcache.engine.no_fleet import NoFleet
from meshcache.engine.pools import UNDIVIDED, Division
from meshcache.engine.refresh.background import LONGEST_RETRY_SECONDS, RETRY_SECONDS, Refreshes
from meshcache.engine.refresh.backoff import Backoff
from meshcache.engine.refresh.completion import Completions
from meshcache.engine.storing.fill import CopyBudget
from meshcache.engine.storing.keeper import Keeper
from meshcache.policy.shares import CapacityShares, capacity_shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from meshcache.decisions import RefreshCause
    from meshcache.engine.lookup import Candidate
    from meshcache.engine.ports import FleetLeases, Meter, PodLeases, Refresher, Renderer, Spawn, Waits
    from meshcache.engine.target import Target
    from meshcache.message import Request
    from meshcache.policy.compiled import KeySpec
    from meshcache.policy.snapshot import Snapshot
    from meshcache.tiers.stack import TierStack

_KEY_SPECS_KEPT = 64
"""Ways of keying a URI that invalidation goes on to reach; a policy set seldom has more than a few."""


class Cache:
    """The cache behind one ext_proc server. Belongs to one event loop; policies are swapped between requests."""

    def __init__(
        self,
        *,
        stack: TierStack,
        leases: PodLeases,
        refresher: Refresher | None,
        meter: Meter,
        clock: Callable[[], float],
        spawn: Spawn,
        waits: Waits,
        render: Renderer,
        copy_bytes: int,
        fleet: FleetLeases | None = None,
        flights: Flights | None = None,
        workers: int = 1,
        on_invalid: Callable[[frozenset[bytes]], None] = lambda _resources: None,
    ) -> None:
        """`clock` gives Unix seconds; `copy_bytes` bounds the bodies that are being copied at one time.

        `leases` are the pod's, `fleet` those of all pods; None when there is nothing that they share. `flights` bounds
        the large answers that are on their way. `workers`: how many processes the pod's requests are spread over.
        `on_invalid` is told of resource ids whose answers elsewhere in this pod, in Envoy, are not to be used any more.
        """
        self.snapshot: Snapshot | None = None
        """The policies in force; see `install`."""
        self.shares = CapacityShares(1.0)
        """How the capacity of the tiers is divided under them."""
        self._key_specs: dict[bytes, KeySpec] = {}
        self.on_invalid = on_invalid
        self.stack = stack
        self.refresher = refresher
        self.meter = meter
        self.clock = clock
        self.copies = CopyBudget(copy_bytes)
        self.flights = flights or Flights(clock)
        self.keeper = Keeper(
            stack, meter, render, clock, self.copies, on_gone=lambda resources: self.on_invalid(resources)
        )
        self._failures = Backoff(first=RETRY_SECONDS, longest=LONGEST_RETRY_SECONDS)
        """Entries that have just stood in for an error of the origin: they do so again without asking it each time."""
        self.completions = Completions(self, leases)
        self.leadership = Leadership(
            leases=leases,
            fleet=fleet,
            spawn=spawn,
            waits=waits,
            meter=meter,
            when_written=stack.when_written,
            workers=workers,
        )
        self._refreshes = Refreshes(self, leases, fleet or NoFleet(), spawn)

    def install(self, snapshot: Snapshot) -> None:
        """Put policies in force for every request that begins from now on. May be called from another thread."""
        self.expect(snapshot)
        self.swap(snapshot)

    def expect(self, snapshot: Snapshot) -> None:
        """Make ready for policies that are about to be put in force. May be called from another thread.

        How the sets before keyed their URIs is remembered: an edit may be taken back while entries of then are still
        fresh, and what was invalidated meanwhile must not come back with it.
        """
        specs = {spec.fingerprint: spec for spec in (policy.key for policy in snapshot.in_use)}
        older = [item for item in self._key_specs.items() if item[0] not in specs]
        self._key_specs = dict([*specs.items(), *older][: max(_KEY_SPECS_KEPT, len(specs))])
        # Before any of them serves: what was purged by a URL is to be found as they key it.
        self.stack.install_keying(self._key_specs.values())

    def swap(self, snapshot: Snapshot) -> None:
        """Put policies in force for which `expect` was called, and divide capacity as they do. From any thread."""
        shares = self.shares = capacity_shares(snapshot)
        arms = {arm.pool: arm.fraction for arm in shares.arms}
        self.stack.divide(Division(arms, shares.common, shares.joined) if arms or shares.joined else UNDIVIDED)
        self.snapshot = snapshot

    def open(self, request: Request) -> Exchange:
        """Begin with a request, under the policies now in force."""
        return Exchange(self, request)

    def refresh(self, target: Target, candidate: Candidate, cluster: str, cause: RefreshCause) -> None:
        """Bring an entry up to date in the background, once for all that ask for it meanwhile.

        `cluster` is where the origin is asked, as `refresh_way` has it.
        """
        self._refreshes.begin(target, candidate, cluster, cause)

    def failed(self, storage: bytes, now: float, *, unreachable: bool) -> None:
        """What is stored there has stood in for an error of the origin, or for want of one that can be reached."""
        self._failures.failed(_of_failure(storage, unreachable), now)

    def succeeded(self, storage: bytes) -> None:
        """The origin has given an answer that is no error."""
        for unreachable in (False, True):
            self._failures.succeeded(_of_failure(storage, unreachable))

    def has_just_failed(self, storage: bytes, now: float, *, unreachable: bool) -> bool:
        """Whether it has stood in so short a time ago that the origin need not be asked again."""
        return self._failures.rests(_of_failure(storage, unreachable), now)

    def retire(self) -> None:
        """The process is about to end: answer as before, and begin no more refreshes."""
        self._refreshes.close()

    @property
    def key_specs(self) -> Iterable[KeySpec]:
        """How the policies in force, and those before them, key a URI: what an invalidation has to reach."""
        return self._key_specs.values()


def _of_failure(storage: bytes, unreachable: bool) -> bytes:
    return storage + (b"u" if unreachable else b"e")
