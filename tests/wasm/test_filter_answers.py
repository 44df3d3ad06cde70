"""The filter as Envoy runs it, step by step: what it keeps, what it answers with, what it leaves to the sidecar."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hot_filter import Manner, World
from hot_filter.plans import BUDGET
from hot_filter.world import Life
from proxy_wasm import Stream

Make = Callable[..., World]


def test_the_second_request_is_answered(world: World) -> None:
    first = world.get("/a")
    assert first.ask is not None
    assert first.ask.why == "miss"
    second = world.get("/a")
    assert second.reply is not None
    assert second.reply.body == b"answer 1"
    assert second.reply.get("cache-status") == b'meshcache; hit; ttl=60; detail="tier=wasm policy=p"'


def test_age_grows_and_time_to_live_shrinks(world: World) -> None:
    world.get("/a", life=Life(fresh=60, age=5))
    world.envoy.advance(2.6)
    reply = world.get("/a").reply
    assert reply is not None
    assert reply.get("age") == b"7"
    assert b"ttl=57" in (reply.get("cache-status") or b""), reply.headers


def test_head_and_conditional_requests_are_answered_from_a_get(world: World) -> None:
    world.get("/a")
    head = world.request("/a", method="HEAD").reply
    assert head is not None
    assert head.get("content-length") == b"8"
    assert head.body == b""
    for tag in ('"1"', 'W/"1"', '"0", "1"', "*"):
        reply = world.get("/a", [("if-none-match", tag)]).reply
        assert reply is not None
        assert reply.status == 304
    reply = world.get("/a", [("if-none-match", '"2"')]).reply
    assert reply is not None
    assert reply.status == 200


def test_what_came_for_head_answers_no_get(world: World) -> None:
    world.request("/a", method="HEAD").answer(life=Life())
    assert world.request("/a").reply is None


@pytest.mark.parametrize(
    "field",
    [
        ("authorization", "Basic x"),
        ("cache-control", "no-cache"),
        ("pragma", "no-cache"),
        ("range", "bytes=0-1"),
        ("if-match", '"1"'),
        ("if-modified-since", "Mon, 01 Jan 2024 00:00:00 GMT"),
        ("upgrade", "websocket"),
        ("content-type", "application/grpc"),
        ("forwarded", "host=other.test"),
        ("x-cache-status", "key"),
    ],
)
def test_what_is_special_is_handed_on_as_it_is(world: World, field: tuple[str, str]) -> None:
    world.get("/a")
    assert world.get("/a").reply is not None
    exchange = world.request("/a", [field])
    assert exchange.reply is None
    assert exchange.ask is None


@pytest.mark.parametrize("field", [("x-forwarded-host", "other.test"), ("x-forwarded-proto", "https")])
def test_what_retargets_a_request_is_part_of_its_key(world: World, field: tuple[str, str]) -> None:
    world.get("/a")
    assert world.get("/a").reply is not None
    assert world.get("/a", [field]).reply is None
    assert world.get("/a", [field]).reply is not None
    assert world.get("/a", [(field[0], "third")]).reply is None


def test_a_request_with_a_body_is_handed_on(world: World) -> None:
    world.get("/a")
    assert world.request("/a", end=False).reply is None


def test_stale_answers_while_one_request_goes_on(world: World) -> None:
    world.get("/a", life=Life(fresh=1, stale=30))
    world.envoy.advance(2)
    first = world.request("/a")
    second = world.request("/a")
    assert first.ask is not None
    assert first.ask.why == "stale"
    assert second.reply is not None
    assert second.reply.body == b"answer 1"
    assert b"ttl=-1" in (second.reply.get("cache-status") or b"")
    first.answer(life=Life())
    reply = world.get("/a").reply
    assert reply is not None
    assert reply.body == b"answer 2"


def test_a_popular_answer_is_renewed_before_it_is_stale(world: World) -> None:
    world.get("/a", life=Life(fresh=10, renew=5))
    assert [world.request("/a").reply is None for _ in range(3)] == [False] * 3
    world.envoy.advance(6)
    asked = [world.request("/a") for _ in range(3)]
    assert [exchange.ask.why for exchange in asked if exchange.ask is not None] == ["renew"]


@pytest.mark.parametrize("life", [Life(fresh=1, stale=30), Life(fresh=30, renew=1)], ids=["stale", "renew"])
@pytest.mark.parametrize("begun", [False, True], ids=["before the answer", "in the middle of it"])
def test_a_client_that_leaves_keeps_no_answer_from_being_refreshed(world: World, life: Life, begun: bool) -> None:
    """Whether the sidecar has seen his request, nobody knows: the next one is handed on."""
    world.get("/a", life=life)
    assert world.request("/a").reply is not None
    world.envoy.advance(2)
    for _ in range(3):
        leaving = world.request("/a")
        assert leaving.ask is not None
        assert world.request("/a").reply is not None
        if begun:
            leaving.begin_answer(life=Life())
        leaving.abandon()
    staying = world.request("/a")
    assert staying.ask is not None
    # Who has got his answer from the sidecar has done what he was handed on for.
    staying.answer()
    assert world.request("/a").reply is not None


def test_requests_by_head_keep_no_answer_from_being_renewed(world: World) -> None:
    """They bring nothing to keep, so the one that is handed on each second must be another."""
    world.get("/a", life=Life(fresh=4, stale=30, renew=2))
    assert [world.request("/a").reply is None for _ in range(3)] == [False] * 3
    world.envoy.advance(3)
    assert world.request("/a", method="HEAD").reply is not None
    first = world.request("/a")
    assert first.ask is not None
    assert first.ask.why == "renew"
    world.envoy.advance(2)
    # The sidecar, which has it refreshed, is to know of them when it is stale.
    assert world.request("/a", method="HEAD").reply is None
    second = world.request("/a")
    assert second.ask is not None
    assert second.ask.why == "stale"
    assert world.request("/a").reply is not None


def test_of_two_answers_under_way_the_newer_one_is_kept(world: World) -> None:
    slow, fast = world.request("/a"), world.request("/a")
    slow.begin_answer(life=Life())
    fast.answer(life=Life())
    slow.end_answer()
    stored = world.get("/a").stored
    assert stored is not None
    assert stored.serial == fast.serial


def test_after_its_time_it_is_gone(world: World) -> None:
    world.get("/a", life=Life(fresh=1, stale=1))
    world.envoy.advance(1.5)
    world.request("/a")
    assert world.request("/a").reply is not None
    world.envoy.advance(1)
    assert world.request("/a").reply is None


def test_variants(world: World) -> None:
    life = Life(vary=("accept-language",))
    for language in ("de", "en", ""):
        world.get("/a", [("accept-language", language)], life)
    world.get("/a", [], life)
    found = [world.get("/a", [("accept-language", language)]).stored for language in ("de", "en", "")]
    found.append(world.get("/a").stored)
    assert [stored.serial for stored in found if stored is not None] == ["1", "2", "3", "4"]
    twice = [("accept-language", "de"), ("accept-language", "en")]
    assert world.request("/a", twice).reply is None


def test_who_has_cookies_gets_only_what_is_for_him(world: World) -> None:
    world.get("/a", life=Life(for_cookies=False))
    assert world.request("/a", [("cookie", "a=1")]).reply is None
    assert world.request("/a").reply is not None


# -- bodies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [[], [0], [1, 0, 3], [8], [8, 0], [0, 0, 8]])
@pytest.mark.parametrize("trailers", [None, [], [(b"x-sum", b"1")]])
@pytest.mark.parametrize("length", [-1, None])
def test_a_body_may_come_in_any_pieces(
    world: World, chunks: list[int], trailers: list[tuple[bytes, bytes]] | None, length: int | None
) -> None:
    world.request("/a").answer(life=Life(), chunks=chunks, trailers=trailers, length=length)
    reply = world.get("/a").reply
    assert reply is not None
    assert reply.body == b"answer 1"


@pytest.mark.parametrize("length", [0, 7, 9])
def test_a_body_that_is_not_as_long_as_said_is_not_kept(world: World, length: int) -> None:
    world.request("/a").answer(life=Life(), length=length)
    assert world.request("/a").reply is None


@pytest.mark.parametrize("chunks", [[], [3, 5], [8, 0]])
def test_a_body_that_breaks_off_is_not_kept(world: World, chunks: list[int]) -> None:
    world.request("/a").answer(life=Life(), chunks=chunks, cut=True, length=None)
    assert world.request("/a").reply is None


def test_a_client_that_leaves_leaves_nothing(world: World) -> None:
    exchange = world.request("/a")
    exchange.begin_answer(life=Life())
    exchange.abandon()
    assert world.request("/a").reply is None


def test_a_body_over_the_limit_is_not_kept(world: World) -> None:
    world.request("/a").answer(bytes(200_000), life=Life(), chunks=[65_536] * 3)
    assert world.request("/a").reply is None
    world.request("/b").answer(bytes(200_000), life=Life(), chunks=[65_536] * 3, length=None)
    assert world.request("/b").reply is None


# -- plans, drops, leases ----------------------------------------------------------------------------------------------


def test_without_a_plan_everything_passes(make_world: Make) -> None:
    world = make_world()
    world.add_worker(ready=False)
    for method in ("GET", "POST"):
        exchange = world.request("/a", method=method)
        assert exchange.reply is None
        assert exchange.ask is None


def test_a_purge_that_a_worker_has_acknowledged_is_done(world: World) -> None:
    world.add_worker()
    for worker in (0, 1):
        world.request("/a", worker=worker).answer(life=Life(tags=("one",)))
        assert world.request("/a", worker=worker).reply is not None
    world.drop_tag("one")
    world.settle(1)
    assert world.request("/a", worker=0).reply is not None, "it has not heard of it yet"
    assert world.request("/a", worker=1).reply is None
    world.settle(0)
    assert world.request("/a", worker=0).reply is None


def test_what_was_asked_for_before_a_purge_is_not_kept(world: World) -> None:
    exchange = world.request("/a")
    world.drop_tag("one")
    world.settle()
    exchange.answer(life=Life(tags=("one",)))
    assert world.request("/a").reply is None
    world.get("/a", life=Life(tags=("one",)))
    assert world.get("/a").reply is not None


def test_a_worker_that_hears_nothing_stops_when_its_lease_is_over(world: World) -> None:
    world.get("/a")
    world.envoy.advance(9)
    assert world.request("/a").reply is not None
    world.feed.answer(Manner.GONE)
    world.envoy.advance(1.5)
    exchange = world.request("/a")
    assert exchange.reply is None
    world.settle()
    assert world.get("/b").reply is None
    assert world.get("/b").reply is not None


@pytest.mark.parametrize("manner", [Manner.TRUNCATED, Manner.GARBAGE, Manner.LONGER, Manner.ERROR, Manner.GONE])
def test_bad_answers_of_the_feed_change_nothing(world: World, manner: Manner) -> None:
    world.get("/a")
    world.drop_tag("other")
    for _ in range(4):
        world.envoy.advance(0.5)
        world.feed.answer(manner)
    assert world.request("/a").reply is not None
    world.envoy.advance(1)
    world.settle()
    assert world.request("/a").reply is not None


@pytest.mark.parametrize("manner", [Manner.TRUNCATED, Manner.GARBAGE, Manner.LONGER, Manner.ERROR, Manner.GONE])
def test_a_bad_first_answer_leaves_the_filter_passive(make_world: Make, manner: Manner) -> None:
    world = make_world()
    world.add_worker(ready=False)
    for _ in range(3):
        world.envoy.advance(1.1)
        world.feed.answer(manner)
    assert world.request("/a").ask is None
    world.envoy.advance(2)
    world.settle()
    assert world.request("/a").ask is not None


def test_a_worker_that_joins_late_knows_what_was_dropped(world: World) -> None:
    world.get("/a")
    world.request("/a", method="POST").answer()
    late = world.add_worker()
    world.request("/a", worker=late).answer(life=Life())
    assert world.request("/a", worker=late).reply is not None


def test_after_a_trap_a_new_vm_begins_with_nothing(world: World) -> None:
    world.get("/a")
    vm = world.envoy.workers[0]
    vm.failed = True
    fields = [(b":method", b"GET"), (b":path", b"/a"), (b":authority", b"example.com"), (b":scheme", b"http")]
    assert Stream(vm, fields).forwarded == fields
    vm.reload()
    world.model.restarted(0)
    assert world.request("/a").reply is None
    world.settle()
    world.get("/a")
    assert world.get("/a").reply is not None


def test_more_fills_than_there_is_room_for(world: World) -> None:
    under_way = [world.request(f"/{number}") for number in range(1000)]
    for exchange in under_way:
        exchange.answer(life=Life())
    world.get("/a")
    assert world.get("/a").reply is not None


def test_the_memory_of_a_worker_stays_within_the_budget(world: World) -> None:
    for number in range(200):
        world.request(f"/{number}").answer(bytes(60_000), life=Life())
        for _ in range(3):
            world.request(f"/{number % 7}")
    assert world.envoy.workers[0].memory_bytes <= BUDGET
    assert world.request("/199").reply is not None


def test_what_is_kept_from_before_the_clock_was_set_back_is_not_fresh_for_longer(world: World) -> None:
    world.get("/a", life=Life(fresh=3600, stale=3600))
    world.envoy.set_clock(-60)
    assert world.request("/a").reply is not None
    world.envoy.set_clock(-1)
    for _ in range(3):
        assert world.request("/a").reply is None


def test_a_clock_that_is_set_back_makes_no_lease_longer(world: World) -> None:
    world.get("/a", life=Life(fresh=3600))
    world.envoy.set_clock(-60)
    assert world.request("/a").reply is not None
    for _ in range(12):
        world.envoy.advance(1)
    assert world.request("/a").reply is None
    world.settle()
    assert world.request("/a").reply is not None
