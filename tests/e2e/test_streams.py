"""Bodies that stream, that are cut off, that never come: what reaches the client, and what must not be stored."""

from __future__ import annotations

import asyncio
import contextlib

import httpx
import pytest
from running_mesh import PATIENCE, eventually, verdict
from scripted_origin import chunk, cut, head, reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

FRESH = ("cache-control", "max-age=60")
LENGTH = ("content-length", "100")
CHUNKED = ("transfer-encoding", "chunked")
LAST = b"0\r\n\r\n"


@pytest.mark.parametrize("framing", [("content-length", "10"), CHUNKED], ids=["length", "chunked"])
async def test_the_first_byte_does_not_wait_for_the_last(mesh, origin, path, framing):
    go_on = asyncio.Event()
    frame = chunk if framing is CHUNKED else bytes

    async def slowly(_asked, wire):
        await wire.send(head([FRESH, framing]) + frame(b"first"))
        await go_on.wait()
        await wire.send(frame(b"later") + (LAST if framing is CHUNKED else b""))

    origin.script(path, slowly)
    async with asyncio.timeout(PATIENCE), mesh.client.stream("GET", path) as answer:
        parts = answer.aiter_raw()
        assert await anext(parts) == b"first"  # while the origin still holds back the rest
        go_on.set()
        assert b"".join([part async for part in parts]) == b"later"
    again = await mesh.get(path)
    assert verdict(again).hit
    assert again.content == b"firstlater"
    assert again.headers["content-length"] == "10"
    assert origin.count(path) == 1


async def test_headers_do_not_wait_for_the_body(mesh, origin, path):
    go_on = asyncio.Event()

    async def slowly(_asked, wire):
        await wire.send(head([FRESH, ("content-length", "4")]))
        await go_on.wait()
        await wire.send(b"body")

    origin.script(path, slowly)
    async with asyncio.timeout(PATIENCE), mesh.client.stream("GET", path) as answer:
        assert answer.status_code == 200
        go_on.set()
        assert await answer.aread() == b"body"
    assert verdict(await mesh.get(path)).hit


async def test_a_stream_of_events_that_its_client_leaves_is_not_stored(mesh, origin, path):
    left = asyncio.Event()

    async def events(_asked, wire):
        await wire.send(head([FRESH, CHUNKED, ("content-type", "text/event-stream")]))
        with contextlib.suppress(ConnectionError):
            for number in range(1000):
                await wire.send(chunk(b"data: %d\n\n" % number))
                await asyncio.sleep(0.01)
        left.set()

    origin.script(path, events, reply(200, [FRESH], b"whole"))
    cut_off = await mesh.metric("store_total", outcome="truncated")
    async with asyncio.timeout(PATIENCE), mesh.client.stream("GET", path) as answer:
        assert await anext(answer.aiter_raw()) == b"data: 0\n\n"
    async with asyncio.timeout(PATIENCE):
        await left.wait()

    async def noticed():
        return await mesh.metric("store_total", outcome="truncated") > cut_off

    assert await eventually(noticed)
    answer = await mesh.get(path)
    assert verdict(answer).fwd == "uri-miss"
    assert answer.content == b"whole"


CUT = {
    "fewer bytes than announced": head([FRESH, LENGTH]) + b"half",
    "no byte of those announced": head([FRESH, LENGTH]),
    "chunks without an end": head([FRESH, CHUNKED]) + chunk(b"half"),
    "a chunk cut": head([FRESH, CHUNKED]) + b"64\r\nhalf",
    "chunks that are none": head([FRESH, CHUNKED]) + chunk(b"half") + b"zz\r\n",
    "trailers cut": head([FRESH, CHUNKED]) + chunk(b"half") + b"0\r\nx-sum: 1\r\n",
}


@pytest.mark.parametrize("broken", CUT.values(), ids=CUT.keys())
async def test_a_body_cut_off_is_passed_on_and_never_stored(mesh, origin, name, broken):
    path = f"/greedy/{name}"
    origin.script(path, cut(broken), reply(200, [FRESH], b"whole"))
    # The client learns of it by the broken end, or by an error of Envoy's where nothing had been sent yet.
    with contextlib.suppress(httpx.RemoteProtocolError):
        answer = await mesh.get(path)
        assert answer.status_code >= 500
    answer = await mesh.get(path)
    assert not verdict(answer).hit
    assert answer.content == b"whole"


async def test_a_body_that_ends_with_the_connection_is_stored(mesh, origin, path):
    # HTTP/1.0 style: the close is the only end there is, and a regular one (RFC 9112 section 6.3).
    origin.script(path, cut(b"HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\n\r\nall of it"))
    first, second = await mesh.get(path), await mesh.get(path)
    assert first.content == second.content == b"all of it"
    assert verdict(second).hit


async def test_trailers_end_a_body_properly(mesh, origin, path):
    body = head([FRESH, CHUNKED, ("trailer", "x-sum")]) + chunk(b"text") + b"0\r\nx-sum: 4\r\n\r\n"
    origin.script(path, body)
    first, second = await mesh.get(path), await mesh.get(path)
    assert first.content == second.content == b"text"
    assert verdict(second).hit
    assert second.headers["content-length"] == "4"
    assert origin.count(path) == 1


async def test_many_small_chunks_are_put_together_in_order(mesh, origin, path):
    parts = [b"%d," % number for number in range(2000)]
    origin.script(path, head([FRESH, CHUNKED]) + b"".join(map(chunk, parts)) + LAST)
    first, second = await mesh.get(path), await mesh.get(path)
    assert verdict(second).hit
    assert first.content == second.content == b"".join(parts)


async def test_interim_answers_are_not_taken_for_the_answer(mesh, origin, path):
    early = b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n"
    origin.script(path, early + reply(200, [FRESH], b"final"))
    first, second = await mesh.get(path), await mesh.get(path)
    assert (first.status_code, first.content) == (200, b"final")
    assert (second.status_code, second.content) == (200, b"final")
    assert verdict(second).hit


async def test_a_slow_client_gets_everything(mesh, origin, path):
    body = b"0123456789abcdef" * (1 << 16)
    origin.script(path, reply(200, [FRESH], body))
    reader, writer = await asyncio.open_connection("127.0.0.1", mesh.port, limit=1 << 12)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
    received = b""
    async with asyncio.timeout(PATIENCE):
        while part := await reader.read(1 << 16):
            received += part
            await asyncio.sleep(0.002)
    writer.close()
    assert received.endswith(b"\r\n\r\n" + body)


# -- what Envoy says itself, and what stands in for it -------------------------------------------------------------


@pytest.fixture
def silent():
    """Takes the request and closes without a word."""
    return cut(b"")


async def test_a_control_the_origins_own_503_is_stored_where_the_policy_says_so(mesh, origin, name):
    path = f"/greedy/{name}"
    origin.script(path, reply(503, [], b"origin"))
    await mesh.get(path)
    assert verdict(await mesh.get(path)).hit


async def test_envoys_503_for_an_origin_that_hangs_up_is_not_stored(mesh, origin, name, silent):
    path = f"/greedy/{name}"
    origin.script(path, silent)
    for _ in range(2):
        answer = await mesh.get(path)
        assert answer.status_code == 503
        assert not verdict(answer).hit
        assert not verdict(answer).stored
    origin.script(path, reply(200, [FRESH], b"back"))
    assert (await mesh.get(path)).content == b"back"


async def test_envoys_answer_for_bytes_that_are_no_http_is_not_stored(mesh, origin, name):
    path = f"/greedy/{name}"
    origin.script(path, cut(b"\x00\x01 nonsense\r\n\r\n"))
    answer = await mesh.get(path)
    assert answer.status_code in (502, 503)
    assert not verdict(answer).stored
    assert not verdict(await mesh.get(path)).hit


async def test_envoys_503_for_an_origin_that_is_down_is_not_stored(mesh, origin, name):
    path = f"/greedy/{name}"
    async with origin.down():
        for _ in range(2):
            answer = await mesh.get(path)
            assert answer.status_code == 503
            assert not verdict(answer).hit
    assert (await mesh.get(path)).status_code == 200


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_stale_answer_stands_in_for_an_error(mesh, origin, name, status):
    path = f"/safety/{name}"
    origin.script(path, reply(200, [FRESH, ("age", "100")], b"stale"), reply(status, [], b"sorry"))
    await mesh.get(path)
    answer = await mesh.get(path)
    assert (answer.status_code, answer.content) == (200, b"stale")
    assert (verdict(answer).hit, verdict(answer).fwd) == (False, "stale")
    assert f"fwd-status={status}" in answer.headers["cache-status"]
    assert "stale-if-error" in verdict(answer).detail
    assert origin.count(path) == 2


async def test_a_stale_answer_stands_in_for_an_origin_that_hangs_up_or_is_down(mesh, origin, name, silent):
    path = f"/safety/{name}"
    origin.script(path, reply(200, [FRESH, ("age", "100")], b"stale"), silent)
    await mesh.get(path)
    assert (await mesh.get(path)).content == b"stale"
    async with origin.down():
        assert (await mesh.get(path)).content == b"stale"
    origin.script(path, reply(200, [FRESH], b"fresh"))

    async def fresh():
        return (await mesh.get(path)).content == b"fresh"

    assert await eventually(fresh), "after a pause"


async def test_an_error_is_passed_on_where_the_policy_allows_no_stale_answer(mesh, origin, path):
    origin.script(path, reply(200, [FRESH, ("age", "100")], b"stale"), reply(503, [], b"sorry"))
    await mesh.get(path)
    answer = await mesh.get(path)
    assert (answer.status_code, answer.content) == (503, b"sorry")


async def test_an_error_that_is_no_failure_of_the_server_is_passed_on(mesh, origin, name):
    path = f"/safety/{name}"
    origin.script(path, reply(200, [FRESH, ("age", "100")], b"stale"), reply(404, [], b"none"))
    await mesh.get(path)
    assert (await mesh.get(path)).status_code == 404
