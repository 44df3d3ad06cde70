"""One ext_proc stream, message by message: odd sequences, ends at every point, and an engine that fails."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest
from envoy_streams import Stream, body, of_request, request, response, trailers
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_harness import Rig
from meshcache.engine.chunks import CHUNK_BYTES
from meshcache.engine.exchange import Exchange
from meshcache.extproc import conversation
from meshcache.extproc.conversation import ExternalProcessor
from meshcache.tiers.spool import MOST_BEHIND
from policy_texts import policies

PLAIN = policies(freshness="{defaultTtl: 60s, staleIfError: 5m}")


class Edge:
    """An `ExternalProcessor` over a rig, and the errors it reported."""

    def __init__(self, rig: Rig, lookup_timeout: float = 5.0) -> None:
        self._rig = rig
        self.errors: list[tuple[str, str]] = []
        self.processor = ExternalProcessor(rig.cache, on_error=self._on_error, lookup_timeout=lookup_timeout)

    def _on_error(self, stage: str, error: Exception) -> None:
        self.errors.append((stage, str(error)))

    async def talk(self, *messages: ProcessingRequest) -> Stream:
        stream = Stream(*messages)
        await self.processor.converse(stream)
        assert stream.why is None
        assert self._rig.cache.copies.used == 0
        await self._rig.settle()
        return stream


async def test_miss_then_hit(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        miss = await edge.talk(
            request(), response(content_type="text/plain"), body(b"on"), body(b"e"), body(b"", end=True)
        )
        assert miss.kinds == ["request_headers", "response_headers", *["response_body"] * 3]
        assert not miss.at_end
        rig.clock.pass_by(5)
        hit = await edge.talk(request())
        [reply] = hit.replies
        assert (reply.immediate_response.status.code, reply.immediate_response.body) == (200, b"one")
        headers = {item.header.key: item.header.raw_value for item in reply.immediate_response.headers.set_headers}
        assert (headers["content-type"], headers["age"]) == (b"text/plain", b"5")
        assert headers["cache-status"].startswith(b"meshcache; hit; ttl=55")
        assert edge.errors == []


async def test_trailers_end_a_body(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        miss = await edge.talk(request(), response(), body(b"one"), trailers())
        assert miss.kinds == ["request_headers", "response_headers", "response_body", "response_trailers"]
        assert not miss.at_end
        [reply] = (await edge.talk(request())).replies
        assert reply.immediate_response.body == b"one"


async def test_headers_may_be_all_there_is(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        miss = await edge.talk(request(), response(204, end=True))
        assert miss.kinds == ["request_headers", "response_headers"]
        assert not miss.at_end
        assert (await edge.talk(request())).kinds == ["immediate_response"]


@pytest.mark.parametrize("messages", range(4))
async def test_a_stream_may_end_at_any_point_and_what_was_cut_off_is_not_stored(tmp_path: Path, messages: int) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        whole = [request(), response(), body(b"on"), body(b"e")]
        stream = await edge.talk(*whole[:messages])
        assert stream.at_end
        assert len(stream.replies) == messages
        assert (await edge.talk(request())).kinds == ["request_headers"]
        assert edge.errors == []


@pytest.mark.parametrize(
    "first", ["response_headers", "response_body", "response_trailers", "request_body", "request_trailers"]
)
async def test_a_stream_may_begin_anywhere(tmp_path: Path, first: str) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        stream = await edge.talk(of_request(first), body(b"more", end=True))
        assert stream.kinds == [first]
        assert not stream.at_end
        assert edge.errors == []


async def test_a_message_of_no_kind_is_answered_all_the_same(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        assert len((await edge.talk(ProcessingRequest())).replies) == 1
        assert len((await edge.talk(request(), ProcessingRequest(), response(end=True))).replies) == 3
        assert edge.errors == []


async def test_a_request_that_is_not_watched_ends_the_stream(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        stream = await Edge(rig).talk(request(if_match="*"), response())
        assert stream.kinds == ["request_headers"]
        assert not stream.replies[0].HasField("mode_override")


async def test_a_response_that_is_not_stored_ends_the_stream(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        stream = await Edge(rig).talk(request(), response(cache_control="no-store"), body(b"one", end=True))
        assert stream.kinds == ["request_headers", "response_headers"]
        assert not stream.replies[1].HasField("mode_override")


async def test_an_answer_can_take_the_place_of_an_error(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        await edge.talk(request(), response(), body(b"one", end=True))
        rig.clock.pass_by(100)
        stream = await edge.talk(request(), response(503, details="no_healthy_upstream"), body(b"oops", end=True))
        assert stream.kinds == ["request_headers", "immediate_response"]
        assert stream.replies[1].immediate_response.body == b"one"


async def test_an_unsafe_request_invalidates(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        await edge.talk(request(), response(), body(b"one", end=True))
        stream = await edge.talk(request("POST", end=False), response(201), body(b"done", end=True))
        assert stream.kinds == ["request_headers", "response_headers"]
        assert (await edge.talk(request())).kinds == ["request_headers"]


async def test_a_look_up_that_takes_too_long_lets_the_request_go_on(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig, lookup_timeout=1.0)
        await edge.talk(request(), response(), body(b"one", end=True))
        rig.forget_memory()
        rig.warm.may_go.clear()
        stream = await edge.talk(request(), response(), body(b"one", end=True))
        assert stream.kinds == ["request_headers", "response_headers"], "the response is not copied"
        rig.warm.may_go.set()
        assert edge.errors == []


async def test_deadlines_of_a_later_edit_do_not_outlast_envoy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # So long that a busy machine does not use it up.
    monkeypatch.setattr(conversation, "HEAD_START", 2.0)
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig, lookup_timeout=2.5)
        await edge.talk(request(), response(), body(b"one", end=True))
        rig.install(policies(freshness="{defaultTtl: 60s}", tiers="{warm: {deadline: 10s}, cold: {deadline: 10s}}"))
        rig.forget_memory()
        rig.warm.may_go.clear()
        began = time.perf_counter()
        stream = await edge.talk(request())
        assert time.perf_counter() - began < 2.5, "Envoy still waits"
        assert stream.kinds == ["request_headers"]
        rig.warm.may_go.set()


LARGE = policies(
    freshness="{defaultTtl: 60s}",
    tiers="{hot: {maxObjectBytes: 1Mi}, warm: {maxObjectBytes: 2Mi}, cold: {maxObjectBytes: 32Mi, deadline: 5s}}",
)


def of_large_body(count: int) -> list[ProcessingRequest]:
    parts = [body(bytes([number]) * CHUNK_BYTES) for number in range(count)]
    return [request(), response(), *parts, body(b"", end=True)]


async def test_a_body_that_comes_faster_than_the_stores_take_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Rig(tmp_path, LARGE) as rig:
        keep = rig.cold.keep

        async def slowly(*arguments: Any) -> bool:
            await asyncio.sleep(0.01)
            return bool(await keep(*arguments))

        monkeypatch.setattr(rig.cold, "keep", slowly, raising=False)
        edge = Edge(rig)
        miss = Stream(*of_large_body(2 * MOST_BEHIND))
        await edge.processor.converse(miss)
        await rig.settle()
        assert miss.kinds.count("response_body") == 2 * MOST_BEHIND + 1
        assert rig.meter.stores == ["stored"]
        hit = await rig.get("/a")
        assert hit.decision == "hit"
        assert hit.body == b"".join(part.response_body.body for part in of_large_body(2 * MOST_BEHIND))


async def test_stores_that_stand_still_cost_a_body_little_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Rig(tmp_path, LARGE) as rig:
        may_go = asyncio.Event()

        async def never(*_: object) -> bool:
            await may_go.wait()
            return False

        monkeypatch.setattr(rig.cold, "keep", never, raising=False)
        edge = Edge(rig)
        began = time.perf_counter()
        stream = Stream(*of_large_body(3 * MOST_BEHIND))
        await edge.processor.converse(stream)
        assert time.perf_counter() - began < 3.0
        assert stream.kinds.count("response_body") == 3 * MOST_BEHIND + 1
        assert rig.meter.stores == ["no-memory"]
        may_go.set()


class Broken(Exception):  # noqa: N818  not an error of the code, but of the test's making
    """What the engine raises in these tests."""


@pytest.mark.parametrize(
    ("method", "stage", "kinds"),
    [
        ("start", "request", ["request_headers"]),
        ("search", "request", ["request_headers"]),
        ("on_response", "response_headers", ["request_headers", "response_headers"]),
        ("on_body", "response_body", ["request_headers", "response_headers", "response_body", "response_body"]),
        ("on_end", "response_body", ["request_headers", "response_headers", "response_body", "response_body"]),
    ],
)
async def test_an_engine_that_fails_lets_the_traffic_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, stage: str, kinds: list[str]
) -> None:
    def fail(*_: object) -> None:
        raise Broken(method)

    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        await edge.talk(request(), response(cache_control="max-age=1"), body(b"old", end=True))
        rig.clock.pass_by(400)
        with monkeypatch.context() as patch:
            patch.setattr(Exchange, method, fail)
            stream = await edge.talk(request(), response(), body(b"on"), body(b"e", end=True))
        assert stream.kinds == kinds
        assert edge.errors[0] == (stage, method)
        assert (await edge.talk(request())).kinds == ["request_headers"], "nothing was stored"
        assert not (await edge.talk(request(), response(), body(b"one", end=True))).at_end
        assert (await edge.talk(request())).kinds == ["immediate_response"], "and it works again"


async def test_a_body_of_which_a_part_was_lost_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_body = Exchange.on_body

    def fail_at_first(exchange: Exchange, chunk: bytes) -> None:
        if chunk == b"on":
            raise Broken("on_body")
        on_body(exchange, chunk)

    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        monkeypatch.setattr(Exchange, "on_body", fail_at_first)
        stream = await edge.talk(request(), response(), body(b"on"), body(b"e", end=True))
        assert stream.kinds == ["request_headers", "response_headers", "response_body", "response_body"]
        assert edge.errors == [("response_body", "on_body")]
        assert (await edge.talk(request())).kinds == ["request_headers"]


async def test_trailers_at_which_the_engine_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise Broken("on_end")

    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        monkeypatch.setattr(Exchange, "on_end", fail)
        stream = await edge.talk(request(), response(), body(b"one"), trailers())
        assert stream.kinds[-1] == "response_trailers"
        assert edge.errors == [("response_trailers", "on_end")]


async def test_a_second_response_gives_the_first_one_s_memory_back(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        stream = await edge.talk(request(), response(), body(b"one"), response(), body(b"two", end=True))
        assert len(stream.replies) == 5
        [reply] = (await edge.talk(request())).replies
        assert reply.immediate_response.body == b"two"


async def test_a_request_that_cannot_be_read_passes(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        message = ProcessingRequest()
        message.request_headers.SetInParent()
        assert (await edge.talk(message)).kinds == ["request_headers"]
        assert edge.errors == []


ANSWERS = {
    "request_headers": {"request_headers", "immediate_response"},
    "response_headers": {"response_headers", "immediate_response"},
}

messages = st.one_of(
    st.builds(
        request,
        st.sampled_from(["GET", "HEAD", "POST", "OPTIONS"]),
        st.sampled_from(["/a", "/b", "*", ""]),
        end=st.booleans(),
    ),
    st.builds(request, cache_control=st.sampled_from(["no-cache", "no-store", "max-stale", ""])),
    st.builds(
        response,
        st.sampled_from([200, 204, 304, 404, 503, 0]),
        end=st.booleans(),
        details=st.sampled_from(["via_upstream", "direct_response"]),
        cache_control=st.sampled_from(["max-age=60", "max-age=0", "no-store", ""]),
        content_length=st.sampled_from(["3", "0", "x", "9" * 5000]),
        etag=st.sampled_from(['"1"', '"2"', "odd"]),
    ),
    st.builds(body, st.binary(max_size=5), end=st.booleans()),
    st.builds(trailers),
    st.builds(of_request, st.sampled_from(["request_body", "request_trailers", "response_headers"])),
    st.just(ProcessingRequest()),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(messages, max_size=6), min_size=1, max_size=6))
def test_whatever_comes_each_message_has_an_answer_of_its_kind(streams: list[list[ProcessingRequest]]) -> None:
    async def all_of_them(path: Path) -> None:
        async with Rig(path, PLAIN) as rig:
            edge = Edge(rig)
            for conversation in streams:
                stream = await edge.talk(*conversation)
                rig.clock.pass_by(30)
                for asked, kind in zip(stream.read_so_far, stream.kinds, strict=True):
                    which = asked.WhichOneof("request")
                    if which is not None:
                        assert kind in ANSWERS.get(which, {which})
            assert edge.errors == []

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(all_of_them(Path(folder)))
