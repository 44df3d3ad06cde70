"""Arms that do not have the units they should have."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meshcache.experiment.statistics.sample_ratio import sample_ratio, srm_fixed


def test_the_fixed_test_flags_a_split_that_is_off_by_one_percent() -> None:
    found = srm_fixed([44_700, 45_489], [50, 50])
    # Chi-square of 789^2 / 90189 = 6.9024 with one degree of freedom.
    assert found.p_value == pytest.approx(0.008608, abs=1e-6)
    assert found.flagged
    assert not srm_fixed([44_900, 45_289], [50, 50]).flagged


def test_the_fixed_test_takes_any_weights() -> None:
    assert srm_fixed([8_000, 1_000, 1_000], [80, 10, 10]).p_value == pytest.approx(1)
    assert srm_fixed([8_000, 1_150, 850], [80, 10, 10]).flagged
    # Scale and order of the weights do not matter.
    assert srm_fixed([5, 1], [1e308, 1e308]) == srm_fixed([5, 1], [1, 1])
    assert srm_fixed([850, 8_000, 1_150], [0.1, 0.8, 0.1]).p_value == pytest.approx(
        srm_fixed([8_000, 1_150, 850], [80, 10, 10]).p_value
    )


@pytest.mark.parametrize("test", [srm_fixed, sample_ratio])
def test_no_units_are_no_mismatch(test: object) -> None:
    assert callable(test)
    assert test([0, 0], [1, 1]).p_value == 1
    assert not test([0, 0], [1, 1]).flagged


@pytest.mark.parametrize("test", [srm_fixed, sample_ratio])
def test_an_arm_without_weight_has_no_units(test: object) -> None:
    assert callable(test)
    assert test([500, 500, 1], [1, 1, 0]).flagged
    assert not test([500, 500, 0], [1, 1, 0]).flagged
    assert not test([500, 0], [1, 0]).flagged


@pytest.mark.parametrize("test", [srm_fixed, sample_ratio])
@pytest.mark.parametrize(
    ("counts", "weights"),
    [([1], [1, 1]), ([], []), ([-1, 2], [1, 1]), ([1, 2], [0, 0]), ([1, 2], [1, -1]), ([1, 2], [1, math.nan])],
)
def test_what_is_no_split_is_refused(test: object, counts: list[int], weights: list[float]) -> None:
    assert callable(test)
    with pytest.raises(ValueError, match=r"weights|counts"):
        test(counts, weights)


def test_a_mismatch_is_found_and_not_taken_back() -> None:
    found = sample_ratio([5_300, 4_700], [1, 1])
    assert found.flagged
    assert sample_ratio([10_000, 10_000], [1, 1], smallest=found.p_value) == found


def test_the_sequential_test_is_a_martingale() -> None:
    """The mean of the Bayes factor over all outcomes of some tosses is 1, here summed and not sampled."""
    tosses, share = 400, 0.3
    total = 0.0
    for heads in range(tosses + 1):
        chance = math.comb(tosses, heads) * share**heads * (1 - share) ** (tosses - heads)
        # Only factors above 1 can be seen in the p-value; those below are at most 1 each.
        p_value = sample_ratio([heads, tosses - heads], [share, 1 - share]).p_value
        total += chance / p_value if p_value < 1 else 0.0
    assert 0 < total <= 1


def test_fair_splits_are_rarely_flagged_however_often_one_looks() -> None:
    rng = np.random.default_rng(20)
    flagged = np.zeros(300, bool)
    for experiment in range(300):
        units = np.zeros(3)
        for step in range(60):
            units += rng.multinomial(int(20 * 1.12**step), [0.8, 0.1, 0.1])
            if sample_ratio(units.astype(int).tolist(), [80, 10, 10]).flagged:
                flagged[experiment] = True
                break
    # At most 1 % of them; the chance of more than 9 of 300 would then be 0.1 %.
    assert flagged.sum() <= 9
