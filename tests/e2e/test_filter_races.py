"""Races with the filter in two workers of Envoy: purges, unsafe requests, and a sidecar that stops or goes away.

`make proofs PARTS=hot` runs the long forms: FILTER_RACES says how many, FILTER_LONG=1 has the lease run out.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter

import pytest
from hot_mesh import crowd_of
from purge_races import Admin, Changing, race
from running_mesh import eventually, steady_load, verdict
from scripted_origin import reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

RACES = int(os.environ.get("FILTER_RACES", "7"))
ROLLBACKS = max(2, RACES // 10)
LONG = os.environ.get("FILTER_LONG") == "1"
LEASE = 10.0


@pytest.mark.timeout(3600)
async def test_races_of_purges_with_hot_answers(hot, origin, path, name):
    content = Changing(origin, path, f"tag-{name}", slowest=0.01)
    before = await hot.metric("requests_total", tier="wasm")
    watchers = await race([hot], content, RACES)
    assert watchers.wrong == []
    assert watchers.hits > RACES

    async def counted():
        return await hot.metric("requests_total", tier="wasm") > before

    assert await eventually(counted), "none of the answers came from the filter"


@pytest.mark.timeout(3600)
async def test_races_of_unsafe_requests_with_hot_answers(hot, origin, path):
    """Many clients of both workers; what one has been told that it has changed, nobody gets as it was."""
    made = told = 0
    wrong = []
    hot_answers = 0
    stop = asyncio.Event()

    async def content(asked, wire):
        nonlocal made
        made += asked.method == "POST"
        body = str(made).encode()
        await asyncio.sleep(random.uniform(0, 0.005))
        await wire.send(reply(200, [("cache-control", "max-age=3600")], body))

    async def reader(client):
        nonlocal hot_answers
        while not stop.is_set():
            floor = told
            answer = await client.get(path)
            hot_answers += verdict(answer).tier == "wasm"
            if answer.status_code != 200 or int(answer.text) < floor:
                wrong.append(f"{answer.status_code} {answer.text} for {floor}: {answer.headers.get('cache-status')}")
            await asyncio.sleep(0)

    async def hot_enough(number):
        return hot_answers > number

    origin.script(path, content)
    async with crowd_of(hot) as crowd:
        writers, readers = crowd.clients[:3], crowd.clients[3:]
        tasks = [asyncio.create_task(reader(client)) for client in readers]
        for number in range(RACES):
            assert await eventually(lambda number=number: hot_enough(number))
            await asyncio.sleep(random.uniform(0, 0.06))
            answer = await writers[number % len(writers)].post(path)
            told = max(told, int(answer.text))
        assert await eventually(lambda: hot_enough(RACES))
        stop.set()
        await asyncio.gather(*tasks)
    assert wrong == []


@pytest.mark.timeout(3600)
async def test_after_a_rollback_nobody_gets_the_candidate(hot, name):
    """Under load, again and again: once the order is carried out, no worker of Envoy gives the candidate's answer."""
    path, canary = f"/tested/{name}", {"x-canary": "v2", "x-user-id": "u"}
    taken_back = 0
    """Which rollback is in force; 0 for none."""
    seen = Counter()
    wrong = []
    stop = asyncio.Event()

    async def reader(client):
        while not stop.is_set():
            began = taken_back
            answer = verdict(await client.get(path, headers=canary))
            seen[answer.arm, answer.tier] += 1
            if began and began == taken_back and answer.arm != "control":
                wrong.append(f"{answer.arm} from {answer.tier}")
            await asyncio.sleep(0.005)

    admin = Admin(hot)
    async with crowd_of(hot) as crowd, crowd_of(hot) as load:
        tasks = [asyncio.create_task(reader(client)) for client in load.clients]

        async def gone_on():
            return {verdict(answer).arm for answer in await crowd.get(path, canary)} == {"candidate"}

        try:
            for number in range(1, ROLLBACKS + 1):
                assert await eventually(gone_on)
                await crowd.heat(path, canary)
                await admin.order("comparison", "rollback")
                taken_back = number
                await crowd.heat(path, canary)
                taken_back = 0
                await admin.order("comparison", "resume")
        finally:
            stop.set()
            await asyncio.gather(*tasks)
            await admin.close()
        assert await eventually(gone_on)
    assert wrong == []
    assert {("candidate", "wasm"), ("control", "wasm")} <= set(seen)


async def test_a_sidecar_that_dies_and_comes_back(hot, name, path):
    async with crowd_of(hot) as crowd:
        await crowd.heat(path)
        status = await hot.status()
        async with steady_load(hot, name) as seen:
            os.kill(status["pid"], signal.SIGKILL)
            # The filter goes on by itself for a while.
            assert await crowd.tiers(path) == {"wasm"}
            await asyncio.sleep(0.5)
        assert set(seen) == {"right"}
        # It takes a while to start, and longer on a busy machine.
        await crowd.heat(f"{path}/after", within=60)


@pytest.mark.skipif(not LONG, reason="waits for the lease to run out: make proofs PARTS=hot")
async def test_when_the_lease_is_over_nothing_is_served_from_envoy(hot, name, path):
    async with crowd_of(hot) as crowd:
        await crowd.heat(path)
        frozen = (await hot.status())["pid"]
        os.kill(frozen, signal.SIGSTOP)
        began = time.monotonic()
        try:
            async with steady_load(hot, name) as seen:
                assert await crowd.tiers(path) == {"wasm"}
                while "wasm" in await crowd.tiers(path):
                    assert time.monotonic() - began < LEASE + 1
                    await asyncio.sleep(0.05)
                assert time.monotonic() - began > LEASE - 4
                assert await crowd.tiers(path) == {"hot"}
        finally:
            os.kill(frozen, signal.SIGCONT)
        assert set(seen) == {"right"}
        await crowd.heat(path)
