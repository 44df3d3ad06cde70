"""The share of units that changes arm, by the formula and by the assigner itself."""

from __future__ import annotations

import pytest

from meshcache.experiment.assignment import Assigner
from meshcache.experiment.shares import moved_share

UNITS = [f"header:x-user-id\0{number}".encode() for number in range(8_000)]


@pytest.mark.parametrize(
    ("old", "new", "exact"),
    [
        ({"a": 90, "b": 10}, {"a": 90, "b": 10}, 0.0),
        ({"a": 90, "b": 10}, {"a": 9, "b": 1}, 0.0),
        ({"a": 90, "b": 10}, {"a": 80, "b": 20}, 0.1),
        ({"a": 90, "b": 10}, {"b": 10, "a": 90, "c": 0}, 0.0),
        ({"a": 1, "b": 1}, {"a": 1, "c": 1}, 0.5 + 1 / 6),
        ({"a": 1}, {"b": 1}, 1.0),
        ({"a": 80, "b": 10, "c": 10}, {"a": 50, "b": 25, "c": 25}, 0.3),
        ({"a": 80, "b": 10, "c": 10}, {"a": 10, "b": 80, "c": 10}, None),
        ({"a": 5, "b": 3, "c": 2, "d": 0}, {"a": 2, "b": 3, "c": 1, "d": 4}, None),
    ],
)
def test_it_is_what_the_assigner_moves(old: dict[str, int], new: dict[str, int], exact: float | None) -> None:
    share = moved_share(old, new)
    if exact is not None:
        assert share == pytest.approx(exact, abs=1e-9)
    names = [list(weights) for weights in (old, new)]
    before, after = (Assigner(b"secret", "e", list(weights.items())) for weights in (old, new))
    moved = sum(names[0][before.choose(unit)] != names[1][after.choose(unit)] for unit in UNITS) / len(UNITS)
    # Four standard deviations of a share of so many units.
    assert moved == pytest.approx(share, abs=4 * (0.25 / len(UNITS)) ** 0.5)
