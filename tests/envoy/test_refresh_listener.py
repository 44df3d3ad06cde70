"""What the refresh listener tells of answers that Envoy made itself; with real Envoy and the sidecar's refresher."""

from __future__ import annotations

import asyncio

import pytest
from envoy_data_plane.envoy.config.core.v3 import DataSource
from envoy_data_plane.envoy.config.route.v3 import DirectResponseAction, Route, RouteMatch
from envoy_rig import RecordingOrigin

from meshcache.engine.ports import RefreshError, RefreshRequest
from meshcache.engine.storing.fill import CopyBudget
from meshcache.envoy import bootstrap, filters
from meshcache.envoy.clusters import Origin
from meshcache.envoy.process import EnvoyProcess
from meshcache.extproc.refresher import HttpRefresher
from meshcache.message import Headers

pytestmark = pytest.mark.e2e


@pytest.fixture
async def fetch(make_rig):
    """Makes one refresh by way of the Envoy that runs with the given options."""
    refreshers = []

    async def refresh(options, fields=(), cluster=""):
        refresher = HttpRefresher(f"unix:{options.refresh_socket}")
        refreshers.append(refresher)
        request = RefreshRequest("http", "a", "/a", Headers(fields), cluster)
        return await refresher.fetch(request, 1000, CopyBudget(1000))

    yield refresh
    for refresher in refreshers:
        await refresher.close()


async def test_an_answer_of_the_origin_cannot_carry_the_mark(make_rig, fetch):
    rig = await make_rig()
    rig.origin.answer = b"HTTP/1.1 404 Not Found\r\nX-MeshCache-Local-Reply: 1\r\ncontent-length: 2\r\n\r\nno"
    response, body = await fetch(rig.options)
    assert (response.status, body) == (404, b"no")
    assert not [name for name, _ in response.headers if name.startswith("x-meshcache")]


async def test_no_more_can_its_trailers(make_rig, fetch):
    rig = await make_rig()
    rig.origin.answer = (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-meshcache-local-reply\r\n\r\n"
        b"2\r\nok\r\n0\r\nx-meshcache-local-reply: 1\r\n\r\n"
    )
    response, body = await fetch(rig.options)
    assert (response.status, body) == (200, b"ok")


@pytest.mark.parametrize(
    ("head", "body", "told"),
    [
        (b"connection: x-hop\r\ncontent-length: 2", b"ok", ("x-hop", None)),
        (b"connection: close\r\ntransfer-encoding: chunked", b"2\r\nok\r\n0\r\n\r\n", ("close", "chunked")),
        (b"connection: close", b"ok", ("close", None)),
        (b"x-meshcache-hop-connection: x\r\ncontent-length: 2", b"ok", (None, None)),
    ],
)
async def test_what_the_origin_says_of_its_connection_is_known(make_rig, fetch, head, body, told):
    rig = await make_rig()
    rig.origin.answer = b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + body
    rig.origin.closes = told[0] == "close"
    response, received = await fetch(rig.options)
    assert received == b"ok"
    assert (response.headers.get("connection"), response.headers.get("transfer-encoding")) == told
    assert not [name for name, _ in response.headers if name.startswith("x-meshcache")]


async def test_the_origin_is_down(options, short_folder, fetch):
    async with EnvoyProcess(options, short_folder):
        with pytest.raises(RefreshError, match="Envoy answered 503 itself"):
            await fetch(options)


async def test_the_origin_hangs_up(make_rig, fetch):
    rig = await make_rig()
    rig.origin.answer = b"nonsense\r\n\r\n"
    with pytest.raises(RefreshError, match=r"Envoy answered 50[23] itself"):
        await fetch(rig.options)


async def test_a_route_that_leads_nowhere(make_rig, fetch, monkeypatch):
    build = bootstrap._connection_manager

    def without_routes(name, chain, routes):
        if name == "refresh":
            none = DirectResponseAction(status=404, body=DataSource(inline_string="no route"))
            routes = [Route(match=RouteMatch(prefix="/"), direct_response=none)]
        return build(name, chain, routes)

    monkeypatch.setattr(bootstrap, "_connection_manager", without_routes)
    rig = await make_rig()
    with pytest.raises(RefreshError, match="Envoy answered 404 itself"):
        await fetch(rig.options)


async def test_a_request_that_envoy_refuses_before_any_filter(make_rig, fetch):
    rig = await make_rig()
    with pytest.raises(RefreshError, match="Envoy answered 431 itself"):
        await fetch(rig.options, [(f"x-{number}", "1") for number in range(250)])
    assert rig.origin.heads == []


@pytest.fixture
async def replica():
    """A second origin that says who it is."""
    origin = RecordingOrigin(answer=b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nreplica")
    async with await asyncio.start_server(origin.serve, "127.0.0.1", 0) as listener:
        origin.port = listener.sockets[0].getsockname()[1]
        yield origin


async def test_a_refresh_goes_to_the_cluster_that_it_names(make_rig, fetch, replica):
    where = Origin("127.0.0.1", replica.port, host_header="replica.test")
    rig = await make_rig(refresh_clusters={"replica": where})
    bodies = [(await fetch(rig.options, cluster=name))[1] for name in ("", "origin", "replica")]
    assert bodies == [b"ok", b"ok", b"replica"]
    (head,) = replica.heads
    assert "\r\nhost: replica.test\r\n" in head
    assert "x-meshcache" not in head + "".join(rig.origin.heads), "the choice is no affair of the origin"


@pytest.mark.parametrize("name", ["meshcache", "replica2", "127.0.0.1:9", "origin, replica"])
async def test_a_refresh_for_another_cluster_goes_nowhere(make_rig, fetch, replica, name):
    rig = await make_rig(refresh_clusters={"replica": Origin("127.0.0.1", replica.port)})
    with pytest.raises(RefreshError, match="Envoy answered 404 itself"):
        await fetch(rig.options, cluster=name)
    assert (rig.origin.heads, replica.heads) == ([], [])


async def test_a_client_cannot_choose_the_cluster(make_rig, replica):
    rig = await make_rig(refresh_clusters={"replica": Origin("127.0.0.1", replica.port)})
    answer = await rig.client.get("/a", headers={filters.REFRESH_CLUSTER_HEADER: "replica"})
    assert answer.text == "ok"
    assert replica.heads == []
    assert filters.REFRESH_CLUSTER_HEADER not in rig.sidecar.headers()
