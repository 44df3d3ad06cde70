"""The course of an experiment: warm-up, counting, stages, verdicts. A state machine without I/O.

    Warming -> Running -> (next stage) Warming -> ... ; Running -> Paused | RolledBack | Promoted

Nothing leaves `Paused`, `Stopped`, `RolledBack` and `Promoted` by itself: a person does it (`orders`), or another text
of the experiment, which is another experiment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from meshcache.experiment.findings import needed_units, stages
from meshcache.experiment.guardrails import Standing, standing
from meshcache.experiment.overlay import Phase
from meshcache.experiment.stages import weights_of
from meshcache.experiment.state import (
    MOST_DECISIONS,
    MOST_PAST,
    TERMINAL,
    Actor,
    Clock,
    Decided,
    Decision,
    Evidence,
    Reason,
    Record,
    Verdict,
    final_weights,
    known,
)

if TYPE_CHECKING:
    from meshcache.experiment.findings import Findings
    from meshcache.policy.compiled import Experiment, Guardrail

CONFIRM_EVERY: Final = 5.0
"""Seconds after which a clock that runs is confirmed in the record."""
LONGEST_GAP: Final = 15.0
"""Seconds without a look after which a breach has not been seen without a break, and by which clocks may differ."""
SHARPER: Final = 0.1
"""The part of the smallest p-value so far at which a smaller one is kept in the record."""
ABSENCE: Final = 60.0
"""Seconds for which the policies may be without the experiment and it goes on as if nothing had been."""

Step = tuple[Record, tuple[Decision, ...]]
"""The record that follows, and the decisions that it holds more than the one before. The same record: nothing."""


def begin(experiment: Experiment, record: Record | None, now: float) -> Step:
    """The record of an experiment that is in force, made new where there is none about this text.

    A text that has had its verdict gets that one again: applying the same files once more undoes nothing.
    """
    if record is None:
        return _started(experiment, None, now)
    if not record.fits(experiment):
        verdict = record.verdict_on(experiment)
        return _started(experiment, record, now) if verdict is None else _restored(experiment, record, verdict, now)
    if not record.absent:
        return record, ()
    here = msgspec.structs.replace(record, absent=0.0)
    if now - record.absent < ABSENCE or record.phase in TERMINAL or record.phase is Phase.PAUSED:
        return numbered(record, here), ()
    # Its caches have cooled down, and nothing was counted meanwhile.
    return enter_stage(experiment, here, record.stage, now, Decided.RESUMED, Reason.CAME_BACK)


def leave(record: Record, now: float) -> Record:
    """The record of an experiment that the policies do not hold any more."""
    return record if record.absent else numbered(record, msgspec.structs.replace(record, absent=now))


def numbered(before: Record, after: Record) -> Record:
    """`after` as the version that follows `before`; `before` itself where nothing has changed."""
    return before if after is before else msgspec.structs.replace(after, version=before.version + 1)


def step(experiment: Experiment, record: Record, findings: Findings | None, now: float) -> Step:
    """What a look at `findings` leads to at the time `now` (Unix seconds).

    `record` is about this text (`begin`). None for `findings`, or those of another epoch: nobody knows anything, and
    nothing is decided by them.
    """
    if record.stage_since - now > LONGEST_GAP and record.phase in (Phase.WARMING, Phase.RUNNING):
        # The clock has been set back: what would be waited for may be hours away. The stage takes its time anew.
        return numbered(record, msgspec.structs.replace(record, stage_since=now)), ()
    if record.phase is Phase.WARMING:
        return _warm(experiment, record, now)
    if record.phase is not Phase.RUNNING or experiment.compare is None:
        return record, ()
    if findings is None or findings.epoch != record.epoch:
        return record, ()
    after, decisions = _look(experiment, record, findings, now)
    return numbered(record, after), decisions


def _look(experiment: Experiment, record: Record, findings: Findings, now: float) -> Step:
    if findings.mismatch or findings.p_value < record.smallest_p * SHARPER:
        record = msgspec.structs.replace(record, smallest_p=min(record.smallest_p, findings.p_value))
    if findings.mismatch:
        # The arms hold others than they should: whatever they are compared by, it is not the policies.
        evidence = Evidence(p_value=known(findings.p_value), units=findings.arm_units)
        return _decide(record, now, Decided.PAUSED, Reason.MISMATCH, (evidence,), phase=Phase.PAUSED, clocks={})
    record, breaches = _guard(experiment, record, findings, now)
    if breaches:
        if experiment.on_breach == "pause":
            return _decide(record, now, Decided.PAUSED, Reason.BREACHED, breaches, phase=Phase.PAUSED, clocks={})
        return conclude(experiment, record, Phase.ROLLED_BACK, "", now, Decided.ROLLED_BACK, Reason.BREACHED, breaches)
    over = not experiment.ramp or now - record.stage_since >= experiment.ramp[record.stage].seconds
    if findings.least_units < needed_units(experiment) or record.clocks:
        return record, ()
    if record.stage + 1 < stages(experiment):
        if not over:
            return record, ()
        return enter_stage(experiment, record, record.stage + 1, now, Decided.ADVANCED, Reason.STAGE_OVER)
    return _judge(experiment, record, findings, now, over=over)


def conclude(
    experiment: Experiment,
    record: Record,
    phase: Phase,
    winner: str,
    now: float,
    what: Decided,
    reason: Reason,
    evidence: tuple[Evidence, ...] = (),
    **by: str,
) -> Step:
    """End in a phase that nothing leaves by itself. The epoch stays, and with it the numbers that led there."""
    weights = final_weights(experiment, phase, winner)
    return _decide(
        record,
        now,
        what,
        reason,
        evidence,
        by=by,
        phase=phase,
        winner=winner,
        weights=weights,
        counting=False,
        clocks={},
    )


def enter_stage(
    experiment: Experiment, record: Record, stage: int, now: float, what: Decided, reason: Reason, **by: str
) -> Step:
    """Begin a stage: with its shares, with a warm-up, and with counts of its own."""
    entered = msgspec.structs.replace(
        record,
        phase=Phase.WARMING,
        winner="",
        stage=stage,
        stage_since=now,
        weights=weights_of(experiment, stage),
        epoch=_next_epoch(record.epoch, now),
        counting=False,
        clocks={},
        smallest_p=1.0,
        told="",
    )
    after, decisions = _decide(entered, now, what, reason, by=by)
    return numbered(record, after), decisions


def _warm(experiment: Experiment, record: Record, now: float) -> Step:
    if now - record.stage_since < experiment.warmup:
        return record, ()
    # What is counted from here on is apart from what the warm-up has shown.
    record = msgspec.structs.replace(record, epoch=_next_epoch(record.epoch, now), counting=True, smallest_p=1.0)
    return _decide(record, now, Decided.COUNTING, Reason.WARMED_UP, phase=Phase.RUNNING)


def _guard(
    experiment: Experiment, record: Record, findings: Findings, now: float
) -> tuple[Record, tuple[Evidence, ...]]:
    """The record with its clocks set by how the guardrails stand, and those that have been breached for too long."""
    clocks: dict[str, Clock] = {}
    breaches = []
    for place, (guardrail, estimate) in enumerate(zip(experiment.guardrails, findings.guardrails, strict=True)):
        if standing(guardrail, estimate, findings.least_units) is not Standing.BREACHED:
            continue
        before = record.clocks.get(str(place))
        if before is None or abs(now - before.seen) > LONGEST_GAP:
            # Also where the clock has been set back, as nobody knows how long that was.
            clock = Clock(now, now, findings.requests[0])
        else:
            clock = msgspec.structs.replace(before, seen=now)
        clocks[str(place)] = clock
        if _long_enough(guardrail, clock, findings, now):
            evidence = estimate.evidence(guardrail.metric, guardrail.allowed, now - clock.since)
            breaches.append(msgspec.structs.replace(evidence, units=findings.units, requests=findings.requests))
    if not _differ(clocks, record.clocks):
        # The clocks of the record are as good, and the record needs no new version.
        return record, tuple(breaches)
    return msgspec.structs.replace(record, clocks=clocks), tuple(breaches)


def _long_enough(guardrail: Guardrail, clock: Clock, findings: Findings, now: float) -> bool:
    # When no request has come since, nothing has been seen since either.
    return not guardrail.hold or (now - clock.since >= guardrail.hold and findings.requests[0] > clock.requests)


def _differ(clocks: dict[str, Clock], before: dict[str, Clock]) -> bool:
    return clocks.keys() != before.keys() or any(
        clock.since != before[place].since or clock.seen - before[place].seen >= CONFIRM_EVERY
        for place, clock in clocks.items()
    )


def _judge(experiment: Experiment, record: Record, findings: Findings, now: float, *, over: bool) -> Step:
    """The primary metric, in the last stage."""
    primary, estimate, compare = experiment.primary, findings.primary, experiment.compare
    if primary is None or estimate is None or compare is None:
        return record, ()
    least, most = estimate.towards(primary.increase)
    evidence = (
        msgspec.structs.replace(estimate.evidence(primary.metric), units=findings.units, requests=findings.requests),
    )
    if least > 0:
        # A stage promises that the candidate is watched for so long; the file may ask for no stage at all.
        if experiment.on_win == "promote" and over:
            winner = experiment.arms[compare.candidate].name
            return conclude(experiment, record, Phase.PROMOTED, winner, now, Decided.PROMOTED, Reason.BETTER, evidence)
        if record.told != Decided.WON:
            return _decide(record, now, Decided.WON, Reason.BETTER, evidence, told=Decided.WON.value)
    elif most < 0 and record.told != Decided.LOST:
        return _decide(record, now, Decided.LOST, Reason.WORSE, evidence, told=Decided.LOST.value)
    return record, ()


def _started(experiment: Experiment, before: Record | None, now: float) -> Step:
    """A new record, that goes on from the one on another text."""
    record = Record(
        name=experiment.name,
        uid=experiment.uid,
        spec_hash=experiment.spec_hash,
        route=experiment.route,
        arms=tuple(arm.name for arm in experiment.arms),
        phase=Phase.WARMING,
        weights=(),
        epoch=0 if before is None else before.epoch,
        counting=False,
        stage=0,
        started=now,
        stage_since=now,
        version=0 if before is None else before.version,
        decisions=() if before is None else before.decisions,
        past=() if before is None else _with_past(before),
    )
    return enter_stage(experiment, record, 0, now, Decided.STARTED, Reason.NEW if before is None else Reason.CHANGED)


def _restored(experiment: Experiment, before: Record, verdict: Verdict, now: float) -> Step:
    """A record that is where the text was left, when another took its place."""
    record, _ = _started(experiment, before, now)
    past = tuple(other for other in record.past if other != verdict)
    record = msgspec.structs.replace(record, version=before.version, decisions=before.decisions, past=past)
    return conclude(experiment, record, verdict.phase, verdict.winner, now, Decided.RESTORED, Reason.SAME_SPEC)


def _with_past(before: Record) -> tuple[Verdict, ...]:
    if before.phase not in TERMINAL:
        return before.past
    at = before.decisions[-1].at if before.decisions else before.started
    verdict = Verdict(before.spec_hash, before.uid, before.phase, at, before.winner)
    return (*before.past, verdict)[-MOST_PAST:]


def _next_epoch(epoch: int, now: float) -> int:
    """By the clock, so that one that was used is never used again, even when the record of it was lost."""
    return max(epoch + 1, int(now))


def _decide(
    record: Record,
    now: float,
    what: Decided,
    reason: Reason,
    evidence: tuple[Evidence, ...] = (),
    *,
    by: dict[str, str] | None = None,
    **changes: object,
) -> Step:
    decision = Decision(
        at=now,
        what=what,
        reason=reason,
        by=Actor.PERSON if by else Actor.DECIDER,
        stage=record.stage,
        epoch=record.epoch,
        spec_hash=record.spec_hash,
        evidence=evidence,
        winner=str(changes.get("winner", "")),
        **(by or {}),
    )
    decisions = (*record.decisions, decision)[-MOST_DECISIONS:]
    after: Record = msgspec.structs.replace(record, decisions=decisions, **changes)
    return numbered(record, after), (decision,)
