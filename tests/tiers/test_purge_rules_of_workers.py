"""The purge rules of a worker: nothing is given out that a rule forbids, known to it or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from purge_rig import Pod
from tier_helpers import CountingHooks, entry, key, limits, resource, response

from meshcache.decisions import NoStoreReason, TierName
from meshcache.engine.chunks import digest, owner_of
from meshcache.engine.purges import PurgeKind
from meshcache.engine.records import VariantIndex
from meshcache.tiers.board import Board
from meshcache.tiers.lmdb import LmdbTier
from meshcache.tiers.memory import MemoryTier
from meshcache.tiers.purges import Purges
from meshcache.tiers.signing import Keyring
from meshcache.tiers.stack import TierStack

KEYRING = Keyring([b"k" * 32], b"s" * 32)
HOT, WARM = TierName.HOT, TierName.WARM
TAGGED = response(tags=("t",))


class Worker:
    """A worker's stack over the pod's stores."""

    def __init__(self, pod: Pod, warm: LmdbTier | None = None) -> None:
        self.silences = 0
        self.hooks = CountingHooks()
        self.board = Board(pod.board.path, slots=1 << 16, lease_buckets=16)
        self.purges = Purges(self.board, pod.path, on_silence=self.silent, wall_clock=pod.clock)
        self.purges.load()
        self.memory = MemoryTier(1 << 20)
        self.stack = TierStack(self.memory, warm, None, self.board, KEYRING, self.hooks, purges=self.purges)

    def silent(self) -> None:
        self.silences += 1
        self.memory.clear()

    async def epochs(self):
        return (await self.stack.find(key(99), resource(1), limits(), 1000.0)).epochs

    async def store(self, number: int = 1, *tiers: TierName, record=TAGGED, epochs=None):
        stored = self.stack.store(entry(number, epochs or await self.epochs(), *(tiers or (HOT,)), record=record))
        await self.stack.drain(5)
        return stored

    def hot(self, number: int = 1):
        return self.stack.hot(key(number), resource(1), limits(), 1000.0)

    async def find(self, number: int = 1):
        return await self.stack.find(key(number), resource(1), limits(), 1000.0)

    async def close(self) -> None:
        await self.stack.close()
        self.board.close()


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    made = Pod(tmp_path)
    yield made
    made.close()


@pytest_asyncio.fixture
async def worker(pod: Pod, tmp_path: Path) -> AsyncIterator[Worker]:
    made = Worker(pod, LmdbTier(tmp_path / "warm", 8 << 20, pod.board, wall_clock=lambda: 1000.0))
    yield made
    await made.close()


async def test_a_rule_that_is_not_read_yet_keeps_back_what_is_stored_and_no_more(pod, worker):
    await worker.store(1, HOT, WARM)
    await worker.store(2, HOT, WARM, record=response(tags=("u",)))
    pod.purge(PurgeKind.TAG, "t")
    # Not a step of the event loop in between: this is what a worker does that was stopped and goes on.
    assert worker.hot(1) is None
    assert worker.hot(2) is None
    assert await worker.purges.catch_up()
    assert worker.hot(1) is None
    assert worker.hot(2) is not None
    assert (await worker.find(1)).record is None
    assert (await worker.find(2)).record is not None
    assert worker.hooks.refused[HOT, "purge-unread"] == 2
    assert worker.hooks.refused[HOT, "purged"] == worker.hooks.refused[WARM, "purged"] == 1


async def test_a_worker_catches_up_by_itself(pod, worker):
    await worker.store()
    pod.purge(PurgeKind.ROUTE, "other")
    assert worker.hot() is None
    for _ in range(1000):
        if worker.hot() is not None:
            return
        await asyncio.sleep(0.005)
    pytest.fail("it did not")


async def test_an_answer_that_was_asked_for_before_a_purge_is_not_stored_after_it(pod, worker):
    before = await worker.epochs()
    pod.purge(PurgeKind.TAG, "t")
    await worker.purges.catch_up()
    assert (await worker.store(epochs=before)).refused is NoStoreReason.PURGED
    assert (await worker.store(epochs=before, record=response(tags=("u",)))).refused is None
    assert (await worker.store(1)).refused is None
    assert worker.hot() is not None


async def test_an_answer_stored_before_its_worker_knows_of_the_purge_is_dead_all_the_same(pod, worker):
    pod.purge(PurgeKind.TAG, "t")
    assert (await worker.store(1, HOT, WARM)).refused is None
    await worker.purges.catch_up()
    assert worker.hot() is None
    assert (await worker.find()).record is None


async def test_a_write_that_waits_is_not_made_after_a_purge(pod, worker):
    epochs = await worker.epochs()
    worker.stack.store(entry(1, epochs, WARM, record=TAGGED))
    pod.purge(PurgeKind.TAG, "t")
    worker.purges.load()
    await worker.stack.drain(5)
    assert worker.hooks.dropped[WARM, "purged"] == 1


@pytest.mark.parametrize(
    ("kind", "value", "dead"),
    [
        (PurgeKind.ALL, "", True),
        (PurgeKind.ROUTE, "shop", True),
        (PurgeKind.ROUTE, "other", False),
        (PurgeKind.REVISION, "7", True),
        (PurgeKind.SUBJECT, b"person".hex(), True),
        (PurgeKind.TAG, "t", True),
        (PurgeKind.TAG, "u", False),
    ],
)
async def test_a_list_of_variants_goes_with_the_last_of_them(pod, worker, kind, value, dead):
    index = VariantIndex(b"key", (("accept",),), "shop", b"person", "7", ("t",))
    await worker.store(1, HOT, WARM, record=index)
    pod.purge(kind, value)
    await worker.purges.catch_up()
    assert (worker.hot() is None) == dead
    assert ((await worker.find()).record is None) == dead


async def test_a_soft_purge_leaves_the_list_of_variants(pod, worker):
    await worker.store(1, HOT, WARM, record=VariantIndex(b"key", (("accept",),), tags=("t",)))
    pod.purge(PurgeKind.TAG, "t", soft=True)
    await worker.purges.catch_up()
    assert worker.hot() is not None
    assert (await worker.find()).record is not None


async def test_a_copy_of_a_lower_tier_is_born_when_it_was_judged(pod, worker):
    await worker.store(1, WARM)
    pod.purge(PurgeKind.TAG, "u")
    await worker.purges.catch_up()
    found = await worker.find()
    worker.stack.promote(entry(1, found.epochs, HOT, record=found.record))
    hot = worker.hot()
    assert hot is not None
    assert hot.born == worker.purges.born
    pod.purge(PurgeKind.TAG, "t")
    await worker.purges.catch_up()
    assert worker.hot() is None


async def test_a_soft_purge_makes_stale(pod, worker):
    await worker.store(1, HOT, WARM)
    pod.purge(PurgeKind.TAG, "t", soft=True)
    await worker.purges.catch_up()
    held = worker.hot()
    assert held is not None
    assert held.stale_since == 1000.0
    assert (await worker.find()).stale_since == 1000.0


async def test_workers_that_are_ahead_of_the_board_answer(pod, worker):
    await worker.store()
    pod.purge(PurgeKind.TAG, "u", publish=False)
    await worker.purges.catch_up()
    assert worker.hot() is not None
    await worker.store(2)
    assert worker.hot(2) is not None
    pod.publish()
    assert worker.hot() is not None
    assert worker.hooks.refused.total() == 0


async def test_a_worker_that_was_silent_empties_its_memory(pod, worker):
    await worker.store(2, record=response(tags=("u",)))
    pod.clock = lambda: 998.0
    pod.purge(PurgeKind.TAG, "t")
    await worker.purges.catch_up()
    assert worker.silences == 1
    assert worker.hot(2) is None
    pod.clock = lambda: 999.5
    pod.purge(PurgeKind.TAG, "t")
    await worker.purges.catch_up()
    assert worker.silences == 1


async def test_a_worker_that_begins_knows_all_rules(pod, worker, tmp_path):
    await worker.store(1, WARM)
    pod.purge(PurgeKind.TAG, "t")
    other = Worker(pod, LmdbTier(tmp_path / "warm", 8 << 20, pod.board, wall_clock=lambda: 1000.0))
    assert other.purges.current()
    assert other.silences == 0
    assert (await other.find()).record is None
    await other.close()


@pytest.mark.parametrize("harm", ["gone", "garbage", "behind"])
async def test_without_a_log_that_can_be_trusted_all_that_was_stored_is_dead(pod, worker, harm):
    await worker.store(1, HOT, WARM, record=response(tags=("u",)))
    if harm == "behind":
        pod.number += 1
        pod.publish()
    else:
        pod.purge(PurgeKind.TAG, "t")
        pod.path.write_bytes(b"garbage")
        if harm == "gone":
            pod.path.unlink()
    assert worker.hot(1) is None
    assert await worker.purges.catch_up()
    assert worker.hot(1) is None
    assert (await worker.find(1)).record is None
    assert (await worker.store(1)).refused is None
    assert worker.hot(1) is not None


async def test_another_log_makes_all_of_the_one_before_dead(pod, worker):
    await worker.store(1, HOT, WARM)
    other = Pod(pod.path.parent, incarnation=8)
    assert worker.hot() is None
    assert await worker.purges.catch_up()
    assert worker.hot() is None
    assert (await worker.find()).record is None
    other.close()


async def test_a_new_board_is_not_trusted_before_its_log_is_named(pod, worker):
    await worker.store(1, record=response(tags=("u",)))
    pod.board.path.unlink()
    assert pod.board.refresh()
    assert worker.board.refresh()
    assert worker.hot() is None
    assert not await worker.purges.catch_up()
    await worker.store(2, record=response(tags=("u",)))
    assert worker.hot(2) is None
    pod.publish()
    assert worker.hot(2) is not None


async def test_without_a_log_nothing_is_ever_purged(tmp_path):
    board = Board(tmp_path / "board", slots=1 << 16, lease_buckets=16)
    stack = TierStack(MemoryTier(1 << 20), None, None, board, KEYRING)
    epochs = (await stack.find(key(1), resource(1), limits(), 1000.0)).epochs
    stack.store(entry(1, epochs, HOT))
    assert stack.hot(key(1), resource(1), limits(), 1000.0) is not None
    assert not stack.purged(stack.born, TAGGED)
    await stack.close()
    board.close()


async def test_a_purged_persons_chunks_go_with_his_record(pod, worker):
    records = []
    for number, subject in enumerate((b"p" * 16, b"")):
        name = digest(b"chunk", owner_of(response(subject=subject)))
        await worker.stack._lower[WARM].tier.keep(name, b"chunk", 600.0)
        records.append(response(tags=("t",), body=b"", subject=subject, chunks=(name,), size=5, chunk_bytes=5))
        await worker.store(number, WARM, record=records[-1])
        assert (await worker.find(number)).record == records[-1]
    worker.stack.bodies._drop_after = 0.0
    pod.purge(PurgeKind.TAG, "t")
    await worker.purges.catch_up()
    for number in range(2):
        assert (await worker.find(number)).record is None
    await asyncio.sleep(0.01)
    await worker.stack.drain(5)
    his, everybodys = records
    missing = await worker.stack._lower[WARM].tier.extend([*his.chunks, *everybodys.chunks], 0.0)
    assert missing == set(his.chunks), "the others may be somebody else's, too"
