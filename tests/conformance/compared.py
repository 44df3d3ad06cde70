"""The suite with the filter in Envoy and without it: case by case the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ALONE = 3
"""How often a case is run by itself before it counts as one that differs: many wait for seconds to pass, and a machine
that is busy lets them pass at the wrong moment."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A case whose outcome depends on the filter."""

    id: str
    with_filter: str
    without: str


def differing(with_filter: Mapping[str, Any], without: Mapping[str, Any]) -> list[Difference]:
    """The cases whose outcomes differ, in the order of their ids: passed, or the kind of failure."""
    found = []
    for test_id in sorted({*with_filter, *without}):
        one, other = _outcome(with_filter.get(test_id)), _outcome(without.get(test_id))
        if one != other:
            found.append(Difference(test_id, one, other))
    return found


def confirmed(found: list[Difference], alone: Callable[[str], tuple[bool, bool]]) -> list[Difference]:
    """Those that differ also by themselves. `alone` tells whether a case passes with the filter, and without."""
    return [each for each in found if all(len(set(alone(each.id))) == 2 for _ in range(ALONE))]


def _outcome(result: Any) -> str:
    """In a word. What stands behind the kind of a failure holds times and identifiers of the run."""
    if result is True:
        return "passed"
    return str(result[0]) if isinstance(result, list) and result else "no result"
