"""Fixtures: a scripted origin, and `meshcache up` in front of it, each shared by all tests that can share it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from running_mesh import Mesh
from scripted_origin import ScriptedOrigin

POLICIES = """\
apiVersion: meshcache.dev/v1alpha1
kind: CacheConfig
metadata: {name: default}
spec:
  trust:
    # One address, so that a client of this machine that connects from another one is a stranger.
    canaryHeader: {from: [{addresses: [127.0.0.1]}]}
    scoreHeader: {from: [{addresses: [127.0.0.1]}]}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: plain}
spec: {}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: stale}
spec:
  freshness: {staleWhileRevalidate: 1h}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: safety}
spec:
  freshness: {staleIfError: 1h}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: greedy}
spec:
  freshness:
    defaultTtl: 60s
    negative: [{status: 403, ttl: 60s}, {status: 404, ttl: 60s}, {status: 502, ttl: 60s}, {status: 503, ttl: 60s}]
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: placed}
spec:
  placement: {hotAt: 70, warmAt: 30}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: plain}
spec:
  match: [{path: {prefix: /plain}}]
  policyRef: {name: plain}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: stale}
spec:
  match: [{path: {prefix: /stale}}]
  policyRef: {name: stale}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: safety}
spec:
  match: [{path: {prefix: /safety}}]
  policyRef: {name: safety}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: greedy}
spec:
  match: [{path: {prefix: /greedy}}]
  policyRef: {name: greedy}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: placed}
spec:
  match: [{path: {prefix: /placed}}]
  policyRef: {name: placed}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: tested}
spec:
  match: [{path: {prefix: /tested}}]
  policyRef: {name: plain}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheExperiment
metadata: {name: comparison}
spec:
  routeRef: {name: tested}
  unit: [{header: x-user-id}]
  arms:
    - {name: control, policyRef: {name: plain}, weight: 50}
    - {name: candidate, policyRef: {name: stale}, weight: 50, force: [{header: x-canary, exact: v2}]}
"""


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A path segment that is this test's own."""
    return re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")


@pytest.fixture
def path(name: str) -> str:
    """A path of this test's own, under the plainest policy."""
    return f"/plain/{name}"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def origin() -> AsyncIterator[ScriptedOrigin]:
    server = ScriptedOrigin()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture(scope="session")
def make_folder() -> Iterator[Callable[[], Path]]:
    """Makes folders whose paths leave room for the name of a unix socket; pytest's own may be too long."""
    made: list[tempfile.TemporaryDirectory[str]] = []

    def make() -> Path:
        made.append(tempfile.TemporaryDirectory(prefix="mc-", dir="/tmp"))
        return Path(made[-1].name)

    yield make
    for folder in made:
        folder.cleanup()


Start = Callable[..., Awaitable[Mesh]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def start_mesh(make_folder: Callable[[], Path], origin: ScriptedOrigin) -> AsyncIterator[Start]:
    """Starts `meshcache up` in a folder of its own, with more arguments if given; stops what still runs in the end."""
    async with AsyncExitStack() as stack:

        async def start(*arguments: str, policies: str = POLICIES, folder: Path | None = None) -> Mesh:
            folder = folder or make_folder()
            (folder / "policies").mkdir(exist_ok=True)
            (folder / "policies" / "policies.yaml").write_text(policies)
            mesh = Mesh(folder, origin.url, folder / "policies", arguments)
            stack.push_async_callback(mesh.stop)
            await mesh.start()
            return mesh

        yield start


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def mesh(start_mesh: Start) -> AsyncIterator[Mesh]:
    """One worker under `POLICIES`, for tests that leave it as it was. In the end it must be as well as at the start."""
    mesh = await start_mesh()
    pids = await mesh.worker_pids()
    yield mesh
    assert await mesh.worker_pids() == pids, mesh.log
    assert await mesh.metric("stream_errors_total") == 0, mesh.log
    assert '"level": "error"' not in mesh.log, mesh.log
