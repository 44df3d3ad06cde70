"""What a simulation has shown, as values: for the table, for JSON and for the report. Names in JSON are camelCase."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from meshcache.decisions import CollapseOutcome, TierName
from meshcache.simulate.tally import Arm, Tally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshcache.simulate.replay import Replay


class TierHits(msgspec.Struct, rename="camel"):
    """What one tier has answered."""

    requests: int
    bytes: int
    ratio: float
    """Of all requests."""
    byte_ratio: float
    """Of all bytes that clients got."""


class Spread(msgspec.Struct, rename="camel"):
    """Mean and quantiles in seconds; None where there is nothing to take them of."""

    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None


class Counts(msgspec.Struct, rename="camel"):
    """What became of the requests of one arm, or of all."""

    requests: int
    bytes: int
    hit_ratio: float
    byte_hit_ratio: float
    tiers: dict[str, TierHits]
    decisions: dict[str, int]
    origin_requests: int
    """Those that clients waited for."""
    origin_bytes: int
    stale: int
    """Answers that were past their freshness."""
    staleness: Spread
    """By how much."""
    outdated: int
    """Answers of another version than the origin had by then."""
    errors: int
    latency: Spread


class ArmCounts(msgspec.Struct, rename="camel"):
    """One arm of an experiment, or one route without an experiment."""

    route: str
    experiment: str
    arm: str
    policy: str
    counts: Counts


class TierMemory(msgspec.Struct, rename="camel"):
    """What a tier held at most."""

    budget: int
    peak_bytes: int
    peak_entries: int | None
    """None where it is not counted."""
    evicted: dict[str, int]
    """Entries that left without being asked to: `capacity` for want of room, `expired`."""


class OverTime(msgspec.Struct, rename="camel"):
    """Requests and hits in windows of time, one after the other."""

    start: float
    """Unix seconds."""
    window: float
    """Seconds."""
    requests: list[int]
    hits: list[int]


class PolicyResult(msgspec.Struct, rename="camel"):
    """How one policy set, or one policy, did."""

    name: str
    total: Counts
    refresh_requests: int
    """Requests to the origin that no client waited for."""
    refresh_bytes: int
    refreshes: dict[str, int]
    collapsed: int
    """Requests that got what another one had fetched."""
    stored: dict[str, int]
    """What became of what the origin sent: `stored`, or why it was not."""
    memory: dict[str, TierMemory]
    arms: list[ArmCounts]
    """By route and by what decides there; of a route with several experiments by combination of arms."""
    layers: list[ArmCounts]
    """Where several experiments are on a route: each arm of each, whatever the others' arms. No policy is named."""
    over_time: OverTime
    troubles: dict[str, int]
    """What tiers could not do."""
    missing_units: int

    @property
    def origin_requests(self) -> int:
        """All that reached the origin."""
        return self.total.origin_requests + self.refresh_requests

    @property
    def origin_bytes(self) -> int:
        """All that it sent."""
        return self.total.origin_bytes + self.refresh_bytes


class CurveResult(msgspec.Struct, rename="camel"):
    """The miss ratio of an LRU cache without expiry, by its size."""

    capacity_bytes: list[int]
    miss_ratio: list[float]


class TraceResult(msgspec.Struct, rename="camel"):
    """What was replayed."""

    name: str
    format: str
    requests: int
    objects: int
    bytes: int
    seconds: float
    """From the first request to the last."""
    bad_lines: int
    first_bad_lines: list[tuple[int, str]]


class SimulationResult(msgspec.Struct, rename="camel"):
    """All of it."""

    trace: TraceResult
    policies: list[PolicyResult]
    curve: CurveResult


def policy_result(name: str, replay: Replay) -> PolicyResult:
    """What a replay that is over has counted."""
    total = Tally()
    for tally in replay.tallies.values():
        total.merge(tally)
    world, meter, line = replay.world, replay.meter, replay.timeline
    evicted = world.hooks.evicted_from

    def memory(tier: TierName, budget: int, peak: int, entries: int | None) -> TierMemory:
        gone = {reason: count for (where, reason), count in evicted.items() if where is tier}
        return TierMemory(budget, peak, entries, gone)

    return PolicyResult(
        name=name,
        total=_counts(total),
        refresh_requests=replay.refresh_requests,
        refresh_bytes=replay.refresh_bytes,
        refreshes={str(outcome): count for outcome, count in meter.refreshes.items()},
        collapsed=meter.collapses[CollapseOutcome.ANSWERED],
        stored={str(outcome): count for outcome, count in meter.stores.items()},
        memory={
            "hot": memory(TierName.HOT, world.memory.budget_bytes, world.memory.peak_bytes, world.memory.peak_entries),
            "warm": memory(TierName.WARM, world.warm.max_bytes, world.warm.peak_bytes, None),
            "cold": memory(TierName.COLD, world.cold.max_bytes, world.cold.peak_bytes, None),
        },
        arms=[_arm(arm, tally) for arm, tally in sorted(replay.tallies.items())],
        layers=[_arm(arm, tally) for arm, tally in sorted(_by_layer(replay.tallies).items())],
        over_time=OverTime(line.start, line.width, line.requests, line.hits),
        troubles=dict(world.hooks.errors),
        missing_units=meter.missing_units,
    )


def _by_layer(tallies: Mapping[Arm, Tally]) -> dict[Arm, Tally]:
    found: dict[Arm, Tally] = {}
    for combined, tally in tallies.items():
        # As `policy.selection` joins the names of several.
        names = combined.experiment.split("+")
        for experiment, arm in zip(names, combined.arm.split("+"), strict=True) if len(names) > 1 else ():
            found.setdefault(Arm(combined.route, experiment, arm), Tally()).merge(tally)
    return found


def _arm(arm: Arm, tally: Tally) -> ArmCounts:
    return ArmCounts(arm.route, arm.experiment, arm.arm, arm.policy, _counts(tally))


def _counts(tally: Tally) -> Counts:
    requests, size = tally.requests, tally.bytes
    return Counts(
        requests=requests,
        bytes=size,
        hit_ratio=_share(sum(tally.hits.values()), requests),
        byte_hit_ratio=_share(sum(tally.hit_bytes.values()), size),
        tiers={
            str(tier): TierHits(
                tally.hits[tier],
                tally.hit_bytes[tier],
                _share(tally.hits[tier], requests),
                _share(tally.hit_bytes[tier], size),
            )
            for tier in TierName
        },
        decisions={str(decision): count for decision, count in sorted(tally.decisions.items())},
        origin_requests=tally.origin_requests,
        origin_bytes=tally.origin_bytes,
        stale=tally.stale,
        staleness=Spread(tally.staleness.mean(), *tally.staleness.at(0.5, 0.95, 0.99)),
        outdated=tally.outdated,
        errors=tally.errors,
        latency=Spread(tally.latency.mean(), *tally.latency.at(0.5, 0.95, 0.99)),
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
