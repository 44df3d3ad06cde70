"""A background refresh that does not reach the origin leaves what is stored as it was."""

from __future__ import annotations

import pytest
import pytest_asyncio
from envoy_data_plane.envoy.config.core.v3 import DataSource
from envoy_data_plane.envoy.config.route.v3 import DirectResponseAction, Route, RouteMatch
from own_envoy import behind_envoy
from policy_sets import POLICIES
from running_mesh import Mesh, eventually, verdict
from scripted_origin import reply

from meshcache.envoy import bootstrap

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

LIFETIME = ("cache-control", "max-age=60")
STALE = reply(200, [LIFETIME, ("age", "100")], b"old")
"""Older than its lifetime from the start."""


@pytest_asyncio.fixture(loop_scope="session")
async def lost(make_folder, origin, monkeypatch):
    """`meshcache serve` beside an Envoy whose refresh listener has no route to the origin: it answers 404 itself."""
    build = bootstrap._connection_manager

    def without_routes(name, chain, routes):
        if name == "refresh":
            none = DirectResponseAction(status=404, body=DataSource(inline_string="no route"))
            routes = [Route(match=RouteMatch(prefix="/"), direct_response=none)]
        return build(name, chain, routes)

    monkeypatch.setattr(bootstrap, "_connection_manager", without_routes)
    # A policy that would store a 404 of the origin.
    greedy = POLICIES.replace("staleWhileRevalidate: 1h", "staleWhileRevalidate: 1h, defaultTtl: 60s")
    greedy = greedy.replace("defaultTtl: 60s}", "defaultTtl: 60s, negative: [{status: 404, ttl: 60s}]}", 1)
    assert "negative: [{status: 404, ttl: 60s}]}" in greedy
    async with behind_envoy(make_folder(), origin, policies=greedy) as mesh:
        yield mesh


async def stays(mesh: Mesh, path: str) -> None:
    """Ask until one more refresh has failed, and once more."""
    failed = await mesh.metric("refreshes_total", outcome="error")

    async def one_more() -> bool:
        answer = await mesh.get(path)
        assert (verdict(answer).hit, answer.status_code, answer.content) == (True, 200, b"old")
        return await mesh.metric("refreshes_total", outcome="error") > failed

    assert await eventually(one_more), mesh.log
    answer = await mesh.get(path)
    assert (verdict(answer).hit, answer.content) == (True, b"old")


async def test_the_origin_is_down(mesh, origin, name):
    path = f"/stale/{name}"
    origin.script(path, STALE)
    await mesh.get(path)
    async with origin.down():
        await stays(mesh, path)
    origin.script(path, reply(200, [LIFETIME], b"new"))
    assert await mesh.settled(path, body=b"new")


async def test_envoy_knows_no_way_and_says_404(lost, origin, name):
    path = f"/stale/{name}"
    origin.script(path, STALE)
    await lost.get(path)
    await stays(lost, path)
    await stays(lost, path)
    assert origin.count(path) == 1
