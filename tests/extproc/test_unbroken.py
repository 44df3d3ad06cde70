"""Calls that a cancellation does not break off: they end, and what they have given is taken, before it is raised."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from meshcache.extproc import unbroken
from meshcache.extproc.unbroken import Unbroken

if TYPE_CHECKING:
    from collections.abc import Iterator


class Call:
    """As a call into gRPC: awaits a future, and has to come to its own end to give memory back."""

    def __init__(self) -> None:
        self.future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.ended = False

    async def __call__(self) -> str:
        result = await self.future
        self.ended = True
        return result


async def awaiting(call: Call, *, cancels: int = 0) -> asyncio.Task[str]:
    """A task that awaits the call, and has been cancelled."""

    async def work() -> str:
        return await Unbroken(call())

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    for _ in range(cancels):
        task.cancel()
        await asyncio.sleep(0)
    return task


async def test_what_a_call_gives_and_raises_passes() -> None:
    call = Call()
    task = await awaiting(call)
    call.future.set_result("one")
    assert await task == "one"
    call = Call()
    task = await awaiting(call)
    call.future.set_exception(KeyError("two"))
    with pytest.raises(KeyError, match="two"):
        await task


async def test_a_call_that_does_not_wait_is_over_at_once() -> None:
    async def call() -> int:
        return 1

    assert await Unbroken(call()) == 1


@pytest.mark.parametrize("cancels", [1, 2])
async def test_a_cancellation_waits_for_the_end_of_the_call(cancels: int) -> None:
    call = Call()
    task = await awaiting(call, cancels=cancels)
    assert not task.done()
    call.future.set_result("one")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert call.ended


async def test_a_cancellation_in_the_moment_of_the_end() -> None:
    call = Call()
    task = await awaiting(call)
    call.future.set_result("one")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert call.ended


async def test_a_call_that_fails_after_a_cancellation_is_cancelled() -> None:
    call = Call()
    task = await awaiting(call, cancels=1)
    call.future.set_exception(KeyError("two"))
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert isinstance(caught.value.__cause__, KeyError) or task.cancelled()


async def test_several_waits_of_one_call() -> None:
    futures: list[asyncio.Future[int]] = [asyncio.get_running_loop().create_future() for _ in range(3)]
    ended: list[bool] = []

    async def call() -> list[int]:
        found = [await future for future in futures]
        ended.append(True)
        return found

    async def work() -> list[int]:
        return await Unbroken(call())

    task = asyncio.create_task(work())
    for number, future in enumerate(futures):
        await asyncio.sleep(0)
        if number == 1:
            task.cancel()
        future.set_result(number)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended


async def test_a_call_that_does_not_end_is_broken_off_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unbroken, "LONGEST", 0.01)
    call = Call()
    task = await awaiting(call, cancels=1)
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(20):
            await task
    assert not call.ended
    assert call.future.cancelled()


async def test_a_deadline_is_kept_when_the_call_has_ended() -> None:
    call = Call()
    asyncio.get_running_loop().call_later(0.03, call.future.set_result, "late")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await Unbroken(call())
    assert call.ended


async def test_a_task_that_is_given_up_closes_the_call() -> None:
    closed: list[bool] = []

    async def call() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            closed.append(True)

    waiting: Any = Unbroken(call()).__await__()
    next(waiting)
    waiting.close()
    assert closed == [True]


@pytest.mark.parametrize("cancels", [0, 1])
async def test_a_call_that_the_core_gives_up_comes_to_its_own_end(cancels: int) -> None:
    call = Call()
    task = await awaiting(call, cancels=cancels)
    call.future.set_exception(grpc.aio.InternalError("the stream is no more"))
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert call.ended
    assert task.cancelled()
    assert isinstance(caught.value.__cause__, grpc.aio.InternalError) or cancels


async def test_a_cancellation_in_the_moment_in_which_the_core_gives_up() -> None:
    call = Call()
    task = await awaiting(call)
    call.future.set_exception(grpc.aio.InternalError("the stream is no more"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert call.ended


class Held:
    """What a stream holds."""


@pytest.mark.parametrize("outcome", [None, grpc.aio.InternalError])
async def test_a_cancelled_call_holds_nothing_any_more(
    outcome: type[Exception] | None, without_collector: None
) -> None:
    call = Call()
    gone: list[weakref.ref[Any]] = [weakref.ref(call.future)]

    async def work(call: Call) -> None:
        held = Held()
        gone.append(weakref.ref(held))
        await Unbroken(call())

    task = asyncio.create_task(work(call))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    if outcome is None:
        call.future.set_result("one")
    else:
        call.future.set_exception(outcome("two"))
    await asyncio.wait([task])
    assert task.cancelled()
    del task, call
    await asyncio.sleep(0)
    assert [what() for what in gone] == [None, None]


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()
