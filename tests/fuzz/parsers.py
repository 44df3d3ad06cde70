"""Everything that reads what comes from outside, each as a function of one text or one run of bytes.

A parser that is new belongs here; for modules of `rfc/` a test insists on it. What needs more than one text (a request
and a response) gets the same text in every place where it could stand.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest
from google.protobuf.message import DecodeError
from starlette.requests import Request as StarletteRequest

from filter_batches import Hit, batch
from meshcache.engine import admission, key, paths, purges
from meshcache.extproc import control, wire
from meshcache.extproc.filter_feed import poll_of
from meshcache.extproc.purger import PurgeRequest
from meshcache.message import Headers, Peer, Request, split_authority
from meshcache.observe import logs
from meshcache.policy import documents, snapshot, trust, units
from meshcache.policy.compile import compile_documents
from meshcache.policy.compiled import TARGETS, Condition, KeySpec, Match, UnitSource
from meshcache.policy.errors import PolicyErrors
from meshcache.policy.identity import Identities, IdentityRules, IdentitySource
from meshcache.policy.routing import RouteIndex
from meshcache.process import StartError, parse_address
from meshcache.rfc import (
    age,
    cache_control,
    cache_status,
    entity_tag,
    fields,
    freshness,
    hop_by_hop,
    invalidation,
    multipart,
    negotiation,
    ranges,
    request,
    spelling,
    storing,
    structured,
    tags,
    targeted,
    validation,
    vary,
)
from meshcache.rpc.calls import CallReader
from meshcache.rpc.frames import ConnectionFault
from meshcache.tiers.envelope import BadEnvelope, front_of, unseal
from meshcache.tiers.purge_log import LogReader
from meshcache.tiers.signing import Keyring
from meshcache.wasm import feed, marks, numbers
from policy_texts import SECRET
from rpc_peer import OPENING, opens
from rpc_peer import Peer as Http2Client

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

NOW = 1_700_000_000.0
STORAGE_KEY = b"s" * 32
KEYRING = Keyring([b"k" * 32], SECRET)


_ROUTES = RouteIndex(
    (match, number)
    for number, match in enumerate(
        (
            Match(hosts=("*.a.b",), query=(Condition("a", "1"), Condition("b", ".*x", regex=True))),
            Match(regex="/(a*)*b|/v1/.*/.*[0-9]+", headers=(Condition("a", "(.*,)*1", regex=True),)),
            Match(regex="/.*a.{10}"),
            Match(prefix="/v1/a", headers=(Condition("a", "1"), Condition("b", "1"))),
            Match(query=(Condition("a", "(a|aa)+", regex=True),)),
        )
    )
)


_OPENING, _CALL = OPENING.decode("latin-1"), opens(1).decode("latin-1")
_BATCH = batch(1, 1, [Hit(), Hit(b"u" * 16)])


@dataclass(frozen=True)
class Parser:
    """One reader of outside input."""

    name: str
    read: Callable[[Any], object]
    modules: tuple[ModuleType, ...] = ()
    """The modules of `rfc/` whose work this is."""
    starts: tuple[str, ...] = ("",)
    """Beginnings that lead past the first check."""
    raises: tuple[type[Exception], ...] = ()
    """What it is documented to raise."""
    binary: bool = False
    longest: int | None = None
    """Longer inputs are never given to it (characters)."""

    def __str__(self) -> str:
        return self.name


def _headers(*names: str) -> Callable[[str], Headers]:
    return lambda text: Headers((name, text) for name in names)


_JUDGED = ("cache-control", "expires", "date", "age", "etag", "last-modified", "vary", "connection", "content-range")


def _store(text: str) -> object:
    headers = _headers(*_JUDGED, "content-length")(text)
    directives = cache_control.CacheControl.parse(text)
    reason = storing.no_store_reason(
        method="GET",
        request_headers=_headers("authorization", "cache-control")(text),
        request_cc=directives,
        status=200,
        response_headers=headers,
        response_cc=directives,
        has_lifetime=False,
    )
    return reason, storing.storable_fields(headers, directives, response_time=NOW)


def _validate(text: str) -> object:
    asked = _headers("if-none-match", "if-modified-since", "if-range", "range")(text)
    stored = _headers("etag", "last-modified", "date", "vary")(text).fields
    return (
        validation.add_validators(asked, 200, stored, now=NOW),
        validation.validates(stored, Headers(stored), now=NOW),
        validation.not_modified(asked, stored, 200, response_time=NOW),
        validation.freshened(stored, _headers(*_JUDGED)(text), targets=TARGETS, response_time=NOW),
        validation.confirmed_by_head(stored, 1, _headers("etag", "last-modified", "content-length")(text), now=NOW),
    )


def _wanted(text: str) -> object:
    specs = ranges.parse_range(text) or ()
    return [ranges.coalesced(ranges.satisfiable(specs, length)) for length in (0, 1, 1000)]


def _if_range(text: str) -> object:
    stored = _headers("etag", "last-modified", "date")(text).fields
    return ranges.if_range_holds(text, stored, response_time=NOW), ranges.strong_validator(stored, response_time=NOW)


def _parts(text: str) -> object:
    content = text.encode("utf-8", "replace")
    part = ranges.ByteRange(0, max(0, len(content) - 1)), content
    return multipart.multipart_byteranges([part, part], total=None, content_type=text)


def _targeted(text: str) -> object:
    return [targeted.response_directives(_headers(name)(text), TARGETS) for name in TARGETS], targeted.capability(
        _headers("surrogate-capability")(text), TARGETS
    )


def _prefer(text: str) -> object:
    forms = [negotiation.canonical(name, text) for name in sorted(negotiation.NEGOTIATED)]
    return forms, negotiation.accepts_codings(text, negotiation.content_codings(text))


def _invalidate(text: str) -> object:
    headers = _headers("location", "content-location")(text)
    return invalidation.other_targets(scheme="http", authority="a.b", path="/x", response_headers=headers)


def _request(**more: Any) -> Request:
    values: dict[str, Any] = {"method": "GET", "authority": "a.b", "path": "/", "headers": Headers()}
    return Request(**values | more)


def _key(text: str, spec: KeySpec, request: Callable[[str], Request]) -> object:
    return key.cache_key(request(text), spec, namespace=b"n", revision="r")


def _purge(text: str) -> object:
    """A value that is refused by one kind may be taken by another."""
    values = []
    for kind in purges.PurgeKind:
        for start in ("", "https://", "https://a.b/", "/"):
            with contextlib.suppress(ValueError):
                values.append(purges.parse_value(kind, start + text))
    return values


_PURGE_REQUEST = msgspec.json.Decoder(PurgeRequest)


def _purge_request(data: bytes) -> object:
    """The body of a request to the admin API, as the supervisor takes it."""
    return _PURGE_REQUEST.decode(data).rules(lambda: SECRET, NOW, lambda: "uid")


def _purge_log(data: bytes) -> object:
    """A pod's log of purges, as every worker reads it."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return LogReader(Path(file.name)).read()


def _borders(text: str) -> object:
    """Who a request is from, by fields and certificate."""
    request = _request(headers=_headers("cookie")(text), peer=Peer("10.0.0.1", mtls=True, uri=text, dns=text))
    return [identities.border(request, spec) for identities in _IDENTITIES for spec in _BORDERED]


def _with_field(*names: str) -> Callable[[str], Request]:
    return lambda text: _request(headers=_headers(*names)(text))


def _admit(text: str) -> object:
    names = ("content-type", "x-http-method-override", "upgrade", "range")
    return [admission.bypass_reason(_request(headers=_headers(name)(text))) for name in names], admission.bypass_reason(
        _request(path=text, authority=text, method=text)
    )


def _http2(data: bytes) -> object:
    """A connection of Envoy's, until it is lost."""

    async def take() -> int:
        peer = Http2Client(opening=b"")
        peer.send(data)
        await peer.settled()
        peer.lose()
        await peer.settled()
        return peer.begun

    return asyncio.run(take())


def _message(data: bytes) -> ProcessingRequest:
    """As a stream reads it; what is no message ends its stream, and reaches no more of the code."""
    return ProcessingRequest.FromString(data)


def _converse(data: bytes) -> object:
    message = _message(data)
    asked = wire.request_of(message)
    return asked.peer, asked.cluster, asked.tokens, wire.response_of(message), admission.bypass_reason(asked)


def _lines(text: str) -> Request:
    """A request with a field line for each part of `text` between commas."""
    names = ("cookie", "accept", "vary", "x-tenant")
    return _request(headers=Headers((names[at % 4], part) for at, part in enumerate(text.split(","))))


def _envoys(text: str) -> object:
    """A message of Envoy with a header for each part of `text` between commas."""
    message = ProcessingRequest()
    for part in text.split(","):
        header = message.request_headers.headers.headers.add()
        header.key, header.raw_value = part, part.encode("utf-8", "replace")
    return wire.request_of(message)


def _compile(text: str) -> object:
    return compile_documents(documents.Documents.of([("f.yaml", text)]), generation=1, secret=SECRET)


def _control(data: bytes) -> object:
    return control.TO_WORKER.decode(data), control.FROM_WORKER.decode(data)


def _cors(text: str) -> tuple[Headers, Headers]:
    return _headers("vary", "access-control-allow-origin")(text), _headers("origin")(text)


_SOURCES = [IdentitySource("cookie", "sid"), *(IdentitySource("mtlsPeer", part) for part in ("uri", "dns", "subject"))]
_IDENTITIES = [Identities(IdentityRules(source, source, source), SECRET) for source in _SOURCES]
_BORDERED = (
    KeySpec(partition_tenant=True, fingerprint=b"3"),
    KeySpec(partition_subject=True, fingerprint=b"4"),
    KeySpec(partition_session=True, fingerprint=b"5"),
)
_UNITS = (UnitSource("header", "x-user"), UnitSource("cookie", "sid"))
_SORTED = KeySpec(query_exclude=("utm_*", "x"), query_sort=True, fingerprint=b"1")
_PARTS = KeySpec(headers=("accept",), cookies=("a", "b"), partition_headers=("x-tenant",), fingerprint=b"2")


def _marks(text: str) -> None:
    """A mark as anybody writes it, and as who knows the secret does."""
    secret = bytes(32)
    for name, parse in ((marks.ASK, marks.parse_ask), (marks.KEEP, marks.parse_keep), (marks.DROP, marks.parse_drop)):
        parse(text, secret)
        with contextlib.suppress(UnicodeEncodeError):
            # A header field is never anything else.
            parse(f"{text} {marks.proof(name, text, secret)}", secret)


def _poll(text: str) -> None:
    query = text.encode("utf-8", "surrogatepass")
    poll_of(StarletteRequest({"type": "http", "query_string": query, "headers": [(b"if-none-match", query)]}))


PARSERS: tuple[Parser, ...] = (
    Parser("is_token", fields.is_token, (fields,)),
    Parser("is_field_value", fields.is_field_value, (fields,)),
    Parser("split_commas", fields.split_commas, (fields,)),
    Parser("split_list without escapes", partial(fields.split_list, escapes=False), (fields,)),
    Parser("unquote", lambda text: fields.unquote(f'"{text}"'), (fields,)),
    Parser("delta_seconds", fields.delta_seconds, (fields,)),
    Parser("http_date", partial(fields.http_date, now=NOW), (fields,), ("", "Sunday, ", "Sun, 06 Nov ")),
    Parser(
        "cache_control",
        cache_control.CacheControl.parse,
        (cache_control, request, freshness),
        ("", "no-cache=", 'private="', "max-age=", 'max-stale="'),
    ),
    Parser("targeted", _targeted, (targeted,), ("", "max-age=", 'private="', "a=(", "a=:", "max-age=1;")),
    Parser("structured dictionary", structured.dictionary, (structured,), ("", "a=", 'a="', "a=(", "a=:", "a;b=")),
    Parser("preferences", _prefer, (negotiation,), ("", "en;q=", "text/html;level=", "gzip;")),
    Parser(
        "last-modified",
        lambda text: freshness.heuristic_lifetime(200, last_modified=text, date=text, response_time=NOW, fraction=0.1),
        (freshness,),
    ),
    Parser(
        "tags",
        lambda text: tags.response_tags(_headers("cache-tag", "surrogate-key", "xkey")(text)),
        (tags,),
        longest=16384,
    ),
    Parser("tag", tags.is_tag, (tags,)),
    Parser("vary", vary.parse_vary, (vary,)),
    Parser("selecting values", lambda text: vary.selecting_values(("a",), _headers("a")(text)), (vary,)),
    Parser("entity tag", entity_tag.parse_entity_tag, (entity_tag,), ("", 'W/"', '"')),
    Parser("entity tags", entity_tag.parse_entity_tags, (entity_tag,), ("", 'W/"', '"')),
    Parser("age", age.age_value, (age,)),
    Parser("connection", lambda text: hop_by_hop.hop_by_hop_names(_headers("connection")(text)), (hop_by_hop,)),
    Parser(
        "expires",
        lambda text: freshness.explicit_lifetime(cache_control.EMPTY, expires=text, date=text, response_time=NOW),
        (freshness,),
    ),
    Parser("range", _wanted, (ranges,), ("", "bytes=", "bytes=0-1,")),
    Parser("if-range", _if_range, (ranges,), ("", 'W/"', '"')),
    Parser("content-range", ranges.parse_content_range, (ranges,), ("", "bytes ", "bytes 0-")),
    Parser("multipart", _parts, (multipart,)),
    Parser("what is stored", _store, (storing,)),
    Parser("validation", _validate, (validation,), ("", 'W/"')),
    Parser("location", _invalidate, (invalidation,), ("", "http://", "//", "http://a.b/", "http://[")),
    Parser("cache-status of others", lambda text: cache_status.append(text, cache_status.hit()), (cache_status,)),
    Parser("cache-status detail", lambda text: cache_status.hit(detail=text), (cache_status,)),
    Parser("authority", split_authority, (), ("", "[")),
    Parser("key: path", lambda text: _key(text, KeySpec(), lambda t: _request(path=f"/{t}"))),
    Parser("key: query", lambda text: _key(text, _SORTED, lambda t: _request(path=f"/?{t}"))),
    Parser("key: authority", lambda text: _key(text, KeySpec(), lambda t: _request(authority=t)), (), ("", "[")),
    Parser("key: fields", lambda text: _key(text, _PARTS, _with_field("accept", "cookie", "x-tenant"))),
    Parser("key: many lines", lambda text: _key(text, _PARTS, _lines)),
    Parser("ext_proc headers", _envoys),
    Parser("key: retargeting", lambda text: _key(text, KeySpec(), _with_field(*sorted(key.RETARGETING)))),
    Parser("names with underscores", lambda text: spelling.lookalikes("x-a", Headers([(text, text)])), (spelling,)),
    Parser("ambiguous path", paths.ambiguous, (), ("", "/", "/%", "/..;", "/%25")),
    Parser("type of a path", lambda text: paths.type_mismatch(text, text), (), ("", "/a.css", "/%2e", "text/")),
    Parser("type of a file", lambda text: paths.type_mismatch("/a.css", text), (), ("", "text/")),
    Parser("answer for an origin", lambda text: vary.selecting_names(*_cors(text)), (vary,)),
    Parser("purge", _purge),
    Parser(
        "purge request",
        _purge_request,
        starts=("", '{"tags": ["', '{"urls": ["http://'),
        raises=(ValueError, msgspec.DecodeError),
        binary=True,
    ),
    Parser("log of purges", _purge_log, starts=("", "MCPURGE1"), raises=(ValueError,), binary=True),
    Parser("border", _borders, starts=("", "sid=")),
    Parser("key material", key.key_parts, starts=("", "2:k1"), binary=True),
    Parser("route: path", lambda text: _ROUTES.find("h", f"/{text}", "GET", Headers()), (), ("", "v1/", "%2e")),
    Parser("route: query", lambda text: _ROUTES.find("h", f"/?{text}", "GET", Headers()), (), ("", "a=", "a&")),
    Parser("route: fields", lambda text: _ROUTES.find(text, "/", text, _headers("a", "b")(text)), (), ("", "[")),
    Parser("admission", _admit, (), ("", "application/grpc")),
    Parser("score", snapshot.parse_score),
    Parser("unit", lambda text: snapshot.unit_of(_UNITS, Request("GET", "h", "/", _headers("x-user", "cookie")(text)))),
    Parser("policy file", partial(documents.parse_file, "f.yaml"), (), ("", "kind: ", "- ", "a: [", "a: {", "|")),
    Parser("policies", _compile, (), ("", "apiVersion: meshcache.dev/v1alpha1\nkind: "), (PolicyErrors,)),
    Parser("duration", units.parse_duration, raises=(ValueError,)),
    Parser("quantity", units.parse_quantity, raises=(ValueError,)),
    Parser("percent", units.parse_percent, raises=(ValueError,)),
    Parser("network", trust.parse_network, raises=(ValueError,)),
    Parser("address", lambda text: parse_address(text, "--listen"), (), ("", "["), (StartError,)),
    Parser("store URL in a log", logs.redact, (), ("", "redis://")),
    Parser("HTTP/2", _http2, starts=("", _OPENING, f"{_OPENING}{_CALL}", f"{_OPENING}{_CALL}\0\xff\xff"), binary=True),
    Parser("header block", lambda data: CallReader().read(data), raises=(ConnectionFault,), binary=True),
    Parser("ext_proc message", _converse, raises=(DecodeError,), binary=True),
    Parser(
        "envelope",
        lambda data: unseal(data, storage_key=STORAGE_KEY, keyring=KEYRING),
        starts=("", "MC\x02"),
        raises=(BadEnvelope,),
        binary=True,
    ),
    Parser("front of an envelope", front_of, starts=("", "MC\x02"), binary=True),
    Parser("mark of the filter", _marks, starts=("", "v1 ", f"v1 {'0' * 16} {'0' * 64} ")),
    Parser("answer of the feed", feed.decode, starts=("", "MCF1\x01\x00"), raises=(ValueError,), binary=True),
    Parser("poll of the filter", _poll, starts=("", "format=1&worker=", f"format=1&worker={'0' * 16}&")),
    Parser(
        "counts of the filter",
        numbers.decode,
        starts=("", "MCN1\x01\x00", _BATCH.decode("latin-1")),
        raises=(ValueError,),
        binary=True,
    ),
    Parser("control message", _control, raises=(msgspec.DecodeError, UnicodeDecodeError), binary=True),
)

NO_PARSERS = {
    "stale": "works on directives that are parsed",
    "validators": "asks only which fields are there",
}
"""Modules of `rfc/` that read no text, and why."""


def modules_with_parsers() -> set[str]:
    """The names of the modules of `rfc/` that the parsers above are the work of."""
    return {module.__name__.rpartition(".")[2] for parser in PARSERS for module in parser.modules}
