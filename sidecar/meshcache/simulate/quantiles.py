"""Mean and quantiles of many values in bounded memory: they are counted to three significant digits."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Final

import numpy as np

_FOLD_AT: Final = 1 << 16


class Quantiles:
    """Values of at least 0. The mean is exact; quantiles are within half a percent."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0.0
        self._fresh = array("d")
        self._folded: Counter[float] = Counter()

    def add(self, value: float) -> None:
        """Take in one value."""
        fresh = self._fresh
        fresh.append(value)
        if len(fresh) >= _FOLD_AT:
            self._fold()

    def merge(self, other: Quantiles) -> None:
        """Take in all values of another."""
        self._fold()
        other._fold()
        self.count += other.count
        self._sum += other._sum
        self._folded.update(other._folded)

    def mean(self) -> float | None:
        """Of all values; None when there are none."""
        self._fold()
        return self._sum / self.count if self.count else None

    def at(self, *shares: float) -> list[float | None]:
        """The smallest values that at least these shares (0 to 1) of all do not exceed."""
        self._fold()
        if not self.count:
            return [None] * len(shares)
        values = sorted(self._folded)
        reached = np.cumsum([self._folded[value] for value in values])
        wanted = [min(max(1, int(np.ceil(share * self.count))), self.count) for share in shares]
        return [values[int(np.searchsorted(reached, rank))] for rank in wanted]

    def _fold(self) -> None:
        if not self._fresh:
            return
        values = np.frombuffer(self._fresh, dtype=np.float64)
        self.count += len(values)
        self._sum += float(values.sum())
        with np.errstate(divide="ignore"):
            unit = 10.0 ** (np.floor(np.log10(np.where(values > 0, values, 1.0))) - 2)
        rounded, numbers = np.unique(np.round(np.round(values / unit) * unit, 12), return_counts=True)
        self._folded.update(dict(zip(rounded.tolist(), numbers.tolist(), strict=True)))
        self._fresh = array("d")
