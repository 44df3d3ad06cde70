"""The miss ratio of least recently used for every capacity at once, by the distances in its stack.

R. L. Mattson, J. Gecsei, D. R. Slutz, I. L. Traiger: Evaluation techniques for storage hierarchies. IBM Systems Journal
9 (1970) 78-117. A request hits in every cache that is larger than what was used since the last request for the same:
its stack distance. One pass over the distances then gives the whole curve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

COLD = np.iinfo(np.int64).max
"""The distance of a first request: no cache is large enough."""


class Curve(NamedTuple):
    """Miss ratios by capacity, the capacities rising."""

    capacities: tuple[int, ...]
    miss_ratios: tuple[float, ...]


def stack_distances(objects: Sequence[int], sizes: Sequence[int] | None = None) -> Integers:
    """For each request, the size of the smallest cache in which it hits; `COLD` for first requests.

    `objects` are numbers of the objects that are asked for, in order, `sizes` what each takes then (1 by default).
    Takes O(n log n), in arrays rather than in a tree.
    """
    asked = np.asarray(objects, dtype=np.int64)
    count = len(asked)
    weights = np.ones(count, dtype=np.int64) if sizes is None else np.asarray(sizes, dtype=np.int64)
    by_object = np.argsort(asked, kind="stable")
    again = asked[by_object][1:] == asked[by_object][:-1]
    previous = np.full(count, -1, dtype=np.int64)
    previous[by_object[1:][again]] = by_object[:-1][again]
    later = np.flatnonzero(previous >= 0)
    distances = np.full(count, COLD, dtype=np.int64)
    if not len(later):
        return distances
    before = previous[later]
    # All that was asked for since, less what counts twice: requests whose object was asked for again since.
    summed = np.concatenate(([0], np.cumsum(weights)))
    twice = _greater_before(np.argsort(np.argsort(before, kind="stable"), kind="stable"), weights[before])
    distances[later] = summed[later] - summed[before + 1] - twice + weights[later]
    return distances


def miss_ratio_curve(distances: Integers, points: int = 64) -> Curve:
    """The curve through at most so many capacities, evenly spaced by their logarithm, up to where it is flat."""
    finite = np.sort(distances[distances != COLD])
    if not len(finite):
        return Curve((), ())
    capacities = np.unique(np.geomspace(max(1, finite[0]), finite[-1], points).round().astype(np.int64))
    hits = np.searchsorted(finite, capacities, side="right")
    return Curve(tuple(capacities.tolist()), tuple((1.0 - hits / len(distances)).tolist()))


def _greater_before(ranks: Integers, weights: Integers) -> Integers:
    """For each element, the summed weights of those before it of a higher rank; `ranks` are a permutation.

    Bit by bit from the highest: elements that agree in all higher bits form a group, in which one with a 0 lies below
    all with a 1. The groups are then parted, each staying in order.
    """
    count = len(ranks)
    found = np.zeros(count, dtype=np.int64)
    values, heavy, origin = ranks.copy(), weights.copy(), np.arange(count)
    for bit in reversed(range(max(1, int(count - 1).bit_length()))):
        ones = (values >> bit) & 1
        starts = (values >> (bit + 1)) << (bit + 1)
        number = np.concatenate(([0], np.cumsum(ones)))
        weight = np.concatenate(([0], np.cumsum(ones * heavy)))
        zero = ones == 0
        found[origin[zero]] += (weight[:-1] - weight[starts])[zero]
        ones_before = number[:-1] - number[starts]
        zeros_before = np.arange(count) - starts - ones_before
        zeros_of_group = np.minimum(1 << bit, count - starts)
        place = starts + np.where(zero, zeros_before, zeros_of_group + ones_before)
        values, heavy, origin = _moved(place, values), _moved(place, heavy), _moved(place, origin)
    return found


def _moved(place: Integers, values: Integers) -> Integers:
    moved = np.empty_like(values)
    moved[place] = values
    return moved
