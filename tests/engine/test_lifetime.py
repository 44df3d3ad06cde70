"""How long a stored response is fresh, by policy and origin."""

from __future__ import annotations

import pytest

from cache_origin import START
from meshcache.engine.lifetime import lifetimes
from meshcache.message import Headers
from meshcache.rfc.targeted import response_directives
from policy_texts import compiled, policies


def granted(yaml: str, *, status: int = 200, explicit: int | None = None) -> float | None:
    policy = compiled(policies(freshness=yaml)).policies["p"].freshness
    headers = Headers([] if explicit is None else [("cache-control", f"max-age={explicit}")])
    directives = response_directives(headers, policy.targets)
    return lifetimes(policy, status=status, headers=headers, directives=directives, response_time=START).granted


@pytest.mark.parametrize(
    ("yaml", "explicit", "expected"),
    [
        ("{}", None, None),
        ("{}", 10, 10.0),
        ("{}", 0, 0.0),
        ("{defaultTtl: 60s}", None, 60.0),
        ("{defaultTtl: 60s}", 10, 10.0),
        ("{defaultTtl: 60s}", 0, 0.0),
        ("{maxTtl: 30s}", 600, 30.0),
        ("{maxTtl: 30s}", 10, 10.0),
        ("{maxTtl: 30s}", None, None),
        ("{mode: override, defaultTtl: 60s}", 10, 60.0),
        ("{mode: override, defaultTtl: 60s}", 600, 60.0),
        ("{mode: override, defaultTtl: 60s, maxTtl: 60s}", None, 60.0),
    ],
)
def test_of_a_success(yaml: str, explicit: int | None, expected: float | None) -> None:
    assert granted(yaml, explicit=explicit) == expected


@pytest.mark.parametrize(
    ("yaml", "status", "explicit", "expected"),
    [
        ("{defaultTtl: 60s}", 404, None, None),
        ("{defaultTtl: 60s}", 404, 5, 5.0),
        ("{negative: [{status: 404, ttl: 10s}]}", 404, None, 10.0),
        ("{negative: [{status: 404, ttl: 10s}]}", 404, 5, 5.0),
        ("{negative: [{status: 404, ttl: 10s}]}", 410, None, None),
        ("{negative: [{status: 503, ttl: 10s}]}", 503, None, 10.0),
        ("{negative: [{status: 404, ttl: 10s}], maxTtl: 5s}", 404, None, 5.0),
        ("{mode: override, defaultTtl: 60s, negative: [{status: 404, ttl: 10s}]}", 404, 600, 10.0),
        ("{mode: override, defaultTtl: 60s}", 404, 600, 600.0),
        ("{mode: override, defaultTtl: 60s}", 404, None, None),
    ],
)
def test_of_an_error(yaml: str, status: int, explicit: int | None, expected: float | None) -> None:
    assert granted(yaml, status=status, explicit=explicit) == expected


def test_a_status_that_may_not_be_given_a_lifetime_gets_none_by_default() -> None:
    assert granted("{defaultTtl: 60s}", status=302) is None
    assert granted("{mode: override, defaultTtl: 60s}", status=302, explicit=5) == 5.0
