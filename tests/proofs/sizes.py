"""How much data one look at the end takes, in requests (or whatever else is counted) of each of two equal arms.

Requests are independent here; where they depend on each other, as those of one user do, more are needed.
"""

from __future__ import annotations

from math import ceil

from scipy.special import ndtri


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
