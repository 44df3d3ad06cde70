"""What a comparison of two arms says, and when it says nothing."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from experiment_arms import arm, users
from meshcache.experiment.metric import QUANTILES, Metric
from meshcache.experiment.statistics.compare import Lack, compare
from meshcache.experiment.totals import BUCKETS, ArmTotals


def spread(requests: int, share: float, seed: int = 1) -> ArmTotals:
    rng = np.random.default_rng(seed)
    return arm(rng.integers(0, BUCKETS, requests), rng.random(requests) < share)


@pytest.mark.parametrize("metric", list(Metric))
def test_no_data_is_inconclusive(metric: Metric) -> None:
    for one, other in ((ArmTotals(), ArmTotals()), (spread(5000, 0.9), ArmTotals()), (ArmTotals(), spread(5000, 0.9))):
        found = compare(metric, one, other, 0.05)
        assert found.lack is Lack.NO_DATA
        assert not found.enough
        for interval in (found.absolute, found.relative, found.candidate, found.baseline):
            assert interval.inconclusive
            assert not interval.above(-math.inf)
            assert not interval.below(math.inf)


@pytest.mark.parametrize("metric", [Metric.HIT_RATIO, Metric.ORIGIN_RATE, Metric.LATENCY_MEAN, Metric.LATENCY_P90])
def test_a_large_difference_is_seen(metric: Metric) -> None:
    better, worse = spread(4000, 0.95, 1), spread(4000, 0.7, 2)
    found = compare(metric, better, worse, 0.05)
    assert found.enough
    up = metric is Metric.HIT_RATIO
    assert found.absolute.above(0) is up
    assert found.absolute.below(0) is not up
    assert found.relative.excludes(0)
    assert found.absolute.low <= found.absolute.estimate <= found.absolute.high
    assert found.relative.low <= found.relative.estimate <= found.relative.high
    # Nothing but the sign changes when the arms change places.
    mirrored = compare(metric, worse, better, 0.05)
    assert mirrored.absolute.low == pytest.approx(-found.absolute.high)
    assert mirrored.absolute.high == pytest.approx(-found.absolute.low)


@pytest.mark.parametrize("metric", [Metric.HIT_RATIO, Metric.LATENCY_MEAN, *QUANTILES])
def test_equal_arms_are_not_told_apart(metric: Metric) -> None:
    totals = spread(3000, 0.8)
    found = compare(metric, totals, totals, 0.05)
    assert found.enough
    assert found.absolute.estimate == 0
    assert not found.absolute.excludes(0)
    assert not found.relative.excludes(0)


def test_few_requests_say_nothing() -> None:
    found = compare(Metric.HIT_RATIO, spread(49, 1.0), spread(5000, 0.1), 0.05)
    assert found.lack is Lack.FEW_REQUESTS
    assert found.candidate.estimate == 1.0
    assert found.absolute.inconclusive
    assert compare(Metric.LATENCY_P50, spread(49, 1.0), spread(5000, 0.1), 0.05).lack is Lack.FEW_REQUESTS


def test_few_units_say_nothing() -> None:
    rng = np.random.default_rng(1)
    buckets = rng.integers(0, 10, 5000)
    one, other = (arm(buckets, rng.random(5000) < share) for share in (0.9, 0.1))
    assert compare(Metric.HIT_RATIO, one, other, 0.05).lack is Lack.FEW_UNITS
    assert compare(Metric.LATENCY_P50, one, other, 0.05).lack is Lack.FEW_UNITS


def test_what_one_unit_does_says_nothing() -> None:
    rng = np.random.default_rng(1)
    one, other = spread(2000, 0.9, 1), spread(2000, 0.9, 2)
    one.errors[7] = min(40, int(one.requests[7]))
    assert compare(Metric.ERROR_RATE, one, other, 0.05).lack is Lack.FEW_EVENTS
    one.errors = rng.binomial(one.requests, 0.05)
    assert compare(Metric.ERROR_RATE, one, other, 0.05).absolute.above(0.01)


def busy(requests: int, added: float, seed: int) -> ArmTotals:
    """An arm of which one user, with a slow connection, makes an eighth of the requests."""
    rng = np.random.default_rng(seed)
    buckets = np.where(rng.random(requests) < 0.125, 7, rng.integers(0, BUCKETS, requests))
    hits = rng.random(requests) < 0.6
    latency = np.where(hits, 0.017, 0.184) + np.where(buckets == 7, 0.15, 0.02) + added
    return arm(buckets, hits, latency=latency)


def test_a_busy_user_hides_nothing_that_all_others_show() -> None:
    one, other = busy(2000, 0.1, 1), spread(2000, 0.6, 2)
    found = compare(Metric.LATENCY_MEAN, one, other, 0.01)
    assert found.absolute.above(0.02), found
    assert found.relative.above(0.1)
    # Alone he says nothing, however slow he is.
    for seed in range(2, 12):
        found = compare(Metric.LATENCY_MEAN, busy(2000, 0.0, seed), busy(2000, 0.0, seed + 20), 0.05)
        assert not found.absolute.excludes(0)
        found = compare(Metric.HIT_RATIO, busy(2000, 0.0, seed), spread(2000, 0.6, seed + 20), 0.05)
        assert not found.absolute.excludes(0)


def test_nothing_that_varies_says_nothing() -> None:
    found = compare(Metric.ERROR_RATE, spread(5000, 0.9, 1), spread(5000, 0.9, 2), 0.05)
    assert found.lack is Lack.NO_VARIATION
    assert found.absolute.estimate == 0


@pytest.mark.parametrize("few", [0, 1, 2])
def test_an_arm_in_which_everything_fails_is_seen(few: int) -> None:
    """Neither arm varies in itself, or next to nothing does: all the difference is between them."""
    one, other = spread(200, 0.0, 1), spread(200, 0.9, 2)
    one.errors = one.requests.copy()
    other.errors[np.flatnonzero(other.requests)[:few]] = 1
    for keys_shared in (True, False):
        found = compare(Metric.ERROR_RATE, one, other, 0.01, keys_shared=keys_shared)
        assert found.absolute.above(0.5), found
        assert found.relative.above(1)
        assert compare(Metric.ERROR_RATE, other, one, 0.01, keys_shared=keys_shared).absolute.below(-0.5)
    never, always = (
        compare(Metric.HIT_RATIO, one, spread(200, 1.0), 0.01),
        compare(Metric.HIT_RATIO, spread(200, 1.0), one, 0.01),
    )
    assert never.absolute.below(-0.5)
    assert always.absolute.above(0.5)


def test_nan_says_nothing() -> None:
    broken = spread(5000, 0.9)
    broken.hits_hot = broken.hits_hot.astype(np.float64)
    broken.hits_hot[3] = math.nan
    found = compare(Metric.HIT_RATIO, broken, spread(5000, 0.9), 0.05)
    assert found.lack is Lack.NOT_A_NUMBER
    assert found.absolute.inconclusive


def test_a_baseline_without_errors_has_no_upper_end() -> None:
    one, other = spread(4000, 0.9, 1), spread(4000, 0.9, 2)
    one.errors = np.random.default_rng(3).binomial(one.requests, 0.05)
    found = compare(Metric.ERROR_RATE, one, other, 0.05)
    assert found.enough
    assert found.absolute.above(0.01)
    assert found.relative.high == math.inf
    assert found.relative.above(0.2)
    back = compare(Metric.ERROR_RATE, other, one, 0.05)
    assert back.relative.low == -1
    assert back.relative.below(-0.2)


def test_units_that_differ_make_it_wider() -> None:
    rng = np.random.default_rng(5)
    alike = compare(Metric.HIT_RATIO, users(rng, 6000, 0.8, alike=1e6), users(rng, 6000, 0.8, alike=1e6), 0.05)
    differing = compare(Metric.HIT_RATIO, users(rng, 6000, 0.8, alike=2), users(rng, 6000, 0.8, alike=2), 0.05)
    assert differing.standard_error > 1.5 * alike.standard_error
    assert differing.time > 2 * alike.time


def test_alpha_is_a_probability() -> None:
    for alpha in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="alpha"):
            compare(Metric.HIT_RATIO, spread(100, 0.5), spread(100, 0.5), alpha)
    wide = compare(Metric.HIT_RATIO, spread(900, 0.5, 1), spread(900, 0.5, 2), 0.001).absolute
    narrow = compare(Metric.HIT_RATIO, spread(900, 0.5, 1), spread(900, 0.5, 2), 0.1).absolute
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize("metric", [Metric.HIT_RATIO, Metric.LATENCY_MEAN, Metric.LATENCY_P99])
def test_a_comparison_takes_little_time(metric: Metric) -> None:
    one, other = spread(5000, 0.9, 1), spread(5000, 0.8, 2)
    compare(metric, one, other, 0.05)
    began = time.process_time()
    for _ in range(20):
        compare(metric, one, other, 0.05)
    # Of the processor's time, as machines that run tests are busy; it takes a tenth of that.
    assert (time.process_time() - began) / 20 < 5e-3
