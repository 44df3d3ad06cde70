"""Memory that is divided among pools: each keeps to its share, and none lives off another's."""

from __future__ import annotations

import time
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tier_helpers import key, response

from meshcache.engine.pools import COMMON, UNDIVIDED, Division
from meshcache.tiers.memory import HotEntry, MemoryTier

A, B = b"a" * 8, b"b" * 8


def entry(body: int = 100, expires_at: float = 100.0) -> HotEntry:
    return HotEntry(response(bytes(body)), epoch=b"e" * 8, stored_at=0.0, expires_at=expires_at)


SIZE = entry().size


def fill(tier: MemoryTier, pool: bytes, numbers: range) -> None:
    for number in numbers:
        tier.put(key(number) + pool, entry(), 0.0)


def entries(tier: MemoryTier) -> dict[bytes, int]:
    return {use.pool: use.entries for use in tier.pools()}


def test_a_pool_gives_up_its_own() -> None:
    gone: Counter[str] = Counter()

    def left(reason: str) -> None:
        gone[reason] += 1

    tier = MemoryTier(10 * SIZE, left)
    tier.divide(Division({A: 0.8, B: 0.2}, 0.0))
    fill(tier, A, range(8))
    fill(tier, B, range(100))
    assert entries(tier) == {A: 8, B: 2}
    assert gone == {"capacity": 98}
    assert [use.evicted for use in tier.pools()] == [0, 98]
    # Within the pool, the least recently used.
    assert tier.get(key(99) + B, 1.0) is not None


def test_an_entry_above_its_share_is_refused() -> None:
    tier = MemoryTier(10 * SIZE)
    tier.divide(Division({A: 0.9, B: 0.1}, 0.0))
    assert tier.put(key(1) + A, entry(), 0.0)
    assert not tier.put(key(1) + B, entry(2 * SIZE), 0.0)
    # Nobody has a share for what is no arm's.
    assert not tier.put(key(1), entry(), 0.0)
    assert len(tier) == 1


def test_a_share_that_grows_takes_what_the_other_gives_up_step_by_step() -> None:
    count = 1000
    tier = MemoryTier(count * SIZE)
    tier.divide(Division({A: 0.9, B: 0.1}, 0.0))
    fill(tier, A, range(count))
    fill(tier, B, range(count))
    assert entries(tier) == {A: 900, B: 100}
    tier.divide(Division({A: 0.1, B: 0.9}, 0.0))
    before = 900
    for number in range(count, 2 * count):
        tier.put(key(number) + B, entry(), 0.0)
        assert tier.used_bytes <= tier.budget_bytes
        now = entries(tier)
        assert before - now[A] <= 33
        before = now[A]
    assert entries(tier) == {A: 100, B: 900}


def test_the_winner_keeps_what_it_has() -> None:
    tier = MemoryTier(100 * SIZE)
    tier.divide(Division({A: 0.5, B: 0.5}, 0.0))
    fill(tier, A, range(50))
    fill(tier, B, range(50))
    tier.divide(Division({B: 1.0}, 0.0))
    fill(tier, B, range(50, 100))
    assert entries(tier) == {B: 100}
    assert all(tier.get(key(number) + B, 1.0) for number in range(100))
    assert len(tier) == 100


def test_an_arm_that_comes_back_has_what_was_not_given_up_yet() -> None:
    tier = MemoryTier(100 * SIZE)
    tier.divide(Division({A: 0.5, B: 0.5}, 0.0))
    fill(tier, A, range(50))
    tier.divide(Division({B: 1.0}, 0.0))
    tier.put(key(0) + B, entry(), 0.0)
    tier.divide(Division({A: 0.5, B: 0.5}, 0.0))
    assert entries(tier) == {A: 18, B: 1}


def test_an_arm_that_has_been_promoted_and_whose_experiment_is_gone_joins_the_common_pool() -> None:
    tier = MemoryTier(100 * SIZE)
    tier.divide(Division({A: 0.5}, 0.5))
    fill(tier, COMMON, range(50))
    fill(tier, A, range(50))
    tier.divide(Division(joined=frozenset((A,))))
    for number in range(100, 103):
        tier.put(key(number), entry(), 0.0)
    assert entries(tier) == {COMMON: 100}
    # What was common before and was used longest ago has gone, as if they had never been apart.
    assert [tier.peek(key(number)) is None for number in range(4)] == [True, True, True, False]
    assert all(tier.get(key(number) + A, 1.0) for number in range(50))
    # What is stored for it from now on is common as well.
    tier.put(key(60) + A, entry(), 0.0)
    assert entries(tier) == {COMMON: 100}


def test_what_is_attached_counts_where_the_entry_is() -> None:
    tier = MemoryTier(20 * SIZE)
    one = entry()
    # It was stored when its arm had no share of its own.
    tier.put(key(1) + A, one, 0.0)
    tier.divide(Division({A: 0.5}, 0.5))
    tier.attach(key(1) + A, one, b"r" * 300, 0.0)
    assert {use.pool: use.bytes for use in tier.pools()} == {COMMON: one.size, A: 0}


_pools = st.sampled_from([COMMON, A, B])
_divisions = st.sampled_from(
    [
        UNDIVIDED,
        Division({A: 0.5}, 0.5, frozenset((B,))),
        Division({A: 0.5, B: 0.5}, 0.0),
        Division({A: 0.1}, 0.9),
        Division({A: 0.3, B: 0.6}, 0.1),
    ]
)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _pools, st.integers(0, 9), st.integers(0, 1500), st.booleans()),
        st.tuples(st.just("get"), _pools, st.integers(0, 9)),
        st.tuples(st.just("attach"), _pools, st.integers(0, 9), st.integers(0, 1500)),
        st.tuples(st.just("divide"), _divisions),
    ),
    max_size=60,
)


@given(_steps)
def test_neither_the_budget_nor_a_share_is_ever_exceeded(steps: list[tuple[object, ...]]) -> None:
    tier = MemoryTier(12_000)
    now = 0.0
    for step in steps:
        now += 0.5
        match step:
            case ("put", bytes(pool), int(number), int(size), bool(lru)):
                one = entry(size, now + 5 + number)
                kept = tier.put(key(number) + pool, one, now, "lru" if lru else "ttl")
                assert kept or tier.peek(key(number) + pool) is None
            case ("get", bytes(pool), int(number)):
                tier.get(key(number) + pool, now)
            case ("attach", bytes(pool), int(number), int(size)):
                found = tier.get(key(number) + pool, now)
                if found is not None:
                    tier.attach(key(number) + pool, found, bytes(size), now)
            case ("divide", Division() as division):
                tier.divide(division)
        assert tier.used_bytes <= 12_000
        assert tier.used_bytes == sum(held[0].size for held in tier._entries.values())
        if not tier._uneven:
            assert all(pool.used <= pool.budget for pool in tier._pools.values())


def test_many_arms_cost_a_store_little() -> None:
    tier = MemoryTier(1 << 24)
    arms = [bytes([number]) * 8 for number in range(64)]
    tier.divide(Division(dict.fromkeys(arms, 1 / 64), 0.0))
    one = entry()
    best = float("inf")
    for _ in range(5):
        began = time.thread_time()
        for number in range(1000):
            tier.put(key(number) + arms[number % 64], one, 0.0)
        best = min(best, (time.thread_time() - began) / 1000)
    assert best < 1e-4
