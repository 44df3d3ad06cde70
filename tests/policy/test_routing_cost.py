"""A request pays for the routes that fit it, not for those that do not."""

from __future__ import annotations

import pytest

from bench.routes import KINDS, finder, least_times


@pytest.mark.parametrize("kind", KINDS)
def test_200_routes_cost_less_than_twice_what_2_do(kind: str) -> None:
    few, many = finder(kind, 2), finder(kind, 200)
    assert few() == many() == "route 1"
    # What another process does in the middle can only make a measurement worse: the best of three counts.
    for _ in range(3):
        least = least_times((few, many))
        if least[1] < 2 * least[0]:
            break
    assert least[1] < 2 * least[0], least
