"""What an arm has shown in one epoch, summed over workers and pods. Needs numpy: not for the request path."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from meshcache.experiment.bins import BINS, value_of
from meshcache.experiment.ledger import BUCKETS

__all__ = ["BUCKETS", "COUNTERS", "SAMPLE_GROUPS", "ArmTotals", "Counts", "EpochTotals", "Histogram", "Ledger"]

SAMPLE_GROUPS: Final = 32
"""Sampled latencies are kept by group of buckets, `bucket % SAMPLE_GROUPS`: bins for each bucket would be megabytes."""

Counts = NDArray[np.int64]


def _zeros() -> Counts:
    return np.zeros(BUCKETS, np.int64)


def _no_bins() -> Counts:
    return np.zeros(BINS, np.int64)


def _no_groups() -> Counts:
    return np.zeros((SAMPLE_GROUPS, BINS), np.int64)


@dataclass
class Histogram:
    """Latencies by bin (see `bins`): int64, shape (BINS,), or (groups, BINS) where groups of units are kept apart."""

    counts: Counts = field(default_factory=_no_bins)

    @property
    def pooled(self) -> Counts:
        """The counts over all groups, shape (BINS,)."""
        pooled: Counts = self.counts.reshape(-1, BINS).sum(axis=0)
        return pooled

    @property
    def total(self) -> int:
        """How many values it holds."""
        return int(self.counts.sum())

    def quantile(self, level: float) -> float:
        """The value in seconds at `level` between 0 and 1, within 1 %; NaN without values."""
        total = self.total
        if total == 0:
            return float("nan")
        # The smallest value that at least the share `level` of all does not exceed.
        rank = max(1, int(np.ceil(level * total)))
        return value_of(int(np.searchsorted(np.cumsum(self.pooled), rank)))


@dataclass
class ArmTotals:
    """One arm's counts: int64 arrays of shape (BUCKETS,), one element for each bucket of units."""

    requests: Counts = field(default_factory=_zeros)
    hits_hot: Counts = field(default_factory=_zeros)
    hits_warm: Counts = field(default_factory=_zeros)
    hits_cold: Counts = field(default_factory=_zeros)
    stale: Counts = field(default_factory=_zeros)
    origin_requests: Counts = field(default_factory=_zeros)
    origin_bytes: Counts = field(default_factory=_zeros)
    errors: Counts = field(default_factory=_zeros)
    latency_us: Counts = field(default_factory=_zeros)
    """Sum of latencies, in microseconds."""
    latency_square: Counts = field(default_factory=_zeros)
    """Sum of squared latencies, in square milliseconds."""
    age_ms: Counts = field(default_factory=_zeros)
    """Sum of the ages of what was served, in milliseconds."""
    cost_micros: Counts = field(default_factory=_zeros)
    """Sum of the cost saved, in millionths of the currency."""
    units: int = 0
    """Different units seen, from a bounded sample: exact while there are few, an estimate beyond."""
    latency: Histogram = field(default_factory=Histogram)
    """Of every request."""
    sampled: Histogram = field(default_factory=lambda: Histogram(_no_groups()))
    """Of one request for each bucket and window of time, shape (SAMPLE_GROUPS, BINS). The samples of one bucket are of
    the same few units again and again, so how far quantiles vary is seen from how much the groups differ."""

    def merge(self, other: ArmTotals) -> None:
        """Add another pod's counts. Units that both have seen count twice in `units`: merge their samples instead."""
        for one in fields(self):
            mine, others = getattr(self, one.name), getattr(other, one.name)
            if isinstance(mine, Histogram):
                mine.counts += others.counts
            else:
                setattr(self, one.name, mine + others)


COUNTERS: Final = tuple(one.name for one in fields(ArmTotals) if one.name not in ("units", "latency", "sampled"))
"""The names of the arrays by bucket, in order."""


@dataclass(frozen=True)
class EpochTotals:
    """What all pods together have counted of one experiment in one epoch."""

    arms: tuple[ArmTotals, ...]
    """In the order of the compiled arms; empty as long as nothing at all is known of the epoch."""
    units: tuple[int, ...]
    """Of each arm, how many units a bounded sample holds: for the test of whether the split is what it should be.

    Given their sum, these are one draw from a multinomial distribution with the arms' shares, whatever the number of
    units, workers and pods. See `experiment.ledger`.
    """
    updated_at: float
    """Unix seconds at which all of it had last been read; it stays behind while the store that pods share is away."""


class Ledger(Protocol):
    """Reads what has been counted."""

    async def totals(self, experiment: str, spec_hash: str, epoch: int, *, uid: str = "") -> EpochTotals:
        """The sum over all workers and pods. `uid` is `Experiment.uid`; the name stands in for an empty one.

        Raises nothing: while the store that pods share is away, it is this pod's counts and what was read of the others
        before, with an `updated_at` that stays behind.
        """
        ...
