"""Routes of Envoy that add fields to answers: also to those that the filter makes of what has such fields already."""

from __future__ import annotations

import pytest

from hot_filter import World
from hot_filter.world import Life
from proxy_wasm import Reply

ADDED = [(b"x-set", b"s"), (b"x-add", b"added"), (b"x-absent", b"1")]
TYPE = (b"content-type", b"text/html")


@pytest.fixture
def world(world: World) -> World:
    """The same in an Envoy whose route adds `ADDED`."""
    world.envoy.added_by_route = list(ADDED)
    return world


def kept(world: World, path: str, body: bytes = b"") -> None:
    """An answer with a field of its own beside those that the route has added."""
    world.request(path).answer(body, fields=[(b"x-add", b"own"), TYPE, *world.envoy.added_by_route], life=Life())


def fields(reply: Reply | None) -> list[list[bytes]]:
    assert reply is not None
    return [reply.get_all(name) for name in ("x-set", "x-add", "x-absent", "content-type")]


def test_what_a_route_adds_is_there_once(world: World) -> None:
    kept(world, "/a")
    # Each world checks every field of each answer, and the order of lines of one name.
    for _ in range(4):
        assert fields(world.request("/a").reply) == [[b"s"], [b"own", b"added"], [b"1"], [b"text/html"]]
    assert fields(world.request("/a", method="HEAD").reply)[1] == [b"own", b"added"]
    unmodified = world.request("/a", [("if-none-match", "*")]).reply
    assert unmodified is not None
    assert unmodified.status == 304
    assert fields(unmodified) == [[b"s"], [b"own", b"added"], [b"1"], []]


def test_one_route_may_add_what_another_does_not(world: World) -> None:
    world.envoy.added_by_route = []
    kept(world, "/plain")
    for _ in range(3):
        assert world.request("/plain").reply is not None
    world.envoy.added_by_route = list(ADDED)
    world.request("/a").answer(fields=world.envoy.added_by_route, life=Life(for_cookies=False))
    # It has been found by then, and not been given.
    assert world.request("/a", [("cookie", "a=b")]).reply is None
    for _ in range(3):
        assert fields(world.request("/a").reply)[0] == [b"s"]
    world.envoy.added_by_route = []
    assert world.request("/plain").reply is not None


def test_a_route_that_begins_to_add_something_is_seen_within_a_moment(world: World) -> None:
    world.envoy.added_by_route = []
    world.request("/a").answer(fields=[(b"x-set", b"old")], life=Life())
    for _ in range(3):
        assert world.request("/a").reply is not None
    world.envoy.added_by_route = [(b"x-set", b"new")]
    world.envoy.advance(0.1)
    for _ in range(3):
        reply = world.request("/a").reply
        assert reply is not None
        # As the sidecar has it: what is stored goes before what the route says now.
        assert reply.get_all("x-set") == [b"old"]


@pytest.mark.parametrize("value", [b"text/html", b""])
def test_a_route_may_say_of_what_type_answers_are(world: World, value: bytes) -> None:
    world.envoy.added_by_route = [(b"content-type", value)]
    world.request("/a").answer(fields=[(b"content-type", value)], life=Life())
    for _ in range(3):
        reply = world.request("/a").reply
        assert reply is not None
        assert reply.get_all("content-type") == [value]


def test_where_no_route_adds_anything_a_hit_costs_no_call_more(world: World) -> None:
    world.envoy.added_by_route = []
    kept(world, "/a")
    assert world.request("/a").reply is not None
    calls = world.envoy.workers[0].imports.statuses
    before = calls.copy()
    assert world.request("/a").reply is not None
    made = {name: count for (name, _), count in (calls - before).items()}
    assert made["send_local_response"] == 1
    assert not made.keys() & {"add_header_map_value", "remove_header_map_value", "get_header_map_value"}
