"""What the counts of an epoch say, as plain numbers: what decisions are made by."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Final

import msgspec

from meshcache.experiment.state import Evidence, known

if TYPE_CHECKING:
    from meshcache.policy.compiled import Experiment

MISMATCH_ALPHA: Final = 0.01
"""How often fair splits may be called unfair, over the whole experiment."""
LEAST_UNITS: Final = 100
"""Units that both arms need before anything but a guardrail that says otherwise is judged."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """How a metric of the candidate differs from the other arm's: bounds hold however often one looks.

    NaN where there are no data, or not enough.
    """

    relative: bool
    candidate: float
    against: float
    change: float
    low: float
    high: float
    lack: str = ""
    """Why nothing can be said, where nothing can: a `statistics.compare.Lack`."""

    def towards(self, increase: bool) -> tuple[float, float]:
        """The least and the most that it has changed upwards, or downwards."""
        return (self.low, self.high) if increase else (-self.high, -self.low)

    def evidence(self, metric: str, allowed: float | None = None, seconds: float | None = None) -> Evidence:
        """The same for a record."""
        return Evidence(
            metric=metric,
            relative=self.relative,
            candidate=known(self.candidate),
            against=known(self.against),
            change=known(self.change),
            low=known(self.low),
            high=known(self.high),
            allowed=allowed,
            seconds=seconds,
        )


@dataclass(frozen=True, slots=True)
class Findings:
    """All of it, for one epoch."""

    epoch: int
    units: tuple[int, int]
    """Of the candidate and the arm that it is held against."""
    requests: tuple[int, int]
    guardrails: tuple[Estimate, ...]
    """One for each guardrail, in their order."""
    primary: Estimate | None = None
    mismatch: bool = False
    """Whether units are spread over the arms otherwise than the weights say."""
    p_value: float = nan
    arm_units: tuple[int, ...] = ()

    @property
    def least_units(self) -> int:
        """Of the smaller of the two arms."""
        return min(self.units)

    def evidence(self, experiment: Experiment) -> tuple[Evidence, ...]:
        """All of it for a record: the primary metric, then the guardrails."""
        found = (
            []
            if self.primary is None or experiment.primary is None
            else [self.primary.evidence(experiment.primary.metric)]
        )
        found += [
            estimate.evidence(guardrail.metric, guardrail.allowed)
            for guardrail, estimate in zip(experiment.guardrails, self.guardrails, strict=True)
        ]
        return tuple(msgspec.structs.replace(one, units=self.units, requests=self.requests) for one in found)


@dataclass(frozen=True, slots=True)
class ArmNumbers:
    """What one arm has shown in an epoch. NaN where there are no requests."""

    units: int = 0
    requests: int = 0
    hit_ratio: float = nan
    latency_mean: float = nan
    """Seconds."""
    latency_p99: float = nan
    errors: int = 0
    origin_requests: int = 0
    cost_saved: float = 0.0
    """In the policy's currency."""


def stages(experiment: Experiment) -> int:
    """How many stages it has."""
    return max(1, len(experiment.ramp))


def alpha(experiment: Experiment) -> float:
    """How often one bound may be wrong, so that all verdicts together are wrong as rarely as `confidence` says.

    Bonferroni: each guardrail is judged in every stage, from counts of its own, and the primary metric in the last.
    """
    verdicts = len(experiment.guardrails) * stages(experiment) + (experiment.primary is not None)
    return (1 - experiment.confidence) / max(1, verdicts)


def mismatch_alpha(experiment: Experiment) -> float:
    """The same for the sample-ratio test, which is made anew in every stage."""
    return MISMATCH_ALPHA / stages(experiment)


def needed_units(experiment: Experiment) -> int:
    """Units that both arms need before the primary metric is judged and a stage may end."""
    return max((guardrail.min_units for guardrail in experiment.guardrails), default=LEAST_UNITS)
