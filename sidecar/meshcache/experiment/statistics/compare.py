"""One metric of two arms compared: the face of the statistics towards those who decide."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import nan
from typing import TYPE_CHECKING

import numpy as np

from meshcache.experiment.metric import QUANTILES, Metric
from meshcache.experiment.statistics import covariates, quantiles, ratios
from meshcache.experiment.statistics.boundary import factor
from meshcache.experiment.statistics.interval import NOTHING, Interval, without_limits

if TYPE_CHECKING:
    from meshcache.experiment.totals import ArmTotals


class Lack(StrEnum):
    """What a comparison lacks before it can say anything."""

    NONE = "none"
    """Nothing: the intervals hold."""
    NO_DATA = "no-data"
    """An arm has no requests, or no sampled latencies."""
    NOT_A_NUMBER = "not-a-number"
    """A count is NaN, infinite, or negative."""
    FEW_REQUESTS = "few-requests"
    """An arm has fewer requests (sampled latencies, for a quantile) than the least."""
    FEW_UNITS = "few-units"
    """The requests come from too few buckets of units."""
    NO_VARIATION = "no-variation"
    """Both arms show the same in every bucket, as without a single error in either."""
    FEW_EVENTS = "few-events"
    """Two or three buckets make the spread, so it cannot be known, and without them there is no difference beyond
    doubt. Where there is one, it says so: k buckets move a difference by at most the root of k of the standard errors
    that they make themselves, which is far within the boundary, so that it comes from the others."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is known of one metric in two arms. Which of them is better, and what follows, is not said here."""

    metric: Metric
    candidate: Interval
    baseline: Interval
    absolute: Interval
    """Candidate minus baseline, in the metric's unit: a share, seconds, bytes, money."""
    relative: Interval
    """Candidate over baseline, minus 1."""
    lack: Lack
    standard_error: float = nan
    """Of the absolute difference; for quantiles as the width of the interval has it."""
    time: float = nan
    """The intrinsic time in requests at which the boundary was looked up."""
    requests: tuple[int, int] = (0, 0)
    """Of candidate and baseline."""
    reduction: float = 0.0
    """The share of the variance that data from before the experiment have taken away."""

    @property
    def enough(self) -> bool:
        """Whether the intervals hold; else they are inconclusive, and estimates may be shown but not judged."""
        return self.lack is Lack.NONE


def compare(
    metric: Metric,
    candidate: ArmTotals,
    baseline: ArmTotals,
    alpha: float,
    *,
    candidate_before: ArmTotals | None = None,
    baseline_before: ArmTotals | None = None,
    keys_shared: bool = True,
) -> Comparison:
    """Compare two arms on one metric, with error probability `alpha` over all looks of all time together.

    `absolute` and `relative` are two forms of one statement for ratios of sums, so either may be used, but whoever
    asks for several metrics divides `alpha` among them. Each end of an interval is wrong with probability alpha / 2.
    The totals before are of a time in which both arms had the same policy (`covariates`); they are left out where
    they do not help, and for quantiles. `keys_shared` is whether units of one arm ask for the same keys, and so
    make each other's hits: False only where the units are the cache keys themselves. Raises `ValueError` when
    `alpha` is not between 0 and 1.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is a probability between 0 and 1, not {alpha}")
    requests = (int(candidate.requests.sum()), int(baseline.requests.sum()))
    if level := QUANTILES.get(metric):
        return _quantile(metric, level, candidate, baseline, alpha, requests)
    first, second = ratios.numerators(metric, candidate), ratios.numerators(metric, baseline)
    if not _sound(first, second, candidate.requests, baseline.requests):
        return Comparison(metric, NOTHING, NOTHING, NOTHING, NOTHING, Lack.NOT_A_NUMBER)
    one = ratios.arm_ratio(first, candidate.requests.astype(np.float64))
    other = ratios.arm_ratio(second, baseline.requests.astype(np.float64))
    if not (one.requests and other.requests):
        estimates = without_limits(one.value), without_limits(other.value)
        return Comparison(metric, *estimates, NOTHING, NOTHING, Lack.NO_DATA, requests=requests)
    unit = ratios.request_variance(metric, candidate, baseline)
    explained = [covariates.traffic(metric, candidate, baseline)] if keys_shared else []
    plain = found = ratios.contrast(one, other, unit, explained)
    if candidate_before is not None and baseline_before is not None:
        earlier = covariates.before(metric, one, other, candidate_before, baseline_before)
        if earlier is not None:
            found = ratios.contrast(one, other, unit, [*explained, earlier])
        if not (0 < found.variance < plain.variance and found.contributing >= ratios.MIN_CONTRIBUTING):
            found = plain
    lack = _lack(one, other, plain)
    if lack is Lack.FEW_EVENTS and found.absolute(alpha).excludes(0):
        lack = Lack.NONE
    if lack is not Lack.NONE:
        return Comparison(
            metric,
            without_limits(one.value),
            without_limits(other.value),
            without_limits(one.value - other.value),
            without_limits(one.value / other.value - 1 if other.value else nan),
            lack,
            requests=requests,
        )
    return Comparison(
        metric,
        ratios.own_interval(one, unit, alpha),
        ratios.own_interval(other, unit, alpha),
        found.absolute(alpha),
        found.relative(alpha),
        lack,
        standard_error=float(np.sqrt(found.variance)),
        time=found.time,
        requests=requests,
        reduction=1 - found.variance / plain.variance,
    )


def _sound(*counts: np.ndarray) -> bool:
    return all(bool(np.isfinite(each).all() and (each >= 0).all()) for each in counts)


def _lack(one: ratios.ArmRatio, other: ratios.ArmRatio, found: ratios.Contrast) -> Lack:
    if min(one.requests, other.requests) < ratios.MIN_REQUESTS:
        return Lack.FEW_REQUESTS
    if min(one.buckets, other.buckets) < ratios.MIN_BUCKETS:
        return Lack.FEW_UNITS
    if not found.variance > 0:
        return Lack.NO_VARIATION
    if found.contributing < ratios.MIN_CONTRIBUTING:
        return Lack.FEW_EVENTS
    return Lack.NONE


def _quantile(
    metric: Metric, level: float, candidate: ArmTotals, baseline: ArmTotals, alpha: float, requests: tuple[int, int]
) -> Comparison:
    one = quantiles.arm_quantile(candidate.sampled.counts, level, alpha)
    other = quantiles.arm_quantile(baseline.sampled.counts, level, alpha)
    lack = Lack.NONE
    if not (one.samples and other.samples):
        lack = Lack.NO_DATA
    elif min(one.samples, other.samples) < quantiles.MIN_SAMPLES:
        lack = Lack.FEW_REQUESTS
    elif min(one.groups, other.groups) < quantiles.MIN_GROUPS:
        lack = Lack.FEW_UNITS
    if lack is not Lack.NONE:
        estimates = without_limits(one.value), without_limits(other.value)
        difference = without_limits(one.value - other.value)
        ratio = without_limits(one.value / other.value - 1)
        return Comparison(metric, *estimates, difference, ratio, lack, requests=requests)
    absolute, relative = quantiles.differences(one, other, alpha)
    time = one.samples * other.samples / (one.samples + other.samples)
    return Comparison(
        metric,
        one.interval(alpha),
        other.interval(alpha),
        absolute,
        relative,
        lack,
        standard_error=(absolute.high - absolute.low) / 2 / float(factor(time, alpha)),
        time=time,
        requests=requests,
    )
