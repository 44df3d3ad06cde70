from __future__ import annotations

import time
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tier_helpers import key, response

from meshcache.engine.records import VariantIndex
from meshcache.tiers.memory import HotEntry, MemoryTier, entry_size


def entry(body: int = 100, expires_at: float = 100.0, rendered: bytes | None = None) -> HotEntry:
    return HotEntry(response(bytes(body)), epoch=b"e" * 8, stored_at=0.0, expires_at=expires_at, rendered=rendered)


def test_put_get_delete() -> None:
    tier = MemoryTier(1 << 20)
    one = entry()
    assert tier.put(key(1), one, 0.0)
    assert tier.get(key(1), 99.9) is one
    assert tier.get(key(2), 0.0) is None
    tier.delete(key(1))
    tier.delete(key(1))
    assert (tier.get(key(1), 0.0), len(tier), tier.used_bytes) == (None, 0, 0)


def test_residence_ends() -> None:
    gone: list[str] = []
    tier = MemoryTier(1 << 20, gone.append)
    tier.put(key(1), entry(expires_at=5.0), 0.0)
    assert tier.get(key(1), 5.0) is None
    assert (len(tier), tier.used_bytes, gone) == (0, 0, ["expired"])


def test_replacing_counts_once() -> None:
    tier = MemoryTier(1 << 20)
    tier.put(key(1), entry(5000), 0.0, "lru")
    tier.put(key(1), entry(10), 0.0, "ttl")
    assert (len(tier), tier.used_bytes) == (1, entry(10).size)


def test_lru_pool_gives_up_the_least_recently_used() -> None:
    gone: list[str] = []
    size = entry().size
    tier = MemoryTier(3 * size, gone.append)
    for number in range(3):
        tier.put(key(number), entry(), 0.0, "lru")
    tier.get(key(0), 1.0)
    tier.put(key(3), entry(), 0.0, "lru")
    assert [tier.get(key(n), 1.0) is not None for n in range(4)] == [True, False, True, True]
    assert gone == ["capacity"]


def test_ttl_pool_gives_up_the_first_to_expire() -> None:
    size = entry().size
    tier = MemoryTier(3 * size)
    for number, expires_at in enumerate((30.0, 10.0, 20.0, 40.0)):
        tier.get(key(1), 1.0)
        tier.put(key(number), entry(expires_at=expires_at), 0.0, "ttl")
    assert [tier.get(key(n), 1.0) is not None for n in range(4)] == [True, False, True, True]


def test_expired_go_before_living_ones() -> None:
    gone: list[str] = []
    size = entry().size
    tier = MemoryTier(3 * size, gone.append)
    tier.put(key(0), entry(expires_at=5.0), 0.0, "ttl")
    tier.put(key(1), entry(), 0.0, "lru")
    tier.put(key(2), entry(), 0.0, "lru")
    tier.put(key(3), entry(), 6.0, "lru")
    assert gone == ["expired"]
    assert all(tier.get(key(n), 6.0) for n in (1, 2, 3))


def test_neither_pool_starves_the_other() -> None:
    size = entry().size
    tier = MemoryTier(10 * size)
    for number in range(5):
        tier.put(key(number), entry(), 0.0, "ttl")
    for number in range(100, 200):
        tier.put(key(number), entry(), 0.0, "lru")
    assert sum(tier.get(key(n), 1.0) is not None for n in range(5)) == 5


def test_an_entry_above_the_budget_is_refused_and_evicts_nothing() -> None:
    tier = MemoryTier(3 * entry().size)
    tier.put(key(1), entry(), 0.0)
    assert not tier.put(key(2), entry(10_000), 0.0)
    assert tier.get(key(1), 0.0) is not None
    # Nor does what it was to replace stay.
    assert not tier.put(key(1), entry(10_000), 0.0)
    assert tier.get(key(1), 0.0) is None


def test_what_is_attached_counts() -> None:
    gone: list[str] = []
    one, two = entry(), entry()
    tier = MemoryTier(one.size + two.size + 500, gone.append)
    tier.put(key(1), one, 0.0)
    tier.put(key(2), two, 0.0)
    before = tier.used_bytes
    tier.attach(key(2), two, b"r" * 400, 0.0)
    assert 400 <= tier.used_bytes - before <= 450
    tier.attach(key(2), two, b"r" * 800, 0.0)
    assert gone == ["capacity"]
    assert tier.get(key(2), 0.0) is two


def test_attaching_to_what_has_left_counts_nothing() -> None:
    tier = MemoryTier(1 << 20)
    one = entry()
    tier.put(key(1), one, 0.0)
    tier.put(key(1), entry(), 0.0)
    before = tier.used_bytes
    tier.attach(key(1), one, b"r" * 1000, 0.0)
    assert tier.used_bytes == before


def test_attaching_more_than_the_budget_drops_the_entry() -> None:
    tier = MemoryTier(5000)
    one = entry()
    tier.put(key(1), one, 0.0)
    tier.attach(key(1), one, b"r" * 10_000, 0.0)
    assert (tier.get(key(1), 0.0), tier.used_bytes, one.rendered) == (None, 0, b"r" * 10_000)


def test_clear() -> None:
    tier = MemoryTier(1 << 20)
    tier.put(key(1), entry(), 0.0, "ttl")
    tier.put(key(2), entry(), 0.0, "lru")
    tier.clear()
    assert (len(tier), tier.used_bytes) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("body", [0, 2000])
@pytest.mark.parametrize("eviction", ["lru", "ttl"])
def test_counted_bytes_are_those_python_allocates(body: int, eviction: str) -> None:
    tier = MemoryTier(1 << 30)
    count = 4000
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(count):
            fields = tuple((f"x-name-{n}", f"value {number} {n}") for n in range(5))
            record = response(
                b"b" * (body + number % 7), fields=fields, key=b"GET /%d" % number, request_time=number / 7
            )
            tier.put(
                key(number),
                HotEntry(
                    record, epoch=bytes(8) + bytes([number % 256]), stored_at=number / 3, expires_at=number + 1e9 / 7
                ),
                0.0,
                "lru" if eviction == "lru" else "ttl",
            )
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    real = after - before
    assert 0.95 * real <= tier.used_bytes <= 1.35 * real


def test_an_index_has_a_size() -> None:
    index = VariantIndex(b"key", (("accept", "accept-language"), ("cookie",)))
    size = entry_size(HotEntry(index, epoch=b"", stored_at=0.0, expires_at=1.0))
    assert size > 300


_steps = st.lists(
    st.tuples(
        st.sampled_from(["put-lru", "put-ttl", "get", "delete", "attach"]),
        st.integers(0, 7),
        st.integers(0, 2000),
        st.integers(1, 20),
    ),
    max_size=40,
)


@given(_steps)
def test_never_above_budget_and_always_consistent(steps: list[tuple[str, int, int, int]]) -> None:
    gone: Counter[str] = Counter()

    def left(reason: str) -> None:
        gone[reason] += 1

    tier = MemoryTier(6000, left)
    now = 0.0
    for action, number, size, ttl in steps:
        now += 0.5
        match action:
            case "get":
                found = tier.get(key(number), now)
                assert found is None or found.expires_at > now
            case "delete":
                tier.delete(key(number))
            case "attach":
                found = tier.get(key(number), now)
                if found is not None:
                    tier.attach(key(number), found, bytes(size), now)
            case _:
                one = entry(size, now + ttl)
                kept = tier.put(key(number), one, now, "lru" if action == "put-lru" else "ttl")
                assert kept == (one.size <= 6000)
        assert tier.used_bytes <= 6000
        assert tier.used_bytes == sum(held[0].size for held in tier._entries.values())


def test_get_is_about_a_microsecond() -> None:
    tier = MemoryTier(1 << 28)
    for number in range(1000):
        tier.put(key(number), entry(), 0.0)
    keys = [key(number) for number in range(1000)]
    best = float("inf")
    for _ in range(5):
        began = time.thread_time()
        for one in keys:
            tier.get(one, 1.0)
        best = min(best, (time.thread_time() - began) / 1000)
    assert best < 5e-6
