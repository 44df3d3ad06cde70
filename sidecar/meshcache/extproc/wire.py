"""Envoy's ext_proc messages to plain types, and replies to bytes.

Replies are built once where they can be: constants at import, stored responses at their first hit. What changes
from one hit to the next (`age`, `cache-status`) is appended: protobuf merges a message that is followed by another
of the same type, so the appended bytes add header fields to the reply before them.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse

from meshcache.extproc import verified
from meshcache.extproc.bounds import room
from meshcache.extproc.protobuf import delimited, varint
from meshcache.extproc.streamed import head as head
from meshcache.extproc.streamed import said
from meshcache.message import Headers, Peer, Request, Response
from meshcache.rfc.validation import not_modified_fields
from meshcache.wasm.marks import ASK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from envoy.service.ext_proc.v3.external_processor_pb2 import HeaderMutation, HeadersResponse
    from google.protobuf.struct_pb2 import Value

    from meshcache.engine.outcome import Answer, Forward, Pass
    from meshcache.engine.records import StoredResponse
    from meshcache.message import Field, Token


_HEADERS: Final = b"\x12"  # ImmediateResponse.headers (2)
_ATTRIBUTES = "envoy.filters.http.ext_proc"
_ORIGIN_DETAILS = "via_upstream"


class EnvoyRequest(Request):
    """A request whose attributes are read from Envoy's message only when they are asked for: most never are."""

    __slots__ = ("_message", "_peer", "_tokens")

    def __init__(self, message: ProcessingRequest) -> None:
        method = authority = path = ""
        scheme = "http"
        fields: list[Field] = []
        part = message.request_headers
        for header in part.headers.headers:
            name = header.key
            value = header.raw_value.decode("latin-1") or header.value
            if name[:1] != ":":
                fields.append((name, value))
            elif name == ":path":
                path = value
            elif name == ":method":
                method = value
            elif name == ":authority":
                authority = value
            elif name == ":scheme":
                scheme = value
        self.method = method
        self.authority = authority
        self.path = path
        self.scheme = scheme
        headers = Headers(fields)
        if message.HasField("metadata_context") and "authorization" not in headers.names:
            payload = verified.payload(message)
            if payload:
                headers = Headers((*fields, ("authorization", verified.stand_in(payload))))
        self.headers = headers
        self.complete = part.end_of_stream
        self.asked = None
        self._message = message
        self._peer: Peer | None = None
        self._tokens: tuple[Token, ...] | None = None

    @property
    def peer(self) -> Peer:  # type: ignore[override]  # read only, where the base has a plain attribute
        """See `Request`."""
        if self._peer is None:
            self._peer = _peer_of(self._message)
        return self._peer

    @property
    def cluster(self) -> str:  # type: ignore[override]
        """See `Request`."""
        return _text(_attributes_of(self._message), "xds.cluster_name")

    @property
    def tokens(self) -> tuple[Token, ...]:  # type: ignore[override]
        """See `Request`."""
        if self._tokens is None:
            self._tokens = verified.tokens(verified.payload(self._message))
        return self._tokens

    def has_room(self, fields: Iterable[Field]) -> bool:
        """See `Request`."""
        return room(self._message.request_headers, fields)


def request_of(message: ProcessingRequest) -> Request:
    """The request that a `request_headers` message describes."""
    return EnvoyRequest(message)


def response_of(message: ProcessingRequest) -> Response:
    """The response head that a `response_headers` message describes. A status that is no number becomes 0."""
    part = message.response_headers
    status = 0
    fields: list[Field] = []
    for header in part.headers.headers:
        name = header.key
        value = header.raw_value.decode("latin-1") or header.value
        if name[:1] != ":":
            fields.append((name, value))
        elif name == ":status" and len(value) == 3 and value.isdecimal():
            status = int(value)
    return Response(
        status=status, headers=Headers(fields), from_origin=_from_origin(message), complete=part.end_of_stream
    )


def _attributes_of(message: ProcessingRequest) -> Mapping[str, Value]:
    attributes = message.attributes
    return attributes[_ATTRIBUTES].fields if _ATTRIBUTES in attributes else {}


def _text(attributes: Mapping[str, Value], name: str) -> str:
    value = attributes.get(name)
    return "" if value is None else value.string_value


def _peer_of(message: ProcessingRequest) -> Peer:
    values = _attributes_of(message)
    address = _text(values, "source.address")
    mtls = values.get("connection.mtls")
    if mtls is None or not mtls.bool_value:
        return _peer_at(address)
    return Peer(
        _host(address),
        True,
        _text(values, "connection.uri_san_peer_certificate"),
        _text(values, "connection.dns_san_peer_certificate"),
        _text(values, "connection.subject_peer_certificate"),
    )


@lru_cache(maxsize=1024)
def _peer_at(address: str) -> Peer:
    """The peer at `address`, for all requests of its connection."""
    return Peer(_host(address))


def _host(address: str) -> str:
    """`address` without its port: `10.0.0.1:80` and `[::1]:80` as Envoy writes them."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        return address
    return host[1:-1] if host.startswith("[") else host


def _from_origin(message: ProcessingRequest) -> bool:
    """Whether the origin itself sent this response; False when Envoy made it, or did not say."""
    return _text(_attributes_of(message), "response.code_details") == _ORIGIN_DETAILS


# -- replies ---------------------------------------------------------------------------------------------------


def render(stored: StoredResponse) -> bytes:
    """The head of a hit, serialised once and kept beside the entry in process memory: status and stored fields."""
    return _head(stored.status, _typed(stored.fields) if stored.length else stored.fields)


def answer(outcome: Answer, mark: Field | None = None) -> bytes:
    """The reply that answers the client from what is stored; `mark` is for the filter in Envoy."""
    # The same for all hits of one second on one entry; a client's cookies are nobody else's, and not remembered.
    make = _added if outcome.cookies else _remembered_added
    added = make(outcome.age, outcome.cache_status, outcome.cookies)
    if mark is not None:
        added += delimited(_HEADERS, _header_option(*mark))
    stored = outcome.stored
    if outcome.not_modified:
        return _complete(_head(304, not_modified_fields(stored.fields)), added, b"")
    part = outcome.excerpt
    if part is not None:
        return _complete(_head(part.status, _typed(part.fields) if part.body else part.fields), added, part.body)
    head = outcome.rendered
    return _complete(render(stored) if head is None else head, added, stored.body)


def in_place(outcome: Answer, names: Iterable[str]) -> bytes:
    """The reply that makes the origin's head, which has fields of these names, that of an answer without a body."""
    fields = said(outcome, outcome.stored.length)
    kept = {*fields, "set-cookie"} if outcome.cookies else fields.keys()
    return continue_response(fields.items(), [name for name in names if name not in kept])


def _typed(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """The fields of an answer with a body. Without a `content-type` Envoy would make it text/plain.

    An empty one says as little as none: whoever reads it looks for himself.
    """
    if any(name == "content-type" for name, _ in fields):
        return fields
    return (*fields, ("content-type", ""))


def _head(status: int, fields: Iterable[Field]) -> bytes:
    options: list[bytes] = []
    seen: set[str] = set()
    for name, value in fields:
        options.append(_header_option(name, value, append=name in seen))
        seen.add(name)
    # ImmediateResponse.status (1) > HttpStatus.code (1): any HTTP status, not only the named ones; headers (2).
    said = delimited(b"\x0a", b"\x08" + varint(status))
    # ProcessingResponse.immediate_response (7)
    return delimited(b"\x3a", said + delimited(b"\x12", b"".join(options)) if options else said)


def _added(age: int | None, cache_status: str, cookies: tuple[str, ...]) -> bytes:
    """What is new in each hit, serialised."""
    options = [] if age is None else [_header_option("age", str(age))]
    if cache_status:
        options.append(_header_option("cache-status", cache_status))
    options += [_header_option("set-cookie", cookie, append=True) for cookie in cookies]
    return delimited(_HEADERS, b"".join(options))


_remembered_added = lru_cache(maxsize=4096)(_added)


def _complete(head: bytes, added: bytes, body: bytes) -> bytes:
    """`head` with the fields `added` and the body, by appending a second message of the same kind.

    204 and 304 must come with an empty body: Envoy writes whatever is there.
    """
    # ProcessingResponse.immediate_response (7)
    if not body:
        return head + delimited(b"\x3a", added)
    # ImmediateResponse.body (3). Joined once, so that a large body is copied once.
    prefix = b"\x1a" + varint(len(body))
    return b"".join((head, b"\x3a", varint(len(added) + len(prefix) + len(body)), added, prefix, body))


def continue_request(set_fields: Iterable[Field] = (), remove: Iterable[str] = (), *, watch: bool = True) -> bytes:
    """Let a request go to the origin; with `watch`, Envoy is to show the response's head."""
    reply = ProcessingResponse()
    _change(reply.request_headers, set_fields, remove)
    if watch:
        reply.mode_override.request_header_mode = ProcessingMode.SEND
        reply.mode_override.response_header_mode = ProcessingMode.SEND
    return _bytes(reply)


class See(Enum):
    """How much Envoy is to show of a response behind its head."""

    NOTHING = auto()
    END = auto()
    """Trailers, if there are any. Envoy keeps the stream until the client has all, or has left: seen with 1.40."""
    BODY = auto()
    """The body as it streams, and trailers."""


def continue_response(set_fields: Iterable[Field] = (), remove: Iterable[str] = (), see: See = See.NOTHING) -> bytes:
    """Let a response go to the client."""
    reply = ProcessingResponse()
    _change(reply.response_headers, set_fields, remove)
    if see is not See.NOTHING:
        reply.mode_override.response_header_mode = ProcessingMode.SEND
        reply.mode_override.response_trailer_mode = ProcessingMode.SEND
        if see is See.BODY:
            reply.mode_override.response_body_mode = ProcessingMode.STREAMED
    return _bytes(reply)


def hold(seconds: float) -> bytes:
    """The message that has Envoy wait `seconds` more for its reply; at most once before it."""
    reply = ProcessingResponse()
    reply.override_message_timeout.FromMilliseconds(max(1, int(seconds * 1000)))
    return _bytes(reply)


def _change(reply: HeadersResponse, set_fields: Iterable[Field], remove: Iterable[str]) -> None:
    set_fields, remove = tuple(set_fields), tuple(remove)
    reply.SetInParent()
    if set_fields or remove:
        # An empty mutation is one, too: Envoy checks the message against its bounds after it.
        _mutate(reply.response.header_mutation, set_fields, remove)


def _mutate(mutation: HeaderMutation, set_fields: Iterable[Field], remove: Iterable[str] = ()) -> None:
    for name, value in set_fields:
        option = mutation.set_headers.add()
        option.header.key = name
        option.header.raw_value = value.encode("latin-1")
    mutation.remove_headers.extend(remove)


def _constant(kind: str) -> bytes:
    reply = ProcessingResponse()
    getattr(reply, kind).SetInParent()
    return _bytes(reply)


def forward(outcome: Forward, *, marked: bool = False) -> bytes:
    """The reply that lets the request go to the origin, with validators where something stored may be used again.

    `marked` tells that the filter in Envoy has put a mark on it, which is not for the origin.
    """
    if not outcome.set_fields and not outcome.remove_fields:
        if marked:
            return WATCH_MARKED_REQUEST if outcome.watch else PASS_MARKED_REQUEST
        return WATCH_REQUEST if outcome.watch else PASS_REQUEST
    if len(outcome.set_fields) == 1 and not outcome.remove_fields:
        # As a rule what this cache can do, which is the same for all misses.
        name, value = outcome.set_fields[0]
        make = _remembered_forward if len(value) <= _MEMO_LONGEST else _forward_with
        return make(name, value, outcome.watch, marked)
    remove = [*outcome.remove_fields, ASK] if marked else outcome.remove_fields
    return continue_request(outcome.set_fields, remove, watch=outcome.watch)


def _forward_with(name: str, value: str, watch: bool, marked: bool) -> bytes:
    return continue_request(((name, value),), (ASK,) if marked else (), watch=watch)


_MEMO_LONGEST = 300
_remembered_forward = lru_cache(maxsize=256)(_forward_with)


def pass_on(outcome: Pass, see: See, mark: Field | None = None) -> bytes:
    """The reply that hands the origin's response to the client; `mark` is for the filter in Envoy."""
    if mark is not None:
        return _pass_on(outcome.cache_status, see, outcome.remove, mark)
    # Most responses of one route get the same words; what an origin has added to them may be long and is not kept.
    make = _remembered_pass if len(outcome.cache_status) <= _MEMO_LONGEST else _pass_on
    return make(outcome.cache_status, see, outcome.remove)


def _pass_on(cache_status: str, see: See, remove: tuple[str, ...], mark: Field | None = None) -> bytes:
    marks = () if mark is None else (mark,)
    if not cache_status:
        # Not what caches nearer to the origin say either.
        return continue_response(marks, ("cache-status", *remove), see)
    return continue_response((("cache-status", cache_status), *marks), remove, see)


_remembered_pass = lru_cache(maxsize=1024)(_pass_on)


def _bytes(reply: ProcessingResponse) -> bytes:
    serialised: bytes = reply.SerializeToString()
    return serialised


def _header_option(name: str, value: str, *, append: bool = False) -> bytes:
    # HeaderMutation.set_headers (1) > HeaderValueOption.header (1) > HeaderValue.key (1), raw_value (3)
    pair = _named(name)
    if value:
        raw = value.encode("latin-1")
        pair = b"".join((pair, b"\x1a", varint(len(raw)), raw))
    # HeaderValueOption.append (2) > BoolValue.value (1): one more line rather than the only one.
    more = b"\x12\x02\x08\x01" if append else b""
    length = varint(len(pair))
    return b"".join((b"\x0a", varint(1 + len(length) + len(pair) + len(more)), b"\x0a", length, pair, more))


@lru_cache(maxsize=512)
def _named(name: str) -> bytes:
    return delimited(b"\x0a", name.encode())


def _unavailable() -> bytes:
    reply = ProcessingResponse()
    reply.immediate_response.status.code = 503
    _mutate(reply.immediate_response.headers, (("cache-control", "no-store"), ("retry-after", "0")))
    return _bytes(reply)


UNAVAILABLE = _unavailable()
"""For who cannot have the stored answer after all when there is no other: the origin has said 304 to our question."""
PASS_REQUEST = continue_request(watch=False)
WATCH_REQUEST = continue_request(watch=True)
PASS_MARKED_REQUEST = continue_request(remove=(ASK,), watch=False)
WATCH_MARKED_REQUEST = continue_request(remove=(ASK,), watch=True)
PASS_RESPONSE = continue_response()
UNCHANGED: Final = {see: continue_response(see=see) for see in See}
"""Hands a response on as it is."""
PASS_REQUEST_BODY = _constant("request_body")
PASS_RESPONSE_BODY = _constant("response_body")
PASS_REQUEST_TRAILERS = _constant("request_trailers")
PASS_RESPONSE_TRAILERS = _constant("response_trailers")
