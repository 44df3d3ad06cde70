"""Where refreshes go: to the origin, to another fixed cluster, or to the one that an answer came from."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio
from running_mesh import eventually, verdict
from scripted_origin import ScriptedOrigin, reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

STALE = reply(200, [("cache-control", "max-age=60"), ("age", "100")], b"old")
WAYS = """\
apiVersion: meshcache.dev/v1alpha1
kind: CacheConfig
metadata: {name: default}
spec: {revision: {from: envoyCluster}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: usual}
spec: {freshness: {staleWhileRevalidate: 1h}, tiers: {warm: {deadline: 900ms}, cold: {deadline: 900ms}}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: elsewhere}
spec:
  freshness: {staleWhileRevalidate: 1h}
  tiers: {warm: {deadline: 900ms}, cold: {deadline: 900ms}}
  refresh: {via: replica}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: usual}
spec: {match: [{path: {prefix: /usual}}], policyRef: {name: usual}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: elsewhere}
spec: {match: [{path: {prefix: /elsewhere}}], policyRef: {name: elsewhere}}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def replica():
    server = ScriptedOrigin()
    await server.start()
    yield server
    await server.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def mesh(start_mesh, replica):
    """With a second place for refreshes, and the revision taken from the cluster that Envoy chose."""
    mesh = await start_mesh("--refresh-cluster", f"replica={replica.url}", "--origin-timeout", "1", policies=WAYS)
    yield mesh
    assert await mesh.metric("stream_errors_total") == 0, mesh.log
    await mesh.stop()


async def test_an_answer_is_refreshed_through_the_cluster_that_it_came_from(mesh, origin, replica, name):
    path = f"/usual/{name}"
    origin.script(path, STALE, reply(200, [("cache-control", "max-age=60")], b"new"))
    await mesh.get(path)
    answer = await mesh.get(path, {"x-meshcache-refresh-cluster": "replica"})
    assert (answer.content, verdict(answer).hit) == (b"old", True)
    assert await mesh.settled(path, body=b"new")
    assert (origin.count(path), replica.count(path)) == (2, 0)


async def test_not_through_another_one(mesh, origin, replica, name):
    path = f"/elsewhere/{name}"
    origin.script(path, STALE)
    await mesh.get(path)
    answer = await mesh.get(path)
    assert not verdict(answer).hit, "it is of the origin's cluster, which a replica may not be"
    assert (origin.count(path), replica.count(path)) == (2, 0)


async def test_a_policy_sends_its_refreshes_elsewhere(mesh, origin, replica, name):
    await mesh.put_policies(WAYS.partition("---\n")[2])
    path = f"/elsewhere/{name}"
    origin.script(path, STALE)
    replica.script(path, reply(200, [("cache-control", "max-age=60")], b"of the replica"))
    await mesh.get(path)
    assert (await mesh.get(path)).content == b"old"
    assert await mesh.settled(path, body=b"of the replica")
    (asked,) = replica.asked(path)
    assert asked.get("host") == replica.url.removeprefix("http://")
    assert not [field for field, _ in asked.fields if field.startswith("x-meshcache")]
    assert origin.count(path) == 1


async def test_an_origin_that_is_silent_counts_as_failed(mesh, origin, name):
    async def silence(_asked, wire):
        await wire.gone()

    path = f"/other/{name}"
    origin.script(path, silence)
    async with asyncio.timeout(10):
        assert (await mesh.get(path)).status_code == 504
    path = f"/usual/{name}"
    # What may be served while it is refreshed is left out.
    fields = [("cache-control", "max-age=60, stale-while-revalidate=1, stale-if-error=600"), ("age", "100")]
    origin.script(path, reply(200, fields, b"old"), silence)
    await mesh.get(path)
    async with asyncio.timeout(10):
        answer = await mesh.get(path)
    assert (answer.status_code, answer.content) == (200, b"old")
    assert "fwd-status=504" in answer.headers["cache-status"]


async def test_a_policy_set_with_an_unknown_cluster_is_refused(mesh):
    wrong = WAYS.replace("via: replica", "via: replicas")
    (mesh.policies / "policies.yaml").write_text(wrong)

    async def refused():
        return (await mesh.status())["policies"]["refusal"]

    refusal = await eventually(refused)
    assert "replicas is none of the clusters that refreshes may go to (did you mean replica?)" in str(refusal)
