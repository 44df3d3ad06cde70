"""The conversation with Envoy about an answer out of chunks: in pieces, at once, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from envoy_data_plane.envoy.service.ext_proc.v3 import ProcessingResponse as Known
from envoy_streams import BrokenOff, Stream, body, request, response

from cache_harness import HOST, Rig
from meshcache.extproc import wire
from meshcache.extproc.conversation import ExternalProcessor
from meshcache.message import Request
from policy_texts import policies

MIB = 1 << 20
BODY = random.Random(3).randbytes(2 * MIB + 77)
POLICY = policies(
    freshness="{defaultTtl: 60s, staleIfError: 5m}",
    tiers="""
hot: {ttl: 10m, maxObjectBytes: 1Mi, deadline: 5s}
warm: {ttl: 1h, maxObjectBytes: 32Mi, deadline: 5s}
cold: {ttl: 24h, maxObjectBytes: 64Mi, deadline: 5s}
""",
)


class PieceStream(Stream):
    """A stream that keeps replies as bytes."""

    def __init__(self, *messages: ProcessingRequest) -> None:
        super().__init__(*messages)
        self.raw: list[bytes] = []
        self.on_write: Any = None

    async def read(self) -> ProcessingRequest | None:
        if self.raw and not self._messages:
            self.at_end = True
            return None
        return await super().read()

    async def write(self, reply: bytes) -> None:
        self.raw.append(reply)
        self.replies.append(ProcessingResponse())
        if self.on_write is not None:
            await self.on_write(len(self.raw))

    @property
    def body(self) -> bytes:
        pieces = [Known.parse(raw).streamed_immediate_response for raw in self.raw]
        return b"".join(piece.body_response.body for piece in pieces if piece and piece.body_response)

    @property
    def ended(self) -> bool:
        last = Known.parse(self.raw[-1]).streamed_immediate_response
        return bool(last and last.body_response and last.body_response.end_of_stream)


async def talk(rig: Rig, stream: PieceStream, *, ends: type[BaseException] | None = None) -> PieceStream:
    """Lead the stream to its end; `ends` is what that raises."""

    def on_error(stage: str, error: Exception) -> None:
        raise AssertionError(stage) from error

    processor = ExternalProcessor(rig.cache, on_error=on_error, lookup_timeout=5.0)
    with contextlib.nullcontext() if ends is None else pytest.raises(ends):
        await processor.converse(stream)
    await rig.settle()
    assert rig.cache.copies.used == 0
    assert rig.cache.flights._sending == 0
    return stream


async def store(rig: Rig, **headers: str) -> None:
    # A chunk at a time, as fast as the disk follows.
    parts = [body(BODY[at : at + 262_144]) for at in range(0, len(BODY), 262_144)]
    await talk(rig, PieceStream(request(), response(**headers), *parts, body(b"", end=True)))
    assert rig.meter.stores == ["stored"]


async def test_a_hit_goes_out_in_pieces(tmp_path: Path) -> None:
    async with Rig(tmp_path, POLICY) as rig:
        await store(rig, content_type="a/b", content_length=str(len(BODY)))
        hit = await talk(rig, PieceStream(request()))
        assert hit.ended
        assert hit.body == BODY
        assert len(hit.raw) == 10
        head = Known.parse(hit.raw[0]).streamed_immediate_response
        assert head is not None
        assert head.headers_response is not None
        assert head.headers_response.headers is not None
        fields = {pair.key: pair.raw_value for pair in head.headers_response.headers.headers}
        assert fields["content-length"] == str(len(BODY)).encode()
        assert fields["content-type"] == b"a/b"
        assert fields["cache-status"].startswith(b"meshcache; hit")


async def test_head_takes_no_piece_and_a_short_part_one_reply(tmp_path: Path) -> None:
    async with Rig(tmp_path, POLICY) as rig:
        await store(rig)
        [raw] = (await talk(rig, PieceStream(request("HEAD")))).raw
        head = Known.parse(raw).streamed_immediate_response
        assert head is not None
        assert head.headers_response is not None
        assert head.headers_response.end_of_stream
        [raw] = (await talk(rig, PieceStream(request(range="bytes=262000-262999")))).raw
        reply = ProcessingResponse.FromString(raw)
        assert reply.immediate_response.status.code == 206
        assert reply.immediate_response.body == BODY[262_000:263_000]


async def test_a_chunk_lost_on_the_way_breaks_the_answer_off(tmp_path: Path) -> None:
    async with Rig(tmp_path, POLICY) as rig:
        await store(rig)
        stream = PieceStream(request())

        async def lose(written: int) -> None:
            if written == 2:
                exchange = rig.cache.open(Request("GET", HOST, "/a"))
                assert exchange.start() is None
                answer: Any = await exchange.search()
                await rig.warm.drop(answer.stored.chunks)

        stream.on_write = lose
        await talk(rig, stream, ends=BrokenOff)
        assert stream.why is not None
        assert not stream.ended
        assert BODY.startswith(stream.body)
        assert not (await talk(rig, PieceStream(request()))).ended, "it is a miss from now on"


async def test_a_client_that_leaves_frees_what_he_held(tmp_path: Path) -> None:
    async with Rig(tmp_path, POLICY) as rig:
        await store(rig)
        stream = PieceStream(request())

        async def leave(written: int) -> None:
            if written == 3:
                raise asyncio.CancelledError

        stream.on_write = leave
        before = asyncio.all_tasks()
        await talk(rig, stream, ends=asyncio.CancelledError)
        assert len(stream.raw) == 3
        assert asyncio.all_tasks() == before


async def test_a_first_chunk_that_cannot_be_read_sends_the_request_on(tmp_path: Path) -> None:
    async with Rig(tmp_path, POLICY) as rig:
        await store(rig)

        async def fetch(_digest: bytes) -> None:
            return None

        rig.warm.fetch = fetch  # type: ignore[attr-defined]
        stream = await talk(rig, PieceStream(request(), response(), body(b"new", end=True)))
        assert ProcessingResponse.FromString(stream.raw[0]).WhichOneof("response") == "request_headers"
        assert rig.meter.stores == ["stored", "stored"], "and its answer is stored"


class Failing:
    """An edge that cannot make the head of an answer in pieces; all else is `wire`'s."""

    def __getattr__(self, name: str) -> Any:
        return getattr(wire, name)

    def head(self, *_: object, **__: object) -> bytes:
        raise ValueError("no head")


async def test_an_answer_that_fails_before_it_is_sent_takes_nobodys_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Rig(tmp_path, POLICY) as rig:
        await store(rig)
        failures: list[tuple[str, str]] = []

        async def fails(edge: Any) -> None:
            processor = ExternalProcessor(
                rig.cache,
                on_error=lambda stage, error: failures.append((stage, str(error))),
                lookup_timeout=5.0,
                edge=edge,
            )
            before = asyncio.all_tasks()
            stream = PieceStream(request())
            await processor.converse(stream)
            assert stream.raw == [wire.PASS_REQUEST]
            assert rig.cache.flights._sending == 0
            assert asyncio.all_tasks() == before

        await fails(Failing())

        def no_meter(*_: object) -> None:
            raise ValueError("no meter")

        monkeypatch.setattr(rig.cache.meter, "stage", no_meter)
        await fails(wire)
        assert failures == [("request", "no head"), ("request", "no meter")]


async def test_after_the_origin_was_asked_it_goes_out_whole(tmp_path: Path) -> None:
    async with Rig(tmp_path, POLICY) as rig:
        await store(rig, etag='"1"')
        rig.clock.pass_by(100)
        stream = await talk(rig, PieceStream(request(), response(304, end=True, etag='"1"')))
        reply = ProcessingResponse.FromString(stream.raw[1])
        assert reply.immediate_response.body == BODY
        rig.clock.pass_by(100)
        stream = await talk(rig, PieceStream(request(), response(503)))
        assert ProcessingResponse.FromString(stream.raw[1]).immediate_response.body == BODY


@pytest.mark.parametrize(("status", "kind", "code"), [(304, "immediate_response", 503), (503, "response_headers", 0)])
async def test_without_its_body_it_answers_nothing_else(tmp_path: Path, status: int, kind: str, code: int) -> None:
    async with Rig(tmp_path, POLICY) as rig:
        await store(rig, etag='"1"')
        rig.clock.pass_by(100)
        stream = PieceStream(request(), response(status, end=True, etag='"1"'))

        async def lose(written: int) -> None:
            async def fetch(_digest: bytes) -> None:
                return None

            if written == 1:
                rig.warm.fetch = fetch  # type: ignore[attr-defined]

        stream.on_write = lose
        await talk(rig, stream)
        reply = ProcessingResponse.FromString(stream.raw[1])
        assert reply.WhichOneof("response") == kind
        assert reply.immediate_response.status.code == code
