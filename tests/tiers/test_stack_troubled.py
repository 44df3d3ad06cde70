"""The stack over tiers that fail, stall or are full."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tier_helpers import CountingHooks, Troubled, entry, key, limits, resource, response

from meshcache.decisions import NoStoreReason, TierName
from meshcache.engine.epochs import Epochs
from meshcache.policy.compiled import TierLimits
from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.board import Board
from meshcache.tiers.memory import MemoryTier
from meshcache.tiers.placing import Stored
from meshcache.tiers.signing import Keyring
from meshcache.tiers.stack import TierStack

HOT, WARM, COLD = TierName
R = resource(1)
MIB = 1 << 20
KEYRING = Keyring([b"k" * 32], b"s" * 32)


class TroubledBench:
    def __init__(self, folder: Path) -> None:
        self.warm, self.cold = Troubled(WARM), Troubled(COLD)
        self.board = Board(folder / "board")
        self.hooks = CountingHooks()
        self.stack = TierStack(
            MemoryTier(MIB), self.warm, self.cold, self.board, KEYRING, self.hooks, breaker_pause=1.0
        )
        self.limits = limits(warm=TierLimits(300.0, MIB, 0.05), cold=TierLimits(300.0, MIB, 0.05))

    def store(self, number: int, body: bytes = b"") -> Stored:
        epochs = Epochs(self.board.epoch(R))
        return self.stack.store(entry(number, epochs, WARM, record=response(body), limits=self.limits))


@pytest.fixture
async def troubled(tmp_path: Path) -> AsyncIterator[TroubledBench]:
    bench = TroubledBench(tmp_path)
    yield bench
    bench.warm.delay = bench.cold.delay = 0.0
    await bench.stack.close()


@pytest.mark.parametrize("error", [TierError("x", Trouble.IO), ValueError("a fault"), OSError("leaked")])
async def test_errors_are_misses_counted_and_open_the_breaker(troubled: TroubledBench, error: Exception) -> None:
    troubled.warm.error = error
    for _ in range(20):
        assert (await troubled.stack.find(key(1), R, troubled.limits, 1000.0)).record is None
    kind = "io" if isinstance(error, TierError) else "internal"
    assert troubled.hooks.errors == {(WARM, kind): 5}
    assert (troubled.warm.calls, troubled.cold.calls) == (5, 20)
    assert troubled.hooks.breakers == [(WARM, True)]
    troubled.warm.error = None
    await asyncio.sleep(1.1)
    await troubled.stack.find(key(1), R, troubled.limits, 1000.0)
    assert troubled.hooks.breakers == [(WARM, True), (WARM, False)]
    assert troubled.warm.calls == 6


async def test_deadlines_bound_the_look_up(troubled: TroubledBench) -> None:
    troubled.warm.delay = troubled.cold.delay = 10.0
    began = time.monotonic()
    await troubled.stack.find(key(1), R, troubled.limits, 1000.0)
    assert 0.09 < time.monotonic() - began < 5
    assert troubled.hooks.errors == {(WARM, "timeout"): 1, (COLD, "timeout"): 1}


async def test_cancellation_passes_and_is_no_failure(troubled: TroubledBench) -> None:
    troubled.warm.delay = 10.0
    for _ in range(10):
        task = asyncio.create_task(troubled.stack.find(key(1), R, limits(), 1000.0))
        await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not troubled.hooks.errors
    assert not troubled.hooks.breakers


async def test_failing_writes_leave_reading_alone(troubled: TroubledBench) -> None:
    troubled.warm.error = TierError("full", Trouble.FULL)
    for number in range(30):
        assert troubled.store(number).tiers == (WARM,)
    await troubled.stack.drain(5.0)
    assert troubled.hooks.errors[WARM, "full"] >= 5
    assert troubled.hooks.dropped[WARM, "breaker-open"] >= 10
    troubled.warm.error = None
    before = troubled.warm.calls
    await troubled.stack.find(key(1), R, troubled.limits, 1000.0)
    assert troubled.warm.calls == before + 1


async def test_a_value_too_large_for_a_tier_is_not_its_failure(troubled: TroubledBench) -> None:
    troubled.warm.error = TierError("too large", Trouble.TOO_LARGE)
    for number in range(20):
        troubled.store(number)
    await troubled.stack.drain(5.0)
    assert troubled.hooks.errors == {(WARM, "too-large"): 20}
    assert not troubled.hooks.breakers


async def test_the_queue_is_bounded_by_number_and_bytes(troubled: TroubledBench) -> None:
    troubled.warm.delay = 0.5
    outcomes = [troubled.store(number) for number in range(3000)]
    refused = Stored((), NoStoreReason.NO_MEMORY)
    assert outcomes.count(refused) == troubled.hooks.dropped[WARM, "queue-full"] == 3000 - 2048
    assert not await troubled.stack.drain(0.05)


async def test_the_queue_is_bounded_by_bytes(troubled: TroubledBench) -> None:
    troubled.warm.delay = 0.5
    outcomes = [troubled.store(number, bytes(MIB - 1000)) for number in range(100)]
    assert 60 <= outcomes.count(Stored((WARM,))) <= 64
    assert set(outcomes) == {Stored((WARM,)), Stored((), NoStoreReason.NO_MEMORY)}


async def test_after_closing_nothing_is_stored_or_raised(troubled: TroubledBench) -> None:
    troubled.warm.error = OSError("at the end")
    await troubled.stack.close()
    assert troubled.store(1) == Stored((), NoStoreReason.NO_TIER)
    await troubled.stack.invalidate(R)
    troubled.warm.error = None
