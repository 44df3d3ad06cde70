"""Envoy's messages to plain types, and replies to bytes that mean what they should."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from hypothesis import given
from hypothesis import strategies as st

from meshcache.decisions import BypassReason, Decision, MissReason, TierName
from meshcache.engine.outcome import Answer, Forward, Pass
from meshcache.engine.records import StoredResponse
from meshcache.extproc import wire
from meshcache.message import Headers, Peer

if TYPE_CHECKING:
    from collections.abc import Iterable

    Options = list[tuple[str, bytes, bool]]


def request_headers(
    fields: Iterable[tuple[str, bytes]] = (), attributes: dict[str, Any] | None = None, *, end: bool = True
) -> ProcessingRequest:
    message = ProcessingRequest()
    message.request_headers.end_of_stream = end
    for name, value in fields:
        message.request_headers.headers.headers.add(key=name, raw_value=value)
    if attributes is not None:
        message.attributes["envoy.filters.http.ext_proc"].update(attributes)
    return message


def response_headers(
    fields: Iterable[tuple[str, bytes]] = (), attributes: dict[str, Any] | None = None, *, end: bool = False
) -> ProcessingRequest:
    message = ProcessingRequest()
    message.response_headers.end_of_stream = end
    for name, value in fields:
        message.response_headers.headers.headers.add(key=name, raw_value=value)
    if attributes is not None:
        message.attributes["envoy.filters.http.ext_proc"].update(attributes)
    return message


def stored(fields: tuple[tuple[str, str], ...] = (), body: bytes = b"body", status: int = 200) -> StoredResponse:
    return StoredResponse(b"material", (), status, fields, 0.0, 0.0, 0.0, False, body)


def answer(response: StoredResponse, **changes: Any) -> ProcessingResponse:
    values: dict[str, Any] = {
        "age": 7,
        "cache_status": "meshcache; hit",
        "rendered": None,
        "not_modified": False,
    } | changes
    reply = wire.answer(Answer(Decision.HIT, response, TierName.HOT, **values))
    return parsed(reply)


def parsed(reply: bytes) -> ProcessingResponse:
    return ProcessingResponse.FromString(reply)


def options(mutation: Any) -> Options:
    """Each header that is set, with its raw value and whether it is appended."""
    return [(item.header.key, item.header.raw_value, item.append.value) for item in mutation.set_headers]


# -- what Envoy says ------------------------------------------------------------------------------------------------


def test_a_request() -> None:
    message = request_headers(
        [
            (":method", b"GET"),
            (":scheme", b"https"),
            (":authority", b"example.com"),
            (":path", b"/a?b=1"),
            ("accept", b"text/html"),
            ("cookie", b"a=1"),
            ("cookie", b"b=2"),
            (":protocol", b"websocket"),
        ],
        {"source.address": "10.1.2.3:4567", "connection.mtls": True, "xds.cluster_name": "app-v1"},
    )
    request = wire.request_of(message)
    assert (request.method, request.scheme, request.authority, request.path) == (
        "GET",
        "https",
        "example.com",
        "/a?b=1",
    )
    assert request.headers == Headers([("accept", "text/html"), ("cookie", "a=1"), ("cookie", "b=2")])
    assert (request.peer, request.cluster, request.complete) == (Peer("10.1.2.3", True), "app-v1", True)


def test_a_request_of_which_nothing_is_said() -> None:
    request = wire.request_of(request_headers(end=False))
    assert (request.method, request.scheme, request.authority, request.path) == ("", "http", "", "")
    assert (request.peer, request.cluster, request.complete) == (Peer(), "", False)


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.1.2.3:4567", "10.1.2.3"),
        ("[2001:db8::1]:80", "2001:db8::1"),
        ("[::ffff:10.0.0.1]:1", "::ffff:10.0.0.1"),
        ("/run/socket", "/run/socket"),
        ("", ""),
        ("10.1.2.3", "10.1.2.3"),
        (5.0, ""),
        (None, ""),
        (True, ""),
    ],
)
def test_the_peer_s_address(address: object, host: str) -> None:
    assert wire.request_of(request_headers(attributes={"source.address": address})).peer == Peer(host)


@pytest.mark.parametrize("mtls", [False, "true", 1.0, None])
def test_only_envoy_s_own_yes_means_mtls(mtls: object) -> None:
    assert not wire.request_of(request_headers(attributes={"connection.mtls": mtls})).peer.mtls


def test_attributes_of_another_filter_do_not_count() -> None:
    message = request_headers()
    message.attributes["another"].update({"source.address": "10.1.2.3:1", "connection.mtls": True})
    assert wire.request_of(message).peer == Peer()


@given(st.lists(st.tuples(st.sampled_from(["x-a", "x-b", "accept"]), st.binary(max_size=30)), max_size=8))
def test_any_octets_come_through_and_go_out_again(fields: list[tuple[str, bytes]]) -> None:
    request = wire.request_of(request_headers(fields))
    response = wire.response_of(response_headers(fields))
    assert request.headers == response.headers
    assert [(name, value.encode("latin-1")) for name, value in request.headers] == fields
    reply = parsed(wire.render(stored(request.headers.fields, body=b"")))
    out = options(reply.immediate_response.headers)
    assert [(name, value) for name, value, _ in out] == fields
    assert [append for *_, append in out] == [
        name in [other for other, _ in fields[:number]] for number, (name, _) in enumerate(fields)
    ]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"200", 200),
        (b"503", 503),
        (b"", 0),
        (b"abc", 0),
        (b"-20", 0),
        (b"+200", 0),
        (b"20.0", 0),
        ("²00".encode("latin-1"), 0),
        (b"9" * 5000, 0),
        (b" 200", 0),
    ],
)
def test_the_status_of_a_response(said: bytes, status: int) -> None:
    assert wire.response_of(response_headers([(":status", said)])).status == status


@pytest.mark.parametrize(
    ("attributes", "from_origin"),
    [
        ({"response.code_details": "via_upstream"}, True),
        ({"response.code_details": "no_healthy_upstream"}, False),
        ({"response.code_details": "direct_response"}, False),
        ({"response.code_details": ""}, False),
        ({"response.code_details": None}, False),
        ({}, False),
        (None, False),
    ],
)
def test_only_what_came_from_upstream_is_the_origin_s(attributes: dict[str, Any] | None, from_origin: bool) -> None:
    response = wire.response_of(response_headers([(":status", b"200")], attributes))
    assert response.from_origin is from_origin


def test_the_end_of_a_response_with_its_headers() -> None:
    assert wire.response_of(response_headers(end=True)).complete
    assert not wire.response_of(response_headers()).complete


# -- what is answered -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rendered", [True, False])
@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16_383, 16_384, 70_000, (2 << 20) + 1])
def test_a_hit_of_any_size(size: int, rendered: bool) -> None:
    response = stored((("content-type", "text/plain"), ("link", "<a>"), ("link", "<b>")), b"x" * size)
    reply = answer(response, rendered=wire.render(response) if rendered else None).immediate_response
    assert reply.status.code == 200
    assert len(reply.body) == size
    assert options(reply.headers) == [
        ("content-type", b"text/plain", False),
        ("link", b"<a>", False),
        ("link", b"<b>", True),
        ("age", b"7", False),
        ("cache-status", b"meshcache; hit", False),
    ]


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "x" * 200]), st.text(st.characters(max_codepoint=255))), max_size=4),
    st.binary(max_size=300),
    st.integers(0, 10**9),
    st.text(st.characters(max_codepoint=255), max_size=300),
    st.integers(200, 599),
)
def test_a_hit_put_together_from_parts_is_what_protobuf_would_write_at_once(
    fields: list[tuple[str, str]], body: bytes, age: int, cache_status: str, status: int
) -> None:
    fields = [("content-type", "text/plain"), *fields]
    whole = ProcessingResponse()
    immediate = whole.immediate_response
    immediate.status.code = status
    immediate.body = body
    seen = set()
    said = [("cache-status", cache_status)] if cache_status else []
    for name, value in (*fields, ("age", str(age)), *said):
        option = immediate.headers.set_headers.add()
        option.header.key = name
        option.header.raw_value = value.encode("latin-1")
        if name in seen:
            option.append.value = True
        seen.add(name)
    assert answer(stored(tuple(fields), body, status), age=age, cache_status=cache_status) == whole


@pytest.mark.parametrize("rendered", [True, False])
def test_a_304_has_no_body_and_leaves_out_what_the_client_has(rendered: bool) -> None:
    response = stored((("etag", '"1"'), ("content-type", "text/plain"), ("cache-control", "max-age=5")), b"body")
    reply = answer(response, not_modified=True, rendered=wire.render(response) if rendered else None)
    assert reply.immediate_response.status.code == 304
    assert reply.immediate_response.body == b""
    assert [name for name, *_ in options(reply.immediate_response.headers)] == [
        "etag",
        "cache-control",
        "age",
        "cache-status",
    ]


@pytest.mark.parametrize(
    ("fields", "body", "types"),
    [
        ((), b"<html>", [b""]),
        ((), b"", []),
        ((("content-type", "text/html"),), b"<html>", [b"text/html"]),
    ],
)
def test_what_has_no_type_is_not_text_plain(
    fields: tuple[tuple[str, str], ...], body: bytes, types: list[bytes]
) -> None:
    reply = answer(stored(fields, body=body)).immediate_response
    assert [value for name, value, _ in options(reply.headers) if name == "content-type"] == types


def test_an_answer_without_body_has_none() -> None:
    reply = answer(stored(status=204, body=b"")).immediate_response
    assert (reply.status.code, reply.body) == (204, b"")


# -- what is let through ----------------------------------------------------------------------------------------------


def test_a_request_goes_on_watched_or_not() -> None:
    forward = Forward(Decision.MISS, MissReason.URI_MISS)
    assert wire.forward(forward) == wire.WATCH_REQUEST
    bypass = Forward(Decision.BYPASS, BypassReason.PRECONDITION, watch=False)
    assert wire.forward(bypass) == wire.PASS_REQUEST
    watched = parsed(wire.WATCH_REQUEST)
    assert watched.WhichOneof("response") == "request_headers"
    assert watched.mode_override.response_header_mode == ProcessingMode.SEND
    assert watched.mode_override.response_body_mode == ProcessingMode.NONE
    assert not parsed(wire.PASS_REQUEST).HasField("mode_override")


def test_a_request_goes_on_with_validators() -> None:
    forward = Forward(Decision.REVALIDATE, MissReason.STALE, [("if-none-match", '"\xe9"')], ["if-modified-since"])
    reply = parsed(wire.forward(forward))
    mutation = reply.request_headers.response.header_mutation
    assert options(mutation) == [("if-none-match", b'"\xe9"', False)]
    assert list(mutation.remove_headers) == ["if-modified-since"]
    assert reply.mode_override.response_header_mode == ProcessingMode.SEND


def test_a_response_goes_on_copied_or_not() -> None:
    copied = parsed(wire.pass_on(Pass("meshcache; fwd=uri-miss; stored", copy=True), wire.See.BODY))
    assert options(copied.response_headers.response.header_mutation) == [
        ("cache-status", b"meshcache; fwd=uri-miss; stored", False)
    ]
    assert copied.mode_override.response_body_mode == ProcessingMode.STREAMED
    assert copied.mode_override.response_trailer_mode == ProcessingMode.SEND
    plain = parsed(wire.pass_on(Pass("meshcache; fwd=uri-miss"), wire.See.NOTHING))
    assert not plain.HasField("mode_override")


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (wire.PASS_REQUEST, "request_headers"),
        (wire.PASS_REQUEST_BODY, "request_body"),
        (wire.PASS_REQUEST_TRAILERS, "request_trailers"),
        (wire.PASS_RESPONSE, "response_headers"),
        (wire.PASS_RESPONSE_BODY, "response_body"),
        (wire.PASS_RESPONSE_TRAILERS, "response_trailers"),
    ],
)
def test_a_reply_that_changes_nothing(reply: bytes, kind: str) -> None:
    message = parsed(reply)
    assert message.WhichOneof("response") == kind
    changed = [
        descriptor.name
        for descriptor, value in getattr(message, kind).ListFields()
        if descriptor.name != "response" or value.ByteSize() > len(b"\x12\x00")
    ]
    assert changed == []
    assert not message.HasField("mode_override")


@pytest.mark.parametrize("cookies", [(), ("a=b",)])
def test_the_origin_s_head_becomes_another_one(cookies: tuple[str, ...]) -> None:
    stored = StoredResponse(
        b"k", (), 200, (("content-type", "a/b"), ("link", "<a>"), ("link", "<b>")), 0.0, 0.0, 0.0, False, b""
    )
    outcome = Answer(Decision.REVALIDATED, stored, TierName.HOT, 7, "meshcache; fwd=stale", cookies=cookies)
    names = ["content-type", "etag", "set-cookie"]
    change = parsed(wire.in_place(outcome, names)).response_headers.response.header_mutation
    assert options(change) == [
        (":status", b"200", False),
        ("content-type", b"a/b", False),
        ("link", b"<a>, <b>", False),
        ("content-length", b"0", False),
        ("age", b"7", False),
        ("cache-status", b"meshcache; fwd=stale", False),
    ]
    # A client's own cookies stay as they came.
    assert list(change.remove_headers) == (["etag"] if cookies else ["etag", "set-cookie"])
