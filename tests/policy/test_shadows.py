"""Matches that are never reached: what is found is so, and the plain cases are found."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_routing import matches, requests

from meshcache.message import Request
from meshcache.policy.compile import compile_documents
from meshcache.policy.compiled import Condition, Match, Route
from meshcache.policy.documents import Documents, parse_documents
from meshcache.policy.routing import RouteIndex
from meshcache.policy.shadows import shadows, warnings

GET, BOTH = frozenset({"GET"}), frozenset({"GET", "PUT"})
ONE = (Condition("a", "1"),)
DIGITS = (Condition("a", "[0-9]+", regex=True),)


@pytest.mark.parametrize(
    ("first", "then", "hidden"),
    [
        (Match(), Match(), True),
        (Match(prefix="/a"), Match(prefix="/a"), True),
        (Match(prefix="/a"), Match(prefix="/b"), False),
        (Match(prefix="/a"), Match(prefix="/a/b"), False),
        (Match(exact="/a"), Match(exact="/a"), True),
        (Match(methods=BOTH), Match(methods=GET), True),
        (Match(methods=GET), Match(methods=BOTH), False),
        (Match(), Match(methods=GET), False),
        (Match(headers=ONE), Match(headers=ONE), True),
        (Match(headers=DIGITS), Match(headers=ONE), True),
        (Match(headers=ONE), Match(headers=DIGITS), False),
        (Match(headers=ONE), Match(query=ONE), False),
        (Match(query=DIGITS), Match(query=ONE), True),
        (Match(hosts=("x.com", "*.y.com")), Match(hosts=("*.y.com",)), True),
        (Match(hosts=("*.y.com",)), Match(hosts=("x.com", "*.y.com")), False),
        (Match(hosts=("*.y.com",)), Match(hosts=("x.y.com",)), False),
        (Match(), Match(hosts=("x.com",)), False),
        (Match(prefix="/v1"), Match(regex="/v1/[0-9]+"), True),
        (Match(prefix="/v1"), Match(regex="^/v1/.*$", headers=ONE), True),
        (Match(prefix="/v1", headers=ONE), Match(regex="/v1/.*"), False),
        (Match(prefix="/v1"), Match(regex="/v1.*"), False),
        (Match(prefix="/v1"), Match(regex="/v1"), True),
        (Match(prefix="/v1"), Match(regex="/v[12]/.*"), False),
        (Match(prefix="/v1", methods=GET), Match(regex="/v1/.*"), False),
        (Match(exact="/v1"), Match(regex="/v1"), True),
        (Match(regex="/.*"), Match(), True),
        (Match(regex="^/.*$"), Match(headers=ONE), True),
        (Match(regex="/a.*"), Match(), False),
        (Match(regex="/a.*"), Match(regex="/a.*"), True),
    ],
)
def test_pairs(first: Match, then: Match, hidden: bool) -> None:
    found = shadows([Route("first", (first,), None), Route("then", (then,), None)])
    assert [(one.hidden.route, one.by.route) for one in found] == ([("then", "first")] if hidden else [])


def test_several_may_be_in_the_way_together() -> None:
    put = frozenset({"PUT"})
    by_method = [Route("get", (Match(methods=GET),), None), Route("put", (Match(methods=put),), None)]
    assert shadows([*by_method, Route("both", (Match(methods=BOTH),), None)])[0].hidden.route == "both"
    assert not shadows([*by_method, Route("all", (Match(),), None)])
    by_host = [Route("x", (Match(hosts=("x.com",)), Match(hosts=("y.com",))), None)]
    assert shadows([*by_host, Route("xy", (Match(hosts=("x.com", "y.com")),), None)])


@given(st.lists(matches, min_size=2, max_size=8), st.lists(requests, min_size=1, max_size=30))
@settings(max_examples=100)
def test_what_is_never_reached_is_never_found(candidates: list[Match], asked: list[Request]) -> None:
    routes = [Route(str(number), (match,), None) for number, match in enumerate(candidates)]
    hidden = {one.hidden.route for one in shadows(routes)}
    index = RouteIndex((match, route.name) for route in routes for match in route.matches)
    for request in asked:
        assert index.find(request.authority, request.path, request.method, request.headers) not in hidden


ROUTES = """apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: images}
spec:
  match:
    - path: {prefix: /v1}
    - path: {prefix: /v1/}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: numbers}
spec:
  match:
    - path: {regex: "/v1/[0-9]+"}
"""


def test_what_is_told() -> None:
    documents = Documents.of([("a.yaml", ROUTES)])
    snapshot = compile_documents(documents, generation=1, secret=b"")
    assert list(map(str, warnings(parse_documents(documents)[0], snapshot.routes))) == [
        "a.yaml:7:7: spec.match[1]: is never reached: an earlier match of this route at a.yaml:6 goes first for all"
        " that fits it (take it out, or make it more specific)",
        "a.yaml:14:7: spec.match[0]: is never reached: route images at a.yaml:6 goes first for all that fits it"
        " (a prefix goes before an expression: give this one a prefix longer than /v1)",
    ]
