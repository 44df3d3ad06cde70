"""Bodies that are stored in chunks and sent in pieces, through Envoy: whole, byte for byte, or visibly broken."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import shutil

import httpx
import pytest
from herds import until_waiting
from running_mesh import PATIENCE, eventually, verdict
from scripted_origin import chunk, cut, head, reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

MIB = 1 << 20
FRESH = ("cache-control", "max-age=60")
ETAG = ("etag", '"large"')
CHUNKED = ("transfer-encoding", "chunked")
LAST = b"0\r\n\r\n"


def body_of(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


async def stored(mesh, path, headers=None):
    """Wait until `path` is answered from the cache; that answer."""
    answer = await eventually(lambda: mesh.hit(path, headers))
    assert answer is not None, mesh.log
    return answer


@pytest.mark.parametrize("size", [MIB, MIB + 1, 5 * MIB + 7, 20 * MIB], ids=str)
async def test_what_is_stored_is_sent_byte_for_byte(mesh, origin, name, size):
    path, body = f"/plain/{name}", body_of(size)
    origin.script(path, reply(200, [FRESH, ETAG, ("vary", "x-a"), ("vary", "x-b"), ("content-type", "a/b")], body))
    first = await mesh.get(path)
    assert first.content == body
    assert verdict(first).stored
    again, asked = await stored(mesh, path), origin.count(path)
    assert again.content == body
    assert (again.status_code, again.headers["content-length"]) == (200, str(size))
    assert again.headers["content-type"] == "a/b"
    assert again.headers["vary"].replace(" ", "") == "x-a,x-b"
    assert int(again.headers["age"]) >= 0
    assert (await mesh.get(path)).content == body
    assert origin.count(path) == asked


async def test_a_body_of_unknown_length_is_stored(mesh, origin, path):
    body = body_of(9 * MIB)
    parts = b"".join(chunk(body[at : at + 50_000]) for at in range(0, len(body), 50_000))
    origin.script(path, head([FRESH, CHUNKED]) + parts + LAST)
    assert (await mesh.get(path)).content == body
    again = await stored(mesh, path)
    assert again.content == body
    assert again.headers["content-length"] == str(len(body))
    assert verdict(again).tier == "cold", "it outgrew what warm takes while it came"


async def test_head_and_304_and_ranges_of_a_large_body(mesh, origin, path):
    body = body_of(6 * MIB)
    origin.script(path, reply(200, [FRESH, ETAG], body))
    await mesh.get(path)
    await stored(mesh, path)
    asked = origin.count(path)
    answer = await mesh.get(path, method="HEAD")
    assert verdict(answer).hit
    assert answer.headers["content-length"] == str(len(body))
    assert answer.content == b""
    answer = await mesh.get(path, {"if-none-match": ETAG[1]})
    assert (answer.status_code, answer.content, verdict(answer).hit) == (304, b"", True)
    for first, last in [(0, 0), (262_143, 262_144), (100, 3 * MIB), (len(body) - 5, len(body) - 1)]:
        answer = await mesh.get(path, {"range": f"bytes={first}-{last}"})
        assert (answer.status_code, verdict(answer).hit) == (206, True)
        assert answer.headers["content-range"] == f"bytes {first}-{last}/{len(body)}"
        assert answer.headers["content-length"] == str(last + 1 - first)
        assert answer.content == body[first : last + 1]
    answer = await mesh.get(path, {"range": f"bytes={len(body)}-"})
    assert (answer.status_code, answer.headers["content-range"]) == (416, f"bytes */{len(body)}")
    assert origin.count(path) == asked


async def test_over_http2_as_well(mesh, origin, path):
    body = body_of(4 * MIB)
    origin.script(path, reply(200, [FRESH], body))
    await mesh.get(path)
    await stored(mesh, path)
    async with httpx.AsyncClient(http1=False, http2=True, base_url=mesh.base, trust_env=False, timeout=20) as client:
        answer = await client.get(path)
        assert answer.http_version == "HTTP/2"
        assert verdict(answer).hit
        assert answer.content == body


async def test_a_stale_large_body_is_used_again_when_the_origin_says_so(mesh, origin, path):
    body = body_of(3 * MIB)

    async def answers(asked, wire):
        same = asked.get("if-none-match") == ETAG[1]
        await wire.send(reply(304, [FRESH, ETAG]) if same else reply(200, [FRESH, ETAG, ("age", "100")], body))

    origin.script(path, answers)

    async def revalidated():
        answer = await mesh.get(path)
        assert answer.content == body
        return answer if "revalidated" in verdict(answer).detail else None

    await mesh.get(path)
    assert await eventually(revalidated)
    asked = origin.count(path)
    assert (await stored(mesh, path)).content == body, "its lifetime begins anew"
    assert origin.count(path) == asked
    assert origin.asked(path)[-1].get("if-none-match") == ETAG[1]


async def test_a_stale_large_body_stands_in_for_an_error(mesh, origin, name):
    path, body = f"/safety/{name}", body_of(3 * MIB)
    origin.script(path, reply(200, [FRESH, ETAG, ("age", "100")], body), reply(503, [], b"sorry"))

    async def stood_in():
        answer = await mesh.get(path)
        return answer.status_code == 200 and answer.content == body

    await mesh.get(path)
    assert await eventually(stood_in)


async def test_a_stale_large_body_is_refreshed_behind_the_client(mesh, origin, name):
    path, old, new = f"/stale/{name}", body_of(12 * MIB), body_of(12 * MIB, 2)
    stale = [FRESH, ("age", "100")]
    origin.script(path, reply(200, stale, old), reply(200, [FRESH], new))

    async def renewed():
        answer = await mesh.get(path)
        assert answer.content in (old, new)
        return verdict(answer).hit and answer.content == new

    await mesh.get(path)
    assert await eventually(renewed), mesh.log


async def test_many_that_want_one_large_body_share_one_request(mesh, origin, name):
    path, body = f"/plain/{name}", body_of(6 * MIB, 9)

    all_wait = await until_waiting(mesh, 24)

    async def slowly(_asked, wire):
        await wire.send(head([FRESH, ("content-length", str(len(body)))]) + body[:MIB])
        await all_wait()
        await wire.send(body[MIB:])

    origin.script(path, slowly)
    answers = await asyncio.gather(*(mesh.get(path) for _ in range(25)))
    assert all(answer.content == body for answer in answers)
    assert origin.count(path) == 1


async def test_what_is_cut_off_is_not_stored(mesh, origin, path):
    body = body_of(4 * MIB)
    broken = head([FRESH, ("content-length", str(len(body)))]) + body[: 3 * MIB]
    origin.script(path, cut(broken), cut(head([FRESH, CHUNKED]) + chunk(body)), reply(200, [FRESH], b"whole"))
    for _ in range(2):
        with pytest.raises(httpx.RemoteProtocolError):
            await mesh.get(path)
    answer = await mesh.get(path)
    assert not verdict(answer).hit
    assert answer.content == b"whole"


async def test_a_client_that_leaves_in_mid_answer_leaves_nothing_behind(mesh, origin, path):
    body = body_of(20 * MIB)
    origin.script(path, reply(200, [FRESH], body))
    await mesh.get(path)
    await stored(mesh, path)
    asked = origin.count(path)
    for _ in range(5):
        async with mesh.client.stream("GET", path) as answer:
            await anext(answer.aiter_raw())
    assert (await mesh.get(path)).content == body
    assert origin.count(path) == asked


async def test_a_body_whose_chunks_are_lost_is_fetched_anew(start_mesh, origin, path):
    mesh = await start_mesh()
    body = body_of(12 * MIB)
    origin.script(path, reply(200, [FRESH], body))
    await mesh.get(path)
    assert verdict(await stored(mesh, path)).tier == "cold"
    files = sorted((mesh.data / "cold").glob("??/??/*"), key=lambda file: file.stat().st_size)
    assert len(files) == 49, "48 chunks and the record"
    files[-1].unlink()
    answer = await mesh.get(path)
    assert not verdict(answer).hit
    assert answer.content == body
    # One that is no longer what it was breaks the answer off: nothing wrong is taken for the body.
    await stored(mesh, path)
    until = files[-3].stat().st_mtime
    files[-3].write_bytes(b"x" * 262_144)
    os.utime(files[-3], (until, until))
    with contextlib.suppress(httpx.RemoteProtocolError):
        assert verdict(await mesh.get(path)).fwd
    answer = await eventually(lambda: whole(mesh, path))
    assert answer.content == body
    assert await eventually(lambda: mesh.metric("chunks_total", event="corrupt")) == 1
    await mesh.stop()


async def whole(mesh, path):
    with contextlib.suppress(httpx.RemoteProtocolError):
        return await mesh.get(path)


async def test_equal_bodies_are_stored_once(start_mesh, origin, name):
    mesh = await start_mesh()
    paths, body = [f"/plain/{name}/{number}" for number in range(2)], body_of(20 * MIB, 7)
    sizes = []
    for path in paths:
        origin.script(path, reply(200, [FRESH], body))
        await mesh.get(path)
        assert hashlib.sha256((await stored(mesh, path)).content).digest() == hashlib.sha256(body).digest()
        sizes.append(sum(file.stat().st_size for file in (mesh.data / "cold").glob("??/??/*")))
    assert len(body) < sizes[0] < len(body) + MIB
    assert sizes[1] - sizes[0] < 64 << 10

    async def all_shared():
        return await mesh.metric("chunks_total", event="shared") >= 80

    async def all_written():
        return await mesh.metric("chunks_total", event="written") == 80

    assert await eventually(all_shared)
    # Each worker tells what it has counted at a moment of its own, and the two may have halves of the bodies.
    assert await eventually(all_written)
    await mesh.stop()


async def test_a_disk_that_takes_nothing_costs_hits_only(start_mesh, origin, path):
    mesh = await start_mesh()
    shutil.rmtree(mesh.data / "cold", ignore_errors=True)
    (mesh.data / "cold").write_text("a file where the folder should be")
    body = body_of(12 * MIB)
    origin.script(path, reply(200, [FRESH], body))
    for _ in range(3):
        assert (await mesh.get(path)).content == body
    assert origin.count(path) == 3
    await mesh.stop()


# -- streams of events ---------------------------------------------------------------------------------------------


EVENTS = [b'id: %d\ndata: {"n": %d}\n\n' % (number, number) for number in range(8)]
SSE = ("content-type", "text/event-stream")


async def test_events_pass_at_once_and_are_replayed_byte_for_byte(mesh, origin, path):
    arrived = asyncio.Semaphore(0)

    async def events(_asked, wire):
        await wire.send(head([FRESH, CHUNKED, SSE]))
        for event in EVENTS:
            await wire.send(chunk(event))
            await arrived.acquire()  # none is sent before the client has the one before
        await wire.send(LAST)

    origin.script(path, events)
    seen = []
    async with asyncio.timeout(PATIENCE), mesh.client.stream("GET", path) as answer:
        async for part in answer.aiter_raw():
            seen.append(part)
            arrived.release()
    assert seen == EVENTS
    again = await stored(mesh, path)
    assert again.content == b"".join(EVENTS)
    assert again.headers["content-type"] == "text/event-stream"


async def test_events_that_are_cut_off_are_not_stored(mesh, origin, path):
    origin.script(path, cut(head([FRESH, CHUNKED, SSE]) + b"".join(map(chunk, EVENTS[:4]))))
    for _ in range(2):
        with contextlib.suppress(httpx.RemoteProtocolError):
            assert (await mesh.get(path)).status_code >= 500
    assert origin.count(path) == 2


async def test_a_body_of_a_request_streams_through(mesh, origin, path):
    body = body_of(3 * MIB)

    async def parts():
        for at in range(0, len(body), 100_000):
            yield body[at : at + 100_000]

    origin.script(path, reply(200, [], b"taken"))
    answer = await mesh.client.post(path, content=parts())
    assert answer.content == b"taken"
    assert origin.asked(path)[0].body == body
