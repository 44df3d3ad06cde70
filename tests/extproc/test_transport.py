"""What either transport does for conversations: their messages, their ends, and the end of all of them."""

from __future__ import annotations

import asyncio
import stat
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from envoy_streams import body, request
from grpc_health.v1 import health_pb2, health_pb2_grpc

from meshcache.extproc.grpcio_transport import GrpcioTransport
from meshcache.extproc.options import METHOD, SERVICE, Grpc
from meshcache.extproc.transport import NativeTransport, Transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from meshcache.extproc.streams import EnvoyStream

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
SOON = 20.0
"""Seconds for what takes none, however busy the machine is."""

GONE = {"cancelled", "over"}
"""How a conversation that reads ends when its client is gone: gRPC's library may tell of the stream's end first."""


def said(text: str) -> ProcessingResponse:
    reply = ProcessingResponse()
    reply.immediate_response.details = text
    return reply


class Conversations:
    """Answers each message by its path or body; `/error`, `/lost` and `/hang` are what they say."""

    def __init__(self) -> None:
        self.ends: asyncio.Queue[str] = asyncio.Queue()
        """How they have ended, in order."""

    async def __call__(self, stream: EnvoyStream) -> None:
        try:
            while (message := await stream.read()) is not None:
                text = message.response_body.body.decode()
                if message.HasField("request_headers"):
                    (text,) = (
                        field.raw_value.decode()
                        for field in message.request_headers.headers.headers
                        if field.key == ":path"
                    )
                if text == "/error":
                    raise RuntimeError(text)
                if text == "/lost":
                    await stream.break_off("a piece is lost")
                if text == "/hang":
                    await stream.write(said(text).SerializeToString())
                    await asyncio.Event().wait()
                if text == "/last":
                    await stream.write(said(text).SerializeToString())
                    break
                await stream.write(said(text * 5 if text.startswith("long") else text).SerializeToString())
        except asyncio.CancelledError:
            self.ends.put_nowait("cancelled")
            raise
        except BaseException as error:
            self.ends.put_nowait(type(error).__name__)
            raise
        self.ends.put_nowait("over")


class Served:
    """Conversations that a transport serves, and a client of it."""

    def __init__(self, transport: Transport, path: Path) -> None:
        self.path = path
        self.transport = transport
        self.conversations = Conversations()
        self.errors: list[BaseException] = []

    def channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(f"unix:{self.path}", options=(("grpc.max_receive_message_length", -1),))

    async def lets_in(self) -> bool:
        """Whether one who comes now is served."""
        async with self.channel() as channel:
            try:
                await Client(channel).begun("/late")
            except grpc.aio.AioRpcError:
                return False
        assert await self.ended() in GONE
        return True

    async def ended(self) -> str:
        async with asyncio.timeout(SOON):
            return await self.conversations.ends.get()


class Client:
    """Opens streams on one connection."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._process: Any = channel.stream_stream(
            f"/{SERVICE}/{METHOD}",
            request_serializer=ProcessingRequest.SerializeToString,
            response_deserializer=ProcessingResponse.FromString,
        )
        self._health = health_pb2_grpc.HealthStub(channel)

    async def begun(self, path: str) -> Any:
        """A stream whose first message has been answered."""
        call = self._process()
        assert await said_to(call, request(path=path)) == path
        return call

    def open(self) -> Any:
        return self._process()

    async def health(self, service: str = "") -> int:
        answer = await self._health.Check(health_pb2.HealthCheckRequest(service=service), timeout=SOON)
        return answer.status  # type: ignore[no-any-return]

    def watch(self) -> Any:
        return self._health.Watch(health_pb2.HealthCheckRequest(), timeout=SOON)


async def said_to(call: Any, message: ProcessingRequest) -> str:
    async with asyncio.timeout(SOON):
        await call.write(message)
        reply = await call.read()
    return reply.immediate_response.details  # type: ignore[no-any-return]


@pytest.fixture(params=list(Grpc))
async def served(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    errors: list[BaseException] = []
    kind = NativeTransport if request.param is Grpc.NATIVE else GrpcioTransport
    transport: Transport = kind(errors.append)
    made = Served(transport, tmp_path / "socket")
    made.errors = errors
    await transport.listen(made.path, made.conversations)
    yield made
    await transport.stop(0)


@pytest.fixture
async def client(served: Served) -> AsyncIterator[Client]:
    async with served.channel() as channel:
        yield Client(channel)


async def test_each_stream_is_a_conversation_of_its_own(client: Client) -> None:
    one, two = await client.begun("/one"), await client.begun("/two")
    assert await said_to(one, body(b"more of one")) == "more of one"
    assert await said_to(two, body(b"more of two")) == "more of two"
    one.cancel()
    assert await said_to(two, body(b"and more")) == "and more"
    two.cancel()


async def test_the_socket_is_for_the_group(served: Served) -> None:
    assert stat.S_IMODE(served.path.stat().st_mode) == 0o660


async def test_long_messages_come_whole_in_both_directions(client: Client) -> None:
    call = await client.begun("/long")
    text = "long" + "0123456789" * 500_000
    assert await said_to(call, body(text.encode())) == text * 5
    call.cancel()


async def test_a_conversation_reads_nothing_after_the_end(served: Served, client: Client) -> None:
    call = await client.begun("/one")
    await call.done_writing()
    assert await served.ended() == "over"


async def test_a_reset_cancels_a_conversation(served: Served, client: Client) -> None:
    reading, hanging = await client.begun("/one"), await client.begun("/hang")
    reading.cancel()
    assert await served.ended() in GONE
    hanging.cancel()
    assert await served.ended() == "cancelled"


async def test_a_connection_that_is_lost_cancels_its_conversations(served: Served) -> None:
    async with served.channel() as channel:
        await Client(channel).begun("/hang")
    assert await served.ended() == "cancelled"


async def test_a_conversation_can_be_broken_off(served: Served, client: Client) -> None:
    call = await client.begun("/one")
    await call.write(request(path="/lost"))
    assert await call.code() is grpc.StatusCode.DATA_LOSS
    assert await call.details() == "a piece is lost"
    assert await served.ended() != "over"
    assert served.errors == []


async def test_a_conversation_that_fails_ends_with_an_error_and_others_go_on(served: Served, client: Client) -> None:
    call, other = await client.begun("/one"), await client.begun("/two")
    await call.write(request(path="/error"))
    assert await call.code() not in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED)
    assert await said_to(other, body(b"more")) == "more"
    other.cancel()
    assert [str(error) for error in served.errors] == ["/error"]


async def test_what_is_no_message_ends_its_stream_alone(served: Served, client: Client) -> None:
    other = await client.begun("/two")
    async with served.channel() as channel:
        raw = channel.stream_stream(f"/{SERVICE}/{METHOD}")()
        await raw.write(request(path="/one").SerializeToString())
        assert said("/one") == ProcessingResponse.FromString(await raw.read())
        await raw.write(b"\xff no message")
        assert await raw.code() not in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED)
    assert await said_to(other, body(b"more")) == "more"
    other.cancel()


async def test_it_says_of_itself_that_it_serves_until_it_retires(served: Served, client: Client) -> None:
    assert [await client.health(name) for name in ("", SERVICE)] == [SERVING] * 2
    watch = client.watch()
    assert (await watch.read()).status == SERVING
    await served.transport.retire()
    assert (await watch.read()).status == NOT_SERVING
    assert [await client.health(name) for name in ("", SERVICE)] == [NOT_SERVING] * 2
    # It is asked all the same, by those who have not heard of it.
    call = await client.begun("/late")
    call.cancel()
    watch.cancel()


async def test_what_has_begun_ends_before_it_stops(served: Served, client: Client) -> None:
    call = await client.begun("/one")
    stopping = asyncio.create_task(served.transport.stop(SOON))
    async with asyncio.timeout(SOON):
        while await served.lets_in():
            pass
    assert await said_to(call, body(b"more")) == "more"
    assert not stopping.done()
    await call.write(request(path="/last"))
    assert (await call.read()).immediate_response.details == "/last"
    call.cancel()
    await asyncio.wait_for(stopping, SOON)


async def test_what_does_not_end_is_cut_off(served: Served, client: Client) -> None:
    await client.begun("/hang")
    await client.begun("/one")
    await asyncio.wait_for(served.transport.stop(0.05), SOON)
    ends = {await served.ended(), await served.ended()}
    assert "cancelled" in ends
    assert ends <= GONE


async def test_one_that_nobody_has_asked_stops_at_once(served: Served) -> None:
    await asyncio.wait_for(served.transport.stop(60), SOON)
