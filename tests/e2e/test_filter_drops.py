"""The filter in two workers of Envoy: once a purge is not pending, or a POST answered, nobody gets the old answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time

import httpx
import pytest
import pytest_asyncio
from policy_sets import policies
from purge_races import Admin, Changing, race
from running_mesh import Mesh, eventually, verdict
from scripted_origin import Asked, Wire, reply

from meshcache.extproc import filter_living
from meshcache.extproc.filter_state import FOLDER

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

RACES = int(os.environ.get("PURGE_RACES", "20"))
LEAVING = min(RACES, 100)
"""Clients that leave."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def mesh(start_mesh) -> Mesh:
    """Two workers of the sidecar, two of Envoy."""
    made: Mesh = await start_mesh("--workers", "2", "--concurrency", "2", wasm=True)
    return made


async def _filters(mesh: Mesh) -> list[str]:
    """The filters that may answer by themselves."""
    return [one["name"] for one in (await mesh.status())["filters"] if one["living"] and one["plan"]]


async def _written(mesh: Mesh, names: list[str]) -> bool:
    """Whether a supervisor that begins anew will know of these filters."""
    known = {f"envoy-{name}" for name in filter_living.read(mesh.data / FOLDER / filter_living.FILE_NAME)}
    return set(names) <= known


async def _hot(mesh: Mesh, path: str) -> None:
    """Wait until Envoy answers it by itself."""

    async def there() -> bool:
        return verdict(await mesh.get(path)).tier == "wasm"

    assert await eventually(there), mesh.log


@pytest.mark.timeout(1200)
async def test_races_of_purges(mesh, origin, path, name):
    assert await eventually(lambda: _filters(mesh)), mesh.log
    content = Changing(origin, path, f"tag-{name}")
    await _hot(mesh, path)
    before = await mesh.metric("requests_total", tier="wasm")
    watchers = await race([mesh], content, RACES)
    assert watchers.wrong == []
    assert watchers.hits > RACES

    async def counted() -> bool:
        return await mesh.metric("requests_total", tier="wasm") - before > watchers.hits / 10

    assert await eventually(counted)


async def test_after_an_answer_to_a_post_nobody_gets_the_old_one(mesh, origin, path):
    version = 0

    async def answer(asked: Asked, wire: Wire) -> None:
        nonlocal version
        if asked.method == "POST":
            version += 1
            await wire.send(reply(200, [], b"done"))
            return
        body = str(version).encode()
        await asyncio.sleep(random.uniform(0.0, 0.01))
        await wire.send(reply(200, [("cache-control", "max-age=3600")], body))

    origin.script(path, answer)
    await _hot(mesh, path)
    floor, wrong, hot, done = 0, [], 0, asyncio.Event()

    async def watch() -> None:
        nonlocal hot
        async with httpx.AsyncClient(base_url=mesh.base, trust_env=False, timeout=20) as client:
            while not done.is_set():
                least = floor
                got = await client.get(path)
                hot += verdict(got).tier == "wasm"
                if int(got.text) < least:
                    wrong.append((least, got.text, dict(got.headers)))
                await asyncio.sleep(random.uniform(0.0, 0.002))

    async def hot_enough(number: int) -> bool:
        return hot > number

    tasks = [asyncio.create_task(watch()) for _ in range(6)]
    for number in range(40):
        assert await eventually(lambda number=number: hot_enough(number))
        await asyncio.sleep(random.uniform(0.0, 0.05))
        assert (await mesh.client.post(path, content=b"x")).status_code == 200
        floor = version
    assert await eventually(lambda: hot_enough(40))
    done.set()
    await asyncio.gather(*tasks)
    assert wrong == []


async def test_a_client_that_leaves_before_his_answer_leaves_nothing_old(mesh, origin, path):
    """The sidecar may have seen the origin's answer when Envoy's filter will never see it."""
    version = 0

    async def answer(asked: Asked, wire: Wire) -> None:
        nonlocal version
        version += asked.method == "POST"
        await wire.send(reply(200, [("cache-control", "max-age=3600")], str(version).encode()))

    origin.script(path, answer)
    post = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{mesh.port}\r\ncontent-length: 0\r\n\r\n".encode()
    began = time.perf_counter()
    for _ in range(5):
        await mesh.raw(post)
    usual = (time.perf_counter() - began) / 5
    for number in range(LEAVING):
        await _hot(mesh, path)
        _, writer = await asyncio.open_connection("127.0.0.1", mesh.port)
        writer.write(post)
        await asyncio.sleep(usual * (0.3 + number / LEAVING))
        writer.transport.abort()
        await asyncio.sleep(0.2)
        # Not looked up by the filter. Where the sidecar has what was before, the answer to POST was lost to it as well.
        asked = await mesh.get(path, {"cache-control": "max-age=9999"})
        assert asked.text != str(version) or (await mesh.get(path)).text == asked.text


async def test_a_purge_right_after_a_restart_waits_for_filters_of_before(mesh, origin, path, name):
    content = Changing(origin, path, f"tag-{name}")
    await _hot(mesh, path)
    admin = Admin(mesh)
    try:
        before = await _filters(mesh)
        # It is written down once a second who asks.
        assert await eventually(lambda: _written(mesh, before)), mesh.log
        pid = (await mesh.status())["pid"]
        os.kill(pid, signal.SIGKILL)

        async def back() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                status = await mesh.status()
                return status["pid"] != pid and status["ready"]
            return False

        assert await eventually(back), mesh.log
        content.version += 1
        result = await admin.purge(tags=[f"tag-{name}"])
        named = {*result["acknowledged"], *result["pending"]}
        assert set(before) <= named
        await admin.settled(result)
        for _ in range(20):
            assert (await mesh.get(path)).text == "1"
    finally:
        await admin.close()


async def test_a_shorter_lifetime_binds_for_what_filters_hold(mesh, origin, path):
    """The plan stays as it is when only a lifetime changes; what was kept by the longer one goes all the same."""
    origin.script(path, reply(200, [], b"x"))
    await mesh.put_policies(policies(plain="freshness: {defaultTtl: 1h}"))
    await _hot(mesh, path)
    await mesh.put_policies(policies(plain="freshness: {defaultTtl: 1s}"))

    async def told() -> bool:
        status = await mesh.status()
        newest = status["policies"]["generation"]
        return all(one["generation"] == newest for one in status["filters"] if one["living"])

    assert await eventually(told), mesh.log
    for _ in range(60):
        answer = await mesh.get(path)
        assert int(answer.headers.get("age", "0")) <= 1
        await asyncio.sleep(0.05)
    await mesh.put_policies(policies())
