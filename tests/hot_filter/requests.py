"""Hypothesis strategies: header fields, requests, answers, the way in which a body comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from hot_filter.world import Life

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from proxy_wasm import Pairs

PATHS = ("/", "/a", "/a?q=1", "/a?", "/b/c.html", "/a%2fb", "/a/../b", "/x;v=1", "/tested/a", "/off/a", "/nowhere")
HOT_PATHS = ("/a", "/", "/tested/a")
HOSTS = ("example.com", "EXAMPLE.com:80", "example.com.", "other.test:8080", "[::1]:80")

# What a request may have beside what any has: nothing special, special to the cache, or made to look so.
FIELDS: tuple[tuple[str, str], ...] = (
    ("accept", "text/html"),
    ("accept-language", "de"),
    ("accept-language", "en"),
    ("accept-language", ""),
    ("accept-encoding", "gzip"),
    ("accept-encoding", "br, gzip"),
    ("authorization", "Bearer x"),
    ("cache-control", "no-cache"),
    ("cache-control", "max-age=0"),
    ("content-type", "application/grpc"),
    ("content-type", "application/grpc-web"),
    ("cookie", "session=1"),
    ("forwarded", "host=evil.test"),
    ("if-match", '"1"'),
    ("if-modified-since", "Mon, 01 Jan 2024 00:00:00 GMT"),
    ("if-none-match", '"1"'),
    ("if-none-match", 'W/"2", "3"'),
    ("if-none-match", "*"),
    ("if-none-match", "\xff,,"),
    ("pragma", "no-cache"),
    ("range", "bytes=0-1"),
    ("te", "trailers"),
    ("upgrade", "websocket"),
    ("x-cache-status", "key"),
    ("x-canary", "v2"),
    ("x-forwarded-host", "evil.test"),
    ("x-forwarded-proto", "http"),
    ("x-forwarded-proto", "https"),
    ("x-http-method-override", "DELETE"),
    ("x-http-method-override", "GET"),
    ("x-http-method-override", "GET\xa0"),
    ("x-http-method", ""),
    ("x-http-method", "options"),
    ("x-method_override", "PATCH"),
    ("x-original-url", "/admin"),
    ("x-user-id", "alice"),
    ("x-user-id", "bob"),
    ("x-user-score", "0.9"),
)
_FORGED_WORDS = "v1 0123456789abcdef " + "0" * 64
FORGED: tuple[tuple[str, str], ...] = (
    ("x-meshcache-ask", f"{_FORGED_WORDS} miss " + "0" * 32),
    ("x-meshcache-ask", ""),
    ("x-meshcache-drop", f"{_FORGED_WORDS} * " + "0" * 32),
    ("x-meshcache-keep", f"{_FORGED_WORDS} 0 9999999999999 9999999999999 9999999999999 0 1 {'0' * 16} - " + "0" * 32),
    ("x-meshcache-skip", "1"),
)

any_bytes = st.binary(max_size=40)
MOST_FIELDS = 128
"""`fields.most` of the filter."""


def plain_requests() -> SearchStrategy[tuple[str, str, str, list[tuple[str, str]]]]:
    """Method, host, path and fields of requests that a cache often meets."""
    return st.tuples(
        st.sampled_from(("GET", "GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "DELETE", "get", "PURGE")),
        st.sampled_from((*HOSTS[:1] * 4, *HOSTS)),
        st.sampled_from((*PATHS[:4] * 2, *PATHS)),
        st.lists(st.sampled_from(FIELDS), max_size=3),
    )


def hot_requests() -> SearchStrategy[tuple[str, str, str, list[tuple[str, str]]]]:
    """The same with less variety, so that many are for what is stored."""
    common = tuple(item for item in FIELDS if item[0] in ("accept-language", "cookie", "if-none-match", "x-user-id"))
    return st.tuples(
        st.sampled_from(("GET", "GET", "GET", "GET", "HEAD", "GET", "POST")),
        st.just(HOSTS[0]),
        st.sampled_from((*HOT_PATHS[:1] * 2, *HOT_PATHS)),
        st.one_of(st.just([]), st.just([]), st.lists(st.sampled_from(common), max_size=1)),
    )


def wild_pairs() -> SearchStrategy[Pairs]:
    """Any list of fields that the ABI can say: pseudo-headers missing or twice, bytes of any kind, hundreds, long."""
    names = st.one_of(
        st.sampled_from([name.encode() for name, _ in FIELDS]),
        st.sampled_from([b":method", b":path", b":authority", b":scheme", b":status", b"", b"cookie", b"\xff"]),
        any_bytes,
    )
    values = st.one_of(
        st.sampled_from([value.encode("latin-1") for _, value in FIELDS]),
        st.sampled_from([b"GET", b"HEAD", b"POST", b"/", b"/a", b"*", b"example.com", b"http", b""]),
        any_bytes,
    )
    base = st.sampled_from(
        (
            [],
            [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"example.com"), (b":path", b"/a")],
            [(b":method", b"HEAD"), (b":scheme", b"http"), (b":authority", b"example.com"), (b":path", b"/a")],
            [(b":method", b"DELETE"), (b":scheme", b"http"), (b":authority", b"example.com"), (b":path", b"/a")],
        )
    )
    more = st.lists(st.tuples(names, values), max_size=6)
    many = st.sampled_from((0, 0, 0, 60, 123, 124, 125, 130, 246)).map(
        lambda count: [(b"x-%d" % number, b"v") for number in range(count)]
    )
    long = st.sampled_from((0, 0, 0, 300, 8_193, 16_384, 61_440, 70_000)).map(
        lambda size: [(b"x-long", b"l" * size)] if size else []
    )
    long_path = st.sampled_from((0, 0, 0, 0, 2_000, 8_192, 50_000)).map(
        lambda size: [(b":path", b"/" + b"p" * size)] if size else []
    )
    return st.tuples(base, long_path, more, many, long).map(_joined)


def _joined(parts: tuple[Pairs, ...]) -> Pairs:
    pairs: Pairs = []
    for part in parts:
        # A second `:path` takes the place of the first: Envoy's map holds one.
        names = {name for name, _ in part if name.startswith(b":")}
        pairs = [item for item in pairs if item[0] not in names]
        pairs.extend(part)
    if len(pairs) <= MOST_FIELDS:
        return pairs
    # Of more than are looked at, the filter asks for single ones: Envoy has no two of these to choose from.
    last = {name: place for place, (name, _) in enumerate(pairs) if name.startswith(b":")}
    return [item for place, item in enumerate(pairs) if last.get(item[0], place) == place]


def lives() -> SearchStrategy[Life]:
    """For how long an answer may be kept."""
    return st.builds(
        Life,
        fresh=st.sampled_from((-5.0, 0.0, 0.5, 5.0, 60.0, 3600.0)),
        stale=st.sampled_from((0.0, 0.0, 2.0, 30.0)),
        drop=st.sampled_from((None, None, 1.0, 0.0, -1.0)),
        renew=st.sampled_from((None, None, -1.0, 0.2, 3.0)),
        age=st.sampled_from((0.0, 0.0, 1.5, 100.0)),
        tags=st.sampled_from(((), ("one",), ("one", "two"))),
        vary=st.sampled_from(((), (), ("accept-language",), ("accept-language", "cookie"), ("x-absent",))),
        for_cookies=st.sampled_from((True, True, False)),
    )


def answer_fields() -> SearchStrategy[Pairs]:
    """Fields of an answer, some of which are not to be stored."""
    return st.lists(
        st.sampled_from(
            (
                (b"age", b"7"),
                (b"cache-control", b"max-age=60"),
                (b"cache-status", b"origin; hit"),
                (b"content-type", b"text/html"),
                (b"date", b"Mon, 01 Jan 2024 00:00:00 GMT"),
                (b"link", b"</a>"),
                (b"link", b"</b>"),
                (b"set-cookie", b"a=1"),
                (b"set-cookie", b"b=2"),
                (b"x-empty", b""),
                (b"x-envoy-upstream-service-time", b"3"),
                (b"x-odd", b"\xff\x80"),
            )
        ),
        max_size=4,
    )


def bodies() -> SearchStrategy[bytes]:
    """Bodies, short and long. An empty one stands for one that the world makes up."""
    sizes = st.sampled_from((0, 0, 0, 1, 100, 4_000, 70_000))
    return st.tuples(sizes, st.integers(0, 255)).map(lambda found: bytes([found[1]]) * found[0])


def pieces() -> SearchStrategy[list[int]]:
    """How a body is split; the rest of it comes in one piece."""
    return st.lists(st.sampled_from((0, 0, 1, 2, 100, 5_000, 66_000)), max_size=5)
