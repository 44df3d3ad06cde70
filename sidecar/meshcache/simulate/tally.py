"""What a replay counts, request by request."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from meshcache.decisions import Decision, TierName
from meshcache.simulate.quantiles import Quantiles

if TYPE_CHECKING:
    from meshcache.decisions import CollapseOutcome, RefreshCause, RefreshOutcome, Stage
    from meshcache.policy.snapshot import Selection

HITS: Final = frozenset({Decision.HIT, Decision.STALE_SWR})
"""Answered from what is stored, at once and without the origin."""
STALE: Final = frozenset({Decision.STALE_SWR, Decision.STALE_IF_ERROR})
CONFIRMED: Final = frozenset({Decision.REVALIDATED, Decision.REFETCHED, Decision.COMPLETED, Decision.COLLAPSED})
"""What the origin has just said is not stale, whatever lifetime it gives it; as `engine.account` has it."""
_WINDOWS: Final = 128


class Outcome(NamedTuple):
    """What became of one request."""

    decision: Decision
    tier: TierName | None
    """Where its answer was stored; None for one that came from the origin."""
    size: int
    """Bytes of the body that the client got."""
    latency: float
    """Seconds."""
    asked_origin: bool
    stale_for: float
    """Seconds by which the answer was past its freshness."""
    outdated: bool
    """Whether the origin would have sent another version by then."""
    error: bool
    """Whether the client got a status of 500 or more."""


class _Row:
    """What requests have in common that count alike."""

    __slots__ = ("bytes", "requests", "sent")

    def __init__(self) -> None:
        self.requests = 0
        self.bytes = 0
        """Of bodies that clients got."""
        self.sent = 0
        """Bytes of bodies that the origin sent."""


class Tally:
    """Counts of one arm, or of requests without one."""

    def __init__(self) -> None:
        # Requests are counted where they differ, and added up when someone asks: there are millions of them.
        self._rows: defaultdict[tuple[Decision, TierName | None, bool], _Row] = defaultdict(_Row)
        self.stale = 0
        self.outdated = 0
        self.errors = 0
        self.staleness = Quantiles()
        """Seconds past freshness, of stale answers."""
        self.latency = Quantiles()
        """Seconds."""

    def add(
        self,
        decision: Decision,
        tier: TierName | None,
        size: int,
        latency: float,
        asked: bool,
        sent: int,
        stale_for: float,
        outdated: bool,
        error: bool,
    ) -> None:
        """Take in one request: the parts of an `Outcome`, which to make for each would cost as much as to count it."""
        row = self._rows[decision, tier, asked]
        row.requests += 1
        row.bytes += size
        if asked:
            row.sent += sent
        if stale_for > 0.0 or decision in STALE:
            self.stale += 1
            self.staleness.add(stale_for)
        if outdated:
            self.outdated += 1
        if error:
            self.errors += 1
        self.latency.add(latency)

    @property
    def requests(self) -> int:
        """How many there were."""
        return sum(row.requests for row in self._rows.values())

    @property
    def bytes(self) -> int:
        """Of the bodies that clients got."""
        return sum(row.bytes for row in self._rows.values())

    @property
    def decisions(self) -> Counter[Decision]:
        """Requests by what was done with them."""
        found: Counter[Decision] = Counter()
        for (decision, _, _), row in self._rows.items():
            found[decision] += row.requests
        return found

    @property
    def hits(self) -> Counter[TierName]:
        """Requests that were answered by each tier, at once and without the origin."""
        return Counter({tier: sum(row.requests for row in rows) for tier, rows in self._of_hits().items()})

    @property
    def hit_bytes(self) -> Counter[TierName]:
        """Of the bodies of these answers."""
        return Counter({tier: sum(row.bytes for row in rows) for tier, rows in self._of_hits().items()})

    @property
    def origin_requests(self) -> int:
        """How many the origin was asked for."""
        return sum(row.requests for (_, _, asked), row in self._rows.items() if asked)

    @property
    def origin_bytes(self) -> int:
        """Of the bodies that the origin sent."""
        return sum(row.sent for row in self._rows.values())

    def _of_hits(self) -> dict[TierName, list[_Row]]:
        found: dict[TierName, list[_Row]] = {}
        for (decision, tier, asked), row in self._rows.items():
            if tier is not None and decision in HITS and not asked:
                found.setdefault(tier, []).append(row)
        return found

    def merge(self, other: Tally) -> None:
        """Take in all that another has counted."""
        for kind, row in other._rows.items():
            mine = self._rows[kind]
            mine.requests += row.requests
            mine.bytes += row.bytes
            mine.sent += row.sent
        self.stale += other.stale
        self.outdated += other.outdated
        self.errors += other.errors
        self.staleness.merge(other.staleness)
        self.latency.merge(other.latency)


class Timeline:
    """Requests and hits by time, in at most 128 windows that grow wider as the trace goes on."""

    def __init__(self, start: float, width: float = 1.0) -> None:
        """`start` is Unix seconds, `width` the first width of a window in seconds."""
        self.start = start
        self.width = width
        self.requests = [0]
        self.hits = [0]
        self._place, self._from, self._until = 0, 0.0, width
        """The window of the request before, and when it begins and ends: most are in the same."""

    def add(self, when: float, hit: bool) -> None:
        """Take in one request."""
        since = when - self.start
        if not self._from <= since < self._until:
            self._turn_to(since)
        self.requests[self._place] += 1
        if hit:
            self.hits[self._place] += 1

    def _turn_to(self, since: float) -> None:
        """Find the window so many seconds after the start, or make it."""
        place = int(since / self.width) if since > 0.0 else 0
        while place >= _WINDOWS:
            self.requests, self.hits = _in_pairs(self.requests), _in_pairs(self.hits)
            self.width *= 2
            place = int(since / self.width)
        if place >= len(self.requests):
            missing = [0] * (place + 1 - len(self.requests))
            self.requests += missing
            self.hits += missing
        self._place, self._from, self._until = place, place * self.width, (place + 1) * self.width


def _in_pairs(counts: list[int]) -> list[int]:
    return [sum(counts[at : at + 2]) for at in range(0, len(counts), 2)]


class Arm(NamedTuple):
    """Whose requests a tally counts. All empty for those that are not looked up."""

    route: str = ""
    experiment: str = ""
    arm: str = ""
    policy: str = ""

    @classmethod
    def of(cls, selection: Selection | None) -> Arm:
        """The arm of a request that the policies see so."""
        if selection is None or selection.policy is None:
            return _NONE
        return cls(selection.route, selection.experiment, selection.arm, selection.policy.name)


_NONE: Final = Arm()


class SimulationMeter:
    """Implements `engine.ports.Meter`: what the engine tells besides its decisions."""

    def __init__(self) -> None:
        self.stores: Counter[str] = Counter()
        self.refreshes: Counter[str] = Counter()
        self.collapses: Counter[str] = Counter()
        self.missing_units = 0

    def request(self, decision: str, reason: str, tier: str, route: str, arm: str) -> None:
        """Do nothing: outcomes are counted as the client sees them."""

    def stored(self, outcome: str) -> None:
        """See `Meter`."""
        self.stores[outcome] += 1

    def stage(self, stage: Stage, seconds: float) -> None:
        """Do nothing: the engine takes no time here."""

    def collapsed(self, outcome: CollapseOutcome) -> None:
        """See `Meter`."""
        self.collapses[outcome] += 1

    def refreshed(self, outcome: RefreshOutcome, cause: RefreshCause) -> None:  # noqa: ARG002 - one count for all
        """See `Meter`."""
        self.refreshes[outcome] += 1

    def served(self, tier: TierName, size: int) -> None:
        """Do nothing: outcomes are counted as the client sees them."""

    def missing_unit(self, experiment: str) -> None:  # noqa: ARG002 - one count for all
        """See `Meter`."""
        self.missing_units += 1
