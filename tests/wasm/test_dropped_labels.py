"""Labels that are dropped: what goes with them, and what stays."""

from __future__ import annotations

from collections.abc import Callable

from hot_filter import World
from hot_filter.world import Life
from meshcache.wasm.labels import Kind, label


def test_a_label_takes_nothing_along_that_somebody_has_looked_for(make_world: Callable[..., World]) -> None:
    # Labels of 64 bits share 65,536 slots. Which paths have labels that end like a route's, anybody can find out.
    world = make_world()
    world.add_worker()
    world.get("/a")
    assert world.get("/a").stored is not None
    route = label(Kind.ROUTE, world.route(world.request("/a").request, world.model.plans[0]).encode())
    for number in range(1, 50):
        world.drop((route & 0xFFFF | number << 16,))
        world.drop((route ^ 1 << 62 + number % 2,))
    world.settle()
    assert world.request("/a").reply is not None
    world.drop((route,))
    world.settle()
    assert world.request("/a").reply is None


def test_a_worker_without_requests_keeps_up_with_what_others_drop(make_world: Callable[..., World]) -> None:
    world = make_world()
    for worker in range(2):
        world.add_worker()
        world.request("/a", worker=worker).answer(life=Life())
    for number in range(400):
        world.request(f"/changed/{number}", method="PUT").answer()
        if number % 100 == 0:
            world.envoy.advance(0.1)
            world.settle()
    assert world.request("/a", worker=1).reply is not None
