"""Calls into `grpc.aio` that a cancellation does not break off in the middle.

A read or a write hands memory to the gRPC core and gets it back when it is done. A task that is cancelled while it
awaits that never fetches it: 80 bytes for each operation, and as much again for a message, are lost for good, and what
is lost lies between what is freed, so that the heap grows by more (grpc#43360). Envoy resets every stream, most of them
in the moment in which the last write is reported as done, and each reset is a cancellation.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from contextvars import Context

T = TypeVar("T")

LONGEST: Final = 0.5
"""Seconds for which a cancelled call may go on. The core at once ends what is under way on a stream that was reset;
this is for a stream that was not."""


class Unbroken(Generic[T]):
    """Awaits a coroutine of `grpc.aio` to its end. A cancellation that comes meanwhile is raised then."""

    __slots__ = ("_call",)

    def __init__(self, call: Coroutine[Any, Any, T]) -> None:
        self._call = call

    def __await__(self) -> Generator[Any, Any, T]:
        call = self._call
        cancellation: asyncio.CancelledError | None = None
        error: BaseException | None = None
        failure: BaseException | None = None
        try:
            while True:
                try:
                    awaited = call.send(None) if error is None else call.throw(error)
                except StopIteration as end:
                    if cancellation is not None:
                        raise cancellation from failure
                    if failure is not None:
                        raise asyncio.CancelledError from failure
                    result: T = end.value
                    return result
                except Exception as raised:
                    if cancellation is not None:
                        raise cancellation from raised
                    raise
                error = None
                awaited._asyncio_future_blocking = False
                towards = _Awaited(awaited)
                try:
                    yield towards
                except asyncio.CancelledError as caught:
                    towards.forget()
                    if awaited.cancelled() or not awaited.done():
                        error = caught
                    else:
                        cancellation = caught
                except BaseException as caught:
                    error = caught
                if _failed(awaited):
                    error = None
                    failure = awaited.exception()
                    # gRPC gives nothing back of an operation whose future fails: it is to believe that it went well.
                    asyncio.Future.__init__(awaited, loop=awaited.get_loop())
                    awaited.set_result(None)
        finally:
            # They know this frame by their tracebacks: with the frame knowing them, all that the stream holds, its
            # last message and reply among it, would wait for the garbage collector.
            cancellation = error = failure = None


def _failed(future: asyncio.Future[Any]) -> bool:
    """Whether the core has ended an operation without doing it, since the stream is no more."""
    return future.done() and not future.cancelled() and isinstance(future.exception(), grpc.aio.InternalError)


class _Awaited:
    """Stands in for a future towards the task that awaits it, which cannot cancel it by this."""

    __slots__ = ("_asyncio_future_blocking", "_bound", "_future")

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self._future = future
        # By this a task knows what it can await (`asyncio.isfuture`).
        self._asyncio_future_blocking = True
        self._bound: asyncio.TimerHandle | None = None

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._future.get_loop()

    def add_done_callback(self, call: Callable[[Any], object], *, context: Context | None = None) -> None:
        self._future.add_done_callback(call, context=context)

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - tasks pass it
        """Not now: False has the task cancelled when it goes on."""
        if self._bound is None and not self._future.done():
            self._bound = self._future.get_loop().call_later(LONGEST, self._future.cancel)
        return False

    def forget(self) -> None:
        """The future is done: nothing is to hold it any more, nor what it holds."""
        if self._bound is not None:
            self._bound.cancel()
