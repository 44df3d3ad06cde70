from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from tier_helpers import CountingHooks, entry, key, limits, resource, response

from meshcache.decisions import NoStoreReason, TierName
from meshcache.engine.epochs import UNKNOWN, Epochs
from meshcache.engine.records import Entry, VariantIndex
from meshcache.policy.compiled import TierLimits
from meshcache.tiers.base import TierRead
from meshcache.tiers.board import Board
from meshcache.tiers.envelope import seal
from meshcache.tiers.lmdb import LmdbTier
from meshcache.tiers.memory import MemoryTier
from meshcache.tiers.objects import ObjectTier
from meshcache.tiers.placing import Stored
from meshcache.tiers.signing import Keyring
from meshcache.tiers.stack import TierStack

HOT, WARM, COLD = TierName
R = resource(1)
MIB = 1 << 20
KEYRING = Keyring([b"k" * 32], b"s" * 32)


class Bench:
    """A stack over real files, with what the tests look into."""

    def __init__(self, folder: Path) -> None:
        self.board = Board(folder / "board")
        self.memory = MemoryTier(16 * MIB)
        self.warm = LmdbTier(folder / "warm", 32 * MIB, self.board)
        self.cold = ObjectTier(folder / "cold", 512 * MIB, self.board)
        self.hooks = CountingHooks()
        self.stack = TierStack(self.memory, self.warm, self.cold, self.board, KEYRING, self.hooks, breaker_pause=0.1)
        self.now = time.time()

    def entry(self, number: int, *tiers: TierName, **changes: object) -> Entry:
        return entry(number, Epochs(self.board.epoch(R)), *tiers, **({"now": self.now} | changes))

    def store(self, number: int, *tiers: TierName, body: bytes = b"hello", **changes: object) -> tuple[TierName, ...]:
        return self.stack.store(self.entry(number, *tiers, record=response(body), **changes)).tiers

    async def found_in(self, number: int, now: float | None = None) -> TierName | None:
        found = await self.stack.find(key(number), R, limits(), self.now if now is None else now)
        assert (found.tier is None) == (found.record is None)
        return found.tier


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    await bench.stack.close()


async def test_each_tier_gets_what_it_is_to_get(bench: Bench) -> None:
    assert bench.store(1, HOT, WARM) == (HOT, WARM)
    assert bench.store(2, WARM) == (WARM,)
    assert bench.store(3, COLD) == (COLD,)
    # Memory at once, the others in the background.
    entry = bench.stack.hot(key(1), R, limits(), bench.now)
    assert entry is not None
    assert entry.record == response()
    assert bench.stack.hot(key(2), R, limits(), bench.now) is None
    assert await bench.stack.drain(5.0)
    assert [await bench.found_in(n) for n in (1, 2, 3, 4)] == [WARM, WARM, COLD, None]
    found = await bench.stack.find(key(3), R, limits(), bench.now)
    assert found.record == response()
    assert found.epochs == Epochs(bench.board.epoch(R))


async def test_an_index_of_variants_round_trips(bench: Bench) -> None:
    index = VariantIndex(b"key", (("accept",), ()))
    bench.stack.store(bench.entry(1, WARM, record=index))
    await bench.stack.drain(5.0)
    assert (await bench.stack.find(key(1), R, limits(), bench.now)).record == index


async def test_large_records_round_trip(bench: Bench) -> None:
    body = bytes(range(256)) * 12_000
    assert bench.store(1, WARM, COLD, body=body) == (WARM, COLD)
    await bench.stack.drain(5.0)
    found = await bench.stack.find(key(1), R, limits(), bench.now)
    assert (found.tier, found.record) == (WARM, response(body))
    await bench.warm.delete(key(1))
    found = await bench.stack.find(key(1), R, limits(), bench.now)
    assert (found.tier, found.record) == (COLD, response(body))


@pytest.mark.parametrize(
    ("size", "wanted", "placed"),
    [
        (MIB // 2, (HOT, WARM), (HOT, WARM)),
        (2 * MIB, (HOT, WARM), (WARM,)),
        (9 * MIB, (HOT, WARM), (COLD,)),
        (9 * MIB, (WARM,), (COLD,)),
        (2 * MIB, (HOT,), (WARM,)),
        (65 * MIB, (HOT, WARM), ()),
        (65 * MIB, (COLD,), ()),
        (10, (), ()),
    ],
)
async def test_what_is_too_large_goes_to_the_next_lower_tier(
    bench: Bench, size: int, wanted: tuple[TierName, ...], placed: tuple[TierName, ...]
) -> None:
    assert bench.store(1, *wanted, body=bytes(size)) == placed
    await bench.stack.drain(5.0)


async def test_promotion_goes_up_only_where_it_fits(bench: Bench) -> None:
    bench.store(1, COLD)
    await bench.stack.drain(5.0)
    found = await bench.stack.find(key(1), R, limits(), bench.now)
    assert found.record is not None
    up = bench.entry(1, HOT, WARM, record=found.record, epochs=found.epochs, eviction="ttl")
    assert bench.stack.promote(up) == Stored((HOT, WARM))
    entry = bench.stack.hot(key(1), R, limits(), bench.now)
    assert entry is not None
    assert entry.record == found.record
    await bench.stack.drain(5.0)
    assert await bench.found_in(1) is WARM
    too_large = bench.entry(2, HOT, WARM, record=response(bytes(9 * MIB)))
    assert bench.stack.promote(too_large) == Stored((), NoStoreReason.NO_TIER)


async def test_residence_by_the_limits_now_in_force(bench: Bench) -> None:
    bench.store(1, HOT, WARM, COLD)
    await bench.stack.drain(5.0)
    now = bench.now
    assert bench.stack.hot(key(1), R, limits(), now + 29) is not None
    shorter = limits(hot=TierLimits(10.0, MIB, 1.0), warm=TierLimits(10.0, MIB, 1.0))
    assert bench.stack.hot(key(1), R, shorter, now + 11) is None
    assert bench.hooks.refused[HOT, "residence"] == 1
    assert (await bench.stack.find(key(1), R, shorter, now + 9)).tier is WARM
    assert (await bench.stack.find(key(1), R, shorter, now + 11)).tier is COLD
    assert bench.hooks.refused[WARM, "residence"] == 1


async def test_residence_never_exceeds_use(bench: Bench) -> None:
    bench.store(1, HOT, WARM, COLD, expires_in=0.2)
    await bench.stack.drain(5.0)
    assert bench.stack.hot(key(1), R, limits(), bench.now + 0.1) is not None
    assert bench.stack.hot(key(1), R, limits(), bench.now + 0.2) is None
    await asyncio.sleep(0.25)
    assert await bench.found_in(1) is None
    assert bench.stack.store(bench.entry(2, HOT, WARM, expires_in=0.0)) == Stored((), NoStoreReason.NO_FRESHNESS)


async def test_what_claims_to_be_from_the_future_is_not_used(bench: Bench) -> None:
    bench.store(1, HOT, WARM)
    await bench.stack.drain(5.0)
    assert await bench.found_in(1, bench.now - 30) is WARM
    assert await bench.found_in(1, bench.now - 3600) is None
    assert bench.stack.hot(key(1), R, limits(), bench.now - 3600) is None


async def test_invalidation_is_in_force_before_its_first_suspension(bench: Bench) -> None:
    bench.store(1, HOT, WARM, COLD)
    await bench.stack.drain(5.0)
    bench.store(2, HOT)
    coroutine = bench.stack.invalidate(R)
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert bench.stack.hot(key(1), R, limits(), bench.now) is None
    assert await bench.found_in(1) is None
    assert bench.hooks.refused[WARM, "epoch"] == bench.hooks.refused[COLD, "epoch"] == 1
    assert len(bench.memory) == 1
    bench.store(1, HOT, WARM)
    await bench.stack.drain(5.0)
    assert await bench.found_in(1) is WARM


async def test_a_fill_begun_before_an_invalidation_never_comes_back(bench: Bench) -> None:
    epochs = (await bench.stack.find(key(1), R, limits(), bench.now)).epochs
    await bench.stack.invalidate(R)
    late = bench.entry(1, HOT, WARM, COLD, epochs=epochs)
    assert bench.stack.store(late) == bench.stack.promote(late) == Stored((), NoStoreReason.INVALIDATED)
    # Nor one that was queued before it.
    bench.store(1, WARM, COLD)
    await bench.stack.invalidate(R)
    await bench.stack.drain(5.0)
    assert await bench.found_in(1) is None
    assert bench.hooks.dropped == {(WARM, "invalidated"): 1, (COLD, "invalidated"): 1}


async def test_a_look_up_that_an_invalidation_overtakes_is_a_miss(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.store(1, WARM)
    await bench.stack.drain(5.0)
    real = bench.warm.get

    async def slow(storage_key: bytes, of: bytes) -> TierRead:
        read = await real(storage_key, of)
        bench.board.bump(R)
        return read

    monkeypatch.setattr(bench.warm, "get", slow)
    assert await bench.found_in(1) is None


async def test_unknown_epochs_store_nothing(bench: Bench) -> None:
    unknown = bench.entry(1, HOT, WARM, COLD, epochs=UNKNOWN)
    assert bench.stack.store(unknown) == Stored((), NoStoreReason.NO_TIER)


async def test_delete(bench: Bench) -> None:
    bench.store(1, HOT, WARM, COLD)
    await bench.stack.drain(5.0)
    bench.stack.delete(key(1))
    assert bench.stack.hot(key(1), R, limits(), bench.now) is None
    await bench.stack.drain(5.0)
    assert await bench.found_in(1) is None


async def test_delete_takes_back_writes_that_wait(bench: Bench) -> None:
    bench.store(1, WARM, COLD)
    bench.store(2, WARM)
    bench.stack.delete(key(1))
    await bench.stack.drain(5.0)
    assert [await bench.found_in(n) for n in (1, 2)] == [None, WARM]


@pytest.mark.parametrize("reason", ["truncated", "foreign", "version", "unknown-key", "mac"])
async def test_bad_envelopes_are_misses_counted_and_deleted_unless_good_for_others(bench: Bench, reason: str) -> None:
    sealed = partial(seal, response(), epoch=bench.board.epoch(R), written_at=bench.now)
    good = sealed(storage_key=key(1), keyring=KEYRING)
    bad = {
        "truncated": good[:20],
        "foreign": b"XY" + good[2:],
        "version": b"MC\x07" + good[3:],
        "unknown-key": sealed(storage_key=key(1), keyring=Keyring([b"o" * 32], b"")),
        # Two entries swapped by someone who can write to the store.
        "mac": sealed(storage_key=key(3), keyring=KEYRING),
    }[reason]
    await bench.warm.put(key(1), bad, 100.0)
    bench.store(1, COLD)
    await bench.stack.drain(5.0)
    assert await bench.found_in(1) is COLD
    assert bench.hooks.refused == {(WARM, reason): 1}
    await bench.stack.drain(5.0)
    left = (await bench.warm.get(key(1), R)).value
    assert left == (bad if reason in ("version", "unknown-key") else None)
    bench.store(1, WARM)
    await bench.stack.drain(5.0)
    assert await bench.found_in(1) is WARM, "what is stored takes its place"


@pytest.mark.parametrize("first_to_notice", [0, 1])
async def test_a_board_that_is_lost_loses_no_invalidation_for_longer_than_a_second(
    tmp_path: Path, first_to_notice: int
) -> None:
    times = [100.0]
    boards = [Board(tmp_path / "board") for _ in range(2)]
    stacks = [TierStack(MemoryTier(MIB), None, None, board, KEYRING, clock=lambda: times[0]) for board in boards]
    writer, reader = stacks
    (tmp_path / "board").unlink()
    times[0] += 1.0
    epochs = (await stacks[first_to_notice].find(key(2), R, limits(), 1000.0)).epochs
    if first_to_notice == 0:
        epochs = Epochs(boards[1].epoch(R))
    reader.store(entry(1, epochs, HOT))
    await writer.invalidate(R)
    times[0] += 1.0
    assert reader.hot(key(1), R, limits(), 1001.0) is None
    for stack, board in zip(stacks, boards, strict=True):
        await stack.close()
        board.close()


async def test_what_waits_to_be_verified_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.stack._opener, "_opening_bytes", 3 * MIB)
    for number in range(16):
        bench.store(number, COLD, body=b"x" * MIB)
    assert await bench.stack.drain(10)
    held = threading.Event()
    in_the_way = asyncio.create_task(bench.stack._threads.run(held.wait, 5.0))
    reads = [asyncio.create_task(bench.found_in(number)) for number in range(16)]
    while bench.hooks.errors[COLD, "busy"] < 14:  # noqa: ASYNC110  a count tells
        await asyncio.sleep(0.01)
    held.set()
    assert sorted(await asyncio.gather(*reads), key=str) == [None] * 14 + [COLD] * 2
    assert await bench.found_in(0) is COLD, "what has been verified makes room again"
    await in_the_way


async def test_restart_keeps_the_lower_tiers_and_a_new_board_kills_them(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.store(1, HOT, WARM, COLD)
    await bench.stack.drain(5.0)
    await bench.stack.close()
    bench.board.close()
    bench = Bench(tmp_path)
    assert bench.stack.hot(key(1), R, limits(), bench.now) is None
    assert await bench.found_in(1) is WARM
    await bench.stack.close()
    (tmp_path / "board").unlink()
    bench = Bench(tmp_path)
    assert await bench.found_in(1) is None
    await bench.stack.close()


async def test_memory_alone(tmp_path: Path) -> None:
    board = Board(tmp_path / "board")
    stack = TierStack(MemoryTier(MIB), None, None, board, KEYRING)
    found = await stack.find(key(1), R, limits(), 1000.0)
    assert (found.record, found.epochs) == (None, Epochs(board.epoch(R)))
    assert stack.store(entry(1, found.epochs, HOT, WARM, eviction="ttl")) == Stored((HOT,))
    assert stack.store(entry(1, found.epochs, WARM)) == Stored((), NoStoreReason.NO_TIER)
    too_large = entry(
        1, found.epochs, HOT, record=response(bytes(2 * MIB)), limits=limits(hot=TierLimits(1, 1 << 30, 1))
    )
    assert stack.store(too_large) == Stored((), NoStoreReason.NO_TIER), "the limit allows it, the budget does not"
    stack.delete(key(1))
    await stack.invalidate(R)
    assert await stack.drain(1.0)
    await stack.close()


async def test_hot_look_up_takes_microseconds(bench: Bench) -> None:
    bench.store(1, HOT)
    one, bounds = key(1), limits()
    best = 1.0
    for _ in range(5):
        began = time.thread_time()
        for _ in range(1000):
            bench.stack.hot(one, R, bounds, bench.now)
        best = min(best, (time.thread_time() - began) / 1000)
    assert best < 10e-6
