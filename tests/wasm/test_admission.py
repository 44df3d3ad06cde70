"""What the filter asks for when new keys follow one another: what comes again, and as much as hits pay for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hot_filter import World
from hot_filter.world import Life

ALLOWANCE = 1024
"""As `wasm/src/admission.zig` has it."""


@pytest.fixture
def crawled(make_world: Callable[..., World]) -> World:
    """A worker that a crawler has gone by."""
    world = make_world()
    world.add_worker()
    assert all(world.get(f"/crawled/{number}").ask for number in range(ALLOWANCE)), "all is asked for at first"
    return world


def test_what_is_new_is_not_asked_for_until_it_comes_again(crawled: World) -> None:
    first = crawled.get("/new")
    assert first.reply is None
    assert first.ask is None, "the sidecar has it from there on, and the filter nothing to keep"
    second = crawled.get("/new")
    assert second.reply is None
    assert second.ask is not None
    third = crawled.get("/new")
    assert third.reply is not None


def test_hits_pay_for_what_is_new(crawled: World) -> None:
    for number in range(3):
        assert crawled.get(f"/crawled/{number}").reply is not None
    assert [crawled.get(f"/new/{number}").ask is not None for number in range(5)] == [True, True, True, False, False]


def test_head_is_asked_for_by_nobody_and_costs_nothing(crawled: World) -> None:
    assert crawled.get("/crawled/0").reply is not None
    assert crawled.request("/new", method="HEAD").ask is None
    assert crawled.get("/new").ask is not None


def test_what_has_to_be_renewed_is_asked_for_as_ever(crawled: World) -> None:
    assert crawled.get("/crawled/0").reply is not None
    crawled.get("/kept", life=Life(fresh=10, stale=600))
    crawled.envoy.advance(11)
    crawled.settle()
    stale = crawled.get("/kept")
    assert stale.ask is not None
    assert stale.ask.why == "stale"
