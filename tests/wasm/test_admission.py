"""What the filter asks for when new keys follow one another: what comes again, and as much as first hits pay for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hot_filter import Exchange, World
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


def test_what_is_hot_does_not_pay_for_what_nobody_wants_again(crawled: World) -> None:
    for _ in range(5):
        assert crawled.get("/crawled/7").reply is not None
    assert [crawled.get(f"/new/{number}").ask is not None for number in range(3)] == [True, False, False]


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


def waiting(world: World, count: int, fields: list[tuple[str, str]] | None = None) -> list[Exchange]:
    return [world.request(f"/slow/{number}", fields or []) for number in range(count)]


@pytest.mark.parametrize("cookie", ["", "c=" + 4000 * "x"])
def test_who_asks_for_what_takes_long_keeps_nobody_out(make_world: Callable[..., World], cookie: str) -> None:
    world = make_world()
    world.add_worker()
    fields = [("cookie", cookie)] if cookie else []
    slow = waiting(world, 800, fields)
    assert world.get("/hot", fields).ask is None, "there is no room, and nobody has waited long"
    world.envoy.advance(1)
    first = world.get("/hot", fields)
    assert first.ask is not None
    assert world.get("/hot", fields).reply is not None
    # But for the one that has given way, they are kept when their answers come at last.
    slow[0].abandon()
    for exchange in slow[1:]:
        exchange.answer(life=Life())
    assert world.request("/slow/0", fields).reply is None
    assert world.request("/slow/1", fields).reply is not None


def test_answers_that_drip_keep_nobody_out(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.add_worker()
    dripping = waiting(world, 128)
    for exchange in dripping:
        exchange.begin_answer(b"." * 100, life=Life())
    for _ in range(12):
        for exchange in dripping:
            exchange.stream.respond_body(b".", end=False)
        world.envoy.advance(0.5)
        world.settle()
    world.get("/hot")
    assert world.get("/hot").reply is not None
