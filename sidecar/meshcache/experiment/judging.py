"""From the counts of an epoch to what they say. Needs numpy and scipy: not for the request path."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING

from meshcache.experiment.findings import ArmNumbers, Estimate, Findings, alpha, mismatch_alpha
from meshcache.experiment.statistics.compare import compare
from meshcache.experiment.statistics.sample_ratio import sample_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshcache.experiment.metric import Metric
    from meshcache.experiment.totals import ArmTotals, EpochTotals
    from meshcache.policy.compiled import Experiment


def judge(
    experiment: Experiment, epoch: int, weights: Sequence[int], totals: EpochTotals, smallest_p: float = 1.0
) -> Findings | None:
    """What `totals` of `epoch`, with the shares `weights`, say; None where nothing is compared or known.

    `smallest_p` is the least p-value of the sample-ratio test at earlier looks of the epoch.
    """
    compared = experiment.compare
    if compared is None or len(totals.arms) != len(experiment.arms):
        return None
    candidate, against = totals.arms[compared.candidate], totals.arms[compared.against]
    error = alpha(experiment)
    # Units that are keys do not make each other's hits.
    keys_shared = any(unit.kind != "cacheKey" for unit in experiment.units)

    def estimate(metric: Metric, *, relative: bool) -> Estimate:
        found = compare(metric, candidate, against, error, keys_shared=keys_shared)
        interval = found.relative if relative else found.absolute
        return Estimate(
            relative=relative,
            candidate=found.candidate.estimate,
            against=found.baseline.estimate,
            change=interval.estimate,
            low=interval.low,
            high=interval.high,
            lack="" if found.enough else found.lack.value,
        )

    split = sample_ratio(totals.units, weights, mismatch_alpha(experiment), smallest=smallest_p)
    return Findings(
        epoch=epoch,
        units=(candidate.units, against.units),
        requests=(int(candidate.requests.sum()), int(against.requests.sum())),
        guardrails=tuple(estimate(each.metric, relative=each.relative) for each in experiment.guardrails),
        primary=None if experiment.primary is None else estimate(experiment.primary.metric, relative=False),
        mismatch=split.flagged,
        p_value=split.p_value,
        arm_units=totals.units,
    )


def numbers(totals: EpochTotals) -> tuple[ArmNumbers, ...]:
    """What each arm has shown, for people."""
    return tuple(_numbers(arm) for arm in totals.arms)


def _numbers(arm: ArmTotals) -> ArmNumbers:
    requests = int(arm.requests.sum())
    hits = int((arm.hits_hot + arm.hits_warm + arm.hits_cold).sum())
    return ArmNumbers(
        units=arm.units,
        requests=requests,
        hit_ratio=hits / requests if requests else nan,
        latency_mean=float(arm.latency_us.sum()) / 1e6 / requests if requests else nan,
        latency_p99=arm.latency.quantile(0.99),
        errors=int(arm.errors.sum()),
        origin_requests=int(arm.origin_requests.sum()),
        cost_saved=float(arm.cost_micros.sum()) / 1e6,
    )
