"""Whether the arms have the units that their weights promise: the test for a sample ratio mismatch.

A mismatch means that units were lost or moved on the way (an arm that crashes clients, a cookie that one arm does not
set), so that the arms' units are not alike and every other number is suspect (Fabijan and others 2019, "Diagnosing
sample ratio mismatch in online controlled experiments"). What is counted are different units, each once, never
requests, and never an extrapolation from a sample: of sampled units the sample's own counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import chdtrc, gammaln

from meshcache.experiment.statistics.boundary import mixture_scale

if TYPE_CHECKING:
    from collections.abc import Sequence

ALPHA: Final = 0.01
"""How often a fair split may be flagged."""
TIGHTEST_AT: Final = 20_000
"""The number of units at which the sequential test sees the smallest mismatch that it can."""


@dataclass(frozen=True, slots=True)
class SampleRatio:
    """What a test says of the units by arm."""

    p_value: float
    """The smaller, the less the split fits the weights; 1 without units."""
    flagged: bool
    """Whether the split does not fit."""


def srm_fixed(counts: Sequence[int], weights: Sequence[float], alpha: float = ALPHA) -> SampleRatio:
    """Pearson's chi-square test of `counts` of units by arm against `weights`, for a single look at the end.

    Wants 5 expected units in each arm. Looking again and again, it flags every split some day: see `sample_ratio`.
    Raises `ValueError` for weights or counts that are none.
    """
    seen, shares = _checked(counts, weights)
    if not seen.sum():
        return SampleRatio(1.0, False)
    if (seen[shares == 0] > 0).any():
        return SampleRatio(0.0, True)
    seen, shares = seen[shares > 0], shares[shares > 0]
    expected = shares * seen.sum()
    p_value = float(chdtrc(len(seen) - 1, ((seen - expected) ** 2 / expected).sum())) if len(seen) > 1 else 1.0
    return SampleRatio(p_value, p_value < alpha)


def sample_ratio(
    counts: Sequence[int], weights: Sequence[float], alpha: float = ALPHA, *, smallest: float = 1.0
) -> SampleRatio:
    """The sequential test: flags at most `alpha` of all fair splits, however often and for however long one looks.

    Lindon and Malek 2022, "Anytime-valid inference for multinomial count data", NeurIPS: the Bayes factor of a
    Dirichlet prior about the weights against the weights themselves,

        B(c w + n) / (B(c w) prod w_i^n_i),  B the multivariate beta function,

    is a martingale of mean 1 while the weights hold, so its inverse is a p-value at any time, and the least of those
    seen so far is as well. `smallest` is the least of earlier looks, which the caller keeps: a mismatch that was seen
    once is not taken back. The concentration c is the one at which the test is sharpest at `TIGHTEST_AT` units. Counts
    are of one epoch, in which weights did not change. Raises `ValueError` as `srm_fixed`.
    """
    seen, shares = _checked(counts, weights)
    if (seen[shares == 0] > 0).any():
        return SampleRatio(0.0, True)
    seen, shares = seen[shares > 0], shares[shares > 0]
    prior = mixture_scale(alpha, TIGHTEST_AT) * shares
    evidence = float(
        gammaln(prior.sum())
        - gammaln(prior.sum() + seen.sum())
        + (gammaln(prior + seen) - gammaln(prior) - seen * np.log(shares)).sum()
    )
    p_value = min(smallest, exp(-evidence) if evidence > 0 else 1.0)
    return SampleRatio(p_value, p_value < alpha)


def _checked(counts: Sequence[int], weights: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    if len(counts) != len(weights) or not counts:
        raise ValueError(f"as many counts as weights are needed, at least one: {len(counts)} and {len(weights)}")
    seen, shares = np.asarray(counts, np.float64), np.asarray(weights, np.float64)
    if not (np.isfinite(seen).all() and (seen >= 0).all()):
        raise ValueError("counts are numbers of units, 0 or more")
    if not (np.isfinite(shares).all() and (shares >= 0).all() and (shares > 0).any()):
        raise ValueError("weights are numbers of 0 or more, one of them above 0")
    # The largest becomes 1, as the sum of what is very large would be infinite.
    shares /= shares.max()
    return seen, shares / shares.sum()
