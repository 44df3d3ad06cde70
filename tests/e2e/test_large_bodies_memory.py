"""What large bodies take of a worker's memory, and what becomes of them where the stores fail."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path

import pytest
from running_mesh import Mesh, eventually, verdict
from scripted_origin import head, reply

from fixtures_valkey import LocalValkey

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

MIB = 1 << 20
FRESH = ("cache-control", "max-age=600")


def own_memory(pid: int) -> int:
    """Resident memory in bytes that a process shares with no file."""
    found = re.search(r"^RssAnon:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) * 1024


async def received(mesh: Mesh, path: str, **fields: str) -> tuple[int, bool]:
    """How many bytes came, and whether from the cache; they are not kept."""
    size = 0
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    async with mesh.client.stream("GET", path, headers=headers) as answer:
        async for part in answer.aiter_raw():
            size += len(part)
    return size, verdict(answer).hit


@pytest.mark.slow
async def test_64_mib_that_come_and_go_take_a_few_mib_of_a_worker(start_mesh, origin, name):
    mesh = await start_mesh()
    [pid] = await mesh.worker_pids()
    body = random.Random(5).randbytes(64 * MIB)
    path = f"/plain/{name}"

    async def hit():
        size, from_cache = await received(mesh, path)
        assert size == 64 * MIB
        return from_cache

    async def cycle(number):
        """One miss that is stored, and two hits."""

        # Slow enough for any disk: given up, it would prove nothing.
        async def paced(_asked, wire):
            await wire.send(head([FRESH, ("content-length", str(64 * MIB))]))
            for at in range(0, 64 * MIB, MIB):
                await wire.send(number.to_bytes(1, "big") + body[at + 1 : at + MIB])
                await asyncio.sleep(0.005)

        origin.script(path, paced)
        assert await received(mesh, path, cache_control="no-cache") == (64 * MIB, False)
        assert await eventually(hit), mesh.log
        assert await eventually(hit), mesh.log

    for number in range(2):
        await cycle(number)
    steady = own_memory(pid)
    most = steady
    for number in range(2, 4):
        work = asyncio.create_task(cycle(number))
        while not work.done():
            most = max(most, own_memory(pid))
            await asyncio.sleep(0.02)
        await work
    print(f"{steady / MIB:.1f} MiB, and up to {(most - steady) / MIB:.1f} MiB more")
    assert most - steady < 16 * MIB
    await mesh.stop()


@pytest.fixture
async def over_valkey(start_mesh, valkey: LocalValkey):
    mesh = await start_mesh("--warm", valkey.url)
    yield mesh
    await mesh.stop()


async def test_equal_bodies_are_in_redis_once(over_valkey, origin, name, valkey):
    mesh = over_valkey
    body = random.Random(6).randbytes(7 * MIB)
    sizes = []
    for number in range(2):
        path = f"/plain/{name}/{number}"
        origin.script(path, reply(200, [FRESH], body))
        await mesh.get(path)
        answer = await eventually(lambda path=path: mesh.hit(path))
        assert answer is not None
        assert answer.content == body
        assert verdict(answer).tier == "warm"
        with valkey.client() as client:
            sizes.append(client.info("memory")["used_memory"])
            assert len(list(client.scan_iter("mc1:c:*"))) == 28
    assert sizes[1] - sizes[0] < MIB


async def test_a_redis_that_dies_in_mid_body_costs_a_hit(over_valkey, origin, name, valkey):
    mesh = over_valkey
    path, body = f"/plain/{name}", random.Random(7).randbytes(6 * MIB)
    go_on = asyncio.Event()

    async def slowly(_asked, wire):
        await wire.send(head([FRESH, ("content-length", str(len(body)))]) + body[: 3 * MIB])
        await go_on.wait()
        await wire.send(body[3 * MIB :])

    origin.script(path, slowly)
    async with mesh.client.stream("GET", path) as answer:
        parts = answer.aiter_raw()
        got = await anext(parts)
        valkey.kill()
        go_on.set()
        async for part in parts:
            got += part
    assert got == body
    origin.script(path, reply(200, [FRESH], body))
    for _ in range(3):
        assert (await mesh.get(path)).content == body
    valkey.ensure()

    async def hit():
        return (await mesh.hit(path)) is not None

    assert await eventually(hit), "it is used again"
    assert (await mesh.get(path)).content == body
