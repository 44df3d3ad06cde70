"""A filter and a sidecar of releases that do not understand each other: both work, as if there were no filter."""

from __future__ import annotations

import asyncio
import shutil

import httpx
import pytest
from own_envoy import behind_envoy
from running_mesh import eventually, verdict

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
    other = await asyncio.to_thread(another_release, folder)
    async with behind_envoy(folder, origin, "--show-all-to=127.0.0.0/8", wasm=other) as mesh:

        async def refused() -> bool:
            transport = httpx.AsyncHTTPTransport(uds=str(folder / "envoy-admin.sock"))
            async with httpx.AsyncClient(transport=transport, timeout=20) as admin:
                text = (await admin.get("http://envoy/stats?filter=meshcache-filter.upstream_rq_400")).text
            return int(text.rpartition(" ")[2] or 0) > 0

        assert await eventually(refused)
        assert await mesh.settled(path)
        assert {verdict(await mesh.get(path)).tier for _ in range(3)} == {"hot"}
        assert (await mesh.get(path, method="POST")).status_code == 200
        assert not verdict(await mesh.get(path)).hit
        assert await mesh.metric("filter_workers") == 0
        assert await mesh.metric("filter_polls_total", answer="refused") > 0
