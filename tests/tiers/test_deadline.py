from __future__ import annotations

import asyncio
import threading
import time

import pytest

from meshcache.tiers.deadline import Deadline
from meshcache.tiers.threads import Threads


async def test_what_is_in_time_passes() -> None:
    async with Deadline(5.0):
        await asyncio.sleep(0.001)
    await asyncio.sleep(0)


async def test_what_is_late_is_cancelled() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with Deadline(0.02):
            await asyncio.sleep(5)
    assert time.monotonic() - began < 4
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.slow
async def test_a_busy_loop_does_not_make_a_tier_late() -> None:
    threads = Threads("test", 1)
    try:
        assert await threads.run(lambda: 1) == 1
        for _ in range(20):
            async with Deadline(0.005):
                read = threading.Event()
                reading = asyncio.ensure_future(threads.run(lambda read=read: read.set() or 2))
                await asyncio.sleep(0)
                # This is the busy loop. The thread is done before it is over, however busy the machine is.
                read.wait(20)
                time.sleep(0.02)  # noqa: ASYNC251
                assert await reading == 2
    finally:
        await threads.close(1.0)


async def test_a_slow_tier_is_late_on_a_busy_loop_too() -> None:
    async def work() -> None:
        async with Deadline(0.005):
            time.sleep(0.02)  # noqa: ASYNC251
            await asyncio.sleep(1)

    with pytest.raises(TimeoutError):
        await work()


async def test_errors_of_the_block_go_through() -> None:
    with pytest.raises(ValueError, match="mine"):
        async with Deadline(1.0):
            raise ValueError("mine")


async def test_a_cancellation_from_outside_stays_one() -> None:
    async def work() -> None:
        async with Deadline(5.0):
            await asyncio.sleep(10)

    task = asyncio.create_task(work())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_deadline_in_the_clean_up_after_a_cancellation() -> None:
    seen = []

    async def work() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            try:
                async with Deadline(0.01):
                    await asyncio.sleep(5)
            except TimeoutError:
                seen.append("late")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["late"]


async def test_deadlines_nest() -> None:
    with pytest.raises(TimeoutError):
        async with Deadline(0.02), Deadline(5.0):
            await asyncio.sleep(5)
    async with Deadline(5.0):
        with pytest.raises(TimeoutError):
            async with Deadline(0.02):
                await asyncio.sleep(5)
