"""`kill -9` of whatever stands behind Envoy, under load: no request fails, and caching resumes by itself."""

from __future__ import annotations

import asyncio
import os
import signal

import httpx
import pytest
import pytest_asyncio
from running_mesh import eventually, steady_load, verdict

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def backed_process(start_mesh, valkey_server):
    valkey_server.ensure()
    return await start_mesh("--workers", "2", "--warm", valkey_server.url)


@pytest_asyncio.fixture(loop_scope="session")
async def backed(backed_process, valkey):
    """Two workers before a Valkey of which nothing is left on disk when it is killed."""
    return backed_process


async def _all_ready(mesh, unlike):
    """Whether all workers serve and none of them is one of the processes `unlike`."""
    status = await mesh.status()
    return status["ready"] and all(worker["ready"] and worker["pid"] not in unlike for worker in status["workers"])


async def _many(seen):
    """Whether it was a load, on a slow machine too."""
    return seen.total() > 100


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV], ids=lambda number: number.name)
async def test_a_worker_that_dies_is_replaced_and_nobody_notices(backed, name, path, number):
    assert await backed.settled(path)
    victim = (await backed.worker_pids())[0]
    async with steady_load(backed, name) as seen:
        await asyncio.sleep(0.3)
        os.kill(victim, number)
        assert await eventually(lambda: _all_ready(backed, [victim]))
        await asyncio.sleep(0.3)
        assert await eventually(lambda: _many(seen))
    assert set(seen) == {"right"}
    assert await backed.settled(path)


async def test_a_worker_that_hangs_is_left_out_and_nobody_notices(backed, name, path):
    assert await backed.settled(path)
    victim = (await backed.worker_pids())[1]
    async with steady_load(backed, name) as seen:
        await asyncio.sleep(0.3)
        os.kill(victim, signal.SIGSTOP)
        try:
            await asyncio.sleep(1)
            # The other one serves, from the cache.
            assert await backed.settled(path)
        finally:
            os.kill(victim, signal.SIGCONT)
        assert await eventually(lambda: _all_ready(backed, []))
    assert set(seen) == {"right"}
    assert await backed.settled(path)


async def test_a_sidecar_that_dies_as_a_whole_comes_back_and_nobody_notices(backed, name, path):
    assert await backed.settled(path)
    status = await backed.status()
    workers = [worker["pid"] for worker in status["workers"]]
    async with steady_load(backed, name) as seen:
        await asyncio.sleep(0.3)
        os.kill(status["pid"], signal.SIGKILL)

        async def back():
            try:
                return await _all_ready(backed, workers)
            except httpx.HTTPError:
                return False

        assert await eventually(back)
        await asyncio.sleep(0.3)
    assert set(seen) == {"right"}
    # What had been stored is in the store that outlives the sidecar.
    assert await backed.settled(path)


@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_a_store_that_goes_away_and_comes_back(backed, valkey, name, path, how):
    assert await backed.settled(path)
    async with steady_load(backed, name) as seen:
        await asyncio.sleep(0.3)
        getattr(valkey, how)()
        await asyncio.sleep(1)
        # Memory goes on serving.
        assert verdict(await backed.get(path)).hit
        valkey.ensure()

        async def in_use():
            return not any(tier["breakerOpen"] for tier in (await backed.status())["tiers"])

        assert await eventually(in_use)
    assert set(seen) == {"right"}
    assert await backed.settled(f"{path}/after")
    assert await backed.metric("stream_errors_total") == 0, backed.log
