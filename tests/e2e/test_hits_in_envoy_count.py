"""What Envoy answers by itself counts like everything else, exactly, also through a killed sidecar."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from typing import Any

import httpx
import pytest
from running_mesh import Mesh, eventually, verdict
from scripted_origin import reply
from test_decided_experiments import KEYS, POLICIES, asked, phase

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

# Neither is better: the candidate, of which nothing is cached, is no matter of guardrails here.
WITHOUT_GUARDRAILS = POLICIES[: POLICIES.index("  guardrails:")] + "  warmup: 1s\n"
PRICED = WITHOUT_GUARDRAILS.replace(
    "tiers: {warm: {deadline: 900ms}, cold: {deadline: 900ms}}}\n---",
    "tiers: {warm: {deadline: 900ms}, cold: {deadline: 900ms}}, cost: {perOriginRequest: 0.25, currency: EUR}}\n---",
    1,
)
USERS = 40


class Users:
    """One request after the other, and what is said of each."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.turn = 0
        self.requests: Counter[str] = Counter()
        self.hits: Counter[str] = Counter()
        self.in_envoy: Counter[str] = Counter()
        self.stale = 0

    async def ask(self, count: int) -> None:
        """So many requests. One that only the origin has answered is not counted by anybody."""
        for _ in range(count):
            self.turn += 1
            path = f"/judged/{self.turn * 7 % KEYS}"
            answer = await self.mesh.get(path, {"x-user-id": f"u{self.turn * 31 % USERS}"})
            assert answer.status_code == 200
            seen = verdict(answer)
            if seen.arm:
                self.requests[seen.arm] += 1
                self.hits[seen.arm] += seen.hit
                self.in_envoy[seen.arm] += seen.tier == "wasm"

    async def counted(self) -> bool:
        """Whether experiment and metrics say the same, to the last request."""
        arms = (await asked(self.mesh))["arms"]
        requests = Counter({arm["name"]: arm["requests"] for arm in arms})
        hits = Counter({arm["name"]: round((arm["hitRatio"] or 0.0) * arm["requests"]) for arm in arms})
        metrics = Counter(
            {arm: int(await self.mesh.metric("requests_total", tier="wasm", arm=arm)) for arm in self.requests}
        )
        return (requests, hits, metrics) == (self.requests, self.hits, self.in_envoy)


async def started(start_mesh: Any, origin: Any) -> Users:
    """Both arms are asked, and Envoy answers what it can."""
    for key in range(KEYS):
        head = [("cache-control", "max-age=60"), ("content-type", "text/plain")]
        origin.script(f"/judged/{key}", reply(200, head, b"x"))
    mesh = await start_mesh(policies=PRICED, wasm=True)

    async def running() -> bool:
        return await phase(mesh) == "Running"

    assert await eventually(running), mesh.log
    users = Users(mesh)

    async def in_envoy() -> bool:
        await users.ask(5)
        return users.in_envoy.total() > 0

    assert await eventually(in_envoy), mesh.log
    return users


async def test_hits_in_envoy_are_in_experiments_and_metrics(start_mesh, origin):
    users = await started(start_mesh, origin)
    await users.ask(150)
    assert users.in_envoy["control"] > 0.5 * users.requests["control"]
    assert users.in_envoy["candidate"] == 0
    assert await eventually(users.counted), (users.requests, users.hits, await asked(users.mesh))
    code, out, _ = await users.mesh.command("experiment", "show", "worse", "--json", "--data", str(users.mesh.data))
    assert code == 0
    arms = {arm["name"]: arm for arm in json.loads(out)["arms"]}
    assert arms["control"]["requests"] == users.requests["control"]
    # Each hit has saved one request to the origin.
    assert arms["control"]["costSaved"] == pytest.approx(0.25 * users.hits["control"])
    # Nearly everything of the control arm took Envoy no time to speak of.
    assert arms["control"]["latencyMean"] < arms["candidate"]["latencyMean"]
    assert arms["control"]["units"] + arms["candidate"]["units"] == USERS
    # What Envoy sends past the sidecar counts as well: each request is one, and of one kind.
    for _ in range(10):
        assert "cache-status" not in (await users.mesh.get("/nowhere")).headers

    async def all_told() -> bool:
        return await users.mesh.metric("requests_total") == users.turn + 10

    assert await eventually(all_told), await users.mesh.metric("requests_total")
    assert await users.mesh.metric("requests_total", decision="bypass", reason="no-route") == 10
    await users.mesh.stop()


@pytest.mark.skipif("KILLS" not in os.environ, reason="a sidecar begins twice; make proofs PARTS=numbers runs it")
async def test_each_hit_counts_once_though_the_sidecar_is_killed(start_mesh, origin):
    users = await started(start_mesh, origin)
    mesh = users.mesh
    for _ in range(2):
        await users.ask(60)
        before = users.in_envoy.total()
        status = await mesh.status()
        os.kill(status["pid"], signal.SIGKILL)
        # While nobody is there to take the counts.
        await users.ask(60)
        assert users.in_envoy.total() > before

        async def serves(gone: int = status["pid"]) -> bool:
            try:
                found = await mesh.status()
            except (httpx.HTTPError, ValueError):
                return False
            return found["pid"] != gone and found["ready"]

        assert await eventually(serves), mesh.log
        await asyncio.sleep(0.5)
        await users.ask(60)
    assert await eventually(users.counted), (users.requests, users.hits, users.in_envoy, await asked(mesh))
    await mesh.stop()
