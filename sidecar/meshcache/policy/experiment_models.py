"""The shape of `CacheExperiment` documents, as pydantic models."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from meshcache.experiment.ledger import MOST_ARMS
from meshcache.experiment.metric import SECONDS, SHARES, Metric
from meshcache.experiment.stages import WHOLE
from meshcache.policy import values as v
from meshcache.policy.schema import CookieName, Duration, Head, HeaderName, Name, Percent, Ref, Strict, refuse
from meshcache.policy.units import parse_change, parse_duration, parse_percent, parse_quantity


class Nothing(Strict):
    """`{}`: there is nothing to say beside the name."""


class Unit(Strict):
    """`{subject: {}}`, `{header: x}`, `{cookie: x}` or `{cacheKey: {}}`."""

    subject: Nothing | None = None
    header: HeaderName | None = None
    cookie: CookieName | None = None
    cache_key: Nothing | None = None

    @model_validator(mode="after")
    def _one(self) -> Unit:
        if sum(given is not None for given in (self.subject, self.header, self.cookie, self.cache_key)) != 1:
            raise ValueError("expected one of subject, header, cookie and cacheKey, for example {header: x-user-id}")
        return self


class Force(Strict):
    """A header by which a trusted caller chooses the arm."""

    planned: ClassVar[frozenset[str]] = frozenset({"regex"})
    header: HeaderName
    exact: Annotated[str, BeforeValidator(v.single_value)]


class ArmModel(Strict):
    """One of the policies that are compared."""

    name: Name
    policy_ref: Ref
    weight: int = Field(ge=0, le=1_000_000)
    force: list[Force] = Field(default_factory=list)


class Compare(Strict):
    """Which arm is judged, and against which."""

    candidate: Name | None = None
    against: Name | None = None


class Primary(Strict):
    """What makes the candidate the better arm."""

    metric: Metric = Field(strict=False)
    direction: Literal["increase", "decrease"]


class Bound(Strict):
    """How far a metric may change: `{relative: 20%}` or `{absolute: ...}` in the metric's own unit."""

    relative: Annotated[float, BeforeValidator(parse_change)] | None = None
    absolute: Any = None

    @model_validator(mode="after")
    def _one(self) -> Bound:
        if (self.relative is None) == (self.absolute is None):
            raise ValueError("expected one of relative and absolute, for example {relative: 20%}")
        return self


class GuardrailModel(Strict):
    """What the candidate must not do."""

    metric: Metric = Field(strict=False)
    max_increase: Bound | None = None
    max_decrease: Bound | None = None
    for_: Duration = Field(default=0.0, alias="for")
    min_units: int = Field(default=100, ge=1, le=1_000_000_000)

    @model_validator(mode="after")
    def _consistent(self) -> GuardrailModel:
        if (self.max_increase is None) == (self.max_decrease is None):
            raise ValueError("expected one of maxIncrease and maxDecrease, for example maxIncrease: {relative: 20%}")
        try:
            self.allowed()
        except ValueError as error:
            refuse(("maxIncrease" if self.max_increase else "maxDecrease", "absolute"), str(error))
        return self

    def allowed(self) -> tuple[bool, float]:
        """Whether the bound is relative, and the bound: a share, or seconds, bytes or money."""
        bound = self.max_increase or self.max_decrease
        if bound is None:
            raise ValueError("there is no bound")
        if bound.relative is not None:
            return True, bound.relative
        if self.metric in SHARES:
            return False, parse_percent(bound.absolute)
        if self.metric in SECONDS:
            return False, parse_duration(bound.absolute)
        if self.metric is Metric.ORIGIN_BYTES:
            return False, float(parse_quantity(bound.absolute))
        if isinstance(bound.absolute, bool) or not isinstance(bound.absolute, int | float) or bound.absolute < 0:
            raise ValueError("expected an amount of money such as 0.001")
        return False, float(Decimal(str(bound.absolute)))


class RampStep(Strict):
    """A stage: the share of units of the candidate, and of its baseline, and how long it lasts."""

    weight: Percent
    for_: Duration = Field(alias="for")

    @model_validator(mode="after")
    def _possible(self) -> RampStep:
        if not 0 < self.weight <= 0.5:
            refuse("weight", "candidate and baseline are of one size: expected more than 0 and at most 50")
        if round(self.weight * WHOLE) < 1:
            refuse("weight", "nobody at all: expected at least 0.0001%, which is one unit in a million")
        return self


class ExperimentSpec(Strict):
    """`CacheExperiment.spec`."""

    route_ref: Ref
    unit: list[Unit] = Field(min_length=1)
    arms: list[ArmModel] = Field(min_length=2, max_length=MOST_ARMS)
    compare: Compare | None = None
    primary: Primary | None = None
    guardrails: list[GuardrailModel] = Field(default_factory=list)
    ramp: list[RampStep] = Field(default_factory=list)
    warmup: Duration = 300.0
    on_breach: Literal["rollback", "pause"] = "rollback"
    on_win: Literal["hold", "promote"] = "hold"
    confidence: Percent = 0.95

    @model_validator(mode="after")
    def _weighed(self) -> ExperimentSpec:
        if len(self.unit) > 1 and any(unit.cache_key for unit in self.unit):
            refuse("unit", "cacheKey stands alone: either keys are assigned or callers")
        if not any(arm.weight for arm in self.arms):
            refuse("arms", "every weight is 0: at least one arm needs a weight above 0")
        if not 0.5 <= self.confidence < 1:
            refuse("confidence", "expected at least 50 and less than 100, for example 95%")
        grows = [step.weight for step in self.ramp]
        if any(later < earlier for earlier, later in pairwise(grows)):
            refuse("ramp", "the weights have to grow from step to step")
        return self

    @property
    def judged(self) -> bool:
        """Whether arms are compared: else the experiment only divides the traffic."""
        return bool(self.compare or self.primary or self.guardrails or self.ramp)


class CacheExperiment(Head):
    """Which policy is better."""

    planned: ClassVar[frozenset[str]] = frozenset({"status"})
    kind: Literal["CacheExperiment"]
    spec: ExperimentSpec
