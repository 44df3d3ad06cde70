"""Streamed immediate replies, read by classes that know them."""

from __future__ import annotations

import pytest
from envoy_data_plane.envoy.service.ext_proc.v3 import ProcessingResponse, StreamedImmediateResponse
from hypothesis import given
from hypothesis import strategies as st

from meshcache.decisions import Decision, TierName
from meshcache.engine.outcome import Answer, Excerpt
from meshcache.engine.records import StoredResponse
from meshcache.extproc import streamed


def answer(fields: tuple[tuple[str, str], ...] = (), excerpt: Excerpt | None = None) -> Answer:
    stored = StoredResponse(b"k", (), 200, fields, 0.0, 0.0, 0.0, False, b"", chunks=(b"d",), size=9, chunk_bytes=9)
    return Answer(Decision.HIT, stored, TierName.COLD, 7, "meshcache; hit", excerpt=excerpt)


def parsed(message: bytes) -> StreamedImmediateResponse:
    reply = ProcessingResponse.parse(message).streamed_immediate_response
    assert reply is not None
    return reply


def head_of(message: bytes) -> tuple[list[tuple[str, bytes]], bool]:
    head = parsed(message).headers_response
    assert head is not None
    assert head.headers is not None
    return [(pair.key, pair.raw_value) for pair in head.headers.headers], head.end_of_stream


def test_a_head_says_all_that_envoy_does_not_add() -> None:
    fields, end = head_of(streamed.head(answer((("content-type", "a/b"), ("x-a", "\xff"))), 9))
    assert fields == [
        (":status", b"200"),
        ("content-type", b"a/b"),
        ("x-a", b"\xff"),
        ("content-length", b"9"),
        ("age", b"7"),
        ("cache-status", b"meshcache; hit"),
    ]
    assert not end
    assert head_of(streamed.head(answer(), 9, end=True))[1]


def test_a_head_says_nothing_of_what_is_not_told() -> None:
    untold = answer((("x-a", "b"),))
    untold.cache_status, untold.age = "", None
    assert head_of(streamed.head(untold, 0, end=True))[0] == [
        (":status", b"200"),
        ("x-a", b"b"),
        ("content-length", b"0"),
    ]


@pytest.mark.parametrize(
    ("fields", "status", "method", "alone"),
    [
        ((("content-type", "a/b"),), 200, "GET", True),
        ((("content-type", "a/b"),), 301, "GET", True),
        ((), 404, "HEAD", True),
        ((), 200, "GET", False),
        ((("content-type", "a/b"),), 204, "HEAD", False),
    ],
)
def test_what_has_no_content_is_a_head_alone_where_it_would_lose_something(
    fields: tuple[tuple[str, str], ...], status: int, method: str, alone: bool
) -> None:
    stored = StoredResponse(b"k", (), status, fields, 0.0, 0.0, 0.0, False, b"")
    empty = Answer(Decision.HIT, stored, TierName.HOT, 7, "meshcache; hit")
    assert streamed.is_head_alone(empty, method) is alone
    empty.not_modified = True
    assert not streamed.is_head_alone(empty, method)
    part = Excerpt(416, (("content-range", "bytes */0"),), b"")
    assert not streamed.is_head_alone(Answer(Decision.HIT, stored, TierName.HOT, 7, "", excerpt=part), method)
    whole = StoredResponse(b"k", (), status, fields, 0.0, 0.0, 0.0, False, b"x")
    assert not streamed.is_head_alone(Answer(Decision.HIT, whole, TierName.HOT, 7, ""), method)


def test_lines_of_one_name_become_one() -> None:
    fields, _ = head_of(streamed.head(answer((("vary", "a"), ("link", "<x>"), ("vary", "b"))), 9))
    assert [pair for pair in fields if pair[0] in ("vary", "link")] == [("vary", b"a, b"), ("link", b"<x>")]


def test_a_part_has_its_own_status_and_fields() -> None:
    part = Excerpt(206, (("content-range", "bytes 0-1/9"),), b"", (0, 2))
    fields, _ = head_of(streamed.head(answer((("content-type", "a/b"),), part), 2))
    assert fields[:3] == [(":status", b"206"), ("content-range", b"bytes 0-1/9"), ("content-length", b"2")]


@given(st.binary(max_size=300), st.booleans())
def test_pieces(data: bytes, end: bool) -> None:
    body = parsed(streamed.body(data, end=end)).body_response
    assert body is not None
    assert (body.body, body.end_of_stream) == (data, end)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 128, 16_383, 16_384, 262_144, 2_097_152])
def test_pieces_of_lengths_at_which_a_length_takes_one_byte_more(size: int) -> None:
    body = parsed(streamed.body(b"x" * size, end=True)).body_response
    assert body is not None
    assert body.body == b"x" * size
