"""Workers, a whole sidecar and the store of two pods are killed in mid-experiment: each request counts once.

What is decided is decided once, and outlives all of them. `make proofs PARTS=deciders` runs it (`TWO_PODS`): two pods
whose processes start again and again take their time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections import Counter
from typing import Any

import httpx
import pytest
from running_mesh import Mesh, eventually, verdict
from test_decided_experiments import KEYS, POLICIES, USERS, answers, asked, decided, phase

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(not os.environ.get("TWO_PODS"), reason="half a minute; make proofs PARTS=deciders runs it"),
]

ALIKE = (
    POLICIES.replace("policyRef: {name: bad}", "policyRef: {name: good}")
    + """\
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: uncounted}
spec:
  match: [{path: {prefix: /uncounted}}]
  policyRef: {name: good}
"""
)
SETTLED = 0.4
"""Seconds after which what has been answered is counted."""
SECONDS_TO_MEND = 3.0
"""Longer than pods take to bring back what an empty store has lost, and to go on deciding."""


class Users:
    """One request after the other, and what they have seen."""

    def __init__(self) -> None:
        self.turn = 0
        self.requests: Counter[str] = Counter()
        self.hits: Counter[str] = Counter()

    async def ask(self, meshes: list[Mesh], count: int) -> None:
        for _ in range(count):
            for mesh in meshes:
                self.turn += 1
                path = f"/judged/{self.turn * 7 % KEYS}"
                answer = await mesh.get(path, {"x-user-id": f"u{self.turn * 31 % USERS}"})
                assert answer.status_code == 200
                seen = verdict(answer)
                assert seen.arm
                self.requests[seen.arm] += 1
                self.hits[seen.arm] += seen.hit
        await asyncio.sleep(SETTLED)


async def totals(mesh: Mesh) -> tuple[Counter[str], Counter[str]]:
    """Requests and hits by arm, of all pods, as this one has them."""
    arms = (await asked(mesh))["arms"]
    return (
        Counter({arm["name"]: arm["requests"] for arm in arms}),
        Counter({arm["name"]: round((arm["hitRatio"] or 0.0) * arm["requests"]) for arm in arms}),
    )


async def ready(mesh: Mesh, unlike: list[int]) -> bool:
    """Whether every worker serves and knows what is decided, and none is one of these processes."""
    try:
        status = await mesh.status()
        (experiment,) = status["experiments"]
    except (httpx.HTTPError, ValueError):
        return False
    return experiment["overlay"] is not None and all(
        worker["ready"] and worker["pid"] not in unlike for worker in status["workers"]
    )


async def looks_up(mesh: Mesh) -> bool:
    """Whether Envoy asks the sidecar, which it finds again by its next health check, within half a second."""
    return bool(verdict(await mesh.get("/uncounted")).detail)


async def leader_of(meshes: list[Mesh]) -> Mesh | None:
    """The one pod that leads; None while there is none."""
    leading = []
    for mesh in meshes:
        try:
            leading.append((await asked(mesh))["leads"])
        except httpx.HTTPError:
            leading.append(False)
    assert sum(leading) <= 1
    return meshes[leading.index(True)] if any(leading) else None


async def end(mesh: Mesh) -> None:
    """Kill a pod's sidecar as a whole, and wait until the next one serves."""
    status = await mesh.status()
    before = [worker["pid"] for worker in status["workers"]]
    os.kill(status["pid"], signal.SIGKILL)
    assert await eventually(lambda: ready(mesh, before), 40), mesh.log
    assert await eventually(lambda: looks_up(mesh))


async def test_each_request_counts_once_whatever_is_killed(start_mesh, make_folder, origin, valkey):
    answers(origin)
    arguments = ("--warm", valkey.url, "--workers", "2")
    one = await start_mesh(*arguments, policies=ALIKE)
    folder = make_folder()
    (folder / "data").mkdir()
    shutil.copytree(one.data / "keys", folder / "data" / "keys")
    other = await start_mesh(*arguments, policies=ALIKE, folder=folder)
    meshes = [one, other]

    async def all_in(wanted: str) -> bool:
        return {await phase(mesh) for mesh in meshes} == {wanted}

    assert await eventually(lambda: all_in("Running"))
    users = Users()
    await asyncio.sleep(SETTLED)
    before = await asked(one)
    assert sum(arm["requests"] for arm in before["arms"]) == 0

    async def agree() -> bool:
        expected = (users.requests, users.hits)
        return [await totals(mesh) for mesh in meshes] == [expected, expected]

    await users.ask(meshes, 30)
    assert await eventually(agree), (users.requests, users.hits, [await totals(mesh) for mesh in meshes])

    victim = (await one.worker_pids())[0]
    os.kill(victim, signal.SIGKILL)
    assert await eventually(lambda: ready(one, [victim]), 20)
    assert await eventually(lambda: looks_up(one))
    await users.ask(meshes, 20)

    valkey.kill()
    await users.ask(meshes, 20)
    valkey.start()
    await users.ask(meshes, 20)

    leader = await eventually(lambda: leader_of(meshes))
    assert leader is not None
    await end(leader)
    await users.ask(meshes, 20)
    assert await eventually(agree), (users.requests, users.hits, [await totals(mesh) for mesh in meshes])

    # All of it in one epoch, decided once.
    found = [await asked(mesh) for mesh in meshes]
    assert [decided(each) for each in found] == [["Started", "Counting"]] * 2
    assert {each["epoch"] for each in found} == {before["epoch"]}

    async def by_both() -> list[dict[str, Any]]:
        return [decision for mesh in meshes for decision in (await asked(mesh))["decisions"][2:]]

    await asked(other, "rollback")
    assert await eventually(lambda: all_in("RolledBack"))
    first, second = await by_both()
    # The store loses everything, and the pod that decides dies.
    valkey.kill()
    valkey.start()
    leader = await eventually(lambda: leader_of(meshes))
    assert leader is not None
    await end(leader)
    await asyncio.sleep(SECONDS_TO_MEND)
    assert await all_in("RolledBack")
    assert await by_both() == [first, second] == [first, first]
    assert await eventually(lambda: leader_of(meshes)) is not None
    for mesh in meshes:
        await mesh.stop()
