"""The server on a real socket, called by clients of other make."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
import pytest
from rpc_clients import H2Client, Served, call
from rpc_methods import COUNT, FLOOD, HOLD, LAST, Methods

from meshcache.rpc.stream import MOST_MESSAGE_BYTES
from rpc_peer import ECHO, message

SIZES = [0, 1, 100, 16_379, 65_530, 65_536, 1_000_000, 1 << 20, 5_000_000, MOST_MESSAGE_BYTES]


@pytest.mark.parametrize("size", SIZES)
async def test_a_message_of_any_size_comes_and_goes_with_grpcs_library(channel: grpc.aio.Channel, size: int) -> None:
    content = bytes(range(251)) * (size // 251) + bytes(size % 251)
    one = call(channel, ECHO)
    await one.write(content)
    await one.done_writing()
    assert (await one.read() == content, await one.read()) == (True, grpc.aio.EOF)
    assert await one.code() == grpc.StatusCode.OK


@pytest.mark.parametrize("size", SIZES[:-1])
async def test_a_message_of_any_size_comes_and_goes_with_h2(client: H2Client, size: int) -> None:
    content = bytes(range(251)) * (size // 251) + bytes(size % 251)
    number = client.opens(ECHO)
    await client.sends(number, content, end=True)
    assert (await client.until_ended(number))["grpc-status"] == "0"
    assert client.contents[number] == message(content)


async def test_many_messages_one_after_the_other(channel: grpc.aio.Channel) -> None:
    one = call(channel, ECHO)
    for at in range(2000):
        await one.write(b"%d" % at)
        assert await one.read() == b"%d" % at
    await one.done_writing()
    assert await one.read() is grpc.aio.EOF


async def test_many_messages_at_once(client: H2Client) -> None:
    await client.settled.wait()
    number = client.opens(COUNT)
    for _ in range(20):
        client.h2.send_data(number, message(b"abc") * 500)
    client.h2.end_stream(number)
    client.flush()
    await client.until_ended(number)
    assert client.contents[number] == message(b"10000 30000")


async def test_500_streams_at_once(channel: grpc.aio.Channel, methods: Methods) -> None:
    async def one(at: int) -> bytes:
        stream = call(channel, LAST)
        await stream.write(b"%d" % at)
        read: bytes = await stream.read()
        await stream.done_writing()
        assert await stream.code() == grpc.StatusCode.OK
        return read

    calls = [asyncio.create_task(one(at)) for at in range(500)]
    await methods.until(lambda: methods.running == 500)
    methods.release.set()
    assert await asyncio.gather(*calls) == [b"%d" % at for at in range(500)]


async def test_500_streams_at_once_with_h2(client: H2Client, methods: Methods) -> None:
    numbers = [client.opens(LAST) for _ in range(500)]
    for number in numbers:
        await client.sends(number, b"%d" % number, end=True)
    await methods.until(lambda: methods.running == 500)
    methods.release.set()
    for number in numbers:
        assert (await client.until_ended(number))["grpc-status"] == "0"
        assert client.contents[number] == message(b"%d" % number)


async def test_a_client_that_cancels(channel: grpc.aio.Channel, methods: Methods) -> None:
    one = call(channel, HOLD)
    await one.write(b"a")
    await methods.until(lambda: methods.running == 1)
    one.cancel()
    await methods.until(lambda: methods.running == 0)
    assert methods.cancelled == 1


async def test_a_deadline_of_the_client(channel: grpc.aio.Channel, methods: Methods) -> None:
    one = channel.stream_stream(HOLD)(timeout=0.2)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await one.read()
    assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    await methods.until(lambda: methods.running == 0)


async def test_a_client_that_vanishes(server: Served, methods: Methods) -> None:
    async with H2Client.to(server) as client:
        for path in (HOLD, LAST, FLOOD):
            await client.sends(client.opens(path), b"a")
        await methods.until(lambda: methods.running == 3)
    await methods.until(lambda: methods.running == 0)
    assert methods.cancelled == 3


async def test_an_answer_before_the_client_has_ended(channel: grpc.aio.Channel, methods: Methods) -> None:
    methods.release.set()
    one = call(channel, LAST)
    await one.write(b"a")
    assert await one.read() == b"a"
    assert await one.read() is grpc.aio.EOF
    assert await one.code() == grpc.StatusCode.OK


async def test_what_is_not_served(channel: grpc.aio.Channel) -> None:
    one = call(channel, "/t.S/Nonsense")
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await one.read()
    assert (raised.value.code(), raised.value.details()) == (
        grpc.StatusCode.UNIMPLEMENTED,
        "no method /t.S/Nonsense",
    )


async def test_what_is_no_call_of_grpc(client: H2Client) -> None:
    number = client.opens("/", end=True, content_type="text/html")
    assert await client.until_ended(number) == {":status": "415"}
    await client.sends(other := client.opens(ECHO), b"a", end=True)
    assert (await client.until_ended(other))["grpc-status"] == "0"


async def test_a_compressed_message(channel: grpc.aio.Channel, methods: Methods) -> None:
    one = call(channel, ECHO, compression=grpc.Compression.Gzip)
    await one.write(bytes(1000))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await one.read()
    assert raised.value.code() == grpc.StatusCode.INTERNAL
    await methods.until(lambda: methods.running == 0)


async def test_a_message_that_is_too_long(channel: grpc.aio.Channel, methods: Methods) -> None:
    one = call(channel, ECHO)
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        # Not taken: the stream is reset in the middle of it.
        await one.write(bytes(MOST_MESSAGE_BYTES + 1))
    # What the library makes of a write that failed, or of the reset.
    assert await one.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED)
    await methods.until(lambda: methods.running == 0)


async def test_a_client_without_a_table_of_fields(server: Served) -> None:
    """`h2` refuses a header block that does not say that this side has heard of it."""
    async with H2Client.to(server, HEADER_TABLE_SIZE=0) as client:
        for _ in range(3):
            number = client.opens(ECHO)
            await client.sends(number, b"a", end=True)
            assert (await client.until_ended(number))["grpc-status"] == "0"


async def test_a_client_with_small_windows(server: Served) -> None:
    async with H2Client.to(server, INITIAL_WINDOW_SIZE=5000) as client:
        number = client.opens(ECHO)
        await client.sends(number, bytes(50_000), end=True)
        await client.until_ended(number)
        assert client.contents[number] == message(bytes(50_000))
