"""The stack over a warm store that pods share: two pods, one real Valkey."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tier_helpers import CountingHooks, entry, key, limits, resource, response

from fixtures_valkey import LocalValkey
from meshcache.decisions import NoStoreReason, TierName
from meshcache.engine.epochs import Epochs
from meshcache.policy.compiled import TierLimits
from meshcache.tiers.board import Board
from meshcache.tiers.memory import MemoryTier
from meshcache.tiers.objects import ObjectTier
from meshcache.tiers.placing import Stored
from meshcache.tiers.redis import RedisTier
from meshcache.tiers.signing import Keyring
from meshcache.tiers.stack import TierStack

pytestmark = pytest.mark.e2e

HOT, WARM, COLD = TierName
R = resource(1)
KEYRING = Keyring([b"k" * 32], b"s" * 32)
# A busy machine keeps them, and they are below what a connection waits.
LIMITS = limits(warm=TierLimits(300.0, 8 << 20, 0.9))
QUICK = limits(warm=TierLimits(300.0, 8 << 20, 0.2))


class Pod:
    limits = LIMITS

    def __init__(self, folder: Path, url: str, keyring: Keyring = KEYRING) -> None:
        self.board = Board(folder / "board")
        self.hooks = CountingHooks()
        self.redis = RedisTier(url, socket_timeout=1.0)
        self.stack = TierStack(
            MemoryTier(1 << 22),
            self.redis,
            ObjectTier(folder / "cold", 64 << 20, self.board),
            self.board,
            keyring,
            self.hooks,
            breaker_pause=0.2,
        )
        self.now = time.time()

    async def fill(self, number: int, *tiers: TierName, epochs: Epochs | None = None) -> Stored:
        if epochs is None:
            epochs = (await self.stack.find(key(number), R, self.limits, self.now)).epochs
        stored = self.stack.store(entry(number, epochs, *tiers, limits=self.limits, now=self.now))
        await self.stack.drain(5.0)
        return stored

    async def found_in(self, number: int) -> TierName | None:
        return (await self.stack.find(key(number), R, self.limits, self.now)).tier

    async def paid(self) -> None:
        async with asyncio.timeout(10):
            while self.redis.owed:  # noqa: ASYNC110  nothing to await from outside
                await asyncio.sleep(0.01)


@pytest.fixture
async def pods(tmp_path: Path, valkey: LocalValkey) -> AsyncIterator[tuple[Pod, Pod]]:
    one, two = Pod(tmp_path / "one", valkey.url), Pod(tmp_path / "two", valkey.url)
    yield one, two
    valkey.ensure()
    await one.stack.close()
    await two.stack.close()


async def test_what_one_pod_stores_another_finds(pods: tuple[Pod, Pod]) -> None:
    one, two = pods
    assert (await one.fill(1, HOT, WARM)).tiers == (HOT, WARM)
    found = await two.stack.find(key(1), R, LIMITS, two.now)
    assert (found.tier, found.record) == (WARM, response())


async def test_an_invalidation_reaches_warm_and_the_cold_folders_of_all_pods(pods: tuple[Pod, Pod]) -> None:
    one, two = pods
    await one.fill(1, WARM)
    await two.fill(2, COLD)
    assert [await two.found_in(1), await two.found_in(2)] == [WARM, COLD]
    await one.stack.invalidate(R)
    await one.stack.drain(5.0)
    assert [await one.found_in(1), await two.found_in(1), await two.found_in(2)] == [None, None, None]
    assert two.hooks.refused == {(WARM, "epoch"): 1, (COLD, "epoch"): 1}
    # So soon afterwards the clocks do not tell whether it was written before or after.
    await two.fill(1, WARM)
    assert [await one.found_in(1), await two.found_in(1)] == [None, WARM]
    two.now = time.time() + 3
    await two.fill(1, WARM)
    assert await one.found_in(1) is WARM
    await one.stack.invalidate(R)
    await one.stack.drain(5.0)
    await one.fill(1, WARM)
    assert await one.found_in(1) is WARM, "by its own board a pod knows at once"


@pytest.mark.parametrize("writer", ["same pod", "another pod"])
async def test_an_invalidation_is_known_to_all_workers_of_a_pod_before_the_store_hears_of_it(
    pods: tuple[Pod, Pod], tmp_path: Path, valkey: LocalValkey, writer: str
) -> None:
    one, two = pods
    await (one if writer == "same pod" else two).fill(1, WARM)
    assert await one.found_in(1) is WARM
    cut_off = Pod(tmp_path / "one", "redis://127.0.0.1:1/0")
    await cut_off.stack.invalidate(R)
    await cut_off.stack.drain(5.0)
    assert cut_off.redis.owed
    assert await one.found_in(1) is None
    await cut_off.stack.close()


async def test_a_fill_begun_before_another_pods_invalidation_is_dead(pods: tuple[Pod, Pod]) -> None:
    one, two = pods
    epochs = (await two.stack.find(key(1), R, LIMITS, two.now)).epochs
    assert len(epochs.fleet) == 8
    await one.stack.invalidate(R)
    await one.stack.drain(5.0)
    await two.fill(1, WARM, COLD, epochs=epochs)
    assert [await one.found_in(1), await two.found_in(1)] == [None, None]


async def test_without_the_store_cold_serves_and_warm_is_not_written(
    pods: tuple[Pod, Pod], valkey: LocalValkey
) -> None:
    one, _ = pods
    await one.fill(1, COLD)
    valkey.kill()
    assert await one.found_in(1) is COLD
    assert await one.fill(2, WARM) == Stored((), NoStoreReason.NO_TIER)
    assert one.hooks.dropped[WARM, "no-epoch"] == 1
    assert one.hooks.errors[WARM, "unreachable"] >= 1


async def test_a_frozen_store_costs_a_deadline_a_few_times_and_then_nothing(
    pods: tuple[Pod, Pod], valkey: LocalValkey
) -> None:
    one, _ = pods
    await one.fill(1, WARM)
    valkey.freeze()
    one.limits = QUICK
    took = []
    for _ in range(12):
        began = time.monotonic()
        assert await one.found_in(1) is None
        took.append(time.monotonic() - began)
    assert sorted(took)[5] < 0.1, "half of them at least cost nothing"
    assert sorted(took)[9] < 0.8, "nor the others the longer timeout of the connection"
    assert one.hooks.breakers == [(WARM, True)]
    valkey.thaw()
    one.limits = LIMITS
    async with asyncio.timeout(10):
        while await one.found_in(1) is not WARM:  # noqa: ASYNC110  nothing to await from outside
            await asyncio.sleep(0.02)
    assert one.hooks.breakers == [(WARM, True), (WARM, False)]


async def test_an_invalidation_during_an_outage_is_made_up_for(pods: tuple[Pod, Pod], valkey: LocalValkey) -> None:
    one, two = pods
    await one.fill(1, HOT, WARM, COLD)
    valkey.freeze()
    began = time.monotonic()
    await one.stack.invalidate(R)
    assert time.monotonic() - began < 0.9, "it does not wait for the store"
    assert one.stack.hot(key(1), R, LIMITS, one.now) is None
    assert await one.found_in(1) is None
    await one.stack.drain(5.0)
    assert one.hooks.errors[WARM, "timeout"] >= 1
    valkey.thaw()
    await one.paid()
    assert await two.found_in(1) is None


async def test_killed_and_restarted_under_load_nothing_is_raised_and_caching_resumes(
    pods: tuple[Pod, Pod], valkey: LocalValkey
) -> None:
    one, two = pods
    stop = False
    hits: Counter[Pod] = Counter()

    async def load(pod: Pod, number: int) -> None:
        while not stop:
            if await pod.found_in(number) is None:
                await pod.fill(number, WARM)
            else:
                hits[pod] += 1
            await asyncio.sleep(0.005)

    async def invalidate(pod: Pod) -> None:
        while not stop:
            await pod.stack.invalidate(resource(100))
            await asyncio.sleep(0.005)

    async def both_hit() -> None:
        """Return when both pods have found what is stored, from now on."""
        hits.clear()
        async with asyncio.timeout(20):
            while min(hits[one], hits[two]) < 20:  # noqa: ASYNC110  a count tells
                await asyncio.sleep(0.01)

    tasks = [asyncio.create_task(load(pod, number)) for pod in pods for number in range(8)]
    tasks += [asyncio.create_task(invalidate(pod)) for pod in pods]
    await both_hit()
    valkey.kill()
    async with asyncio.timeout(20):
        while not (one.hooks.breakers and two.hooks.breakers):  # noqa: ASYNC110  nothing to await from outside
            await asyncio.sleep(0.01)
    await asyncio.to_thread(valkey.start)
    await both_hit()
    stop = True
    await asyncio.gather(*tasks)
    await one.paid()
    await two.paid()
    await one.fill(100, WARM)
    assert await two.found_in(100) is WARM


async def test_foreign_garbage_is_a_miss(pods: tuple[Pod, Pod], valkey: LocalValkey) -> None:
    one, _ = pods
    await one.fill(1, WARM)
    with valkey.client() as client:
        client.set(
            "mc1:k:" + key(1).hex(), b"garbage of someone else, long enough to look like an envelope to a glance"
        )
    assert await one.found_in(1) is None
    assert one.hooks.refused == {(WARM, "foreign"): 1}
    await one.stack.drain(5.0)
    with valkey.client() as client:
        assert not client.exists("mc1:k:" + key(1).hex())


async def test_pods_with_other_keys_leave_each_others_entries_alone(
    pods: tuple[Pod, Pod], tmp_path: Path, valkey: LocalValkey
) -> None:
    one, two = pods
    await one.fill(1, WARM)
    stranger = Pod(tmp_path / "three", valkey.url, Keyring([b"o" * 32], b"s" * 32))
    assert await stranger.found_in(1) is None
    assert stranger.hooks.refused == {(WARM, "unknown-key"): 1}
    await stranger.stack.drain(5.0)
    assert await two.found_in(1) is WARM
    await stranger.stack.close()
