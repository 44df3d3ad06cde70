"""Less noise by what was known of the same units before: CUPED.

Deng, Xu, Kohavi and Walker 2013, "Improving the sensitivity of online controlled experiments by utilizing
pre-experiment data", section 3.2 (theta = Cov / Var): users who were hit often before are hit often now. Whatever the
arms differed by before, chance made; its echo, theta times it, is taken off the difference now. The units are buckets,
as everywhere here; theta is the slope of the buckets' influences now on those before, both arms together. A bucket
without data before has influence 0 then, and is left as it is.

The data before must come from a time in which both arms were under the same policy with the same state, such as the
same baseline for both. Else the difference before is not chance, and would be taken off the effect. A warm-up in which
the candidate's policy was in force already is not such a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshcache.experiment.statistics import ratios

if TYPE_CHECKING:
    from meshcache.experiment.metric import Metric
    from meshcache.experiment.totals import ArmTotals


def adjusted(
    metric: Metric,
    candidate: ratios.ArmRatio,
    baseline: ratios.ArmRatio,
    request_variance: float,
    plain: ratios.Contrast,
    candidate_before: ArmTotals,
    baseline_before: ArmTotals,
) -> ratios.Contrast:
    """`plain`, or with less variance where the data before explain some of it and are enough."""
    one, other = (
        ratios.arm_ratio(ratios.numerators(metric, totals), totals.requests.astype(np.float64))
        for totals in (candidate_before, baseline_before)
    )
    if min(one.requests, other.requests) < ratios.MIN_REQUESTS or min(one.buckets, other.buckets) < ratios.MIN_BUCKETS:
        return plain
    spread = one.variance + other.variance
    if not spread > 0:
        return plain
    slope = float(candidate.influence @ one.influence + baseline.influence @ other.influence) / spread
    found = ratios.contrast(
        candidate, baseline, request_variance, slope=slope, candidate_before=one, baseline_before=other
    )
    return found if 0 < found.variance < plain.variance and found.contributing >= ratios.MIN_CONTRIBUTING else plain
