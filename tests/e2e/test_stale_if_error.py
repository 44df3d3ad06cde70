"""A stale answer stands in for an origin that fails in whatever way; its own Envoy waits for it 1 s at most."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta

import httpx
import pytest
import pytest_asyncio
from own_envoy import envoy_of, mesh_under, options_beside
from policy_sets import POLICIES
from running_mesh import Mesh, eventually, verdict
from scripted_origin import ScriptedOrigin, cut, head, reply

from meshcache.envoy import bootstrap
from meshcache.envoy.bootstrap import BootstrapOptions
from meshcache.envoy.clusters import Origin

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

FRESH = ("cache-control", "max-age=60")
STALE = reply(200, [FRESH, ("age", "100"), ("etag", '"1"')], b"stale")
"""Older than its lifetime from the start."""


async def silence(_asked, wire):
    """Accept the request and never answer."""
    await wire.gone()


async def hang_up(_asked, wire):
    wire.close()


async def reset(_asked, wire):
    wire.reset()


async def slow_head(_asked, wire):
    await wire.send(b"HTTP/1.1 200 OK\r\ncontent-")
    await wire.gone()


FAILURES = {
    "never answers": (silence, 504),
    "never ends its head": (slow_head, 504),
    "closes before the head": (hang_up, 503),
    "resets before the head": (reset, 503),
    "closes in the head": (cut(b"HTTP/1.1 200 OK\r\ncontent-"), 502),
    "answers nonsense": (cut(b"nonsense\r\n\r\n"), 502),
    "answers 500": (reply(500, [], b"sorry"), 500),
    "answers 503 with a lifetime": (reply(503, [FRESH], b"sorry"), 503),
}


async def start(folder, origin: Origin, monkeypatch) -> tuple[Mesh, BootstrapOptions]:
    build = bootstrap.to_cluster

    def impatient(cluster):
        return dataclasses.replace(build(cluster), timeout=timedelta(seconds=1))

    monkeypatch.setattr(bootstrap, "to_cluster", impatient)
    told = POLICIES.replace("  trust:\n", "  trust:\n    cacheStatus: {from: [any]}\n")
    mesh = mesh_under(told, folder)
    options = options_beside(mesh, origin)
    await mesh.serve("--refresh-url", f"unix:{options.refresh_socket}")
    return mesh, options


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def impatient(make_folder, origin):
    """`meshcache serve` beside an Envoy that waits for a second."""
    folder = make_folder()
    with pytest.MonkeyPatch.context() as monkeypatch:
        mesh, options = await start(folder, Origin("127.0.0.1", origin.port), monkeypatch)
        try:
            async with envoy_of(mesh, options, folder / "envoy"):
                yield mesh
                assert await mesh.metric("stream_errors_total") == 0, mesh.log
        finally:
            await mesh.stop()


@pytest.mark.parametrize(("failing", "status"), FAILURES.values(), ids=FAILURES)
async def test_it_stands_in_when_the_origin(impatient, origin, name, failing, status):
    path = f"/safety/{name}"
    origin.script(path, STALE, failing)
    await impatient.get(path)
    answer = await impatient.get(path)
    assert (answer.status_code, answer.content) == (200, b"stale")
    assert "stale-if-error" in verdict(answer).detail
    assert (verdict(answer).fwd, f"fwd-status={status};" in answer.headers["cache-status"]) == ("stale", True)
    # The next clients do not wait for the same.
    asked = origin.count(path)
    answer = await impatient.get(path)
    assert (answer.content, verdict(answer).hit) == (b"stale", True)
    assert origin.count(path) == asked


async def test_the_origin_is_asked_again_before_long_and_its_answer_counts(impatient, origin, name):
    path = f"/safety/{name}"
    origin.script(path, STALE, silence, reply(200, [FRESH], b"fresh"))
    await impatient.get(path)
    assert (await impatient.get(path)).content == b"stale"

    async def fresh():
        return (await impatient.get(path)).content == b"fresh"

    assert await eventually(fresh)


@pytest.mark.parametrize(("failing", "status"), FAILURES.values(), ids=FAILURES)
async def test_without_anything_stored_the_error_passes_as_it_is(impatient, origin, name, failing, status):
    path = f"/safety/{name}"
    origin.script(path, failing)
    answer = await impatient.get(path)
    assert answer.status_code == status
    assert not verdict(answer).hit


@pytest.mark.parametrize("status", [401, 403, 404, 429])
async def test_a_refusal_passes_whatever_is_stored(impatient, origin, name, status):
    path = f"/safety/{name}"
    origin.script(path, STALE, reply(status, [], b"no"))
    await impatient.get(path)
    for _ in range(2):
        answer = await impatient.get(path)
        assert (answer.status_code, answer.content) == (status, b"no")
        origin.script(path, reply(status, [], b"no"))


async def test_an_error_passes_where_no_stale_answer_is_allowed(impatient, origin, path):
    # Beyond what is given out while the origin cannot be reached.
    origin.script(path, reply(200, [FRESH, ("age", "200"), ("etag", '"1"')], b"stale"), silence)
    await impatient.get(path)
    assert (await impatient.get(path)).status_code == 504


async def test_a_body_that_breaks_off_cannot_be_mended(impatient, origin, name):
    path = f"/safety/{name}"

    arrived = asyncio.Event()

    async def broken(_asked, wire):
        await wire.send(head([FRESH, ("content-length", "100")]) + b"half")
        await arrived.wait()
        wire.close()

    origin.script(path, STALE, broken)
    await impatient.get(path)
    async with impatient.client.stream("GET", path) as answer:
        arrived.set()
        with pytest.raises(httpx.RemoteProtocolError):
            await answer.aread()
    origin.script(path, reply(500, [], b"sorry"))
    assert (await impatient.get(path)).content == b"stale", "and costs nothing that is stored"


async def test_an_origin_that_is_gone_and_one_that_is_not_who_it_should_be(make_folder):
    folder = make_folder()
    mine = ScriptedOrigin()
    await mine.start()
    host = {"host": "shop.example"}
    with pytest.MonkeyPatch.context() as monkeypatch:
        mesh, options = await start(folder, Origin("127.0.0.1", mine.port), monkeypatch)
        try:
            async with envoy_of(mesh, options, folder / "envoy"):
                for path in ("/safety/gone", "/safety/tls"):
                    mine.script(path, STALE)
                    await mesh.get(path, host)
                async with mine.down():
                    answer = await mesh.get("/safety/gone", host)
                    assert (answer.status_code, answer.content) == (200, b"stale")
                    assert "fwd-status=503" in answer.headers["cache-status"]
                    assert (await mesh.get("/safety/other", host)).status_code == 503

            # TLS to somebody who speaks another language.
            async def babble(_reader, writer):
                writer.write(b"hello\r\n" * 10)
                writer.close()

            stranger = await asyncio.start_server(babble, "127.0.0.1", 0)
            port = stranger.sockets[0].getsockname()[1]
            tls = dataclasses.replace(options, origin=Origin("127.0.0.1", port, tls=True))
            async with stranger, envoy_of(mesh, tls, folder / "envoy-tls"):
                answer = await mesh.get("/safety/tls", host)
                assert (answer.status_code, answer.content) == (200, b"stale")
                assert "fwd-status=503" in answer.headers["cache-status"]
        finally:
            await mesh.stop()
            await mine.stop()
