"""Experiments as they are compiled: arms resolved, the baseline made where it is left out, the spec's digest taken."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from meshcache.experiment.ledger import MOST_ARMS
from meshcache.experiment.metric import Metric
from meshcache.policy import compiled as c

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from meshcache.policy.documents import Document, Path
    from meshcache.policy.experiment_models import CacheExperiment, ExperimentSpec, Unit
    from meshcache.policy.extends import Refuse, Resolve
    from meshcache.policy.schema import Strict

BASELINE: Final = "baseline"
"""The arm that is made by itself: control's policy, the candidate's size."""


def written(spec: Strict) -> str:
    """What a spec says, whatever way it is written: defaults left out, so that a new field changes no digest.

    What a policy inherits is in it already, so from whom does not count.
    """
    said = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"extends"})
    return json.dumps(said, sort_keys=True)


def _metrics(spec: ExperimentSpec) -> Iterator[tuple[Metric, Path]]:
    """The metrics that an experiment is judged by, and where they are named."""
    if spec.primary is not None:
        yield spec.primary.metric, ("spec", "primary", "metric")
    for index, guardrail in enumerate(spec.guardrails):
        yield guardrail.metric, ("spec", "guardrails", index, "metric")


def _source(unit: Unit) -> c.UnitSource:
    if unit.header is not None:
        return c.UnitSource("header", unit.header)
    if unit.cookie is not None:
        return c.UnitSource("cookie", unit.cookie)
    return c.UnitSource("subject" if unit.subject is not None else "cacheKey")


class ExperimentCompiler:
    """Compiles the experiments of one set of documents."""

    def __init__(
        self,
        policies: Mapping[str, c.Policy],
        specs: Mapping[str, str],
        resolve: Resolve,
        refuse: Refuse,
        *,
        knows_subject: bool,
    ) -> None:
        """`specs`: the written form of each policy's spec. `knows_subject`: whether the installation says who he is."""
        self._policies = policies
        self._specs = specs
        self._resolve = resolve
        self._refuse = refuse
        self._knows_subject = knows_subject

    def compile(self, found: Iterable[tuple[Document, CacheExperiment]]) -> list[tuple[Document, c.Experiment]]:
        """All of them, in order; those with an error are reported and may be incomplete."""
        experiments = []
        for document, manifest in found:
            self._resolve(document, ("spec", "routeRef"), "CacheRoute", manifest.spec.route_ref.name)
            experiments.append((document, self._experiment(document, manifest)))
        return experiments

    def _experiment(self, document: Document, manifest: CacheExperiment) -> c.Experiment:
        spec = manifest.spec
        for index, unit in enumerate(spec.unit):
            if unit.subject is not None and not self._knows_subject:
                message = "the CacheConfig does not say in spec.identity.subject who that is"
                hint = "for example identity: {subject: {jwtClaim: sub}}"
                self._refuse(document, ("spec", "unit", index, "subject"), message, hint)
        units = tuple(map(_source, spec.unit))
        arms = self._arms(document, spec)
        if len(arms) == len(spec.arms):
            self._check_cost(document, spec, arms)
        if units[0].kind == "cacheKey":
            self._same_keys(document, arms)
        compare = None
        if spec.judged and len(arms) == len(spec.arms):
            arms, compare = self._compare(document, spec, arms)
        return c.Experiment(
            name=manifest.metadata.name,
            route=spec.route_ref.name,
            units=units,
            arms=arms,
            uid=manifest.metadata.uid or manifest.metadata.name,
            spec_hash=self._digest(spec),
            compare=compare,
            primary=None
            if spec.primary is None
            else c.Primary(spec.primary.metric, spec.primary.direction == "increase"),
            guardrails=tuple(
                c.Guardrail(
                    guardrail.metric,
                    guardrail.max_increase is not None,
                    *guardrail.allowed(),
                    hold=guardrail.for_,
                    min_units=guardrail.min_units,
                )
                for guardrail in spec.guardrails
            ),
            ramp=tuple(c.RampStep(step.weight, step.for_) for step in spec.ramp),
            warmup=spec.warmup,
            on_breach=spec.on_breach,
            on_win=spec.on_win,
            confidence=spec.confidence,
        )

    def _digest(self, spec: ExperimentSpec) -> str:
        """Of what is compared: the experiment's own words and those of its arms' policies."""
        policies = [self._specs.get(arm.policy_ref.name, "") for arm in spec.arms]
        return hashlib.sha256("\0".join((written(spec), *policies)).encode()).hexdigest()[:32]

    def _arms(self, document: Document, spec: ExperimentSpec) -> tuple[c.Arm, ...]:
        arms = []
        names: set[str] = set()
        forced: dict[tuple[str, str], str] = {}
        for index, arm in enumerate(spec.arms):
            path: Path = ("spec", "arms", index)
            if arm.name in names:
                self._refuse(document, (*path, "name"), f"there is an arm named {arm.name} already")
            names.add(arm.name)
            for position, force in enumerate(arm.force):
                other = forced.setdefault((force.header, force.exact), arm.name)
                if other != arm.name:
                    message = f"{force.header}: {force.exact} forces the arm {other} already"
                    self._refuse(document, (*path, "force", position), message)
            if not self._resolve(document, (*path, "policyRef"), "CachePolicy", arm.policy_ref.name):
                continue
            policy = self._policies.get(arm.policy_ref.name)
            if policy is not None:
                force_values = tuple((force.header, force.exact) for force in arm.force)
                arms.append(c.Arm(arm.name, policy, arm.weight, force_values))
        return tuple(arms)

    def _check_cost(self, document: Document, spec: ExperimentSpec, arms: tuple[c.Arm, ...]) -> None:
        """Refuse arms whose cost cannot be compared: in another currency, or not known where it is judged by."""
        known = [(arm.policy.currency, index) for index, arm in enumerate(arms) if arm.policy.currency]
        for currency, index in known[1:]:
            if currency != known[0][0]:
                message = f"the origin costs {currency} here and {known[0][0]} in the arm {arms[known[0][1]].name}"
                self._refuse(document, ("spec", "arms", index, "policyRef"), message, "one currency per experiment")
        judged = [(metric, path) for metric, path in _metrics(spec) if metric is Metric.COST_SAVED]
        unknown = next((arm for arm in arms if not arm.policy.currency), None)
        for metric, path in judged:
            if unknown is not None:
                message = f"{metric} needs `cost` in the policy of every arm; {unknown.policy.name} has none"
                hint = "for example cost: {perOriginRequest: 0.002, currency: USD}"
                self._refuse(document, path, message, hint)

    def _same_keys(self, document: Document, arms: tuple[c.Arm, ...]) -> None:
        """Refuse arms that make keys in different ways: the arm follows from the key, which must not follow from it."""
        for index, arm in enumerate(arms):
            if arm.policy.key != arms[0].policy.key:
                message = f"{arm.policy.name} makes other keys than {arms[0].policy.name}"
                hint = "where keys are assigned, all arms need the same spec.key"
                self._refuse(document, ("spec", "arms", index, "policyRef", "name"), message, hint)

    def _compare(
        self, document: Document, spec: ExperimentSpec, arms: tuple[c.Arm, ...]
    ) -> tuple[tuple[c.Arm, ...], c.Compare | None]:
        """The arms, with the baseline that was left out, and which of them are compared."""
        places = {arm.name: index for index, arm in enumerate(arms)}
        compare = spec.compare
        for field, name in (("candidate", compare.candidate), ("against", compare.against)) if compare else ():
            if name is not None and name not in places:
                self._refuse(
                    document, ("spec", "compare", field), f"there is no arm named {name}", f"one of {', '.join(places)}"
                )
                return arms, None
        if compare and compare.candidate is not None:
            candidate = places[compare.candidate]
        else:
            # The arm `baseline` is what a candidate is held against, wherever it stands.
            candidate = max((place for name, place in places.items() if name != BASELINE), default=0) or len(arms) - 1
        if candidate == 0:
            message = "the first arm is control, and cannot be the candidate"
            self._refuse(document, ("spec", "compare", "candidate"), message)
            return arms, None
        against = places[compare.against] if compare and compare.against is not None else places.get(BASELINE, 0)
        if against == candidate:
            self._refuse(document, ("spec", "compare", "against"), "an arm cannot be compared with itself")
            return arms, None
        size = arms[candidate].weight
        if spec.unit[0].cache_key is not None:
            # A key has all of its traffic in one arm, whatever the arm's size: nothing has to be of one size.
            return arms, c.Compare(candidate, against)
        if not spec.ramp and arms[against].weight == size:
            return arms, c.Compare(candidate, against)
        if against != 0:
            if spec.ramp:
                return arms, c.Compare(candidate, against)
            # Hit ratio grows with an arm's traffic: unequal arms would differ under one and the same policy.
            message = f"the arms that are compared must be of one size: {arms[against].weight} is not {size}"
            self._refuse(document, ("spec", "arms", against, "weight"), message, "or leave the baseline out")
            return arms, None
        if BASELINE in places:
            message = f"{BASELINE} is the name of the arm that is made by itself; compare with it, or rename it"
            self._refuse(document, ("spec", "arms", places[BASELINE], "name"), message)
            return arms, None
        if len(arms) == MOST_ARMS:
            message = f"with the baseline that is made by itself there are more than {MOST_ARMS} arms"
            self._refuse(document, ("spec", "arms", len(arms) - 1), message, "take one arm out")
            return arms, None
        control = arms[0]
        if not spec.ramp and control.weight < size:
            message = f"control needs at least the candidate's weight {size}, to give a baseline of that size"
            self._refuse(document, ("spec", "arms", 0, "weight"), message)
            return arms, None
        rest = c.Arm(control.name, control.policy, max(control.weight - size, 0), control.force)
        baseline = c.Arm(BASELINE, control.policy, min(size, control.weight))
        return (rest, *arms[1:], baseline), c.Compare(candidate, len(arms))
