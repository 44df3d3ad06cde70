"""Stack distances against a stack, and the curve against published figures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.simulate.curve import COLD, miss_ratio_curve, stack_distances
from meshcache.simulate.eviction import Evicting, entry_bytes

WEB07 = Path(os.environ.get("MESHCACHE_WEB07") or Path(__file__).parents[3] / "shared" / "data" / "web07.txt")
PUBLISHED = {205: 0.6083, 1024: 0.4944, 2048: 0.4434, 5121: 0.3712}
"""LRU's miss ratios on that trace by number of objects, as libCacheSim 0.3.5 has them."""


def miss_ratio(objects: list[int], capacity: int) -> float:
    """By the distances, for one capacity."""
    distances = stack_distances(objects)
    return 1.0 - sum(distance <= capacity for distance in distances.tolist()) / len(distances)


def by_a_stack(objects: list[int], sizes: list[int]) -> list[int]:
    stack: list[int] = []
    held: dict[int, int] = {}
    distances = []
    for thing, size in zip(objects, sizes, strict=True):
        if thing in stack:
            above = stack[: stack.index(thing)]
            distances.append(sum(held[other] for other in above) + size)
            stack.remove(thing)
        else:
            distances.append(int(COLD))
        stack.insert(0, thing)
        held[thing] = size
    return distances


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 50)), max_size=120))
def test_distances_are_those_of_a_stack(asked: list[tuple[int, int]]) -> None:
    objects, sizes = [one[0] for one in asked], [one[1] for one in asked]
    assert stack_distances(objects, sizes).tolist() == by_a_stack(objects, sizes)
    assert stack_distances(objects).tolist() == by_a_stack(objects, [1] * len(objects))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200), st.integers(1, 12))
def test_the_tier_misses_as_often_as_the_curve_says(objects: list[int], capacity: int) -> None:
    evicting = Evicting("lru", [capacity], by_objects=True)
    for thing in objects:
        evicting.ask(b"%d" % thing, 0)
    assert evicting.miss_ratios == [pytest.approx(miss_ratio(objects, capacity))]


def test_by_bytes_an_entry_counts_for_what_it_takes_in_memory() -> None:
    evicting = Evicting("lru", [2 * (entry_bytes() + 100), 2 * (entry_bytes() + 100) - 1], by_objects=False)
    for key in (b"a", b"b", b"a", b"b"):
        evicting.ask(key, 100)
    assert evicting.miss_ratios == [0.5, 1.0]


def test_without_lifetimes_ttl_gives_up_what_came_first() -> None:
    evicting = Evicting("ttl", [2], by_objects=True)
    for key in (b"a", b"b", b"a", b"c", b"a"):
        evicting.ask(key, 0)
    assert evicting.miss_ratios == [0.8]


def test_the_curve_falls_and_ends_where_only_first_requests_miss() -> None:
    curve = miss_ratio_curve(stack_distances([1, 2, 3, 1, 2, 3, 3]))
    assert list(curve.miss_ratios) == sorted(curve.miss_ratios, reverse=True)
    assert curve.capacities[-1] == 3
    assert curve.miss_ratios[-1] == pytest.approx(3 / 7)
    assert miss_ratio_curve(stack_distances([1, 2, 3])) == ((), ())


@pytest.mark.skipif(not WEB07.exists(), reason="web07.txt is not here; MESHCACHE_WEB07 names it")
def test_lru_has_its_published_miss_ratios() -> None:
    keys = WEB07.read_bytes().split()
    numbers: dict[bytes, int] = {}
    objects = [numbers.setdefault(key, len(numbers)) for key in keys]
    evicting = Evicting("lru", list(PUBLISHED), by_objects=True)
    for key in keys:
        evicting.ask(key, 0)
    assert [round(ratio, 4) for ratio in evicting.miss_ratios] == list(PUBLISHED.values())
    assert [round(miss_ratio(objects, capacity), 4) for capacity in PUBLISHED] == list(PUBLISHED.values())
