"""The filter where it must not answer, or cannot: behind RBAC, without a sidecar, with a bad one, after a trap."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time

import pytest
import pytest_asyncio
from envoy_data_plane.envoy.config.core.v3 import HeaderValue, HeaderValueOption
from envoy_data_plane.envoy.config.core.v3 import HeaderValueOptionHeaderAppendAction as Append
from envoy_data_plane.envoy.config.metrics.v3 import StatsConfig, StatsMatcher
from envoy_data_plane.envoy.type.matcher.v3 import ListStringMatcher, StringMatcher
from hot_mesh import Crowd
from own_envoy import MESSAGE_TIMEOUT, sidecar_under
from policy_sets import POLICIES
from running_mesh import eventually, verdict
from scripted_origin import reply
from test_front_filters import ALICE, MALLORY, only_alice

from filter_module import built_filter
from meshcache.envoy import bootstrap
from meshcache.envoy.bootstrap import BootstrapOptions, build_bootstrap
from meshcache.envoy.clusters import Origin, filter_socket
from meshcache.envoy.process import EnvoyProcess
from meshcache.wasm import building, module

# Clients of such an Envoy are strangers, who are not told from which tier an answer is.
SHOWN = POLICIES.replace("  trust:\n", "  trust:\n    cacheStatus: {from: [any]}\n")

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


def options_for(folder, origin, **more):
    """Envoy with the filter and two workers, before whatever listens in `folder`."""
    return BootstrapOptions(
        listen=("127.0.0.1", 0),
        origin=Origin("127.0.0.1", origin.port),
        worker_sockets=(folder / "worker-0.sock",),
        refresh_socket=folder / "refresh.sock",
        admin=folder / "envoy-admin.sock",
        concurrency=2,
        **{"wasm": built_filter(), "message_timeout": MESSAGE_TIMEOUT} | more,
    )


@contextlib.asynccontextmanager
async def lone_envoy(folder, origin, **more):
    """Its clients; there is no sidecar."""
    async with EnvoyProcess(options_for(folder, origin, **more), folder / "envoy") as envoy:
        crowd = Crowd(f"http://127.0.0.1:{await envoy.listen_port()}")
        try:
            yield crowd
        finally:
            await crowd.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guarded(make_folder, origin):
    """A sidecar behind an Envoy of the test's own, with RBAC in front of the filter."""
    async with (
        sidecar_under(SHOWN, make_folder(), origin.url) as run,
        lone_envoy(run, origin, filters_before=(only_alice(),)) as crowd,
    ):
        yield crowd


async def test_who_is_refused_is_refused_what_is_hot_too(guarded, origin, path):
    await guarded.heat(path, ALICE)
    asked = origin.count(path)
    for headers in (MALLORY, {}, {"x-user": "alice, mallory"}):
        for method in ("GET", "HEAD"):
            for answer in await guarded.get(path, headers, method=method):
                assert answer.status_code == 403
                assert "cache-status" not in answer.headers
    assert await guarded.tiers(path, ALICE) == {"wasm"}
    assert origin.count(path) == asked


async def test_who_is_refused_drops_nothing(guarded, path):
    await guarded.heat(path, ALICE)
    assert {answer.status_code for answer in await guarded.get(path, MALLORY, method="POST")} == {403}
    assert await guarded.tiers(path, ALICE) == {"wasm"}


async def test_without_a_sidecar_everything_passes(make_folder, origin, path):
    async with lone_envoy(make_folder(), origin) as crowd:
        for method in ("GET", "POST", "HEAD", "GET"):
            began = time.monotonic()
            answers = await crowd.get(path, method=method)
            assert {answer.status_code for answer in answers} == {200}
            assert not any(verdict(answer).hit for answer in answers)
            assert time.monotonic() - began < 15, "nobody waits for who is not there"
        assert origin.count(path) == 4 * len(crowd.clients)


@pytest.mark.parametrize(
    "body", [b"\xff" * 70_000, b"MCF1\x01\0" + b"\xff" * 12 + b"\x08\0\0\0MCP1\x01\0\0\0"], ids=["long", "plan"]
)
async def test_with_a_sidecar_that_talks_nonsense_everything_passes(make_folder, origin, path, body):
    folder = make_folder()
    polls = 0
    began = 0.0

    async def nonsense(reader, writer):
        nonlocal polls, began
        began = began or time.monotonic()
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                polls += 1
                head = f'HTTP/1.1 200 x\r\netag: "0123456789abcdef"\r\ncontent-length: {len(body)}\r\n\r\n'
                writer.write(head.encode() + body)
                await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(nonsense, filter_socket(folder))
    try:
        async with lone_envoy(folder, origin) as crowd:

            async def polled():
                return polls > 4

            assert await eventually(polled)
            for _ in range(3):
                answers = await crowd.get(path)
                assert {answer.status_code for answer in answers} == {200}
                assert not any(verdict(answer).hit for answer in answers)
            assert polls < 100 + 50 * (time.monotonic() - began), "a poll that failed waits before the next"
    finally:
        server.close()


@pytest.fixture
def sparing(monkeypatch):
    """Envoys that keep no statistics of what modules count, as `stats_config` often has it."""
    patterns = [StringMatcher(prefix=prefix) for prefix in ("wasmcustom.", "meshcache")]

    def build(options):
        made = build_bootstrap(options)
        matcher = StatsMatcher(exclusion_list=ListStringMatcher(patterns=patterns))
        made.stats_config = StatsConfig(stats_matcher=matcher)
        return made

    monkeypatch.setattr("meshcache.envoy.process.build_bootstrap", build)


async def test_workers_tell_each_other_also_where_envoy_keeps_no_statistics(sparing, make_folder, origin, path):
    async with sidecar_under(SHOWN, make_folder(), origin.url) as run, lone_envoy(run, origin) as crowd:
        await crowd.heat(path)
        await crowd.heat(path + "/other")
        await crowd.clients[0].post(path)
        assert "wasm" not in await crowd.tiers(path)
        assert await crowd.tiers(path + "/other") == {"wasm"}, "more is dropped than has to be"


@pytest.fixture
def adding(monkeypatch):
    """Envoys whose route adds fields to answers, as a VirtualService or an HTTPRoute has it done."""

    def added(name, value, how):
        return HeaderValueOption(header=HeaderValue(key=name, value=value), append_action=Append[how])

    def route(options):
        made = to_origin(options)
        made.response_headers_to_add = [
            added("x-set", "s", "OVERWRITE_IF_EXISTS_OR_ADD"),
            added("x-add", "added", "APPEND_IF_EXISTS_OR_ADD"),
            added("cache-control", "max-age=300", "OVERWRITE_IF_EXISTS_OR_ADD"),
            added("vary", "x-kind", "APPEND_IF_EXISTS_OR_ADD"),
        ]
        made.response_headers_to_remove = ["x-gone"]
        return made

    to_origin = bootstrap._to_origin
    monkeypatch.setattr(bootstrap, "_to_origin", route)


async def test_what_a_route_adds_to_answers_is_there_once(adding, make_folder, origin, path):
    own = [("x-add", "own"), ("x-gone", "1"), ("content-type", "text/html"), ("vary", "x-other"), ("etag", '"e"')]
    origin.script(path, reply(200, [("cache-control", "max-age=600"), *own], b"hot"))

    def seen(answer):
        names = ("x-set", "x-add", "x-gone", "cache-control", "vary", "content-type", "etag")
        return {name: answer.headers.get_list(name) for name in names}

    async with sidecar_under(SHOWN, make_folder(), origin.url) as run, lone_envoy(run, origin) as crowd:
        first, *_ = await crowd.get(path)
        assert seen(first)["x-add"] == ["own", "added"]
        await crowd.heat(path)
        for _ in range(3):
            for answer in await crowd.get(path):
                assert verdict(answer).tier == "wasm"
                assert seen(answer) == seen(first)
                assert answer.content == b"hot"
        for answer in await crowd.get(path, method="HEAD"):
            assert (seen(answer), answer.headers["content-length"]) == (seen(first), "3")
        for answer in await crowd.get(path, {"if-none-match": '"e"'}):
            assert (answer.status_code, answer.content) == (304, b"")
            assert seen(answer) == seen(first) | {"content-type": []}


POISON = """\
    var landed: [8]u8 = undefined;
    if (abi.header(.request_headers, "x-poison", &landed) != null) @trap();
"""


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory):
    """A filter that traps when a request has a field `x-poison`."""
    sources = tmp_path_factory.mktemp("poisoned") / "src"
    sources.mkdir()
    for source in module.sources().glob("*.zig"):
        text = source.read_text()
        if source.name == "main.zig":
            text, count = re.subn(r"(export fn proxy_on_request_headers\([^{]*\{\n)", r"\1" + POISON, text)
            assert count == 1
        (sources / source.name).write_text(text)
    target = sources.parent / "meshcache.wasm"
    building.build(sources, target)
    return target


@pytest.mark.skipif(os.environ.get("FILTER_LONG") != "1", reason="builds a filter of its own: make proofs PARTS=hot")
async def test_after_a_trap_requests_pass(make_folder, origin, poisoned, path):
    async with (
        sidecar_under(SHOWN, make_folder(), origin.url) as run,
        lone_envoy(run, origin, wasm=poisoned) as crowd,
    ):
        await crowd.heat(path)
        poison = crowd.clients[0]
        assert (await poison.get(path, headers={"x-poison": "1"})).status_code == 200
        # The other worker goes on as before. Where the trap was, the sidecar answers.
        for _ in range(5):
            answers = await crowd.get(path)
            assert {answer.status_code for answer in answers} == {200}
            assert {verdict(answer).tier for answer in answers if verdict(answer).hit} <= {"wasm", "hot"}
        assert verdict(await poison.get(path)).tier == "hot"
        # A mark of the origin's own is worth nothing now either, and an unsafe request still invalidates.
        assert (await poison.post(path)).status_code == 200
        first = {answer.text for answer in await crowd.get(path)}
        assert len(first) <= 2
