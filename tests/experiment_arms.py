"""Arms for tests: totals from lists of requests, and users who differ from each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshcache.experiment.bins import bin_of
from meshcache.experiment.totals import BUCKETS, SAMPLE_GROUPS, ArmTotals

if TYPE_CHECKING:
    from numpy.typing import NDArray

HIT, MISS = 0.017, 0.184
"""Seconds."""


def arm(
    buckets: NDArray[np.int64],
    hits: NDArray[np.bool_],
    *,
    errors: NDArray[np.bool_] | None = None,
    latency: NDArray[np.float64] | None = None,
) -> ArmTotals:
    """The totals of requests given one by one; each of them is sampled."""
    if latency is None:
        latency = np.where(hits, HIT, MISS)
    totals = ArmTotals(units=len(np.unique(buckets)))

    def sums(values: NDArray[np.float64] | NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(buckets, weights=values, minlength=BUCKETS).astype(np.int64)

    totals.requests = np.bincount(buckets, minlength=BUCKETS).astype(np.int64)
    totals.hits_hot = sums(hits)
    totals.origin_requests = totals.requests - totals.hits_hot
    totals.latency_us = sums(latency * 1e6)
    totals.latency_square = sums((latency * 1e3) ** 2)
    if errors is not None:
        totals.errors = sums(errors)
    values, which = np.unique(latency, return_inverse=True)
    bins = np.array([bin_of(value) for value in values])
    np.add.at(totals.sampled.counts, (buckets % SAMPLE_GROUPS, bins[which]), 1)
    totals.latency.counts = totals.sampled.pooled.copy()
    return totals


def users(
    rng: np.random.Generator, requests: int, hit_ratio: float, *, count: int = 400, alike: float = 8.0
) -> ArmTotals:
    """Requests of `count` users whose hit ratios have a beta distribution: mean `hit_ratio`, weight `alike`."""
    own = rng.beta(alike * hit_ratio, alike * (1 - hit_ratio), count)
    buckets = rng.integers(0, BUCKETS, count)
    who = rng.integers(0, count, requests)
    return arm(buckets[who], rng.random(requests) < own[who])
