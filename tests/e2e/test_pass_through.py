"""Traffic that is none of the cache's business: it goes through as if nothing were there."""

from __future__ import annotations

import asyncio
import os

import httpx
import pytest
from running_mesh import PATIENCE, verdict
from scripted_origin import chunk, head, reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

FRESH = ("cache-control", "max-age=60")


async def test_a_websocket_is_opened_and_carries_bytes_both_ways(mesh, origin, path):
    async def echo(_asked, wire):
        await wire.send(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\r\n")
        while data := await wire.reader.read(4096):
            await wire.send(data)
        wire.close()

    origin.script(path, echo)
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", mesh.port)
        writer.write(
            f"GET {path} HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        for message in (b"\x81\x85\x01\x02\x03\x04iggkn", os.urandom(3000)):
            writer.write(message)
            assert await reader.readexactly(len(message)) == message
        writer.close()
    assert origin.asked(path)[0].get("upgrade") == "websocket"


async def test_a_websocket_that_the_origin_refuses_is_refused(mesh, origin, path):
    origin.script(path, reply(403, [FRESH], b"no"))
    request = f"GET {path} HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: Upgrade, close\r\n\r\n"
    assert (await mesh.raw(request.encode())).startswith(b"HTTP/1.1 403")
    origin.script(path, reply(200, [FRESH], b"page"))
    assert (await mesh.get(path)).content == b"page"


async def test_an_offer_of_http2_is_ignored_as_it_may_be(mesh, origin, path):
    request = (
        f"GET {path} HTTP/1.1\r\nhost: a\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
        "connection: Upgrade, HTTP2-Settings, close\r\n\r\n"
    )
    answer = await mesh.raw(request.encode())
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(f"{path} 1".encode())


async def test_grpc_is_not_looked_at(mesh, origin, path):
    message = b"\x00\x00\x00\x00\x02hi"
    origin.script(path, reply(200, [FRESH, ("content-type", "application/grpc")], message))
    request = httpx.Request(
        "POST", mesh.base + path, headers={"content-type": "application/grpc", "te": "trailers"}, content=message
    )
    for _ in range(2):
        answer = await mesh.client.send(request)
        assert answer.content == message
        # Seen, as any unsafe request is, and not looked up.
        assert (verdict(answer).hit, verdict(answer).fwd, verdict(answer).detail) == (False, "bypass", "grpc")
    assert origin.count(path) == 2
    assert origin.asked(path)[0].body == message


async def test_the_body_of_a_post_arrives_whole(mesh, origin, path):
    body = os.urandom(5 << 20)
    origin.script(path, reply(201, [], b"made"))
    answer = await mesh.client.post(path, content=body)
    assert (answer.status_code, answer.content) == (201, b"made")
    assert origin.asked(path)[0].body == body


async def test_a_chunked_post_arrives_whole(mesh, origin, path):
    async def parts():
        for number in range(100):
            yield b"%d," % number

    assert (await mesh.client.post(path, content=parts())).status_code == 200
    assert origin.asked(path)[0].body == b"".join([b"%d," % number for number in range(100)])


async def test_a_client_that_waits_for_leave_to_send_gets_it(mesh, origin, path):
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", mesh.port)
        writer.write(
            f"POST {path} HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 4\r\n"
            "connection: close\r\n\r\n".encode()
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"body")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
    assert origin.asked(path)[0].body == b"body"


async def test_a_get_with_a_body_is_neither_answered_from_the_cache_nor_stored(mesh, origin, path):
    async def echo(asked, wire):
        await wire.send(reply(200, [FRESH], asked.body or b"nothing"))

    origin.script(path, echo)
    assert (await mesh.get(path)).content == b"nothing"
    for body in (b"one", b"two"):
        answer = await mesh.client.request("GET", path, content=body)
        assert answer.content == body
    assert (await mesh.get(path)).content == b"nothing"
    assert verdict(await mesh.get(path)).hit


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PROPFIND", "REPORT"])
async def test_other_methods_go_to_the_origin_each_time(mesh, origin, path, method):
    origin.script(path, reply(200, [FRESH], b"x"))
    for number in (1, 2):
        answer = await mesh.raw(f"{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 200")
        assert origin.count(path) == number


@pytest.mark.parametrize("method", ["PROPFIND", "REPORT", "SEARCH"])
async def test_what_only_reads_costs_nobody_his_answer(mesh, hot, origin, path, method):
    for each in (mesh, hot):
        assert await each.settled(path)
        request = f"{method} {path} HTTP/1.1\r\nhost: {each.base[7:]}\r\nconnection: close\r\n\r\n"
        assert (await each.raw(request.encode())).startswith(b"HTTP/1.1 200")
        assert verdict(await each.get(path)).hit


async def test_the_answer_to_a_post_may_stream(mesh, origin, path):
    go_on = asyncio.Event()

    async def tokens(_asked, wire):
        await wire.send(head([("transfer-encoding", "chunked")]) + chunk(b"first"))
        await go_on.wait()
        await wire.send(chunk(b"last") + b"0\r\n\r\n")

    origin.script(path, tokens)
    async with asyncio.timeout(PATIENCE), mesh.client.stream("POST", path, content=b"prompt") as answer:
        parts = answer.aiter_raw()
        assert await anext(parts) == b"first"
        go_on.set()
        assert b"".join([part async for part in parts]) == b"last"


async def test_internal_headers_cross_no_border(mesh, origin, path):
    origin.script(path, reply(200, [FRESH, ("x-meshcache-ttl", "9"), ("X-MeshCache-Arm", "b"), ("x-own", "1")], b"x"))
    for headers in ({}, {"x-meshcache-tier": "hot", "X-Meshcache-Refresh": "1", "x-mine": "1"}):
        for method in ("GET", "POST"):
            answer = await mesh.get(path, headers, method=method)
            assert not [name for name in answer.headers if name.startswith("x-meshcache")]
            assert answer.headers["x-own"] == "1"
    assert origin.count(path) == 4  # the posts drop what is stored, so each request came this far
    for asked in origin.asked(path):
        assert not [name for name, _ in asked.fields if name.startswith("x-meshcache")]
    assert origin.asked(path)[-1].get("x-mine") == "1"


async def test_internal_headers_do_not_come_back_with_a_hit(mesh, origin, path):
    origin.script(path, reply(200, [FRESH, ("x-meshcache-ttl", "9")], b"x"))
    await mesh.get(path)
    answer = await mesh.get(path)
    assert verdict(answer).hit
    assert not [name for name in answer.headers if name.startswith("x-meshcache")]


async def test_http2_clients_are_served_alike(mesh, origin, path):
    pytest.importorskip("h2", reason="httpx speaks HTTP/2 only with h2")
    async with httpx.AsyncClient(base_url=mesh.base, http1=False, http2=True, trust_env=False, timeout=20) as client:
        first, second = await client.get(path), await client.get(path)
        third = await client.head(path)
    assert first.http_version == "HTTP/2"
    assert verdict(first).stored
    assert verdict(second).hit
    assert first.content == second.content
    assert third.headers["content-length"] == str(len(first.content))
    over_http1 = await mesh.get(path)
    assert verdict(over_http1).hit
    assert over_http1.content == first.content
