"""Experiments that are decided by what is really counted: real Envoy, real workers, a real store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from running_mesh import Mesh, eventually, verdict
from scripted_origin import reply

from meshcache.admin.token import Token

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

POLICIES = """\
apiVersion: meshcache.dev/v1alpha1
kind: CacheConfig
metadata: {name: default}
spec:
  trust: {cacheStatus: {from: [{addresses: [127.0.0.1]}]}, canaryHeader: {from: [{addresses: [127.0.0.1]}]}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: good}
spec: {freshness: {defaultTtl: 60s}, tiers: {warm: {deadline: 900ms}, cold: {deadline: 900ms}}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: bad}
spec: {freshness: {maxTtl: 0s}, tiers: {warm: {deadline: 900ms}, cold: {deadline: 900ms}}, collapse: {enabled: false}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: judged}
spec:
  match: [{path: {prefix: /judged}}]
  policyRef: {name: good}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheExperiment
metadata: {name: worse}
spec:
  routeRef: {name: judged}
  unit: [{header: x-user-id}]
  arms:
    - {name: control, policyRef: {name: good}, weight: 50}
    - {name: candidate, policyRef: {name: bad}, weight: 50, force: [{header: x-canary, exact: v2}]}
  compare: {candidate: candidate, against: control}
  primary: {metric: hitRatio, direction: increase}
  guardrails:
    - {metric: hitRatio, maxDecrease: {absolute: 10%}, for: 1s, minUnits: 40}
    - {metric: errorRate, maxIncrease: {absolute: 5%}, for: 1s, minUnits: 40}
  warmup: 1s
"""
KEYS = 10
USERS = 300


async def asked(mesh: Mesh, order: str = "") -> dict[str, Any]:
    """The experiment as the admin API shows it, after an order if there is one: what the command does, without it."""
    transport = httpx.AsyncHTTPTransport(uds=str(mesh.data / "run" / "admin.sock"))
    async with httpx.AsyncClient(transport=transport, base_url="http://meshcache", timeout=20) as client:
        if order:
            header = Token.load(mesh.data / "admin.token").header
            answer = await client.post(f"/experiments/worse/{order}", headers=header)
        else:
            answer = await client.get("/experiments/worse")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def decided(found: dict[str, Any]) -> list[str]:
    return [decision["what"] for decision in found["decisions"]]


async def phase(mesh: Mesh) -> str:
    (found,) = (await mesh.status())["experiments"]
    return "" if found["overlay"] is None else str(found["overlay"]["phase"])


async def arms(mesh: Mesh, headers: dict[str, str] | None = None) -> set[str]:
    """The arms that 20 users get, by several workers."""
    answers = await asyncio.gather(
        *(mesh.get("/judged/0", {"x-user-id": f"u{number}"} | (headers or {})) for number in range(20))
    )
    return {verdict(answer).arm for answer in answers}


@contextlib.asynccontextmanager
async def users(mesh: Mesh) -> AsyncIterator[Counter[int]]:
    """Users that ask for a few things again and again, all the time."""
    seen: Counter[int] = Counter()
    stop = asyncio.Event()

    async def ask(number: int) -> None:
        turn = number
        while not stop.is_set():
            turn += 7
            user = {"x-user-id": f"u{turn % USERS}"}
            seen[(await mesh.get(f"/judged/{turn % KEYS}", user)).status_code] += 1
            await asyncio.sleep(0.02)

    clients = [asyncio.create_task(ask(number)) for number in range(4)]
    try:
        yield seen
    finally:
        stop.set()
        await asyncio.gather(*clients)


def answers(origin: Any) -> None:
    for key in range(KEYS):
        origin.script(f"/judged/{key}", reply(200, [("cache-control", "max-age=60")], b"x"))


async def test_a_worse_candidate_is_taken_back_by_itself_and_stays_so(start_mesh, origin):
    answers(origin)
    mesh = await start_mesh("--workers", "2", policies=POLICIES)

    async def running() -> bool:
        return await phase(mesh) == "Running"

    assert await eventually(running)
    # Without traffic nothing happens, and it is said what is waited for.
    await asyncio.sleep(1.5)
    found = await asked(mesh)
    assert (decided(found), found["missing"]) == (["Started", "Counting"], ["requests that are counted"])
    assert await arms(mesh) == {"control", "candidate"}

    async with users(mesh) as seen:

        async def rolled_back() -> bool:
            return await phase(mesh) == "RolledBack"

        # One of those that count is killed in the middle of it.
        await asyncio.sleep(1)
        os.kill((await mesh.worker_pids())[0], signal.SIGKILL)
        assert await eventually(rolled_back), await asked(mesh)
    assert set(seen) == {200}
    found = await asked(mesh)
    (evidence,) = found["decisions"][-1]["evidence"]
    assert (evidence["metric"], evidence["allowed"]) == ("hitRatio", 0.1)
    assert evidence["high"] < -0.1
    assert min(evidence["units"]) >= 40
    assert await eventually(lambda: _are(mesh, {"control"}))
    # Whoever forces an arm is on control as well, after a rollback.
    assert await arms(mesh, {"x-canary": "v2"}) == {"control"}
    assert found["arms"][1]["hitRatio"] < 0.1 < found["arms"][0]["hitRatio"]
    assert await eventually(lambda: mesh.metric("experiment_phase", phase="RolledBack")) == 1
    assert await mesh.metric("experiment_decisions_total", decision="RolledBack", by="decider") == 1

    # It outlives everything, and the same files once more.
    await mesh.kill()
    again = await start_mesh("--workers", "2", policies=POLICIES, folder=mesh.folder)
    assert await phase(again) == "RolledBack"
    assert await arms(again) == {"control"}
    await again.put_policies(POLICIES + "\n# once more\n")
    await asyncio.sleep(1.5)
    assert await phase(again) == "RolledBack"

    # By hand.
    assert (await asked(again, "resume"))["phase"] == "Warming"
    where = ("--data", str(again.data))
    done = await again.command("experiment", "rollback", "worse", "--reason", "a test", *where)
    assert done == (0, "worse  RolledBack  control 100%, candidate 0%\n", "")
    refused, unknown = await asyncio.gather(
        *(again.command("experiment", *words, *where) for words in (("rollback", "worse"), ("show", "other")))
    )
    assert refused == (1, "", "meshcache: worse is RolledBack already\n")
    assert unknown == (1, "", "meshcache: no experiment in force is named other\n")
    assert await arms(again) == {"control"}

    async def audited() -> list[tuple[str, int]]:
        lines = [json.loads(line) for line in (again.data / "audit.log").read_text().splitlines()]
        orders = [line for line in lines if line["action"] == "experiment" and line["what"] == "RolledBack"]
        return [(line["text"], line["who"]["uid"]) for line in orders if line.get("text") == "a test"]

    # By a thread, a moment after it was carried out.
    assert await eventually(audited) == [("a test", os.getuid())]
    # Another text is another experiment.
    await again.put_policies(POLICIES.replace("warmup: 1s", "warmup: 2s"))

    async def anew() -> bool:
        return await phase(again) in ("Warming", "Running")

    assert await eventually(anew)
    await again.stop()


async def _are(mesh: Mesh, expected: set[str]) -> bool:
    return await arms(mesh) == expected


@pytest.mark.skipif("TWO_PODS" not in os.environ, reason="a part of `make proofs PARTS=deciders`")
async def test_two_pods_and_a_valkey_that_dies_in_the_middle(start_mesh, make_folder, origin, valkey):
    answers(origin)
    arguments = ("--warm", valkey.url, "--workers", "1")
    one = await start_mesh(*arguments, policies=POLICIES)
    # Pods of one installation have its keys.
    folder = make_folder()
    (folder / "data").mkdir()
    shutil.copytree(one.data / "keys", folder / "data" / "keys")
    other = await start_mesh(*arguments, policies=POLICIES, folder=folder)

    async def both(wanted: str) -> bool:
        return {await phase(one), await phase(other)} == {wanted}

    assert await eventually(lambda: both("Running"))
    async with users(one) as seen, users(other):
        await asyncio.sleep(0.7)
        valkey.kill()
        await asyncio.sleep(1)
        assert await both("Running")
        valkey.start()
        assert await eventually(lambda: both("RolledBack"), 30), (await asked(one), await asked(other))
    assert set(seen) == {200}
    first, second = await asked(one), await asked(other)
    assert decided(first) == decided(second) == ["Started", "Counting", "RolledBack"]
    assert {first["leads"], second["leads"]} == {True, False}
    # What both have counted, not what one has.
    for found in (first, second):
        own = await (one if found is first else other).metric("experiment_requests_total")
        assert sum(arm["requests"] for arm in found["arms"]) > own
    # From the pod that does not lead, and both are there within two seconds.
    follower = one if second["leads"] else other
    await asked(follower, "resume")
    assert await eventually(lambda: both("Running"))
    began = time.monotonic()
    await asked(follower, "rollback")
    assert await eventually(lambda: both("RolledBack"))
    assert await arms(one) == await arms(other) == {"control"}
    assert time.monotonic() - began < 2.0
    for mesh in (one, other):
        await mesh.stop()
