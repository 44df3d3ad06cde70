"""What other pods have invalidated, on a real Valkey."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from meshcache.extproc.invalidation_follower import InvalidationFollower
from meshcache.tiers.board import Board
from meshcache.tiers.redis import INVALIDATED, RedisTier

pytestmark = pytest.mark.e2e


def resource(number: int) -> bytes:
    return number.to_bytes(16, "little")


class Pod:
    """The board of a pod that follows, and a worker's way to the store."""

    def __init__(self, folder, valkey, name: str) -> None:
        self.board = Board(folder / name, slots=1 << 10, lease_buckets=16, wall_clock=lambda: 5.0)
        self.tier = RedisTier(valkey.unix_url, pod=name)
        self.heard: list[list[bytes] | None] = []
        self.follow(InvalidationFollower(self.tier.send, self.board, name, heard=self._hear))

    def _hear(self, resources) -> None:
        self.heard.append(None if resources is None else list(resources))

    def follow(self, follower: InvalidationFollower) -> None:
        self.follower = follower
        self.task = asyncio.create_task(follower.run())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def epochs(self, *numbers: int) -> list[bytes]:
        return [self.board.epoch(resource(number)) for number in numbers]

    async def follows(self) -> None:
        """Return when it has found where to begin."""
        async with asyncio.timeout(20):
            while not self.follower._last:  # noqa: ASYNC110  nothing to await from outside
                await asyncio.sleep(0.01)

    async def changes(self, before: list[bytes], *numbers: int, within: float = 20.0) -> list[bool]:
        """Which of these epochs have changed, once one has or that time is over."""
        for _ in range(int(within * 100)):
            if self.epochs(*numbers) != before:
                break
            await asyncio.sleep(0.01)
        return [old != new for old, new in zip(before, self.epochs(*numbers), strict=True)]

    async def close(self) -> None:
        await self.stop()
        await self.tier.close()
        self.board.close()


@pytest_asyncio.fixture
async def pods(valkey, tmp_path) -> AsyncIterator[list[Pod]]:
    made = [Pod(tmp_path, valkey, name) for name in ("a", "b")]
    for pod in made:
        await pod.follows()
    yield made
    for pod in made:
        await pod.close()


async def test_an_invalidation_comes_to_the_boards_of_the_others_and_of_nobody_twice(pods):
    a, b = pods
    before, mine = b.epochs(1, 2), a.epochs(1, 2)
    await a.tier.invalidate(resource(1))
    assert await b.changes(before, 1, 2) == [True, False]
    assert (a.heard, b.heard) == ([], [[resource(1)]])
    assert b.board.bumped_at(resource(1)) == 0.0, "the store knows of it"
    assert await a.changes(mine, 1, 2, within=0.2) == [False, False]


async def test_many_at_once(pods):
    a, b = pods
    numbers = list(range(1, 200))
    before = b.epochs(*numbers)
    await asyncio.gather(*(a.tier.invalidate(resource(number)) for number in numbers))
    async with asyncio.timeout(20):
        while not all(await b.changes(before, *numbers)):  # noqa: ASYNC110  nothing to await from outside
            await asyncio.sleep(0.01)


async def test_what_was_missed_is_read_when_the_store_is_back(pods, valkey):
    a, b = pods
    before = b.epochs(1, 2)
    valkey.freeze()
    sent = asyncio.create_task(a.tier.invalidate(resource(1)))
    await asyncio.sleep(1.5)
    valkey.thaw()
    await asyncio.gather(sent, return_exceptions=True)
    assert await b.changes(before, 1, 2) == [True, False]


async def test_who_has_missed_more_than_is_kept_counts_everything_as_invalidated(pods):
    a, b = pods
    before = b.epochs(1)
    await a.tier.invalidate(resource(1))
    assert await b.changes(before, 1) == [True]
    await b.stop()
    b.follower._last = b"1-1"
    before = b.epochs(1, 2)
    b.follow(b.follower)
    assert await b.changes(before, 1, 2) == [True, True]


async def test_all_that_there_is(pods):
    a, b = pods
    before = b.epochs(1, 2)
    a.tier._owes_all = 1
    await a.tier._pay()
    assert await b.changes(before, 1, 2) == [True, True]


async def test_something_else_under_the_name_of_the_stream_is_waited_out(pods, valkey):
    a, b = pods
    with valkey.client() as client:
        client.delete(INVALIDATED)
        client.set(INVALIDATED, "no stream")
        await a.tier.invalidate(resource(1))
        async with asyncio.timeout(20):
            while not b.follower._missed:  # noqa: ASYNC110  nothing to await from outside
                await asyncio.sleep(0.01)
        assert not b.task.done()
        before = b.epochs(1, 2)
        client.delete(INVALIDATED)
    assert await b.changes(before, 1, 2) == [True, True], "nobody knows what was missed"
    before = b.epochs(1, 2)
    await a.tier.invalidate(resource(2))
    assert await b.changes(before, 1, 2) == [False, True]


async def test_messages_of_strangers_are_passed_over(pods, valkey):
    a, b = pods
    before = b.epochs(1)
    with valkey.client() as client:
        for fields in ({"x": "y"}, {"r": "short"}, {"p": b"\xff", "r": b"x" * 17}, {"": ""}):
            client.xadd(INVALIDATED, fields)
    await a.tier.invalidate(resource(1))
    assert await b.changes(before, 1) == [True]
