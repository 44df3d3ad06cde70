"""What else the arms differ by than their policy, and how much of a difference it explains.

**Data from before** (CUPED; Deng, Xu, Kohavi and Walker 2013, "Improving the sensitivity of online controlled
experiments by utilizing pre-experiment data", section 3.2). Users who were hit often before are hit often now. Whatever
the arms differed by before, chance made; its echo, theta times it, is taken off the difference now. The units are
buckets, as everywhere here; theta = Cov / Var is the slope of the buckets' influences now on those before, both arms
together. A bucket without data before has influence 0 then, and is left as it is. The data before must come from a
time in which both arms were under the same policy with the same state. Else the difference before is not chance, and
would be taken off the effect. A warm-up in which the candidate's policy was in force already is not such a time.

**Traffic.** The users of an arm share its cache, so an arm that by chance got the busier users has more hits, for
each of its users: units are not quite independent, and no spread between units shows it (interference; Hudgens and
Halloran 2008). How much it can be is known. A key that is asked for l times in a lifetime is hit with probability
h = l / (1 + l), so that dh / d ln l = h (1 - h), and over all keys, h (1 - h) being concave, dr / d ln N <= r (1 - r)
for the hit ratio r and requests N: it grows by at most the share 1 - r of itself as traffic grows e-fold, and what
misses bring (origin requests, bytes, errors, latency) falls by at most the share r of itself. The slope is therefore
between 0 and that bound, of which a part may be seen between buckets already (a busy user hits its own keys more
often). Half the bound is taken as the slope, and what ln(N1 / N2) varies by, times the other half, is added to the
variance. Where many users are of like activity that is next to nothing. Assignment makes ln(N1 / N2) vary about 0; when
it is farther from there than three standard deviations, the arms are not of one size, and the excess, times half the
bound, widens the interval at both ends. Where one or two busy users make most of that variance, chance has no size that
could be known. Then nothing of ln(N1 / N2) counts as chance: all of it, times half the bound, widens the interval. That
holds whatever it varies by, since it is bounded and known; and which of the two is done depends on who asks how often,
not on what comes of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Final

import numpy as np

from meshcache.experiment.metric import Metric
from meshcache.experiment.statistics import ratios

if TYPE_CHECKING:
    from meshcache.experiment.statistics.boundary import Floats
    from meshcache.experiment.totals import ArmTotals

_OF_HITS: Final = frozenset({Metric.HIT_RATIO, Metric.AGE_MEAN, Metric.COST_SAVED})
"""What grows with hits. Stale answers may grow with traffic or fall; everything else comes with misses."""


@dataclass(frozen=True, slots=True)
class Covariate:
    """Something by which arms differ, and its slope: how much of the metric goes with one of it."""

    slope: float
    difference: float
    """Candidate minus baseline."""
    candidate: Floats
    """How each bucket moves it, shape (BUCKETS,)."""
    baseline: Floats
    tolerance: float = 0.0
    """How far the true slope may be from `slope`, either way."""


def before(
    metric: Metric,
    candidate: ratios.ArmRatio,
    baseline: ratios.ArmRatio,
    candidate_before: ArmTotals,
    baseline_before: ArmTotals,
) -> Covariate | None:
    """The same metric before; None where there is too little of it, or nothing that varies."""
    one, other = (
        ratios.arm_ratio(ratios.numerators(metric, totals), totals.requests.astype(np.float64))
        for totals in (candidate_before, baseline_before)
    )
    if min(one.requests, other.requests) < ratios.MIN_REQUESTS or min(one.buckets, other.buckets) < ratios.MIN_BUCKETS:
        return None
    spread = one.variance + other.variance
    if not spread > 0:
        return None
    slope = float(candidate.influence @ one.influence + baseline.influence @ other.influence) / spread
    return Covariate(slope, one.value - other.value, one.influence, other.influence)


def traffic(metric: Metric, candidate: ArmTotals, baseline: ArmTotals) -> Covariate:
    """The logarithm of requests, with the slopes that a cache can have for `metric`. Both arms have requests."""
    sizes = float(candidate.requests.sum()), float(baseline.requests.sum())
    rises = falls = 0.0
    for totals, size in zip((candidate, baseline), sizes, strict=True):
        hits = float(ratios.numerators(Metric.HIT_RATIO, totals).sum()) / size
        value = float(ratios.numerators(metric, totals).sum()) / size
        if metric in _OF_HITS:
            rises = max(rises, (1 - hits) * value)
        elif metric is Metric.STALE_RATIO:
            rises, falls = max(rises, value), max(falls, value)
        else:
            falls = max(falls, hits * value)
    one, other = (_of_size(totals.requests / size) for totals, size in zip((candidate, baseline), sizes, strict=True))
    if ratios.contributing(one**2, other**2) < ratios.MIN_CONTRIBUTING:
        one = other = np.zeros_like(one)
    return Covariate((rises - falls) / 2, log(sizes[0] / sizes[1]), one, other, (rises + falls) / 2)


def _of_size(shares: Floats) -> Floats:
    """How each bucket moves the logarithm of all requests, from its share in them: a jackknife again.

    All buckets count, the empty ones too: how much they differ is how much the sum varies.
    """
    lost = -np.log1p(-np.minimum(shares, 1 - 1e-9))
    return np.asarray(lost - lost.mean(), np.float64)
