from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from meshcache.tiers.turns import Turns


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_began_first_comes_first() -> None:
    turns, came = Turns(1), []

    async def work(rank: int, name: str) -> None:
        await turns.take(rank)
        came.append(name)
        await asyncio.sleep(0)
        turns.give()

    await turns.take(0)
    waiting = [asyncio.create_task(work(rank, name)) for rank, name in [(3, "c"), (1, "a"), (3, "d"), (2, "b")]]
    await settled()
    assert came == []
    turns.give()
    await asyncio.gather(*waiting)
    assert came == ["a", "b", "c", "d"]


async def test_a_turn_that_comes_together_with_a_cancellation_goes_to_the_next() -> None:
    turns = Turns(1)
    await turns.take(0)
    first, second = (asyncio.create_task(turns.take(rank)) for rank in (1, 2))
    await settled()
    turns.give()
    first.cancel()
    await asyncio.wait_for(second, 5)
    assert first.cancelled()


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["take", "give", "cancel"])), max_size=60))
def test_no_turn_is_lost_and_none_is_given_twice(steps: list[tuple[int, str]]) -> None:
    async def play() -> None:
        turns = Turns(2)
        tasks: list[asyncio.Task[None]] = []
        held = 0
        for rank, step in steps:
            if step == "take":
                tasks.append(asyncio.create_task(turns.take(rank)))
            elif step == "give" and held:
                turns.give()
                held -= 1
            elif step == "cancel" and tasks:
                tasks[rank % len(tasks)].cancel()
            if rank % 2:
                # Else the next step comes in the same turn of the loop.
                await settled()
            for task in [task for task in tasks if task.done()]:
                tasks.remove(task)
                held += not task.cancelled()
            assert held <= 2
        for task in tasks:
            task.cancel()
        await settled()
        held += sum(not task.cancelled() for task in tasks)
        for _ in range(held):
            turns.give()
        await asyncio.wait_for(asyncio.gather(turns.take(0), turns.take(0)), 5)
        third = asyncio.create_task(turns.take(0))
        await settled()
        assert not third.done()
        third.cancel()

    asyncio.run(play())
