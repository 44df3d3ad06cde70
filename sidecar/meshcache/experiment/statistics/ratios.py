"""Metrics that are one sum over another, by bucket of units: hit ratio, error rate, mean latency and their like.

An arm's value is r = sum x / sum n over its buckets, of x the hits, errors, seconds ... and n the requests. Units, not
requests, are independent, so the spread is seen between buckets: bucket b moves r by u = (x_b - r n_b) / N (the
linearisation of the delta method; Deng, Knoblich and Lu 2018, "Applying the delta method in metric analytics",
section 3; for sums over clusters Liang and Zeger 1986), and Var r is the sum of u^2. Few units make most of the
traffic. Each u is therefore divided by 1 - n_b / N, its leverage: that is the jackknife's variance (CR3; MacKinnon
and White 1985; Bell and McCaffrey 2002), which does not count a heavy bucket's pull on r as agreement. The statistic
is self-normalised: a bucket that dominates the difference dominates its standard error as well, which keeps the tails
light where those of units are heavy (Efron 1969; de la Pena 1999).

To either arm is added what one more average bucket would contribute. It vanishes with the data, and an arm without
any error yet does not count as an arm that cannot have one. What an average bucket is, both arms together say: how far
buckets are from the value of all requests, r of both arms. So when every request of one arm fails and none of the
other, where neither arm varies in itself, there is a spread, and a verdict; with one policy, twenty buckets on either
side would be so divided in less than one of 10^11 experiments (of all ways to divide them). Where both arms are alike,
that is the spread within them.

The clock of the boundary (see `boundary`) is V = N^2 Var(r_candidate - r_baseline) with N = N1 N2 / (N1 + N2), divided
by the variance of a single request, so that its unit is one request; for requests independent of each other it is N.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, nan, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from meshcache.experiment.metric import SHARES, Metric
from meshcache.experiment.statistics.boundary import Floats, factor
from meshcache.experiment.statistics.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshcache.experiment.statistics.covariates import Covariate
    from meshcache.experiment.totals import ArmTotals

MIN_REQUESTS: Final = 50
"""Requests that either arm needs before anything is said."""
MIN_BUCKETS: Final = 20
"""Buckets with requests that either arm needs: so many units at least."""
MIN_CONTRIBUTING: Final = 3.0
"""Buckets that make the difference, at least. When all of it comes from fewer, its spread cannot be known."""


def numerators(metric: Metric, totals: ArmTotals) -> Floats:
    """The sums that `metric` divides by requests, shape (BUCKETS,), in the metric's unit: seconds, bytes, money."""
    match metric:
        case Metric.HIT_RATIO:
            counts, unit = totals.hits_hot + totals.hits_warm + totals.hits_cold, 1.0
        case Metric.STALE_RATIO:
            counts, unit = totals.stale, 1.0
        case Metric.ERROR_RATE:
            counts, unit = totals.errors, 1.0
        case Metric.ORIGIN_RATE:
            counts, unit = totals.origin_requests, 1.0
        case Metric.ORIGIN_BYTES:
            counts, unit = totals.origin_bytes, 1.0
        case Metric.LATENCY_MEAN:
            counts, unit = totals.latency_us, 1e-6
        case Metric.AGE_MEAN:
            counts, unit = totals.age_ms, 1e-3
        case Metric.COST_SAVED:
            counts, unit = totals.cost_micros, 1e-6
        case _:
            raise ValueError(f"{metric} is not a ratio of sums")
    return np.asarray(counts, np.float64) * unit


def request_variance(metric: Metric, candidate: ArmTotals, baseline: ArmTotals) -> float:
    """About how much single requests vary, both arms together: the unit of the clock, no part of any standard error.

    Shares: r (1 - r). Latency: from the sums of squares. The rest, of which no squares are kept: r^2, as for values
    distributed exponentially.
    """
    requests = float(candidate.requests.sum() + baseline.requests.sum())
    mean = float(numerators(metric, candidate).sum() + numerators(metric, baseline).sum()) / requests
    if metric is Metric.LATENCY_MEAN:
        squares = float(candidate.latency_square.sum() + baseline.latency_square.sum()) * 1e-6
        # Squares are rounded to square milliseconds: what is far below is taken as spread like its mean.
        return max(squares / requests - mean**2, 1e-2 * mean**2)
    if metric in SHARES and mean < 1:
        return mean * (1 - mean)
    return mean**2


@dataclass(frozen=True, slots=True)
class ArmRatio:
    """The ratio of one arm, and how each bucket moves it."""

    value: float
    requests: float
    buckets: int
    """Those with requests."""
    influence: Floats
    """u_b over 1 minus its leverage, shape (BUCKETS,)."""
    weights: Floats
    """n_b / N over 1 minus itself, shape (BUCKETS,): what the influence changes by, for each unit less of `value`."""

    @property
    def variance(self) -> float:
        """Of `value`, without the additional bucket."""
        return float(self.influence @ self.influence)


def arm_ratio(numerator: Floats, requests: Floats) -> ArmRatio:
    """Sum of `numerator` over sum of `requests`, both of shape (BUCKETS,); all NaN without requests."""
    size = float(requests.sum())
    if not size > 0:
        return ArmRatio(nan, 0.0, 0, np.full(requests.shape, nan), np.full(requests.shape, nan))
    value = float(numerator.sum()) / size
    share = requests / size
    # A bucket with all requests has no leverage left; there is no verdict by it either.
    rest = np.maximum(1 - share, 1e-9)
    influence = (numerator - value * requests) / size / rest
    return ArmRatio(value, size, int(np.count_nonzero(requests)), influence, share / rest)


def contributing(*squares: Floats) -> float:
    """How many buckets make the sum of these squares: (sum u^2)^2 / sum u^4; 0 where all are 0."""
    total = sum(float(each.sum()) for each in squares)
    fourth = sum(float(each @ each) for each in squares)
    return total**2 / fourth if fourth > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Contrast:
    """Two estimates with their joint spread, ready to be compared."""

    candidate: float
    baseline: float
    candidate_variance: float
    baseline_variance: float
    covariance: float
    contributing: float
    """How many buckets make the difference, with u from the value of both arms together: see `contributing`."""
    time: float
    """The clock of the boundary, in requests."""
    slack: float = 0.0
    """How much farther than for its variance the candidate's value may be off, either way."""

    @property
    def variance(self) -> float:
        """Of candidate minus baseline."""
        return self.candidate_variance + self.baseline_variance - 2 * self.covariance

    def absolute(self, alpha: float) -> Interval:
        """Candidate minus baseline, with probability 1 - `alpha` at all times together."""
        width = _width(self.variance, self.time, alpha) + self.slack
        difference = self.candidate - self.baseline
        return Interval(difference, difference - width, difference + width)

    def relative(self, alpha: float) -> Interval:
        """Candidate over baseline minus 1, for metrics that are not negative.

        Fieller 1954, "Some problems in interval estimation": the ratios R that are not excluded, namely those with
        |candidate - R baseline| <= z(t) times its standard error. Unlike an interval on the logarithm, it knows the
        case in which the baseline may be 0 for all that is known: then there is no upper end.
        """
        estimate = self.candidate / self.baseline - 1 if self.baseline else inf
        squared = float(factor(self.time, alpha)) ** 2
        if not isfinite(squared):
            return Interval(estimate, -1.0, inf)
        low = self._ratios(self.candidate - self.slack, squared)[0]
        return Interval(estimate, low - 1, self._ratios(self.candidate + self.slack, squared)[1] - 1)

    def _ratios(self, candidate: float, squared: float) -> tuple[float, float]:
        """The least and the largest ratio of `candidate` to the baseline, with the square of z(t)."""
        # Roots of square R^2 - 2 linear R + constant, the inequality written out.
        square = self.baseline**2 - squared * self.baseline_variance
        linear = candidate * self.baseline - squared * self.covariance
        constant = candidate**2 - squared * self.candidate_variance
        root = sqrt(max(linear**2 - square * constant, 0.0))
        if square > 0:
            return max((linear - root) / square, 0.0), (linear + root) / square
        # The roots' product is constant / square: where the candidate is above 0 for certain, one of them is positive,
        # and everything above it is possible.
        return (linear - root) / square if constant > 0 > square and candidate > 0 else 0.0, inf


def contrast(
    candidate: ArmRatio, baseline: ArmRatio, request_variance: float, covariates: Sequence[Covariate] = ()
) -> Contrast:
    """Compare two arms, whose units are different ones, with what `covariates` explain taken off the difference.

    Without requests in both arms every number is NaN.
    """
    first, second = candidate.influence, baseline.influence
    value, slack = candidate.value, 0.0
    first_more = second_more = 0.0
    # What is taken off is written to the candidate's side, where the baseline's part of it is a variance of its own
    # and goes together with the baseline.
    shared = np.zeros_like(second)
    for each in covariates:
        value -= each.slope * each.difference
        first = first - each.slope * each.candidate
        shared = shared + each.slope * each.baseline
        one, other = float(each.candidate @ each.candidate), float(each.baseline @ each.baseline)
        first_more += each.tolerance**2 * one
        second_more += each.tolerance**2 * other
        slack += each.tolerance * max(0.0, abs(each.difference) - 3 * sqrt(one + other))
    second_own = second - shared
    requests = max(candidate.requests + baseline.requests, 1.0)
    # From the value of both arms together.
    apart = (candidate.value - baseline.value) / requests
    first_squares = (first + apart * baseline.requests * candidate.weights) ** 2
    second_squares = (second_own - apart * candidate.requests * baseline.weights) ** 2
    many = contributing(first_squares, second_squares)
    # One more average bucket for either arm: per request as variable as both arms together.
    per_request = candidate.requests**2 * float(first_squares.sum()) + baseline.requests**2 * float(
        second_squares.sum()
    )
    more = per_request / requests / many if many else 0.0
    candidate_variance = float(first @ first + shared @ shared) + first_more + more / max(candidate.requests, 1.0)
    baseline_variance = baseline.variance + second_more + more / max(baseline.requests, 1.0)
    covariance = float(shared @ second)
    variance = candidate_variance + baseline_variance - 2 * covariance
    joint = candidate.requests * baseline.requests / requests
    return Contrast(
        value,
        baseline.value,
        candidate_variance,
        baseline_variance,
        covariance,
        many,
        joint**2 * variance / request_variance if request_variance > 0 else inf,
        slack,
    )


def own_interval(arm: ArmRatio, request_variance: float, alpha: float) -> Interval:
    """The ratio of one arm by itself, with probability 1 - `alpha` at all times together."""
    time = arm.requests**2 * arm.variance / request_variance if request_variance > 0 else inf
    width = _width(arm.variance, time, alpha)
    return Interval(arm.value, arm.value - width, arm.value + width)


def _width(variance: float, time: float, alpha: float) -> float:
    return float(factor(time, alpha)) * sqrt(variance) if variance > 0 else nan
