"""Experiments as compiled: the baseline that is made by itself, bounds in the metric's unit, the spec's digest."""

from __future__ import annotations

import pytest

from meshcache.experiment.metric import Metric
from meshcache.policy.compile import compile_documents
from meshcache.policy.compiled import Compare, Experiment, Guardrail, RampStep
from meshcache.policy.documents import Documents
from meshcache.policy.errors import PolicyErrors

HEAD = "apiVersion: meshcache.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n"
COST = "  cost: {perOriginRequest: 0.002, currency: USD}"
POLICIES = "\n---\n".join(
    (
        HEAD.format(kind="CachePolicy", name="old") + "  freshness: {defaultTtl: 60s}\n" + COST,
        HEAD.format(kind="CachePolicy", name="new") + "  freshness: {defaultTtl: %s}\n" + COST,
        HEAD.format(kind="CacheRoute", name="r") + "  match: [{path: {prefix: /}}]\n  policyRef: {name: old}",
        HEAD.format(kind="CacheExperiment", name="e") + "  routeRef: {name: r}\n  unit: [{header: x-user-id}]\n%s",
    )
)
TWO = (
    "  arms: [{name: control, policyRef: {name: old}, weight: %d},"
    " {name: candidate, policyRef: {name: new}, weight: %d}]\n"
)


def experiment(spec: str, ttl: str = "2m") -> Experiment:
    snapshot = compile_documents(Documents.of([("a.yaml", POLICIES % (ttl, spec))]), generation=1, secret=b"s")
    (found,) = snapshot.experiments
    return found


def shares(found: Experiment) -> list[tuple[str, str, int]]:
    return [(arm.name, arm.policy.name, arm.weight) for arm in found.arms]


def test_an_experiment_that_judges_nothing_only_divides_the_traffic() -> None:
    found = experiment(TWO % (90, 10))
    assert found.compare is None
    assert shares(found) == [("control", "old", 90), ("candidate", "new", 10)]


@pytest.mark.parametrize(
    ("weights", "more", "arms", "compare"),
    [
        (
            (90, 10),
            "  primary: {metric: hitRatio, direction: increase}",
            [("control", "old", 80), ("candidate", "new", 10), ("baseline", "old", 10)],
            Compare(1, 2),
        ),
        (
            (90, 10),
            "  compare: {candidate: candidate, against: control}",
            [("control", "old", 80), ("candidate", "new", 10), ("baseline", "old", 10)],
            Compare(1, 2),
        ),
        (
            (50, 50),
            "  compare: {candidate: candidate}",
            [("control", "old", 50), ("candidate", "new", 50)],
            Compare(1, 0),
        ),
        (
            (50, 50),
            "  ramp: [{weight: 1, for: 30m}, {weight: 50, for: 1h}]",
            [("control", "old", 0), ("candidate", "new", 50), ("baseline", "old", 50)],
            Compare(1, 2),
        ),
    ],
)
def test_the_baseline_is_as_large_as_the_candidate_and_taken_off_control(
    weights: tuple[int, int], more: str, arms: list[tuple[str, str, int]], compare: Compare
) -> None:
    found = experiment(TWO % weights + more)
    assert shares(found) == arms
    assert found.compare == compare


def test_a_baseline_that_is_written_is_used() -> None:
    arms = (TWO % (80, 10)).replace("10}]", "10}, {name: baseline, policyRef: {name: old}, weight: 10}]")
    assert experiment(arms + "  compare: {candidate: candidate}").compare == Compare(1, 2)
    assert experiment(arms + "  primary: {metric: hitRatio, direction: increase}").compare == Compare(1, 2)
    assert experiment(arms + "  compare: {against: baseline}").compare == Compare(1, 2)


def test_the_candidate_may_be_left_out_where_it_is_the_last_arm() -> None:
    assert experiment(TWO % (50, 50) + "  compare: {against: control}").compare == Compare(1, 0)
    assert experiment(TWO % (50, 50) + "  compare: {}").compare == Compare(1, 0)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (
            (TWO % (80, 10)).replace("10}]", "10}, {name: baseline, policyRef: {name: old}, weight: 20}]")
            + "  compare: {candidate: candidate}",
            "the arms that are compared must be of one size: 20 is not 10",
        ),
        (TWO % (40, 60) + "  compare: {candidate: candidate}", "control needs at least the candidate's weight 60"),
    ],
)
def test_arms_of_different_sizes_are_not_compared(spec: str, told: str) -> None:
    with pytest.raises(PolicyErrors, match=told):
        experiment(spec)


def test_bounds_are_in_the_unit_of_the_metric() -> None:
    found = experiment(
        TWO % (90, 10)
        + "  guardrails:\n"
        + "  - {metric: latencyP99, maxIncrease: {relative: 120%}, for: 2m, minUnits: 500}\n"
        + "  - {metric: latencyMean, maxIncrease: {absolute: 50ms}}\n"
        + "  - {metric: errorRate, maxIncrease: {absolute: 1%}}\n"
        + "  - {metric: hitRatio, maxDecrease: {absolute: 2}}\n"
        + "  - {metric: originBytes, maxIncrease: {absolute: 1Ki}}\n"
        + "  - {metric: costSaved, maxDecrease: {absolute: 0.001}}\n"
        + "  ramp: [{weight: 0.5%, for: 30m}]\n  warmup: 1m\n  onWin: promote\n  confidence: 99%"
    )
    assert found.guardrails == (
        Guardrail(Metric.LATENCY_P99, increase=True, relative=True, allowed=1.2, hold=120.0, min_units=500),
        Guardrail(Metric.LATENCY_MEAN, increase=True, relative=False, allowed=0.05, hold=0.0, min_units=100),
        Guardrail(Metric.ERROR_RATE, increase=True, relative=False, allowed=0.01, hold=0.0, min_units=100),
        Guardrail(Metric.HIT_RATIO, increase=False, relative=False, allowed=0.02, hold=0.0, min_units=100),
        Guardrail(Metric.ORIGIN_BYTES, increase=True, relative=False, allowed=1024.0, hold=0.0, min_units=100),
        Guardrail(Metric.COST_SAVED, increase=False, relative=False, allowed=0.001, hold=0.0, min_units=100),
    )
    assert found.ramp == (RampStep(0.005, 1800.0),)
    assert (found.warmup, found.on_breach, found.on_win, found.confidence) == (60.0, "rollback", "promote", 0.99)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ("", r"a.yaml:\d+:\d+: spec.primary.metric: costSaved needs `cost` in the policy of every arm; old has none"),
        (
            "  cost: {perOriginRequest: 0.002, currency: EUR}",
            r"spec.arms\[1\].policyRef: the origin costs USD here and EUR in the arm control",
        ),
    ],
)
def test_cost_is_compared_only_where_it_can_be(changed: str, told: str) -> None:
    text = POLICIES.replace(COST, changed, 1) % (
        "1m",
        TWO % (90, 10) + "  primary: {metric: costSaved, direction: increase}",
    )
    with pytest.raises(PolicyErrors, match=told):
        compile_documents(Documents.of([("a.yaml", text)]), generation=1, secret=b"s")
    assert (
        experiment(TWO % (90, 10) + "  primary: {metric: costSaved, direction: increase}").arms[1].policy.cost == 0.002
    )


def test_another_way_to_write_the_same_is_the_same_experiment() -> None:
    found = experiment(TWO % (90, 10) + "  warmup: 2m")
    assert found.uid == "e"
    assert experiment(TWO % (90, 10) + "  warmup: 120s # two minutes").spec_hash == found.spec_hash
    assert experiment(TWO % (90, 10) + "  warmup: 2m\n  onBreach: rollback").spec_hash == found.spec_hash
    assert experiment(TWO % (90, 10) + "  warmup: 3m").spec_hash != found.spec_hash
    assert experiment(TWO % (90, 10) + "  warmup: 2m", ttl="120s").spec_hash == found.spec_hash
    assert experiment(TWO % (90, 10) + "  warmup: 2m", ttl="3m").spec_hash != found.spec_hash


@pytest.mark.parametrize(
    ("arms", "error"),
    [
        (63, None),
        (64, "spec.arms[63]: with the baseline that is made by itself there are more than 64 arms"),
        (65, "spec.arms: expected at most 64"),
    ],
)
def test_there_are_no_more_arms_than_can_be_counted(arms: int, error: str | None) -> None:
    more = "".join(f"{{name: a{place}, policyRef: {{name: new}}, weight: 1}}, " for place in range(arms - 2))
    text = (TWO % (100, 1)).replace("{name: candidate", more + "{name: candidate") + "  guardrails: [%s]\n"
    text %= "{metric: errorRate, maxIncrease: {absolute: 1%}}"
    if error is None:
        assert len(experiment(text).arms) == 64
        return
    with pytest.raises(PolicyErrors) as caught:
        experiment(text)
    assert error in str(caught.value)
