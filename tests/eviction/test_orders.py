"""One contract for every eviction order, and one model test each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.eviction.base import EvictionOrder
from meshcache.eviction.lru import LruOrder
from meshcache.eviction.ttl import TtlOrder

A, B, C = b"a", b"b", b"c"


@pytest.fixture(params=[LruOrder, TtlOrder])
def order(request: pytest.FixtureRequest) -> EvictionOrder:
    return request.param()


class TestContract:
    def test_empty(self, order: EvictionOrder) -> None:
        assert (len(order), order.bytes, order.victim()) == (0, 0, None)

    def test_adding_counts_bytes(self, order: EvictionOrder) -> None:
        order.add(A, 10, 1.0)
        order.add(B, 0, 2.0)
        assert (len(order), order.bytes, A in order, C in order) == (2, 10, True, False)

    def test_adding_again_replaces(self, order: EvictionOrder) -> None:
        order.add(A, 10, 1.0)
        order.add(A, 3, 9.0)
        assert (len(order), order.bytes) == (1, 3)

    def test_removing_twice(self, order: EvictionOrder) -> None:
        order.add(A, 10, 1.0)
        assert (order.remove(A), order.remove(A)) == (10, 0)
        assert (len(order), order.bytes, order.victim()) == (0, 0, None)

    def test_resizing_keeps_the_place(self, order: EvictionOrder) -> None:
        order.add(A, 10, 1.0)
        order.add(B, 10, 2.0)
        order.resize(A, 25)
        assert (order.bytes, order.victim()) == (35, A)
        with pytest.raises(KeyError):
            order.resize(C, 1)

    def test_naming_a_victim_does_not_remove_it(self, order: EvictionOrder) -> None:
        order.add(A, 1, 1.0)
        assert (order.victim(), order.victim(), len(order)) == (A, A, 1)

    def test_negative_size_is_refused(self, order: EvictionOrder) -> None:
        with pytest.raises(ValueError, match="negative"):
            order.add(A, -1, 1.0)
        order.add(A, 1, 1.0)
        with pytest.raises(ValueError, match="negative"):
            order.resize(A, -1)
        assert order.bytes == 1

    def test_clear(self, order: EvictionOrder) -> None:
        order.add(A, 1, 1.0)
        order.clear()
        assert (len(order), order.bytes, order.victim()) == (0, 0, None)
        order.add(B, 2, 1.0)
        assert order.victim() == B


_KEYS = st.sampled_from([bytes([n]) for n in range(6)])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), _KEYS, st.integers(0, 50), st.integers(0, 9)),
        st.tuples(st.sampled_from(["touch", "remove", "victim"]), _KEYS, st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(_STEPS)
def test_lru_is_a_list_with_the_last_used_at_the_end(steps: list[tuple[str, bytes, int, int]]) -> None:
    order, model = LruOrder(), {}
    for action, key, size, _ in steps:
        if action == "add":
            order.add(key, size, 0.0)
            model.pop(key, None)
            model[key] = size
        elif action == "touch" and key in model:
            order.touch(key)
            model[key] = model.pop(key)
        elif action == "remove":
            assert order.remove(key) == model.pop(key, 0)
        assert order.victim() == next(iter(model), None)
        assert (len(order), order.bytes) == (len(model), sum(model.values()))


@given(_STEPS)
def test_ttl_is_sorted_by_expiry_then_arrival(steps: list[tuple[str, bytes, int, int]]) -> None:
    order, model = TtlOrder(), {}
    for arrival, (action, key, size, expiry) in enumerate(steps):
        if action == "add":
            order.add(key, size, float(expiry))
            model[key] = (expiry, arrival, size)
        elif action == "touch" and key in model:
            order.touch(key)
        elif action == "remove":
            assert order.remove(key) == model.pop(key, (0, 0, 0))[2]
        first = min(model, key=lambda k: model[k][:2], default=None)
        assert order.victim() == first
        assert order.expired(4.0) == (first if first is not None and model[first][0] <= 4 else None)
        assert (len(order), order.bytes) == (len(model), sum(row[2] for row in model.values()))


def test_ttl_heap_does_not_grow_with_replacements() -> None:
    order = TtlOrder()
    for n in range(10_000):
        order.add(A, 1, float(n))
    assert len(order._heap) <= 2 * 1 + 64 + 1
