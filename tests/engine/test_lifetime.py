"""How long a stored response is fresh, by policy and origin."""

from __future__ import annotations

import pytest

from cache_harness import compiled, policies
from meshcache.engine.lifetime import lifetime


def granted(yaml: str, *, status: int = 200, explicit: float | None = None, by_default: bool = True) -> float | None:
    policy = compiled(policies(freshness=yaml)).policies["p"].freshness
    return lifetime(policy, status=status, explicit=explicit, by_default=by_default)


@pytest.mark.parametrize(
    ("yaml", "explicit", "expected"),
    [
        ("{}", None, None),
        ("{}", 10.0, 10.0),
        ("{}", 0.0, 0.0),
        ("{defaultTtl: 60s}", None, 60.0),
        ("{defaultTtl: 60s}", 10.0, 10.0),
        ("{defaultTtl: 60s}", 0.0, 0.0),
        ("{maxTtl: 30s}", 600.0, 30.0),
        ("{maxTtl: 30s}", 10.0, 10.0),
        ("{maxTtl: 30s}", None, None),
        ("{mode: override, defaultTtl: 60s}", 10.0, 60.0),
        ("{mode: override, defaultTtl: 60s}", 600.0, 60.0),
        ("{mode: override, defaultTtl: 60s, maxTtl: 60s}", None, 60.0),
    ],
)
def test_of_a_success(yaml: str, explicit: float | None, expected: float | None) -> None:
    assert granted(yaml, explicit=explicit) == expected


@pytest.mark.parametrize(
    ("yaml", "status", "explicit", "expected"),
    [
        ("{defaultTtl: 60s}", 404, None, None),
        ("{defaultTtl: 60s}", 404, 5.0, 5.0),
        ("{negative: [{status: 404, ttl: 10s}]}", 404, None, 10.0),
        ("{negative: [{status: 404, ttl: 10s}]}", 404, 5.0, 5.0),
        ("{negative: [{status: 404, ttl: 10s}]}", 410, None, None),
        ("{negative: [{status: 503, ttl: 10s}]}", 503, None, 10.0),
        ("{negative: [{status: 404, ttl: 10s}], maxTtl: 5s}", 404, None, 5.0),
        ("{mode: override, defaultTtl: 60s, negative: [{status: 404, ttl: 10s}]}", 404, 600.0, 10.0),
        ("{mode: override, defaultTtl: 60s}", 404, 600.0, 600.0),
        ("{mode: override, defaultTtl: 60s}", 404, None, None),
    ],
)
def test_of_an_error(yaml: str, status: int, explicit: float | None, expected: float | None) -> None:
    assert granted(yaml, status=status, explicit=explicit) == expected


def test_a_status_that_may_not_be_given_a_lifetime_gets_none_by_default() -> None:
    assert granted("{defaultTtl: 60s}", status=302, by_default=False) is None
    assert granted("{mode: override, defaultTtl: 60s}", status=302, by_default=False, explicit=5.0) == 5.0
