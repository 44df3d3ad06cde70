"""Ratios of interleaved runs, with their spread."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.processes import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of some values."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise at least one value."""
        return cls(statistics.median(values), min(values), max(values))


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """Divide value by value: what ran side by side is compared, so that a slow minute of the machine cancels."""
    return Spread.of([up / down for up, down in zip(numerators, denominators, strict=True)])


def added_ratio(value: Sequence[float], other: Sequence[float], baseline: Sequence[float]) -> Spread:
    """Compare what `value` and `other` add to `baseline`, round by round.

    Raises `MeasurementError` when `other` adds nothing, for then there is nothing to compare with.
    """
    added = [high - low for high, low in zip(other, baseline, strict=True)]
    if min(added) <= 0:
        raise MeasurementError("no added latency to compare with was measured; raise SECONDS_PER_PATH")
    return ratio([high - low for high, low in zip(value, baseline, strict=True)], added)
