"""What the admin API and `meshcache experiment` show of experiments. Times are Unix seconds; None: not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from meshcache.experiment.findings import ArmNumbers, alpha, needed_units, stages
from meshcache.experiment.guardrails import standing
from meshcache.experiment.overlay import Phase
from meshcache.experiment.stages import weights_of
from meshcache.experiment.state import Decided, Decision, known

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshcache.experiment.findings import Estimate, Findings
    from meshcache.experiment.state import Record
    from meshcache.policy.compiled import Experiment


class ArmView(msgspec.Struct, frozen=True, rename="camel"):
    """One arm."""

    name: str
    policy: str
    share: float
    """Of all units, in force."""
    role: str
    """`candidate`, `against`, or empty."""
    units: int
    requests: int
    hit_ratio: float | None
    latency_mean: float | None
    """Seconds."""
    latency_p99: float | None
    errors: int
    origin_requests: int
    cost_saved: float
    """In the currency of its policy."""


class EstimateView(msgspec.Struct, frozen=True, rename="camel"):
    """A metric of the candidate beside that of the arm that it is held against."""

    metric: str
    role: str
    """`primary` or `guardrail`."""
    relative: bool
    """Whether the change and what is allowed are shares of what the other arm has."""
    candidate: float | None
    against: float | None
    change: float | None
    low: float | None
    """Lower end of the confidence sequence; None: no end, or nothing is known."""
    high: float | None
    wanted: str
    """`increase` or `decrease`, of the primary metric."""
    allowed: float | None
    """Change to the bad side that is allowed, negative for a decrease."""
    hold: float
    """Seconds that a breach has to last."""
    min_units: int
    state: str
    """`Held`, `Breached` or `Inconclusive`; of the primary metric `Better`, `Worse` or `Inconclusive`."""
    breached_for: float
    """Seconds."""
    lack: str = ""
    """Why nothing can be said, where nothing can (docs/statistics.md)."""


class ExperimentView(msgspec.Struct, frozen=True, rename="camel"):
    """One experiment."""

    name: str
    route: str
    spec_hash: str
    phase: str
    stage: int
    """1 for the first."""
    stages: int
    stage_since: float
    stage_seconds: float | None
    """How long the stage lasts; None where there is none."""
    warmup: float
    epoch: int
    counting: bool
    winner: str
    confidence: float
    each_alpha: float
    """How often each single bound may be wrong, so that all together are as good as the confidence."""
    arms: tuple[ArmView, ...]
    estimates: tuple[EstimateView, ...]
    p_value: float | None
    """Of the sample-ratio test."""
    mismatch: bool
    missing: tuple[str, ...]
    """What a verdict waits for."""
    decisions: tuple[Decision, ...]
    leads: bool
    """Whether the process that was asked is the one that decides."""
    connected: bool
    """Whether it has what was decided last from the store."""
    store: str
    version: int


class ExperimentLine(msgspec.Struct, frozen=True, rename="camel"):
    """One experiment, in short."""

    name: str
    route: str
    phase: str
    stage: int
    stages: int
    shares: dict[str, float]
    since: float
    """Of the newest decision."""
    decided: str
    reason: str
    winner: str


class ExperimentList(msgspec.Struct, frozen=True, rename="camel"):
    """All of them."""

    experiments: tuple[ExperimentLine, ...]
    leads: bool
    connected: bool
    store: str


NOT_YET = "Pending"
"""The phase of an experiment about which nothing has been decided yet."""


def line(experiment: Experiment, record: Record | None) -> ExperimentLine:
    """In short."""
    weights = weights_of(experiment, 0) if record is None else record.weights
    last = record.decisions[-1] if record is not None and record.decisions else None
    return ExperimentLine(
        name=experiment.name,
        route=experiment.route,
        phase=NOT_YET if record is None else record.phase,
        stage=1 if record is None else record.stage + 1,
        stages=stages(experiment),
        shares=dict(zip((arm.name for arm in experiment.arms), _shares(weights), strict=True)),
        since=0.0 if last is None else last.at,
        decided="" if last is None else last.what,
        reason="" if last is None else last.reason,
        winner="" if record is None else record.winner,
    )


def view(
    experiment: Experiment,
    record: Record | None,
    findings: Findings | None,
    numbers: Sequence[ArmNumbers],
    now: float,
    *,
    leads: bool,
    connected: bool,
    store: str,
) -> ExperimentView:
    """All of it."""
    weights = weights_of(experiment, 0) if record is None else record.weights
    stage = 0 if record is None else record.stage
    return ExperimentView(
        name=experiment.name,
        route=experiment.route,
        spec_hash=experiment.spec_hash,
        phase=NOT_YET if record is None else record.phase,
        stage=stage + 1,
        stages=stages(experiment),
        stage_since=0.0 if record is None else record.stage_since,
        stage_seconds=experiment.ramp[stage].seconds if experiment.ramp else None,
        warmup=experiment.warmup,
        epoch=0 if record is None else record.epoch,
        counting=record is not None and record.counting,
        winner="" if record is None else record.winner,
        confidence=experiment.confidence,
        each_alpha=alpha(experiment),
        arms=_arms(experiment, weights, numbers),
        estimates=_estimates(experiment, record, findings, now),
        p_value=None if findings is None else known(findings.p_value),
        mismatch=findings is not None and findings.mismatch,
        missing=tuple(missing(experiment, record, findings, now)),
        decisions=() if record is None else record.decisions,
        leads=leads,
        connected=connected,
        store=store,
        version=0 if record is None else record.version,
    )


def missing(experiment: Experiment, record: Record | None, findings: Findings | None, now: float) -> list[str]:
    """What a verdict waits for, one sentence each; nothing when nothing is waited for."""
    if record is None:
        return ["a process that decides: nobody has begun yet"]
    if record.phase is Phase.PAUSED:
        return [f"a person: `meshcache experiment resume {record.name}`, stop, rollback or promote"]
    if record.phase is Phase.WARMING:
        left = max(0.0, record.stage_since + experiment.warmup - now)
        return [f"the end of the warm-up, in {left:.0f} s"]
    if record.phase is not Phase.RUNNING or experiment.compare is None:
        return []
    candidate = experiment.compare.candidate
    if not record.weights[candidate]:
        return [f"a weight above 0 for the arm {experiment.arms[candidate].name}"]
    if findings is None or not any(findings.requests):
        return ["requests that are counted"]
    waits = []
    needed = needed_units(experiment)
    for place, units in zip((experiment.compare.candidate, experiment.compare.against), findings.units, strict=True):
        if units < needed:
            waits.append(f"{needed - units} more units in the arm {experiment.arms[place].name}")
    if record.clocks:
        waits.append("the end of a guardrail's breach, or its duration")
    last = record.stage + 1 == stages(experiment)
    if experiment.ramp:
        left = record.stage_since + experiment.ramp[record.stage].seconds - now
        if left > 0 and (not last or experiment.on_win == "promote"):
            waits.append(f"the end of the stage, in {left:.0f} s")
    if last and experiment.primary is not None and _primary_state(experiment, record, findings) == "Inconclusive":
        waits.append(f"a difference in {experiment.primary.metric} that is beyond doubt")
    return waits


def _shares(weights: Sequence[int]) -> list[float]:
    total = sum(weights)
    return [weight / total if total else 0.0 for weight in weights]


def _arms(experiment: Experiment, weights: Sequence[int], numbers: Sequence[ArmNumbers]) -> tuple[ArmView, ...]:
    found = list(numbers) or [ArmNumbers()] * len(experiment.arms)
    compare = experiment.compare
    roles = {} if compare is None else {compare.candidate: "candidate", compare.against: "against"}
    return tuple(
        ArmView(
            name=arm.name,
            policy=arm.policy.name,
            share=share,
            role=roles.get(place, ""),
            units=number.units,
            requests=number.requests,
            hit_ratio=known(number.hit_ratio),
            latency_mean=known(number.latency_mean),
            latency_p99=known(number.latency_p99),
            errors=number.errors,
            origin_requests=number.origin_requests,
            cost_saved=number.cost_saved,
        )
        for place, (arm, share, number) in enumerate(zip(experiment.arms, _shares(weights), found, strict=True))
    )


def _estimates(
    experiment: Experiment, record: Record | None, findings: Findings | None, now: float
) -> tuple[EstimateView, ...]:
    if findings is None:
        return ()
    found = []
    if experiment.primary is not None and findings.primary is not None:
        wanted = "increase" if experiment.primary.increase else "decrease"
        state = _primary_state(experiment, record, findings)
        found.append(
            _estimate(
                findings.primary,
                experiment.primary.metric,
                "primary",
                state,
                wanted=wanted,
                min_units=needed_units(experiment),
            )
        )
    for place, (guardrail, estimate) in enumerate(zip(experiment.guardrails, findings.guardrails, strict=True)):
        clock = None if record is None else record.clocks.get(str(place))
        found.append(
            _estimate(
                estimate,
                guardrail.metric,
                "guardrail",
                standing(guardrail, estimate, findings.least_units),
                allowed=guardrail.allowed if guardrail.increase else -guardrail.allowed,
                hold=guardrail.hold,
                min_units=guardrail.min_units,
                breached_for=0.0 if clock is None else max(0.0, now - clock.since),
            )
        )
    return tuple(found)


def _estimate(
    estimate: Estimate,
    metric: str,
    role: str,
    state: str,
    *,
    wanted: str = "",
    allowed: float | None = None,
    hold: float = 0.0,
    min_units: int = 0,
    breached_for: float = 0.0,
) -> EstimateView:
    return EstimateView(
        metric=metric,
        role=role,
        relative=estimate.relative,
        candidate=known(estimate.candidate),
        against=known(estimate.against),
        change=known(estimate.change),
        low=known(estimate.low),
        high=known(estimate.high),
        wanted=wanted,
        allowed=allowed,
        hold=hold,
        min_units=min_units,
        state=state,
        breached_for=breached_for,
        lack=estimate.lack,
    )


def _primary_state(experiment: Experiment, record: Record | None, findings: Findings) -> str:
    primary, estimate = experiment.primary, findings.primary
    if record is not None and record.told:
        # What was beyond doubt at one look is so for good: bounds hold at all looks together.
        return "Better" if record.told == Decided.WON else "Worse"
    if primary is None or estimate is None or findings.least_units < needed_units(experiment):
        return "Inconclusive"
    least, most = estimate.towards(primary.increase)
    return "Better" if least > 0 else "Worse" if most < 0 else "Inconclusive"
