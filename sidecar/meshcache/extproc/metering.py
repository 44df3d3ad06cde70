"""What engine and tiers report, turned into metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshcache.decisions import CollapseOutcome, RefreshCause, RefreshOutcome, Stage, TierName
    from meshcache.observe.metrics import Metrics
    from meshcache.tiers.hooks import ChunkEvent


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


class TierMeter:
    """The tiers' `TierHooks` over this process's metrics; a tier that is given up or taken back is logged, once."""

    def __init__(self, metrics: Metrics, on_breaker: Callable[[TierName, bool], None]) -> None:
        self._metrics = metrics
        self._on_breaker = on_breaker

    def tier_error(self, tier: TierName, kind: str) -> None:
        """See `TierHooks`."""
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
        self._on_breaker(tier, opened)

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
