"""What real Envoy makes of streamed immediate replies: the ground that answers out of chunks stand on."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import httpx
import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from envoy_rig import pass_on

from meshcache.decisions import Decision, TierName
from meshcache.engine.outcome import Answer
from meshcache.engine.records import StoredResponse
from meshcache.extproc import streamed, wire

pytestmark = pytest.mark.e2e

PIECE = b"p" * 262_144


def raw(message: bytes) -> ProcessingResponse:
    # The field is unknown to the class, which keeps and writes what it does not know.
    return ProcessingResponse.FromString(message)


def head(length: int, *fields: tuple[str, str], end: bool = False) -> ProcessingResponse:
    stored = StoredResponse(b"k", (), 200, fields, 0.0, 0.0, 0.0, False, b"", chunks=(b"d",), size=length)
    return raw(streamed.head(Answer(Decision.HIT, stored, TierName.COLD, 7, "meshcache; hit"), length, end=end))


def pieces(count: int, *, end: bool = True) -> list[ProcessingResponse]:
    return [raw(streamed.body(PIECE, end=end and number == count - 1)) for number in range(count)]


async def test_an_answer_in_pieces(make_rig: Any) -> None:
    rig = await make_rig()
    rig.sidecar.respond = lambda _: [head(3 * len(PIECE), ("vary", "a"), ("vary", "b")), *pieces(3)]
    answer = await rig.client.get("/a")
    assert answer.content == 3 * PIECE
    assert answer.headers["content-length"] == str(3 * len(PIECE))
    assert answer.headers["vary"] == "a, b"
    assert answer.headers["age"] == "7"
    assert "content-type" not in answer.headers, "none is made up"
    assert "transfer-encoding" not in answer.headers
    assert not rig.origin.heads
    # The connection goes on.
    assert (await rig.client.get("/b")).content == 3 * PIECE


async def test_head_takes_the_head_alone(make_rig: Any) -> None:
    rig = await make_rig()
    rig.sidecar.respond = lambda _: [head(12_345, end=True)]
    answer = await rig.client.head("/a")
    assert (answer.headers["content-length"], answer.content) == ("12345", b"")


async def test_it_may_follow_a_request_for_more_time(make_rig: Any) -> None:
    rig = await make_rig()
    rig.sidecar.respond = lambda _: [raw(wire.hold(1.0)), head(len(PIECE)), *pieces(1)]
    assert (await rig.client.get("/a")).content == PIECE


async def test_an_end_with_an_error_breaks_the_answer_off(make_rig: Any) -> None:
    rig = await make_rig()
    rig.sidecar.respond = lambda _: [head(5 * len(PIECE)), *pieces(2, end=False), grpc.StatusCode.DATA_LOSS]
    with pytest.raises(httpx.RemoteProtocolError):
        await rig.client.get("/a")


async def test_an_end_without_a_last_piece_leaves_the_client_waiting(make_rig: Any) -> None:
    # Why a lost chunk must not end the stream well.
    rig = await make_rig()
    rig.sidecar.respond = lambda _: [head(5 * len(PIECE)), *pieces(2, end=False)]
    with pytest.raises(httpx.ReadTimeout):
        await rig.client.get("/a", timeout=0.7)


async def test_once_the_origin_was_asked_it_is_not_taken(make_rig: Any) -> None:
    # Why what was validated is sent in one piece.
    rig = await make_rig()

    def respond(message: ProcessingRequest) -> Any:
        if message.WhichOneof("request") == "request_headers":
            return pass_on(message)
        return [head(len(PIECE)), *pieces(1)]

    rig.sidecar.respond = respond
    answer = await rig.client.get("/a")
    assert answer.content == b"ok", "the origin's answer"


async def test_all_pieces_are_taken_whatever_the_client_reads(make_rig: Any) -> None:
    # Why the large answers that are on their way are bounded.
    rig = await make_rig()
    rig.sidecar.respond = lambda _: [head(80 * len(PIECE)), *pieces(80)]
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.port, limit=1024)
    writer.write(b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n")
    async with asyncio.timeout(20):
        await rig.sidecar.sent_all.wait()
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(80 * len(PIECE)) == 80 * PIECE, "it is all there for him later"
    writer.close()
