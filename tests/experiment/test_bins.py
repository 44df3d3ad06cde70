"""The bins of latency histograms keep every quantile within their accuracy."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from meshcache.experiment.bins import ACCURACY, BINS, HIGHEST, LOWEST, bin_of, value_of


@given(st.floats(LOWEST, HIGHEST))
def test_a_value_is_within_the_accuracy_of_its_bin(seconds: float) -> None:
    index = bin_of(seconds)
    assert 0 <= index < BINS
    assert abs(value_of(index) - seconds) <= ACCURACY * seconds * (1 + 1e-9)


@given(st.floats(LOWEST, HIGHEST), st.floats(LOWEST, HIGHEST))
def test_order_is_kept(one: float, other: float) -> None:
    assert (bin_of(one) <= bin_of(other)) or one > other


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_anything_has_a_bin(seconds: float) -> None:
    assert 0 <= bin_of(seconds) < BINS
    assert math.isfinite(value_of(bin_of(seconds)))
