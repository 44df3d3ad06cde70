"""The beginning and the end of a server."""

from __future__ import annotations

import asyncio
import socket
import stat
import struct

import grpc
import pytest
from rpc_clients import PATIENCE, H2Client, Served, call, served
from rpc_methods import HOLD, LAST, Methods

from meshcache.process import StartError
from meshcache.rpc import frames
from meshcache.rpc.server import Server
from meshcache.rpc.stream import Stream
from rpc_peer import ECHO, OPENING, data, message, opens


async def test_the_sockets_mode(server: Served) -> None:
    assert stat.S_IMODE(server.socket.stat().st_mode) == 0o600


async def test_a_path_that_cannot_be(server: Served) -> None:
    with pytest.raises(StartError):
        await Server({}, server.errors.append).listen(server.socket / "x", 0o600)


async def test_what_has_begun_is_finished_and_nothing_new_begins(server: Served, methods: Methods) -> None:
    async with server.channel() as channel:
        one = call(channel, LAST)
        await one.write(b"a")
        await methods.until(lambda: methods.running == 1)
        stopping = asyncio.create_task(server.server.stop(PATIENCE))
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            # The client may not have heard of it yet.
            await _call_until_refused(channel)
        assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
        with pytest.raises(OSError, match=r"refused|No such file"):
            await asyncio.open_unix_connection(str(server.socket))
        assert not stopping.done()
        methods.release.set()
        assert await one.read() == b"a"
        await one.done_writing()
        assert await one.code() == grpc.StatusCode.OK
        await stopping
    assert methods.cancelled == 0


async def _call_until_refused(channel: grpc.aio.Channel) -> None:
    while True:
        await channel.unary_unary(ECHO)(b"", timeout=PATIENCE)


async def test_what_does_not_end_in_time_is_cut_off(server: Served, methods: Methods) -> None:
    async with server.channel() as channel:
        one = call(channel, HOLD)
        await one.write(b"a")
        await methods.until(lambda: methods.running == 1)
        await server.server.stop(0.05)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await one.read()
        assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
    assert (methods.running, methods.cancelled) == (0, 1)


async def test_a_client_that_never_hears_the_farewell_is_not_waited_for(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshcache.rpc.server._FAREWELL", 0.05)
    reader, writer = await asyncio.open_unix_connection(str(server.socket))
    writer.write(OPENING + opens(1, ECHO))
    await reader.readexactly(9)
    async with asyncio.timeout(PATIENCE):
        await server.server.stop(0.2)
        while await reader.read(1 << 16):
            pass
    writer.transport.abort()


async def test_what_a_client_left_behind_is_waited_for(methods: Methods) -> None:
    """A handler that has yet to put away what it has when its client has already gone."""
    begun, put_away = asyncio.Event(), asyncio.Event()
    ended = False

    async def slow(_: Stream) -> None:
        nonlocal ended
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await put_away.wait()
            ended = True

    async with served({"/t.S/Slow": slow}) as made:
        async with H2Client.to(made) as client:
            client.opens("/t.S/Slow")
            await begun.wait()
        async with asyncio.timeout(PATIENCE):
            while made.server._connections:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)
        stopping = asyncio.create_task(made.server.stop(PATIENCE))
        put_away.set()
        await stopping
        assert ended


async def test_a_server_without_clients_stops_at_once(server: Served) -> None:
    async with asyncio.timeout(PATIENCE / 2):
        await server.server.stop(PATIENCE)


async def test_bytes_that_come_one_by_one(server: Served) -> None:
    """Through a real socket, without anybody's library."""
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, str(server.socket))
    for byte in OPENING + opens(1) + data(1, message(b"abc"), frames.END_STREAM):
        await loop.sock_sendall(sock, bytes((byte,)))
        await asyncio.sleep(0)
    got = b""
    async with asyncio.timeout(PATIENCE):
        while message(b"abc") not in got:
            got += await loop.sock_recv(sock, 1 << 16)
    # Closed with an error instead of an end, as by a process that was killed.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
