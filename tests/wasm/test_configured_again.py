"""Envoy configures a filter once more when its configuration has changed, and forgets its calls: it goes on."""

from __future__ import annotations

import re

import pytest
from filter_rules import needs_rules

from filter_module import built_filter
from proxy_wasm import Envoy

pytestmark = [needs_rules, pytest.mark.slow]

CLUSTER = "meshcache-filter"


def poll(envoy: Envoy) -> bytes:
    """The worker that polls; there is one poll under way."""
    (call,) = [call for call in envoy.calls if call.get(":path").startswith(b"/v1/feed")]
    found = re.search(rb"worker=([0-9a-f]{16})", call.get(":path"))
    assert found
    return found[1]


@pytest.fixture
def envoy() -> Envoy:
    return Envoy(built_filter(), clusters=frozenset({CLUSTER}))


def test_a_worker_that_is_configured_again_is_the_same(envoy: Envoy) -> None:
    worker = envoy.start_worker()
    envoy.advance(0.2)
    before = poll(envoy)
    assert worker.call("proxy_on_configure", 2, 0) == 1
    envoy.calls[0].fail()
    envoy.advance(0.2)
    assert poll(envoy) == before


def test_a_poll_of_which_nothing_is_heard_is_made_again_before_the_lease_is_over(envoy: Envoy) -> None:
    envoy.start_worker()
    envoy.advance(0.2)
    envoy.calls.clear()
    for _ in range(60):
        envoy.advance(0.1)
        assert not envoy.calls
    for _ in range(20):
        envoy.advance(0.1)
    assert poll(envoy)
