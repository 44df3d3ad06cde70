"""The path that `up` proposes to try."""

from __future__ import annotations

import pytest

from meshcache.cli.checks import cached_path
from policy_texts import compiled

HEAD = "apiVersion: meshcache.dev/v1alpha1\n"
POLICY = HEAD + "kind: CachePolicy\nmetadata: {name: p}\nspec: {freshness: {defaultTtl: 60s}}\n"


def route(match: str, policy: str = "policyRef: {name: p}") -> str:
    return f"{HEAD}kind: CacheRoute\nmetadata: {{name: r}}\nspec:\n  match: [{match}]\n  {policy}\n"


@pytest.mark.parametrize(
    ("match", "path"),
    [
        ("{path: {prefix: /v1/search}}", "/v1/search/"),
        ("{path: {prefix: /}}", "/"),
        ("{path: {exact: /a}}", "/a"),
        ("{path: {exact: /a}, methods: [GET]}", "/a"),
        ("{path: {exact: /a}, methods: [POST]}", None),
        ("{path: {exact: /a}, hosts: [example.com]}", None),
        ("{path: {exact: /a}, headers: [{name: x, exact: y}]}", None),
        ("{path: {exact: /a}, hosts: [example.com]}, {path: {exact: /b}}", "/b"),
    ],
)
def test_a_path_that_a_plain_request_is_cached_by(match: str, path: str | None) -> None:
    assert cached_path(compiled("---\n".join([POLICY, route(match)]))) == path


def test_a_route_without_a_policy_caches_nothing() -> None:
    assert cached_path(compiled(route("{path: {exact: /a}}", ""))) is None
