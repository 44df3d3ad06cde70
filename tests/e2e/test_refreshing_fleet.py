"""Background refreshes of two pods before one Valkey: one for each entry, and early ones for what is popular."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter

import pytest
import pytest_asyncio
from running_mesh import eventually, verdict
from scripted_origin import reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

HOST = {"host": "shared.example"}
LIFETIME = ("cache-control", "max-age=60")
FLEET = """\
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: stale}
spec:
  tiers: {warm: {deadline: 900ms}, cold: {deadline: 900ms}}
  freshness: {staleWhileRevalidate: 1h}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: ahead}
spec:
  tiers: {warm: {deadline: 900ms}, cold: {deadline: 900ms}}
  freshness: {refreshAhead: 50%}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: stale}
spec: {match: [{path: {prefix: /stale}}], policyRef: {name: stale}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: ahead}
spec: {match: [{path: {prefix: /ahead}}], policyRef: {name: ahead}}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pods(start_mesh, make_folder, valkey_server):
    """Two pods of one installation: a Valkey and the keys in common, and nothing else."""
    valkey_server.ensure()
    first = await start_mesh("--warm", valkey_server.url, policies=FLEET)
    folder = make_folder()
    (folder / "data").mkdir()
    shutil.copytree(first.data / "keys", folder / "data" / "keys")
    second = await start_mesh("--warm", valkey_server.url, policies=FLEET, folder=folder)
    yield first, second
    for mesh in (first, second):
        assert await mesh.metric("stream_errors_total") == 0, mesh.log
        await mesh.stop()


async def outcomes(pods):
    """How the refreshes of both ended."""
    names = ("stored", "found", "elsewhere", "error", "saturated")
    return {name: sum([await mesh.metric("refreshes_total", outcome=name) for mesh in pods]) for name in names}


async def test_two_hundred_stale_requests_at_both_pods_cause_one_refresh(pods, origin, name):
    path = f"/stale/{name}"
    go_on = asyncio.Event()

    async def held_back(_asked, wire):
        await go_on.wait()
        await wire.send(reply(200, [LIFETIME], b"new"))

    origin.script(path, reply(200, [LIFETIME, ("age", "57")], b"old"))
    for mesh in pods:
        assert await mesh.settled(path, HOST, b"old")
    origin.script(path, held_back)
    await asyncio.sleep(3.1)  # the seconds that are left of its lifetime
    async with asyncio.timeout(20):
        answers = await asyncio.gather(*(mesh.get(path, HOST) for _ in range(100) for mesh in pods))
    assert Counter(answer.content for answer in answers) == {b"old": 200}
    assert all(verdict(answer).hit and verdict(answer).ttl < 0 for answer in answers)
    go_on.set()
    for mesh in pods:
        assert await mesh.settled(path, HOST, b"new")
    assert origin.count(path) == 1, await outcomes(pods)


async def test_a_popular_answer_is_never_stale(pods, origin, name):
    path = f"/ahead/{name}"
    origin.script(path, reply(200, [("cache-control", "max-age=6")], b"answer"))
    for mesh in pods:
        assert await mesh.settled(path, HOST)
    begun = origin.count(path)
    seen: Counter[str] = Counter()
    until = time.monotonic() + 12
    while time.monotonic() < until:
        for mesh in pods:
            answer = await mesh.get(path, HOST)
            fresh = verdict(answer).hit and verdict(answer).ttl >= 0
            seen["fresh" if fresh else answer.headers["cache-status"]] += 1
        await asyncio.sleep(0.02)
    assert set(seen) == {"fresh"}, seen
    # Six seconds, less the part of a second that `date` does not tell, and renewed in the second half of that: by
    # one pod each time.
    assert 2 <= origin.count(path) - begun <= 7, await outcomes(pods)

    async def found():
        return (await outcomes(pods))["found"] > 0

    assert await eventually(found), "one of them takes what the other has fetched"
    ended = await outcomes(pods)
    assert (ended["error"], ended["saturated"]) == (0, 0)


async def test_an_answer_that_is_seldom_asked_for_is_not_renewed(pods, origin, name):
    path = f"/ahead/{name}"
    origin.script(path, reply(200, [LIFETIME, ("age", "50")], b"answer"))
    await pods[0].get(path, HOST)
    await asyncio.sleep(6)  # of the ten seconds that are left of its lifetime
    assert verdict(await pods[0].get(path, HOST)).hit
    await asyncio.sleep(0.5)
    assert origin.count(path) == 1
    assert verdict(await pods[0].get(path, HOST)).hit

    async def renewed():
        return origin.count(path) == 2

    assert await eventually(renewed), "the second hit in a row makes it popular"
