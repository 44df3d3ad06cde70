"""The bins of latency histograms: a quantile sketch with relative error, of fixed size, that merges by addition.

The mapping is that of DDSketch (Masson, Rim and Lee 2019, "DDSketch: a fast and fully-mergeable quantile sketch with
relative-error guarantees", section 2): bin i holds the values in (LOWEST g^(i-1), LOWEST g^i] with
g = (1 + a) / (1 - a), and stands for the value that no value of the bin is farther from than the share a. The range is
fixed, so a sketch is a plain array; what lies outside it counts in the first or last bin.
"""

from __future__ import annotations

from math import ceil, log
from typing import Final

ACCURACY: Final = 0.01
"""Relative error of every quantile within the range."""
LOWEST: Final = 1e-4
"""Seconds; everything below counts as this."""
HIGHEST: Final = 1e3
"""Seconds; everything above counts as this."""

_GROWTH: Final = (1 + ACCURACY) / (1 - ACCURACY)
_SCALE: Final = 1 / log(_GROWTH)
BINS: Final = ceil(log(HIGHEST / LOWEST) * _SCALE) + 1


def bin_of(seconds: float) -> int:
    """The bin of `seconds`; the first for anything that is not above `LOWEST` (NaN and negative values too)."""
    if not seconds > LOWEST:
        return 0
    if seconds >= HIGHEST:
        return BINS - 1
    return ceil(log(seconds / LOWEST) * _SCALE)


def value_of(index: int) -> float:
    """The value in seconds that stands for bin `index`."""
    return LOWEST if index == 0 else float(LOWEST * 2 * _GROWTH**index / (1 + _GROWTH))


def edge_of(index: int) -> float:
    """The upper edge of bin `index` in seconds; that of the last bin is only the end of the range."""
    return float(LOWEST * _GROWTH**index)
