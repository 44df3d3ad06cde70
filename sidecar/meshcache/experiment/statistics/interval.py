"""An estimate with the range in which the truth is, or nothing at all when the data do not say."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan, nan
from typing import Final


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of a confidence sequence: valid however often one has looked before.

    Where there are no data, or not enough, `low` and `high` are NaN, and the interval is inconclusive: it is neither
    above nor below anything, so that nothing passes and nothing fails by it. An end that the data do not limit is
    infinite.
    """

    estimate: float
    low: float
    high: float

    @property
    def inconclusive(self) -> bool:
        """Whether it says nothing: an end is NaN."""
        return isnan(self.low) or isnan(self.high)

    def above(self, limit: float) -> bool:
        """Whether the truth is above `limit` for all that is known; False when inconclusive, or `limit` is NaN."""
        return not self.inconclusive and self.low > limit

    def below(self, limit: float) -> bool:
        """Whether the truth is below `limit` for all that is known; False when inconclusive, or `limit` is NaN."""
        return not self.inconclusive and self.high < limit

    def excludes(self, value: float) -> bool:
        """Whether the truth is something else than `value` for all that is known."""
        return self.above(value) or self.below(value)


NOTHING: Final = Interval(nan, nan, nan)
"""No data."""


def without_limits(estimate: float) -> Interval:
    """An estimate that may be shown, and that says nothing."""
    return Interval(estimate, nan, nan)
