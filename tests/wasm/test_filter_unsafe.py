"""What unsafe requests do to what the filter has, whatever of them it sees or hears."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hot_filter import World
from hot_filter.world import Life

Make = Callable[..., World]


@pytest.mark.parametrize(
    "fields",
    [
        [("x-http-method-override", "DELETE")],
        # An origin that gets fields as variables takes each of these for it.
        [("x_http_method_override", "DELETE")],
        [("x-http_method", "patch")],
        [("x-method_override", "POST")],
        # Which of several an origin minds, nobody knows.
        [("x-http-method-override", "GET"), ("x-method-override", "DELETE")],
        [("x-http-method", "GET"), ("x-http-method", "GET")],
        [("x-http-method", ""), ("x-http-method", "GET")],
    ],
)
def test_a_field_may_make_a_request_unsafe(world: World, fields: list[tuple[str, str]]) -> None:
    world.get("/a")
    assert world.get("/a").reply is not None
    exchange = world.request("/a", fields)
    assert exchange.ask is not None
    assert exchange.ask.why == "unsafe"
    exchange.answer()
    assert world.request("/a").reply is None


def test_an_unsafe_request_reaches_all_workers_at_once(world: World) -> None:
    world.add_worker()
    for worker in (0, 1):
        for path in ("/a", "/b"):
            world.request(path, worker=worker).answer(life=Life())
    late = world.request("/a?q=1", worker=1)
    unsafe = world.request("/a", method="POST", end=False)
    assert unsafe.ask is not None
    assert world.request("/a", worker=1).reply is not None
    unsafe.answer()
    assert world.request("/a", worker=0).reply is None
    assert world.request("/a", worker=1).reply is None
    assert world.request("/b", worker=0).reply is not None
    assert world.request("/b", worker=1).reply is not None
    late.answer(life=Life())
    assert world.request("/a?q=1", worker=1).reply is not None, "of another resource"


def test_a_failed_unsafe_request_drops_nothing(world: World) -> None:
    world.get("/a")
    world.request("/a", method="POST").answer(status=403)
    assert world.request("/a").reply is not None


@pytest.mark.parametrize("drop", [b"", b"v1", b"v1 0123456789abcdef " + b"0" * 64 + b" - " + b"0" * 32])
def test_without_a_proven_mark_an_unsafe_request_drops_everything(world: World, drop: bytes) -> None:
    world.add_worker()
    world.get("/b")
    world.request("/b", worker=1).answer(life=Life())
    world.request("/a", method="PUT").answer(drop=drop)
    assert world.request("/b", worker=0).reply is None
    assert world.request("/b", worker=1).reply is None


def test_many_unsafe_requests_are_more_than_a_worker_can_follow_and_yet_right(world: World) -> None:
    world.add_worker()
    for path in ("/a", "/b"):
        world.request(path, worker=1).answer(life=Life())
    for number in range(300):
        world.request(f"/other/{number}", method="PUT").answer()
    world.request("/a", method="PUT").answer()
    assert world.request("/a", worker=1).reply is None


def test_an_unsafe_request_through_a_worker_without_a_plan_drops_everything(world: World) -> None:
    world.get("/a")
    late = world.add_worker(ready=False)
    world.request("/a", method="POST", worker=late).answer()
    assert world.request("/a").reply is None


def test_more_unsafe_requests_than_can_be_remembered(world: World) -> None:
    world.get("/b")
    under_way = [world.request("/a", method="PUT") for _ in range(4200)]
    assert world.request("/b").reply is not None
    under_way[-1].answer()
    assert world.request("/b").reply is None
    for exchange in under_way[:-1]:
        exchange.abandon()
    world.get("/b")
    assert world.get("/b").reply is not None


def test_more_fields_than_are_looked_at_hide_no_unsafe_request(world: World) -> None:
    many = [(f"x-{number}", "1") for number in range(200)]
    world.get("/a")
    assert world.request("/a", many).reply is None
    override = ("x-http-method-override", "x_http_method_override", "x-http_method", "x_method-override")
    for asked in (*(("GET", [(name, "DELETE")]) for name in override), ("DELETE", [])):
        world.get("/a")
        assert world.request("/a").reply is not None
        world.request("/a", [*many, *asked[1]], method=asked[0]).answer()
        assert world.request("/a").reply is None


def test_an_envoy_that_keeps_no_statistics_tells_its_workers_all_the_same(make_world: Make) -> None:
    world = make_world()
    world.envoy.rejects_stats = True
    for worker in range(2):
        world.add_worker()
        for path in ("/a", "/b"):
            world.request(path, worker=worker).answer(life=Life())
    world.request("/a", method="POST").answer()
    for worker in range(2):
        assert world.request("/a", worker=worker).reply is None
        assert world.request("/b", worker=worker).reply is not None, "more is dropped than has to be"
