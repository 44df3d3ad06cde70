"""Which route wins: the Gateway API's precedence, and that the index agrees with the plain account of it."""

from __future__ import annotations

import time
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcache.engine.explain import mismatch, rank
from meshcache.message import Headers, Request
from meshcache.policy.compiled import Match
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
        "long-header": Match(prefix="/v1/images", headers=(("a", "1"),)),
        "long-headers": Match(prefix="/v1/images", headers=(("a", "1"), ("b", "2"))),
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


def test_a_repeated_header_equals_no_single_value() -> None:
    index = RouteIndex([(Match(headers=(("a", "1"),)), "r")])
    assert index.find("h", "/", "GET", Headers([("a", "1")])) == "r"
    assert index.find("h", "/", "GET", Headers([("a", "1"), ("a", "1")])) is None


def test_hostile_paths_and_hosts_cost_no_more_than_their_length() -> None:
    index = RouteIndex([(Match(prefix="/a" * n), str(n)) for n in range(1, 60)] + [(Match(hosts=("*.x.y",)), "h")])
    began = time.thread_time()
    for _ in range(200):
        index.find("." * 60_000, "/" * 60_000, "GET", Headers())
        index.find("a." * 120 + "z", "/a" * 30_000, "GET", Headers())
    assert time.thread_time() - began < 1


segments = st.sampled_from(["a", "b", "ab"])
paths = st.lists(segments, max_size=3).map(lambda parts: "/" + "/".join(parts))
hosts = st.sampled_from(["x.com", "*.x.com", "*.y.x.com", "y.x.com"])
methods = st.frozensets(st.sampled_from(["GET", "POST"]), max_size=2)
header_sets = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"])).map(lambda d: tuple(d.items()))
matches = st.builds(
    lambda host, exact, path, method, headers: Match(
        hosts=tuple(host),
        exact=path if exact else None,
        prefix="" if exact else path.rstrip("/"),
        methods=method,
        headers=headers,
    ),
    st.lists(hosts, max_size=2),
    st.booleans(),
    paths,
    methods,
    header_sets,
)
requests = st.builds(
    lambda method, host, path, query, headers: Request(method, host, path + query, Headers(headers)),
    st.sampled_from(["GET", "POST"]),
    st.sampled_from(["x.com", "Y.x.com:80", "z.y.x.com", "x.com.", "other"]),
    paths,
    st.sampled_from(["", "?", "?a=/b"]),
    header_sets,
)


@pytest.mark.slow
@given(st.lists(matches, max_size=8), requests)
@settings(max_examples=300)
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
