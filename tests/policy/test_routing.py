"""Which route wins: the Gateway API's precedence, and that the index agrees with the plain account of it."""

from __future__ import annotations

import time
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcache.message import Headers, Request
from meshcache.policy.compiled import Condition, Match
from meshcache.policy.patterns import as_sent
from meshcache.policy.reasons import mismatch, rank
from meshcache.policy.routing import RouteIndex, host_of, prefix_fits


def find(matches: dict[str, Match], target: str, host: str = "h", method: str = "GET", **headers: str) -> str | None:
    index = RouteIndex((match, name) for name, match in matches.items())
    fields = Headers((name.replace("_", "-"), value) for name, value in headers.items())
    return index.find(host, target, method, fields)


@pytest.mark.parametrize(
    ("authority", "host"),
    [
        ("API.Example.com", "api.example.com"),
        ("api.example.com:8443", "api.example.com"),
        ("api.example.com.", "api.example.com"),
        ("api.example.com.:80", "api.example.com"),
        ("[::1]:80", "[::1]"),
        ("[::1]", "[::1]"),
        ("", ""),
        (":", ""),
        ("[::1", "[::1]"),
        ("[", "["),
        ("a" * 300, ""),
    ],
)
def test_hosts(authority: str, host: str) -> None:
    assert host_of(authority) == host


@pytest.mark.parametrize(
    ("prefix", "path", "fits"),
    [
        ("/v1", "/v1", True),
        ("/v1", "/v1/", True),
        ("/v1", "/v1/x", True),
        ("/v1", "/v10", False),
        ("/v1", "/V1", False),
        ("/v1", "/", False),
        ("", "/anything", True),
        ("", "*", False),
    ],
)
def test_a_prefix_is_of_whole_segments(prefix: str, path: str, fits: bool) -> None:
    assert prefix_fits(prefix, path) is fits
    assert (find({"r": Match(prefix=prefix)}, path) == "r") is fits


def test_the_path_is_matched_without_its_query() -> None:
    routes = {"exact": Match(exact="/a"), "prefix": Match(prefix="/a")}
    assert find(routes, "/a?x=/b") == "exact"
    assert find(routes, "/a/b?x") == "prefix"
    assert find(routes, "/b?/a") is None
    assert find(routes, "?/a") is None


def test_precedence() -> None:
    routes = {
        "any": Match(),
        "short": Match(prefix="/v1"),
        "long": Match(prefix="/v1/images"),
        "long-get": Match(prefix="/v1/images", methods=frozenset({"GET"})),
        "long-header": Match(prefix="/v1/images", headers=(Condition("a", "1"),)),
        "long-headers": Match(prefix="/v1/images", headers=(Condition("a", "1"), Condition("b", "2"))),
        "long-again": Match(prefix="/v1/images"),
        "exact": Match(exact="/v1/images/7", methods=frozenset({"GET"})),
    }
    assert find(routes, "/") == "any"
    assert find(routes, "/v1/x") == "short"
    assert find(routes, "/v1/images") == "long-get"
    assert find(routes, "/v1/images", method="POST") == "long"
    assert find(routes, "/v1/images", method="POST", a="1") == "long-header"
    assert find(routes, "/v1/images", method="POST", a="1", b="2") == "long-headers"
    assert find(routes, "/v1/images", a="1", b="2") == "long-get"
    assert find(routes, "/v1/images/7") == "exact"
    assert find(routes, "/v1/images/7", method="POST") == "long"


def test_hosts_come_before_paths() -> None:
    routes = {
        "any": Match(exact="/a"),
        "wide": Match(hosts=("*.example.com",), prefix="/a"),
        "narrow": Match(hosts=("*.b.example.com",)),
        "exact": Match(hosts=("x.b.example.com",), prefix="/only"),
    }
    assert find(routes, "/a", host="example.com") == "any"
    assert find(routes, "/a", host="X.example.com:80") == "wide"
    assert find(routes, "/b", host="x.example.com") is None
    assert find(routes, "/a", host="x.b.example.com") == "narrow"
    assert find(routes, "/only/x", host="x.b.example.com") == "exact"
    assert find(routes, "/a", host="deep.down.b.example.com") == "narrow"
    assert find(routes, "/a", host="xexample.com") == "any"


def test_where_expressions_stand() -> None:
    get = frozenset({"GET"})
    routes = {
        "any": Match(methods=get, headers=(Condition("a", "1"),)),
        "prefix": Match(prefix="/v1/images"),
        "short": Match(regex="/v1/.*", methods=get),
        "long": Match(regex="/v1/[a-z]+/[0-9]+"),
        "long-get": Match(regex="/v2/[a-z]+/[0-9]+", methods=get),
        "as-long": Match(regex="/v2/[a-z]+/[1-9]+", headers=(Condition("a", "1"),)),
        "exact": Match(exact="/v1/music/7"),
    }
    assert find(routes, "/v1/images/7", a="1") == "prefix"
    assert find(routes, "/v1/music/8") == "long"
    assert find(routes, "/v1/music/7") == "exact"
    assert find(routes, "/v1/music/x") == "short"
    assert find(routes, "/v1/music/x", method="POST") is None
    assert find(routes, "/v1/music/x/", a="1") == "short"
    assert find(routes, "/v2/music/7", a="1") == "long-get"
    assert find(routes, "/v2/music/7", a="1", method="POST") == "as-long"
    assert find(routes, "/other", a="1") == "any"


def test_an_expression_fits_the_whole_path_without_its_query() -> None:
    routes = {"r": Match(regex="/a|/b.")}
    assert [find(routes, path) for path in ("/a", "/a?x", "/bc")] == ["r"] * 3
    assert [find(routes, path) for path in ("/ab", "/x/a", "/b", "/A", "/c?/a")] == [None] * 5
    assert find({"r": Match(regex=".*")}, "*") is None


def test_headers_and_query_decide_after_the_path() -> None:
    one, like = Condition("a", "1"), Condition("a", "[0-9]+", regex=True)
    routes = {
        "none": Match(),
        "query": Match(query=(one,)),
        "two": Match(query=(one, Condition("b", "2"))),
        "like": Match(query=(like,)),
        "header": Match(headers=(like,)),
        "both": Match(headers=(like,), query=(one,)),
    }
    assert find(routes, "/") == "none"
    assert find(routes, "/?a=1") == "query"
    assert find(routes, "/?a=7") == "like"
    assert find(routes, "/?a=x") == "none"
    assert find(routes, "/?b=2&a=1") == "two"
    assert find(routes, "/?a=1&b=2", a="7") == "both"
    assert find(routes, "/?a=7&b=2", a="7") == "header"
    assert find(routes, "/?a=1&b=2", a="7x") == "two"


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ("a=1", True),
        ("b&a=1", True),
        ("a=1&a=2", True),
        ("a=2&a=1", False),
        ("A=1", False),
        ("a=%31", False),
        ("%61=1", False),
        ("a=1#", False),
        ("a= 1", False),
        ("a", False),
        ("b;a=1", False),
        ("?a=1", False),
    ],
)
def test_the_first_value_counts_as_it_is_sent(query: str, fits: bool) -> None:
    assert (find({"r": Match(query=(Condition("a", "1"),))}, f"/?{query}") == "r") is fits


def test_a_parameter_without_value_is_empty() -> None:
    routes = {"r": Match(query=(Condition("a", ""),))}
    assert [find(routes, path) for path in ("/?a", "/?a=", "/?a&a=1", "/?a=1", "/", "/?")] == ["r"] * 3 + [None] * 3


def test_text_beyond_ascii_is_compared_by_its_bytes() -> None:
    sent = as_sent("café")
    exact, like = Match(headers=(Condition("a", sent),)), Match(headers=(Condition("a", "caf.", regex=True),))
    assert find({"r": exact}, "/", a=sent) == "r"
    assert find({"r": Match(headers=(Condition("a", "café", regex=True),))}, "/", a=sent) == "r"
    assert find({"r": like}, "/", a="caf\xe9") == "r"
    assert find({"r": like}, "/", a=sent) is None
    assert find({"r": like}, "/", a="caf\u20ac") is None


def test_prefixes_of_many_lengths() -> None:
    routes = {str(n): Match(prefix="/v1" + "/a" * n) for n in range(100)}
    assert find(routes, "/v1/a/a/b") == "2"
    assert find(routes, "/v1/a/a") == "2"
    assert find(routes, "/v1/a/a/") == "2"
    assert find(routes, "/v1/ab") == "0"
    assert find(routes, "/v1" + "/a" * 200) == "99"
    assert find(routes, "/v1" + "/a" * 98 + "/" + "x" * 300) == "98"
    assert find(routes, "/v2/a") is None


def test_one_of_the_values_of_a_repeated_header_has_to_fit() -> None:
    conditions = (Condition("a", "1"), Condition("b", "[0-9]", regex=True))
    index = RouteIndex([(Match(headers=conditions), "r"), (Match(headers=(Condition("a", "1, 2"),)), "both")])
    assert index.find("h", "/", "GET", Headers([("a", "1"), ("b", "2")])) == "r"
    assert index.find("h", "/", "GET", Headers([("a", "0"), ("a", "1"), ("b", "x"), ("b", "2")])) == "r"
    assert index.find("h", "/", "GET", Headers([("a", "0"), ("a", "2"), ("b", "2")])) is None
    assert index.find("h", "/", "GET", Headers([("a", "1, 2"), ("b", "2")])) == "both"


def test_hostile_paths_and_hosts_cost_no_more_than_their_length() -> None:
    index = RouteIndex([(Match(prefix="/a" * n), str(n)) for n in range(1, 60)] + [(Match(hosts=("*.x.y",)), "h")])
    began = time.thread_time()
    for _ in range(200):
        index.find("." * 60_000, "/" * 60_000, "GET", Headers())
        index.find("a." * 120 + "z", "/a" * 30_000, "GET", Headers())
    assert time.thread_time() - began < 1


segments = st.sampled_from(["a", "b", "ab"])
paths = st.lists(segments, max_size=3).map(lambda parts: "/" + "/".join(parts))
expressions = st.sampled_from(["/a.*", "/[ab]+", "/(a|b)/.*", "/.*b", "/a/a", ".*"])
values = st.sampled_from([("1", False), ("2", False), ("[12]", True), ("1.*", True)])
hosts = st.sampled_from(["x.com", "*.x.com", "*.y.x.com", "y.x.com"])
methods = st.frozensets(st.sampled_from(["GET", "POST"]), max_size=2)
conditions = st.dictionaries(st.sampled_from(["a", "b", "c"]), values, max_size=3).map(
    lambda wanted: tuple(Condition(name, value, regex) for name, (value, regex) in wanted.items())
)
pairs = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.sampled_from(["1", "2", "12"])), max_size=4)
kinds = st.sampled_from(["exact", "prefix", "regex"])
matches = st.builds(
    lambda host, kind, path, expression, method, headers, query: Match(
        hosts=tuple(host),
        exact=path if kind == "exact" else None,
        prefix=path.rstrip("/") if kind == "prefix" else "",
        regex=expression if kind == "regex" else None,
        methods=method,
        headers=headers,
        query=query,
    ),
    st.lists(hosts, max_size=2),
    kinds,
    paths,
    expressions,
    methods,
    conditions,
    conditions,
)
requests = st.builds(
    lambda method, host, path, query, headers: Request(
        method, host, f"{path}?{'&'.join(map('='.join, query))}" if query else path, Headers(headers)
    ),
    st.sampled_from(["GET", "POST"]),
    st.sampled_from(["x.com", "Y.x.com:80", "z.y.x.com", "x.com.", "other"]),
    paths,
    pairs,
    pairs,
)


@pytest.mark.slow
@given(st.lists(matches, max_size=8), requests)
@settings(max_examples=150)
def test_the_index_agrees_with_trying_every_match(candidates: list[Match], request: Request) -> None:
    order = count()
    fitting = [
        (rank(match, request, next(order)), number)
        for number, match in enumerate(candidates)
        if not mismatch(match, request)
    ]
    expected = min(fitting)[1] if fitting else None
    index = RouteIndex((match, number) for number, match in enumerate(candidates))
    assert index.find(request.authority, request.path, request.method, request.headers) == expected
