"""What arms differ by besides their policies: chance from before, and traffic."""

from __future__ import annotations

import numpy as np
import pytest

from experiment_arms import arm
from meshcache.experiment.metric import Metric
from meshcache.experiment.statistics.compare import compare
from meshcache.experiment.totals import BUCKETS, ArmTotals


def two_times(seed: int, before: float, now: float) -> tuple[ArmTotals, ArmTotals]:
    """An arm whose users have the same habits before and now, about these hit ratios."""
    rng = np.random.default_rng(seed)
    habits = rng.beta(2, 2, 400) - 0.5
    buckets = rng.permutation(BUCKETS)[:400]

    def time(hit_ratio: float) -> ArmTotals:
        who = np.repeat(np.arange(400), 40)
        return arm(buckets[who], rng.random(len(who)) < hit_ratio + 0.55 * habits[who])

    return time(before), time(now)


def test_data_from_before_take_noise_away() -> None:
    seeds = range(40)
    plain, adjusted = [], []
    for seed in seeds:
        (candidate_before, candidate), (baseline_before, baseline) = (
            two_times(2 * seed, 0.6, 0.7),
            two_times(2 * seed + 1, 0.6, 0.65),
        )
        without = compare(Metric.HIT_RATIO, candidate, baseline, 0.05, keys_shared=False)
        with_before = compare(
            Metric.HIT_RATIO,
            candidate,
            baseline,
            0.05,
            candidate_before=candidate_before,
            baseline_before=baseline_before,
            keys_shared=False,
        )
        assert without.reduction == 0
        assert with_before.reduction > 0.3
        assert with_before.absolute.high - with_before.absolute.low < without.absolute.high - without.absolute.low
        plain.append(without.absolute.estimate)
        adjusted.append(with_before.absolute.estimate)
    # Nearer to the truth by about what it says, and not to one side of it.
    assert np.std(adjusted) < 0.8 * np.std(plain)
    assert np.mean(adjusted) == pytest.approx(0.05, abs=3 * np.std(adjusted) / len(adjusted) ** 0.5)


def test_data_from_before_that_say_nothing_change_nothing() -> None:
    (_, candidate), (_, baseline) = two_times(1, 0.6, 0.7), two_times(2, 0.6, 0.65)
    plain = compare(Metric.HIT_RATIO, candidate, baseline, 0.05)
    for before in (ArmTotals(), arm(np.arange(10), np.ones(10, np.bool_)), arm(np.arange(800), np.ones(800, np.bool_))):
        found = compare(Metric.HIT_RATIO, candidate, baseline, 0.05, candidate_before=before, baseline_before=before)
        assert found == plain
    unrelated, _ = two_times(77, 0.6, 0.7)
    found = compare(Metric.HIT_RATIO, candidate, baseline, 0.05, candidate_before=unrelated, baseline_before=unrelated)
    assert 0 <= found.reduction < 0.05


def spread(requests: int, hit_ratio: float, seed: int) -> ArmTotals:
    rng = np.random.default_rng(seed)
    return arm(rng.integers(0, BUCKETS, requests), rng.random(requests) < hit_ratio)


def test_an_arm_of_another_size_does_not_win_by_its_size() -> None:
    """Under one policy with 60 s of life, the arm of 90 % of the users hits 0.76 and that of 10 % hits 0.55."""
    large, small = spread(54_000, 0.76, 1), spread(6_000, 0.55, 2)
    assert not compare(Metric.HIT_RATIO, large, small, 0.05).absolute.excludes(0)
    assert not compare(Metric.LATENCY_MEAN, large, small, 0.05).relative.excludes(0)
    assert compare(Metric.HIT_RATIO, large, small, 0.05, keys_shared=False).absolute.above(0.1)
    # What is more than any traffic could make is seen all the same.
    assert compare(Metric.HIT_RATIO, small, spread(54_000, 0.1, 3), 0.05).absolute.above(0)


def test_arms_of_one_size_pay_next_to_nothing_for_it() -> None:
    one, other = spread(6_000, 0.8, 1), spread(6_000, 0.8, 2)
    shared = compare(Metric.HIT_RATIO, one, other, 0.05)
    apart = compare(Metric.HIT_RATIO, one, other, 0.05, keys_shared=False)
    assert shared.standard_error < 1.15 * apart.standard_error


@pytest.mark.parametrize("metric", [Metric.HIT_RATIO, Metric.LATENCY_MEAN, Metric.ORIGIN_RATE])
def test_what_traffic_explains_is_taken_off(metric: Metric) -> None:
    larger, smaller = spread(6_600, 0.8, 1), spread(6_000, 0.8, 2)
    shared = compare(metric, larger, smaller, 0.05).absolute.estimate
    apart = compare(metric, larger, smaller, 0.05, keys_shared=False).absolute.estimate
    assert (shared < apart) is (metric is Metric.HIT_RATIO)
