"""A filter and a sidecar of releases that do not understand each other: both work, as if there were no filter."""

from __future__ import annotations

import asyncio
import shutil

import httpx
import pytest
from policy_sets import POLICIES
from running_mesh import Mesh, eventually, verdict

from meshcache.envoy.bootstrap import BootstrapOptions
from meshcache.envoy.clusters import Origin
from meshcache.envoy.process import EnvoyProcess
from meshcache.wasm import building, module

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


def another_release(folder):
    """The filter of a release that speaks another form of the feed."""
    sources = folder / "src"
    shutil.copytree(module.sources(), sources)
    feed = sources / "feed.zig"
    text = feed.read_text()
    assert text.count("/v1/feed?format=1&") == 1
    feed.write_text(text.replace("/v1/feed?format=1&", "/v1/feed?format=9&"))
    building.build(sources, folder / "other.wasm")
    return folder / "other.wasm"


async def test_the_sidecar_gives_another_release_no_plan_and_answers_as_ever(make_folder, origin, path):
    folder = make_folder()
    (folder / "policies").mkdir()
    (folder / "policies" / "policies.yaml").write_text(POLICIES)
    mesh = Mesh(folder, origin.url, folder / "policies")
    options = BootstrapOptions(
        listen=("127.0.0.1", 0),
        origin=Origin("127.0.0.1", origin.port),
        worker_sockets=(mesh.data / "run" / "worker-0.sock",),
        refresh_socket=folder / "refresh.sock",
        admin=folder / "envoy-admin.sock",
        wasm=await asyncio.to_thread(another_release, folder),
    )
    try:
        await mesh.serve("--show-all-to=127.0.0.0/8")
        async with EnvoyProcess(options, folder / "envoy") as envoy:
            mesh.base = f"http://127.0.0.1:{await envoy.listen_port()}"
            mesh.client = httpx.AsyncClient(base_url=mesh.base, trust_env=False, timeout=20)

            async def refused() -> bool:
                transport = httpx.AsyncHTTPTransport(uds=str(folder / "envoy-admin.sock"))
                async with httpx.AsyncClient(transport=transport) as admin:
                    text = (await admin.get("http://envoy/stats?filter=meshcache-filter.upstream_rq_400")).text
                return int(text.rpartition(" ")[2] or 0) > 0

            assert await eventually(refused)
            assert await mesh.settled(path)
            assert {verdict(await mesh.get(path)).tier for _ in range(3)} == {"hot"}
            assert (await mesh.get(path, method="POST")).status_code == 200
            assert not verdict(await mesh.get(path)).hit
            assert await mesh.metric("filter_workers") == 0
    finally:
        await mesh.stop()
