"""Intervals that say something, and those that do not."""

from __future__ import annotations

from math import inf, nan

import pytest

from meshcache.experiment.statistics.interval import NOTHING, Interval, without_limits


def test_an_interval_is_above_below_or_neither() -> None:
    interval = Interval(2.0, 1.0, 3.0)
    assert interval.above(0.5)
    assert not interval.above(1.0)
    assert interval.below(3.5)
    assert not interval.below(3.0)
    assert interval.excludes(0.5)
    assert interval.excludes(3.5)
    assert not interval.excludes(2.9)


@pytest.mark.parametrize("interval", [NOTHING, without_limits(5.0), Interval(1.0, nan, 2.0), Interval(1.0, 0.0, nan)])
def test_nothing_passes_and_nothing_fails_without_limits(interval: Interval) -> None:
    assert interval.inconclusive
    for limit in (-inf, -1.0, 0.0, 1.0, inf, nan):
        assert not interval.above(limit)
        assert not interval.below(limit)
        assert not interval.excludes(limit)


def test_nothing_is_above_a_limit_that_is_no_number() -> None:
    assert not Interval(2.0, 1.0, 3.0).above(nan)
    assert not Interval(2.0, 1.0, inf).below(nan)
    assert not Interval(2.0, 1.0, inf).inconclusive
