"""Streams over gRPC's own library: how they end, so that it gives back what each of them has taken."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest
from envoy_streams import request
from grpc.aio import EOF

from meshcache.extproc.grpcio_transport import GrpcioStream, handler
from meshcache.extproc.options import METHOD, SERVICE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from meshcache.extproc.streams import EnvoyStream


class Context:
    """As the library's: its operations are over when the test says so, and are to come to their own end."""

    def __init__(self, *messages: ProcessingRequest | object) -> None:
        self._messages = [*messages, EOF]
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.ended: list[str] = []
        """The operations that have come to their own end."""
        self.replies: list[bytes] = []
        self.status: tuple[grpc.StatusCode, str] | None = None
        self.errors: list[BaseException] = []

    async def _go(self, operation: str) -> None:
        await self.may_go.wait()
        self.ended.append(operation)

    async def read(self) -> object:
        await self._go("read")
        return self._messages.pop(0)

    async def write(self, reply: bytes) -> None:
        self.replies.append(reply)
        await self._go("write")

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        self.status = code, details
        raise grpc.aio.AbortError


def begun(context: Context, converse: Callable[[EnvoyStream], Awaitable[None]]) -> asyncio.Task[None]:
    """What the library would begin for a stream."""

    class Asked:
        method = f"/{SERVICE}/{METHOD}"
        invocation_metadata = ()

    found: Any = handler(converse, context.errors.append).service(Asked())  # type: ignore[arg-type]
    return asyncio.create_task(found.stream_stream(None, context))


def stream_of(context: Context) -> GrpcioStream:
    given: Any = context
    return GrpcioStream(given)


async def test_messages_and_the_end() -> None:
    stream = stream_of(Context(request()))
    assert await stream.read() == request()
    assert await stream.read() is None


async def test_a_stream_that_is_over_sends_no_status() -> None:
    seen: list[ProcessingRequest | None] = []

    async def converse(stream: EnvoyStream) -> None:
        seen.append(await stream.read())
        await stream.write(b"reply")

    context = Context(request())
    task = begun(context, converse)
    await asyncio.wait([task])
    assert task.cancelled(), "a status that is sent when Envoy resets the stream is never given back"
    assert seen == [request()]
    assert context.replies == [b"reply"]


async def test_an_error_is_told() -> None:
    async def converse(stream: EnvoyStream) -> None:
        await stream.break_off("lost")

    context = Context()
    with pytest.raises(grpc.aio.AbortError):
        await begun(context, converse)
    assert context.status == (grpc.StatusCode.DATA_LOSS, "lost")
    assert context.errors == []


async def test_a_fault_is_reported_and_ends_the_stream() -> None:
    fault = ValueError("a fault")

    async def converse(_stream: EnvoyStream) -> None:
        raise fault

    context = Context()
    with pytest.raises(grpc.aio.AbortError):
        await begun(context, converse)
    assert context.errors == [fault]
    assert context.status == (grpc.StatusCode.INTERNAL, "failed")


@pytest.mark.parametrize("operation", ["read", "write"])
async def test_no_operation_is_broken_off(operation: str) -> None:
    async def converse(stream: EnvoyStream) -> None:
        if operation == "read":
            await stream.read()
        else:
            await stream.write(b"reply")
        pytest.fail("it goes on after it was cancelled")

    context = Context()
    context.may_go.clear()
    task = begun(context, converse)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    context.may_go.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert context.ended == [operation]


@pytest.mark.parametrize(("replies", "written"), [(1, 1), (2, 1), (3, 2)])
async def test_nothing_more_is_written_to_a_stream_whose_reset_came_with_a_message(replies: int, written: int) -> None:
    """The first reply answers what has begun the stream: nobody waits a turn for that."""

    async def converse(stream: EnvoyStream) -> None:
        for number in range(1, replies + 1):
            await stream.read()
            if number == replies:
                # The library has told of the message, and will next tell of the reset.
                asyncio.get_running_loop().call_soon(task.cancel)
            await stream.write(b"reply")

    context = Context(*[request()] * replies)
    task = begun(context, converse)
    await asyncio.wait([task])
    assert task.cancelled()
    assert len(context.replies) == written
