"""What has been decided about an experiment, and why: the record that outlives every process."""

from __future__ import annotations

from enum import StrEnum
from math import isfinite
from typing import TYPE_CHECKING, Final

import msgspec

from meshcache.experiment.overlay import Adoption, Overlay, Phase

if TYPE_CHECKING:
    from meshcache.policy.compiled import Experiment

MOST_DECISIONS: Final = 50
"""Decisions that a record keeps; the oldest go first."""
MOST_PAST: Final = 16
"""Verdicts on earlier texts that a record keeps."""
TERMINAL: Final = frozenset({Phase.STOPPED, Phase.ROLLED_BACK, Phase.PROMOTED})
"""Phases that nothing leaves by itself."""


class Decided(StrEnum):
    """What was decided."""

    STARTED = "Started"
    RESTORED = "Restored"
    """The text has had its verdict before, and that is in force again."""
    COUNTING = "Counting"
    """The warm-up is over."""
    ADVANCED = "Advanced"
    """The next stage begins."""
    WON = "Won"
    """The candidate is better; reported once."""
    LOST = "Lost"
    """The candidate is worse by the primary metric; reported once."""
    PAUSED = "Paused"
    RESUMED = "Resumed"
    STOPPED = "Stopped"
    ROLLED_BACK = "RolledBack"
    PROMOTED = "Promoted"


class Reason(StrEnum):
    """Why it was decided."""

    NEW = "NewExperiment"
    CHANGED = "SpecChanged"
    SAME_SPEC = "VerdictOfThisSpec"
    CAME_BACK = "CameBack"
    """The experiment was away from the policies for a while."""
    WARMED_UP = "WarmedUp"
    STAGE_OVER = "StageOver"
    BREACHED = "GuardrailBreached"
    MISMATCH = "SampleRatioMismatch"
    BETTER = "PrimaryBetter"
    WORSE = "PrimaryWorse"
    PERSON = "Person"


class Actor(StrEnum):
    """Who decides."""

    DECIDER = "decider"
    PERSON = "person"


class Evidence(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The numbers that a decision was made by. None stands for what no data tell, and for a bound at infinity."""

    metric: str = ""
    relative: bool = False
    """Whether `change`, its bounds and `allowed` are shares of what the other arm has."""
    candidate: float | None = None
    against: float | None = None
    change: float | None = None
    """Candidate less the other arm."""
    low: float | None = None
    high: float | None = None
    allowed: float | None = None
    """Of a guardrail: how far the metric may change to the bad side."""
    p_value: float | None = None
    """Of the sample-ratio test."""
    units: tuple[int, ...] = ()
    """Of the candidate and the other arm; for a sample-ratio test of every arm."""
    requests: tuple[int, ...] = ()
    seconds: float | None = None
    """For how long a guardrail had been breached."""


class Decision(msgspec.Struct, frozen=True, rename="camel"):
    """One decision."""

    at: float
    """Unix seconds."""
    what: Decided
    reason: Reason
    by: Actor
    stage: int
    """0 for the first."""
    epoch: int
    """That the numbers are of."""
    spec_hash: str
    who: str = ""
    """The person who decided."""
    text: str = ""
    """What the person has said."""
    evidence: tuple[Evidence, ...] = ()
    winner: str = ""
    """The arm that everybody is put on by a promotion."""


class Clock(msgspec.Struct, frozen=True, rename="camel"):
    """Since when a guardrail has been breached without a break."""

    since: float
    seen: float
    """When that was last confirmed."""
    requests: int
    """Of the candidate when it began."""


class Verdict(msgspec.Struct, frozen=True, rename="camel"):
    """What became of an earlier text of the experiment."""

    spec_hash: str
    uid: str
    phase: Phase
    at: float
    winner: str = ""


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """One experiment. Each change has the next `version`."""

    name: str
    uid: str
    spec_hash: str
    route: str
    arms: tuple[str, ...]
    phase: Phase
    weights: tuple[int, ...]
    """One for each arm."""
    epoch: int
    counting: bool
    stage: int
    """0 for the first."""
    started: float
    stage_since: float
    version: int
    winner: str = ""
    smallest_p: float = 1.0
    """Of the sample-ratio tests of this epoch; falls by tenths, so that records are not written at every look."""
    told: str = ""
    """Of `Won` and `Lost`, what has been reported in this epoch."""
    clocks: dict[str, Clock] = {}
    """By the place of the guardrail in its list."""
    decisions: tuple[Decision, ...] = ()
    """Oldest first."""
    past: tuple[Verdict, ...] = ()
    adoption: Adoption | None = None
    """Where the winner's entries are, for when its policy is written into the route and the experiment goes."""
    absent: float = 0.0
    """Since when the policies have not held the experiment; 0 while they do."""

    def fits(self, experiment: Experiment) -> bool:
        """Whether it is about this text of this experiment."""
        return (
            self.uid == experiment.uid
            and self.spec_hash == experiment.spec_hash
            and self.arms == tuple(arm.name for arm in experiment.arms)
        )

    def verdict_on(self, experiment: Experiment) -> Verdict | None:
        """What became of this text before another took its place."""
        for verdict in reversed(self.past):
            if (verdict.uid, verdict.spec_hash) == (experiment.uid, experiment.spec_hash):
                return verdict
        return None


def final_weights(experiment: Experiment, phase: Phase, winner: str) -> tuple[int, ...]:
    """The shares after a verdict: everybody on the winner, or on control."""
    chosen = winner if phase is Phase.PROMOTED else experiment.arms[0].name
    return tuple(int(arm.name == chosen) for arm in experiment.arms)


def overlay_of(experiment: Experiment, record: Record | None) -> Overlay | None:
    """What is in force for `experiment` by what has been decided; None when nothing has been decided on this text.

    Pods may have different texts for a while. One whose text was judged before goes on by that verdict.
    """
    if record is None:
        return None
    if record.fits(experiment):
        return Overlay(
            experiment=record.name,
            spec_hash=record.spec_hash,
            phase=record.phase,
            weights=record.weights,
            epoch=record.epoch,
            counting=record.counting,
            winner=record.winner,
        )
    verdict = record.verdict_on(experiment)
    if verdict is None:
        return None
    return Overlay(
        experiment=record.name,
        spec_hash=verdict.spec_hash,
        phase=verdict.phase,
        weights=final_weights(experiment, verdict.phase, verdict.winner),
        epoch=0,
        counting=False,
        winner=verdict.winner,
    )


def known(value: float) -> float | None:
    """`value` as a record holds it: None for NaN and infinity."""
    return value if isfinite(value) else None
