"""The normal mixture boundary: its shape, and how often random walks cross it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meshcache.experiment.statistics.boundary import VERDICT_AT, factor, mixture_scale


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.0005])
def test_it_is_tightest_where_it_should_be(alpha: float) -> None:
    """Not at that time, which is no minimum of z, but for all choices of rho: none gives a smaller z there."""
    best = float(factor(VERDICT_AT, alpha))
    for change in (0.5, 0.9, 1.1, 2.0):
        assert float(factor(VERDICT_AT, alpha, at=VERDICT_AT * change)) > best
    assert mixture_scale(alpha, 100.0) == pytest.approx(mixture_scale(alpha, 1.0) * 100)


def test_it_is_what_the_formula_says() -> None:
    # rho = 1000 / 8.1915 for alpha 0.05: u = ln(1 + u) + 2 ln 20 has the solution 8.2095.
    rho = mixture_scale(0.05, 1000.0)
    ratio = 1000.0 / rho
    assert math.log1p(ratio) + 2 * math.log(20) == pytest.approx(ratio)
    assert float(factor(1000.0, 0.05)) == pytest.approx(math.sqrt((1 + 1 / ratio) * ratio))


def test_it_widens_without_end_on_both_sides() -> None:
    assert float(factor(0.0, 0.05)) == math.inf
    assert float(factor(1.0, 0.05)) > 20
    early, middle, late = (float(factor(time, 0.05)) for time in (10.0, 1e3, 1e9))
    assert early > middle
    assert middle < late < 5


def test_random_walks_cross_it_as_rarely_as_it_says() -> None:
    rng = np.random.default_rng(3)
    steps = np.cumsum(rng.standard_normal((2000, 3000)), axis=1)
    times = np.arange(1.0, 3001.0)
    for alpha in (0.2, 0.05):
        crossed = (np.abs(steps) > factor(times, alpha, at=200.0) * np.sqrt(times)).any(axis=1).mean()
        error = math.sqrt(alpha * (1 - alpha) / 2000)
        assert alpha / 3 < crossed < alpha + 3 * error
