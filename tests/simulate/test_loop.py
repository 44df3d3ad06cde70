"""The loop whose time is set: what is due comes in its order, and nothing waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from meshcache.simulate.loop import VirtualLoop, drive


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(100.0)  # type: ignore[abstract]
    with loop.running():
        yield loop


def test_calls_come_at_their_times_and_those_of_one_time_in_order(loop: VirtualLoop) -> None:
    seen: list[tuple[str, float]] = []
    for name, delay in (("c", 3.0), ("a", 1.0), ("b", 1.0), ("d", 9.0)):
        loop.call_later(delay, lambda name=name: seen.append((name, loop.time())))
    loop.call_later(2.0, seen.append, ("never", 0.0)).cancel()
    loop.call_soon(seen.append, ("now", 100.0))
    loop.advance(105.0)
    assert seen == [("now", 100.0), ("a", 101.0), ("b", 101.0), ("c", 103.0)]
    assert loop.time() == 105.0


def test_tasks_sleep_time_out_and_wait_for_each_other(loop: VirtualLoop) -> None:
    async def sleeper(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return loop.time()

    async def all_of_it() -> list[float]:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.sleep(5.0)
        return await asyncio.gather(sleeper(2.0), sleeper(4.0))

    task = loop.create_task(all_of_it())
    loop.advance(104.0)
    assert not task.done()
    loop.settle(10.0)
    assert task.result() == [103.0, 105.0]


def test_a_coroutine_is_driven_and_goes_on_as_a_task_where_it_waits(loop: VirtualLoop) -> None:
    seen: list[object] = []

    async def waits() -> None:
        seen.append(asyncio.current_task() is None)
        await asyncio.sleep(1.0)
        seen.append(loop.time())
        await asyncio.sleep(0)
        await asyncio.sleep(1.0)
        seen.append(loop.time())

    async def does_not() -> None:
        seen.append("at once")

    drive(loop, does_not())
    drive(loop, waits())
    assert seen == ["at once", True]
    loop.advance(110.0)
    assert seen == ["at once", True, 101.0, 102.0]


def test_an_exception_of_a_task_is_kept(loop: VirtualLoop) -> None:
    async def fails() -> None:
        raise ValueError("on purpose")

    async def fails_later() -> None:
        await asyncio.sleep(0.5)
        raise KeyError("on purpose")

    loop.create_task(fails())
    loop.create_task(fails_later())
    loop.advance(101.0)
    assert [type(failure["exception"]) for failure in loop.failures] == [ValueError, KeyError]


def test_the_loop_around_it_is_put_back() -> None:
    async def inside() -> bool:
        before = asyncio.get_running_loop()
        other = VirtualLoop()  # type: ignore[abstract]
        with other.running():
            assert asyncio.get_running_loop() is other
        return asyncio.get_running_loop() is before

    assert asyncio.run(inside())
