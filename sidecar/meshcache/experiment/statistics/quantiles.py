"""Quantiles of latency: one arm's, and the difference and ratio of two arms'.

One latency is sampled for each bucket of units and window of time, so that neither a busy unit nor a burst counts
more than others. That q is the quantile of level p means that each sample is at most q with probability p: the count
of such samples is binomial, whatever the distribution. With k of n at most q, the mixture of binomial likelihood
ratios over a beta prior

    M = B(a + k, b + n - k) / (B(a, b) p^k (1 - p)^(n - k)),  a = g p, b = g (1 - p),

is a martingale of mean 1, so by Ville's inequality P(any n: M >= 1 / alpha) <= alpha, and the q with M < 1 / alpha are
a confidence sequence (Howard and Ramdas 2022, "Sequential estimation of quantiles with applications to A/B testing and
best-arm identification", Bernoulli 28(3), theorem 1 (b), the beta-binomial boundary; g plays rho's part of `boundary`).

**Two arms.** Their samples are independent, so the product of both arms' M is a martingale too. The differences (and
ratios) of all pairs of quantiles whose product stays below 1 / alpha are the confidence sequence. A union bound
over two intervals would need almost twice the samples.

**Samples are not all independent.** Those of one bucket in different windows are of the same units. How much that
matters at p is the design effect d (Kish 1965): the variance of the share of samples at most q between groups of
buckets, by the jackknife as in `ratios`, over that of independent samples. n and k are divided by it, never
multiplied. The clock stays that of the sum, n d (see `boundary`): M is divided by sqrt((n d + g) / (n / d + g)).

**Bins.** Samples are known by their bin, 2 % wide. A quantile lies in a bin if any share between those at most its
lower and its upper edge is not excluded; ends are edges of bins, so no error comes from binning.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, nan
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

from meshcache.experiment.bins import BINS, edge_of, value_of
from meshcache.experiment.statistics.boundary import VERDICT_AT, Floats, mixture_scale
from meshcache.experiment.statistics.interval import Interval

MIN_SAMPLES: Final = 50
"""Samples that either arm needs before anything is said."""
MIN_GROUPS: Final = 16
"""Groups of buckets with samples that either arm needs, to see how much they differ."""

_UPPER: Final = np.array([*(edge_of(index) for index in range(BINS - 1)), np.inf])
_LOWER: Final = np.array([0.0, *_UPPER[:-1]])


@dataclass(frozen=True, slots=True)
class ArmQuantile:
    """A quantile of one arm: its estimate, and the evidence against every other value."""

    value: float
    """Seconds; NaN without samples."""
    samples: int
    groups: int
    """Those with samples."""
    falling: Floats
    """Natural logarithm of M, the least in each bin from the first to that of `value`; does not rise."""
    rising: Floats
    """The same from the bin of `value` to the last; does not fall."""

    @property
    def least(self) -> float:
        """The evidence against the estimate itself."""
        return min(float(self.falling[-1]), float(self.rising[0]))

    def range_below(self, limit: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The first and last bin with evidence below each `limit`, which is above `least`."""
        first = np.searchsorted(-self.falling, -limit, side="right")
        last = len(self.falling) - 2 + np.searchsorted(self.rising, limit, side="left")
        # Where only one branch is below the limit, the other begins one bin too far inside.
        middle = len(self.falling) - 1
        return np.minimum(first, middle), np.maximum(last, middle)

    def interval(self, alpha: float) -> Interval:
        """The quantile in seconds, with probability 1 - `alpha` at all times together."""
        first, last = self.range_below(np.array([max(-log(alpha), self.least)]))
        return Interval(self.value, float(_LOWER[first[0]]), float(_UPPER[last[0]]))


def arm_quantile(counts: NDArray[np.int64], level: float, alpha: float) -> ArmQuantile:
    """The quantile of `level` of samples by group and bin: int64, shape (groups, BINS)."""
    sizes = counts.sum(axis=1).astype(np.float64)
    samples = float(sizes.sum())
    if not samples > 0:
        return ArmQuantile(nan, 0, 0, np.zeros(1), np.zeros(BINS))
    upper = np.cumsum(counts.sum(axis=0)) / samples
    # Rounding must not put the quantile one bin too high.
    middle = int(np.searchsorted(upper, level * (1 - 1e-12)))
    lower = counts[:, :middle].sum(axis=1)
    effect = max(1.0, _design_effect(lower, sizes), _design_effect(lower + counts[:, middle], sizes))
    nearest = np.clip(level, np.concatenate(([0.0], upper[:-1])), upper)
    evidence = _evidence(nearest, samples, effect, level, alpha)
    return ArmQuantile(
        value_of(middle),
        int(samples),
        int(np.count_nonzero(sizes)),
        np.minimum.accumulate(evidence[: middle + 1]),
        np.minimum.accumulate(evidence[middle:][::-1])[::-1],
    )


def _design_effect(counts: NDArray[np.int64], sizes: Floats) -> float:
    """How many times as much the share of `counts` in `sizes`, both by group, varies as with independent samples."""
    samples = float(sizes.sum())
    share = float(counts.sum()) / samples
    if not 0 < share < 1:
        return 1.0
    influence = (counts - share * sizes) / samples / np.maximum(1 - sizes / samples, 1e-9)
    squares = influence**2
    variance = float(squares.sum())
    # One more average group, as in `ratios`: few groups with anything in the tail tell little.
    variance += float(squares @ squares) / variance if variance > 0 else 0.0
    return variance * samples / (share * (1 - share))


def _evidence(share: Floats, samples: float, effect: float, level: float, alpha: float) -> Floats:
    """The natural logarithm of M for a `share` of the samples at most at the quantile of `level`."""
    scale = mixture_scale(alpha, VERDICT_AT)
    effective = samples / effect
    count = effective * share
    prior = scale * level, scale * (1 - level)
    mixture = betaln(prior[0] + count, prior[1] + effective - count) - betaln(*prior)
    likelihood = count * log(level) + (effective - count) * log(1 - level)
    clock = 0.5 * log((samples * effect + scale) / (effective + scale))
    return np.asarray(mixture - likelihood - clock, np.float64)


def differences(candidate: ArmQuantile, baseline: ArmQuantile, alpha: float) -> tuple[Interval, Interval]:
    """Candidate minus baseline in seconds, and candidate over baseline minus 1; each a confidence sequence."""
    limit = max(-log(alpha), candidate.least + baseline.least + 1e-9)
    first, last = candidate.range_below(np.array([limit - baseline.least]))
    bins = np.arange(first[0], last[0] + 1)
    middle = len(candidate.falling) - 1
    evidence = np.concatenate((candidate.falling, candidate.rising[1:]))[bins]
    evidence[bins == middle] = candidate.least
    lowest, highest = baseline.range_below(limit - evidence)
    absolute = Interval(
        candidate.value - baseline.value,
        float((_LOWER[bins] - _UPPER[highest]).min()),
        float((_UPPER[bins] - _LOWER[lowest]).max()),
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = Interval(
            candidate.value / baseline.value - 1,
            float(np.nan_to_num(_LOWER[bins] / _UPPER[highest], nan=0.0).min()) - 1,
            float(np.nan_to_num(_UPPER[bins] / _LOWER[lowest], nan=np.inf, posinf=np.inf).max()) - 1,
        )
    return absolute, relative
