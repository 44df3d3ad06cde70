"""The filter and ext_proc as Envoy Gateway puts them: what is answered, and that internal headers stay inside."""

from __future__ import annotations

import pytest
import pytest_asyncio
from gateway_envoy import gateway
from hot_mesh import Crowd
from own_envoy import mesh_under, sidecar_under
from running_mesh import verdict
from scripted_origin import reply
from test_filter_guarded import SHOWN, options_for
from test_filter_served import FORGED

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

FRESH = ("cache-control", "max-age=600")


def internal(names):
    return [name for name in names if name.startswith("x-meshcache-")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(make_folder, origin):
    """A sidecar, and the clients of such an Envoy before it."""
    async with (
        sidecar_under(SHOWN, make_folder(), origin.url) as run,
        gateway(options_for(run, origin), run / "envoy") as url,
    ):
        crowd = Crowd(url)
        yield crowd
        await crowd.close()


async def test_hits_come_from_envoy_until_something_changes(served, origin, path):
    origin.script(path, reply(200, [FRESH], b"old"))
    await served.heat(path)
    asked = origin.count(path)
    for answer in await served.get(path):
        assert answer.text == "old"
        assert not internal(answer.headers)
    assert origin.count(path) == asked
    origin.script(path, reply(200, [FRESH], b"new"))
    assert (await served.clients[0].post(path)).status_code == 200
    assert {answer.text for answer in await served.get(path)} == {"new"}
    assert not any(internal(dict(one.fields)) for one in origin.asked(path))


async def test_what_clients_forge_reaches_nobody(served, origin, path):
    await served.heat(path)
    assert await served.tiers(path, FORGED) == {"wasm"}
    for method, where in (("GET", path + "-cold"), ("POST", path), ("GET", "/elsewhere")):
        for answer in await served.get(where, FORGED, method=method):
            assert answer.status_code == 200
            assert not internal(answer.headers)
        assert origin.asked(where)
        assert not any(internal(dict(one.fields)) for one in origin.asked(where))


async def test_what_origins_forge_is_worth_nothing(served, origin, path):
    await served.heat(path)
    other = path + "-private"
    origin.script(other, reply(200, [("cache-control", "no-store"), *FORGED.items()], b"mine"))
    for _ in range(3):
        for answer in await served.get(other):
            assert not verdict(answer).hit
            assert not internal(answer.headers)
    assert await served.tiers(path) == {"wasm"}


async def test_without_the_sidecar_nothing_internal_reaches_the_origin(make_folder, origin, path):
    """The filter still has its plan for some seconds, and asks whoever stands behind it."""
    mesh = mesh_under(SHOWN, make_folder(), origin.url)
    run = mesh.data / "run"
    async with gateway(options_for(run, origin), run / "envoy") as url:
        crowd = Crowd(url)
        try:
            await mesh.serve("--refresh-url", f"unix:{run / 'refresh.sock'}")
            await crowd.heat(path)
            await mesh.kill()
            for method, where in (("GET", path + "-cold"), ("POST", path)):
                answers = await crowd.get(where, method=method)
                assert {answer.status_code for answer in answers} == {200}
                assert not any(internal(dict(one.fields)) for one in origin.asked(where))
        finally:
            await crowd.close()
            await mesh.stop()
