"""What engine and tiers report, turned into metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from meshcache.decisions import CollapseOutcome, RefreshCause, RefreshOutcome, Stage, TierName
    from meshcache.observe.metrics import Metrics
    from meshcache.policy.shares import ArmShare
    from meshcache.tiers.hooks import ChunkEvent
    from meshcache.tiers.memory import PoolUse


class EngineMeter:
    """The engine's `Meter` over this process's metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def request(self, decision: str, reason: str, tier: str, route: str, arm: str) -> None:
        """See `Meter`."""
        self._metrics.inc("requests_total", (decision, reason, tier, route, arm))

    def stored(self, outcome: str) -> None:
        """See `Meter`."""
        self._metrics.inc("store_total", (outcome,))

    def stage(self, stage: Stage, seconds: float) -> None:
        """See `Meter`."""
        self._metrics.observe("request_stage_seconds", (stage,), seconds)

    def collapsed(self, outcome: CollapseOutcome) -> None:
        """See `Meter`."""
        self._metrics.inc("collapses_total", (outcome,))

    def refreshed(self, outcome: RefreshOutcome, cause: RefreshCause) -> None:
        """See `Meter`."""
        self._metrics.inc("refreshes_total", (outcome, cause))

    def served(self, tier: TierName, size: int) -> None:
        """See `Meter`."""
        self._metrics.inc("bytes_total", ("out", tier), size)

    def missing_unit(self, experiment: str) -> None:
        """See `Meter`."""
        self._metrics.inc("missing_units_total", (experiment,))


class PoolMeter:
    """What the arms of experiments take of process memory, over this process's metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._evicted: dict[bytes, int] = {}
        self._shown: set[tuple[str, str]] = set()

    def report(self, uses: Iterable[PoolUse], arms: Iterable[ArmShare]) -> None:
        """Bring the metrics of all arms up to date; those of arms that have gone are 0 from now on."""
        names = {arm.pool: (arm.route, arm.arm) for arm in arms}
        there = [(use, names[use.pool]) for use in uses if use.pool in names]
        for labels in self._shown - set(names.values()):
            for gauge in ("arm_hot_bytes", "arm_hot_budget_bytes", "arm_hot_entries"):
                self._metrics.set(gauge, labels, 0)
        for use, labels in there:
            self._metrics.set("arm_hot_bytes", labels, use.bytes)
            self._metrics.set("arm_hot_budget_bytes", labels, use.budget)
            self._metrics.set("arm_hot_entries", labels, use.entries)
            before = self._evicted.get(use.pool, 0)
            # A pool that has gone and come back counts anew.
            self._metrics.inc("arm_hot_evictions_total", labels, use.evicted - before * (before <= use.evicted))
        self._shown = set(names.values())
        self._evicted = {use.pool: use.evicted for use, _ in there}


class TierMeter:
    """The tiers' `TierHooks` over this process's metrics; a tier that is given up or taken back is logged, once."""

    def __init__(self, metrics: Metrics, on_breaker: Callable[[TierName, bool, str], None]) -> None:
        """`on_breaker` is told of the tier, whether it is given up, and the kind of its newest error."""
        self._metrics = metrics
        self._on_breaker = on_breaker
        self._kinds: dict[TierName, str] = {}

    def tier_error(self, tier: TierName, kind: str) -> None:
        """See `TierHooks`."""
        self._kinds[tier] = str(kind)
        self._metrics.inc("tier_errors_total", (tier, kind))

    def entry_refused(self, tier: TierName, reason: str) -> None:
        """See `TierHooks`."""
        self._metrics.inc("entries_refused_total", (tier, reason))

    def evicted(self, tier: TierName, reason: str, count: int) -> None:
        """See `TierHooks`."""
        self._metrics.inc("evictions_total", (tier, reason), count)

    def write_dropped(self, tier: TierName, reason: str) -> None:
        """See `TierHooks`."""
        self._metrics.inc("tier_errors_total", (tier, f"write-{reason}"))

    def breaker(self, tier: TierName, opened: bool) -> None:
        """See `TierHooks`."""
        self._metrics.set("tier_breaker_open", (tier,), float(opened))
        self._on_breaker(tier, opened, self._kinds.get(tier, ""))

    def stage(self, stage: Stage, seconds: float) -> None:
        """See `TierHooks`."""
        self._metrics.observe("request_stage_seconds", (stage,), seconds)

    def moved(self, direction: Literal["read", "written"], tier: TierName, size: int) -> None:
        """See `TierHooks`."""
        if direction == "written":
            self._metrics.inc("bytes_total", ("in", tier), size)

    def chunks(self, tier: TierName, event: ChunkEvent, count: int = 1) -> None:
        """See `TierHooks`."""
        self._metrics.inc("chunks_total", (tier, event), count)
