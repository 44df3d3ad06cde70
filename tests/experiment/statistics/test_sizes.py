"""How much data a verdict takes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiment_arms import users
from meshcache.experiment.metric import Metric
from meshcache.experiment.statistics.compare import Comparison, compare
from meshcache.experiment.statistics.sizes import fixed_for_means, fixed_for_shares, sequential_for_means, still_needed
from meshcache.experiment.totals import ArmTotals


def test_the_textbook_size_of_two_shares() -> None:
    # (1.95996 + 1.64485)^2 (0.82 0.18 + 0.91 0.09) / 0.09^2
    assert fixed_for_shares(0.82, 0.91) == 369
    assert fixed_for_shares(0.82, 0.91, power=0.8) == 223
    assert fixed_for_shares(0.91, 0.82) == 369


def test_the_textbook_size_of_two_means() -> None:
    assert fixed_for_means(0.5, 1.0, power=0.8) == 63


def test_a_sequence_takes_more_but_not_much() -> None:
    for difference in (0.2, 0.1, 0.02):
        ratio = sequential_for_means(difference, 1.0) / fixed_for_means(difference, 1.0)
        assert 1.2 < ratio < 2.5


@pytest.mark.parametrize("size", [fixed_for_means, sequential_for_means])
def test_no_difference_has_no_size(size: object) -> None:
    assert callable(size)
    with pytest.raises(ValueError, match="difference"):
        size(0.0, 1.0)
    assert size(1.0, 0.0) <= 1


def comparison(requests: int, seed: int) -> Comparison:
    rng = np.random.default_rng(seed)
    one, other = (users(rng, requests, 0.8, count=requests // 4) for _ in range(2))
    return compare(Metric.HIT_RATIO, one, other, 0.05)


def test_what_is_still_needed_shrinks_as_data_come() -> None:
    few, many = comparison(400, 1), comparison(12_000, 1)
    needed = still_needed(few, 0.02, 0.05)
    assert needed is not None
    assert needed > 4000
    later = still_needed(many, 0.02, 0.05)
    assert later is not None
    assert later < needed
    assert still_needed(many, 0.5, 0.05) == 0


def test_what_cannot_be_said_is_not_said() -> None:
    nothing = compare(Metric.HIT_RATIO, ArmTotals(), ArmTotals(), 0.05)
    assert still_needed(nothing, 0.1, 0.05) is None
    assert still_needed(comparison(400, 1), 0.0, 0.05) is None
    assert still_needed(comparison(400, 1), 1e-12, 0.05) is None


def test_quantiles_have_a_size_as_well() -> None:
    rng = np.random.default_rng(1)
    found = compare(Metric.LATENCY_P90, users(rng, 900, 0.9), users(rng, 900, 0.9), 0.05)
    assert math.isfinite(found.standard_error)
    assert still_needed(found, 1e-3, 0.05)
