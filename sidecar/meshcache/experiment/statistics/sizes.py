"""How much data a verdict takes: before an experiment, and for one that is under way.

All sizes are requests (or whatever else is counted) in each of two equal arms. For requests that depend on each other,
as those of one user do, multiply by the design effect, which `Comparison` shows as its standard error.
"""

from __future__ import annotations

from math import ceil, isfinite, sqrt
from typing import TYPE_CHECKING, Final

from scipy.special import ndtri

from meshcache.experiment.statistics.boundary import factor

if TYPE_CHECKING:
    from meshcache.experiment.statistics.compare import Comparison

_MOST: Final = 2.0**60
"""Where the search for a size ends: no verdict is to be expected."""


def fixed_for_means(difference: float, variance: float, alpha: float = 0.05, power: float = 0.95) -> int:
    """For one look at a difference of means with `variance` in either arm: 2 variance (z_a + z_p)^2 / difference^2.

    The textbook's normal approximation, two-sided (Cochran 1977). Raises `ValueError` for a difference of 0.
    """
    if not (difference and variance >= 0):
        raise ValueError("a size needs a difference that is not 0, and a variance of 0 or more")
    quantiles = float(ndtri(1 - alpha / 2) + ndtri(power))
    return ceil(2 * variance * (quantiles / difference) ** 2)


def fixed_for_shares(one: float, other: float, alpha: float = 0.05, power: float = 0.95) -> int:
    """For one look at two shares of independent requests, such as hit ratios of 0.82 and 0.91."""
    return fixed_for_means(one - other, (one * (1 - one) + other * (1 - other)) / 2, alpha, power)


def sequential_for_means(difference: float, variance: float, alpha: float = 0.05, power: float = 0.95) -> int:
    """The size by which a confidence sequence, looked at all the time, finds `difference` with `power`.

    From where the expected standardised difference is above the boundary by the normal quantile of `power`. That is
    an upper limit, as the boundary may have been crossed before: half of all experiments end with much less.
    """
    if not (difference and variance >= 0):
        raise ValueError("a size needs a difference that is not 0, and a variance of 0 or more")
    if not variance:
        return 1
    return ceil(_grow(abs(difference) / sqrt(2 * variance), 0.5, alpha, power) or _MOST)


def still_needed(comparison: Comparison, difference: float, alpha: float, power: float = 0.8) -> int | None:
    """How many more requests either arm needs to find `difference` with `power` if it is there; 0 when enough.

    Supposes that arms go on growing with units like those seen so far. None where that cannot be said: too few data,
    or a `difference` that no amount of data would show.
    """
    error, time = comparison.standard_error, comparison.time
    if not (comparison.enough and isfinite(error) and isfinite(time) and error > 0 and difference):
        return None
    growth = _grow(abs(difference) / error, time, alpha, power)
    if growth is None:
        return None
    return max(0, ceil((growth - 1) * min(comparison.requests)))


def _grow(signal: float, time: float, alpha: float, power: float) -> float | None:
    """The least g with signal sqrt(g) >= z(time g) + z_power; None when there is none to be found."""
    margin = float(ndtri(power))

    def found(growth: float) -> bool:
        return signal * sqrt(growth) >= float(factor(time * growth, alpha)) + margin

    high = 1.0
    while not found(high):
        high *= 2
        if high > _MOST:
            return None
    low = high / 2 if high > 1 else 0.0
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high
