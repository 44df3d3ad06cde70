"""What experiments measure: the names that `primary` and `guardrails` of a `CacheExperiment` use."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Metric(StrEnum):
    """One number of an arm. Ratios are per request; latency is from the request's arrival at the cache to its end."""

    HIT_RATIO = "hitRatio"
    """Requests answered from the cache, stale answers among them, per request."""
    STALE_RATIO = "staleRatio"
    """Requests answered with what was no longer fresh, per request."""
    ERROR_RATE = "errorRate"
    """Answers with a status of 500 and above, and answers cut short, per request."""
    ORIGIN_RATE = "originRate"
    """Requests to the origin, refreshes among them, per request."""
    ORIGIN_BYTES = "originBytes"
    """Bytes of body that the origin sent, per request."""
    LATENCY_MEAN = "latencyMean"
    """Seconds."""
    AGE_MEAN = "ageMean"
    """Seconds since what was served was made; 0 for what came from the origin."""
    COST_SAVED = "costSaved"
    """What the origin requests that were not needed would have cost, per request, in the policy's currency."""
    LATENCY_P50 = "latencyP50"
    LATENCY_P90 = "latencyP90"
    LATENCY_P95 = "latencyP95"
    LATENCY_P99 = "latencyP99"


QUANTILES: Final = {
    Metric.LATENCY_P50: 0.5,
    Metric.LATENCY_P90: 0.9,
    Metric.LATENCY_P95: 0.95,
    Metric.LATENCY_P99: 0.99,
}
"""The metrics that are quantiles, with their level."""

SHARES: Final = frozenset({Metric.HIT_RATIO, Metric.STALE_RATIO, Metric.ERROR_RATE, Metric.ORIGIN_RATE})
"""The metrics whose absolute differences are written as percentages."""

SECONDS: Final = frozenset({Metric.LATENCY_MEAN, Metric.AGE_MEAN, *QUANTILES})
"""The metrics whose absolute differences are written as durations."""
