"""Quantiles of one arm and of two: against the definition, and against chance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from meshcache.experiment.bins import BINS, edge_of, value_of
from meshcache.experiment.statistics.quantiles import ArmQuantile, arm_quantile, differences
from meshcache.experiment.totals import SAMPLE_GROUPS

Counts = NDArray[np.int64]

UPPER = np.array([*(edge_of(index) for index in range(BINS - 1)), np.inf])
LOWER = np.array([0.0, *UPPER[:-1]])


def grouped(bins: NDArray[np.int64], seed: int = 1) -> Counts:
    counts = np.zeros((SAMPLE_GROUPS, BINS), np.int64)
    np.add.at(counts, (np.random.default_rng(seed).integers(0, SAMPLE_GROUPS, len(bins)), bins), 1)
    return counts


def evidence(arm: ArmQuantile) -> list[float]:
    """For each bin, whichever branch says less about the one in the middle."""
    joined = [*arm.falling[:-1], arm.least, *arm.rising[1:]]
    assert len(joined) == BINS
    return [float(each) for each in joined]


samples = st.lists(st.integers(100, 130) | st.integers(0, BINS - 1), min_size=1, max_size=120)
levels = st.sampled_from([0.5, 0.9, 0.99])


@settings(max_examples=40, deadline=None)
@given(samples, levels)
def test_the_estimate_is_the_quantile_of_all_samples(bins: list[int], level: float) -> None:
    found = arm_quantile(grouped(np.array(bins)), level, 0.05)
    assert found.samples == len(bins)
    assert found.value == value_of(sorted(bins)[math.ceil(level * len(bins) - 1e-9) - 1])
    interval = found.interval(0.05)
    assert interval.low <= found.value <= interval.high
    assert all(np.diff(found.falling) <= 0)
    assert all(np.diff(found.rising) >= 0)


@settings(max_examples=10, deadline=None)
@given(samples, samples, levels, st.sampled_from([0.2, 0.05, 0.001]))
def test_differences_are_those_of_all_pairs_that_are_not_excluded(
    one: list[int], other: list[int], level: float, alpha: float
) -> None:
    candidate = arm_quantile(grouped(np.array(one), 1), level, alpha)
    baseline = arm_quantile(grouped(np.array(other), 2), level, alpha)
    absolute, relative = differences(candidate, baseline, alpha)
    limit = max(-math.log(alpha), candidate.least + baseline.least + 1e-9)
    first, second = np.array(evidence(candidate)), np.array(evidence(baseline))
    i, j = np.nonzero(first[:, None] + second[None, :] < limit)
    assert absolute.low == pytest.approx((LOWER[i] - UPPER[j]).min())
    assert absolute.high == pytest.approx((UPPER[i] - LOWER[j]).max())
    with np.errstate(divide="ignore"):
        assert relative.low == pytest.approx((LOWER[i] / UPPER[j]).min() - 1)
        assert relative.high == pytest.approx((UPPER[i] / LOWER[j]).max() - 1)
    assert absolute.low <= absolute.estimate <= absolute.high
    assert relative.low <= relative.estimate <= relative.high


def test_the_mixture_is_a_martingale() -> None:
    """The mean of M over all outcomes of some independent samples is 1, here summed and not sampled."""
    size, level = 64, 0.9
    total = 0.0
    for below in range(size + 1):
        counts = np.zeros((1, BINS), np.int64)
        counts[0, 10], counts[0, 20] = below, size - below
        found = arm_quantile(counts, level, 0.05)
        # The evidence that bin 15, between the two, holds the quantile: exactly `below` samples are at most there.
        middle = len(found.falling) - 1
        here = found.falling[15] if middle >= 15 else found.rising[15 - middle]
        chance = math.comb(size, below) * level**below * (1 - level) ** (size - below)
        total += chance * math.exp(here)
    assert total == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_independent_samples_cross_rarely(level: float) -> None:
    ordered = np.sort(np.exp(np.random.default_rng(4).standard_normal(400_000) * 0.5 - 3))
    quantile = float(ordered[int(level * len(ordered))])
    missed = 0
    for seed in range(60):
        counts = np.zeros((SAMPLE_GROUPS, BINS), np.int64)
        stream = np.random.default_rng(seed)
        for _ in range(15):
            bins = np.searchsorted(UPPER, np.exp(stream.standard_normal(60) * 0.5 - 3))
            np.add.at(counts, (stream.integers(0, SAMPLE_GROUPS, 60), bins), 1)
            interval = arm_quantile(counts, level, 0.2).interval(0.2)
            if interval.excludes(quantile):
                missed += 1
                break
    # At most a fifth; the chance of more than 22 of 60 would then be 0.1 %.
    assert missed <= 22


def test_samples_of_the_same_users_make_it_wider() -> None:
    rng = np.random.default_rng(1)
    counts = np.zeros((SAMPLE_GROUPS, BINS), np.int64)
    apart = np.zeros_like(counts)
    for group in range(SAMPLE_GROUPS):
        slow = rng.random() < 0.5
        counts[group, 300 if slow else 200] += 50
        apart[group, [200, 300]] += 25
    alike = arm_quantile(apart, 0.9, 0.05)
    differing = arm_quantile(counts, 0.9, 0.05)
    assert differing.interval(0.05).low < alike.interval(0.05).low


def test_ends_of_the_range_are_no_limits() -> None:
    slow = arm_quantile(grouped(np.full(500, BINS - 1)), 0.5, 0.05)
    fast = arm_quantile(grouped(np.zeros(500, np.int64)), 0.5, 0.05)
    assert slow.interval(0.05).high == math.inf
    assert fast.interval(0.05).low == 0.0
    absolute, relative = differences(slow, fast, 0.05)
    assert absolute.above(100)
    assert relative.high == math.inf
