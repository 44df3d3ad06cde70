"""Counts of an arm: what they add up to."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meshcache.experiment.bins import BINS, bin_of
from meshcache.experiment.totals import SAMPLE_GROUPS, ArmTotals, Histogram


def test_a_quantile_is_within_one_percent() -> None:
    histogram = Histogram()
    values = np.linspace(0.001, 1.0, 1000)
    for value in values:
        histogram.counts[bin_of(value)] += 1
    for level in (0.01, 0.5, 0.9, 0.95, 0.99, 1.0):
        exact = float(values[math.ceil(level * len(values)) - 1])
        assert histogram.quantile(level) == pytest.approx(exact, rel=0.0101)


def test_no_values_have_no_quantile() -> None:
    assert math.isnan(Histogram().quantile(0.5))


def test_groups_are_one_histogram_together() -> None:
    grouped = Histogram(np.zeros((SAMPLE_GROUPS, BINS), np.int64))
    plain = Histogram()
    for number, value in enumerate(np.geomspace(0.01, 10, 200)):
        grouped.counts[number % SAMPLE_GROUPS, bin_of(value)] += 1
        plain.counts[bin_of(value)] += 1
    assert (grouped.pooled == plain.counts).all()
    assert grouped.total == plain.total
    assert grouped.quantile(0.9) == plain.quantile(0.9)


def test_arms_add_up() -> None:
    first, second = ArmTotals(units=1), ArmTotals(units=2)
    first.requests[3] = 4
    second.requests[3] = 5
    second.sampled.counts[1, 7] = 2
    first.merge(second)
    assert first.requests[3] == 9
    assert first.units == 3
    assert first.sampled.counts.shape == (SAMPLE_GROUPS, BINS)
    assert first.sampled.pooled[7] == 2
