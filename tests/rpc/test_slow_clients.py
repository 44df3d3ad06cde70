"""Clients that do not read, and handlers that do not: what waits for them is bounded."""

from __future__ import annotations

import asyncio
import socket

import pytest
from rpc_clients import PATIENCE, H2Client, Served
from rpc_methods import FLOOD, FLOOD_BYTES, SINK, Methods

from meshcache.rpc import frames
from meshcache.rpc.connection import WRITE_BUFFER
from meshcache.rpc.stream import WINDOW
from rpc_peer import ECHO, OPENING

LARGEST_READ = 256 << 10
"""Bytes that a loop reads at a time. The answer to a ping is as long as the ping."""


async def test_a_client_that_does_not_read_is_waited_for(server: Served, methods: Methods) -> None:
    """By windows as large as they can be, so that nothing but the socket stops the server."""
    async with H2Client.to(server, INITIAL_WINDOW_SIZE=frames.LARGEST_WINDOW) as client:
        client.h2.increment_flow_control_window(frames.LARGEST_WINDOW - frames.DEFAULT_WINDOW)
        client.flush()
        number = client.opens(FLOOD)
        await client.settled.wait()
        client.reads.clear()
        await client.sends(number, b"a")
        await methods.until(lambda: methods.written > WRITE_BUFFER)
        [connection] = server.server._connections
        transport = connection._transport
        assert transport is not None
        written = -1
        while written != methods.written:
            written = methods.written
            assert transport.get_write_buffer_size() < 2 * WRITE_BUFFER
            for _ in range(20):
                await asyncio.sleep(0)
        assert connection.paused
        assert written < FLOOD_BYTES // 4
        client.reads.set()
        assert (await client.until_ended(number))["grpc-status"] == "0"
        assert methods.written >= FLOOD_BYTES


async def test_a_client_that_opens_no_window_is_waited_for(client: H2Client, methods: Methods) -> None:
    client.credits = False
    number = client.opens(FLOOD)
    await client.sends(number, b"a")
    await client.until(number, frames.DEFAULT_WINDOW)
    assert methods.written < 2 * frames.DEFAULT_WINDOW + 300_000
    other = client.opens(ECHO, end=True)
    assert (await client.until_ended(other))["grpc-status"] == "0", "a status needs no window"


async def test_a_handler_that_does_not_read_stops_the_client(client: H2Client, methods: Methods) -> None:
    number = client.opens(SINK)
    await methods.until(lambda: methods.running == 1)
    sent = 0

    async def send() -> None:
        nonlocal sent
        while sent < 10 << 20:
            await client.sends(number, bytes(1 << 10))
            sent += 1 << 10
        client.h2.end_stream(number)
        client.flush()

    sending = asyncio.create_task(send())
    other = client.opens(ECHO)
    await client.sends(other, b"a", end=True)
    await client.until_ended(other)
    async with asyncio.timeout(PATIENCE):
        # It falls by what another task sends.
        while client.h2.local_flow_control_window(number) > 0:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert not sending.done()
    assert sent < 3 * WINDOW
    methods.release.set()
    await sending
    await client.until_ended(number)
    assert client.contents[number].endswith(b" %d" % (10 << 20))


async def test_a_client_that_asks_and_does_not_read(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pings without end: answers to them do not pile up, as nothing more is read."""
    # Since Python 3.12 asyncio adds up its whole buffer at each write: a large one of small answers takes minutes.
    few = WRITE_BUFFER // 16
    monkeypatch.setattr("meshcache.rpc.connection.WRITE_BUFFER", few)
    pings = frames.frame(frames.PING, 0, 0, bytes(8)) * 1000
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, str(server.socket))
        await loop.sock_sendall(client, OPENING)
        full = 0
        async with asyncio.timeout(PATIENCE):
            while full < 1000:
                try:
                    pings = pings[client.send(pings) :] or frames.frame(frames.PING, 0, 0, bytes(8)) * 1000
                except BlockingIOError:
                    full += all(connection.paused for connection in server.server._connections)
                await asyncio.sleep(0)
                for connection in server.server._connections:
                    assert connection._transport is not None
                    assert connection._transport.get_write_buffer_size() < few + LARGEST_READ
        assert len(server.server._connections) == 1
