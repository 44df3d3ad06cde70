"""The filter's store under WebAssembly: its memory, and that it tells nothing but what was put in.

What its parts do one by one is tested in Zig (`wasm/src/store_test.zig`); the long form is `make proofs PARTS=store`
(`STORE_OPERATIONS`).
"""

from __future__ import annotations

import os
from random import Random

import pytest
from filter_rules import needs_rules
from filter_store import MIB, FilterStore, soak
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = needs_rules

BUDGETS = st.sampled_from((0, 1, 300 << 10, MIB, 2 * MIB)) | st.integers(0, 12 * MIB)


def test_a_million_bytes_of_budget_are_enough_and_are_kept_to() -> None:
    store = FilterStore(MIB)
    assert store.churn(60_000, 600) == 0
    assert store.evictions > 1000
    assert store.hits > 1000
    assert store.within()


@settings(deadline=None, max_examples=15)
@given(plans=st.lists(st.tuples(BUDGETS, st.integers(0, 9), st.integers(1, 5000)), max_size=6), seed=st.integers(0, 99))
def test_whatever_plans_come_memory_is_within_the_largest_budget(plans: list[tuple[int, int, int]], seed: int) -> None:
    store = FilterStore(MIB, seed)
    for budget, pools, keys in plans:
        store.configure(budget, pools)
        assert store.churn(3_000, keys) == 0
        assert store.within()


def test_a_scan_does_not_push_out_what_is_asked_for() -> None:
    store = FilterStore(4 * MIB)
    often = list(range(500))
    for _ in range(3):
        for number in often:
            store.request(number, 1000)
    for number in range(1000, 20_000):
        store.request(number, 1000)
    assert sum(store.request(number, 1000) for number in often) > 0.9 * len(often)


@pytest.mark.timeout(0)
def test_memory_is_within_the_budget_in_a_long_run() -> None:
    found = soak(int(os.environ.get("STORE_OPERATIONS") or 100_000), Random(3))
    assert found["hits"] > 0
    assert found["memory_of_budget"] <= 1.1
