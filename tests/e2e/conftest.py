"""Fixtures: a scripted origin, and `meshcache up` in front of it, each shared by all tests that can share it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from policy_sets import POLICIES
from running_mesh import Mesh
from scripted_origin import ScriptedOrigin


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


@asynccontextmanager
async def _starting(make_folder: Callable[[], Path], origin: ScriptedOrigin) -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def start(
            *arguments: str, policies: str = POLICIES, folder: Path | None = None, wasm: bool = False
        ) -> Mesh:
            folder = folder or make_folder()
            (folder / "policies").mkdir(exist_ok=True)
            (folder / "policies" / "policies.yaml").write_text(policies)
            mesh = Mesh(folder, origin.url, folder / "policies", arguments, wasm=wasm)
            stack.push_async_callback(mesh.stop)
            await mesh.start()
            return mesh

        yield start


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def start_mesh(make_folder: Callable[[], Path], origin: ScriptedOrigin) -> AsyncIterator[Start]:
    """Starts `meshcache up` in a folder of its own, with more arguments if given.

    What still runs at the end of the module is stopped: idle ones would slow the others, and those on one store would
    count as pods of a fleet.
    """
    async with _starting(make_folder, origin) as start:
        yield start


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def start_shared(make_folder: Callable[[], Path], origin: ScriptedOrigin) -> AsyncIterator[Start]:
    """As `start_mesh`, for what all modules share."""
    async with _starting(make_folder, origin) as start:
        yield start


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def mesh(start_shared: Start) -> AsyncIterator[Mesh]:
    """One worker under `POLICIES`, for tests that leave it as it was. In the end it must be as well as at the start."""
    mesh = await start_shared()
    pids = await mesh.worker_pids()
    yield mesh
    assert await mesh.worker_pids() == pids, mesh.log
    assert await mesh.metric("stream_errors_total") == 0, mesh.log
    assert '"level": "error"' not in mesh.log, mesh.log


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pair_process(start_shared: Start) -> Mesh:
    """Two workers in front of the same stores, with a folder of policies that tests may edit."""
    return await start_shared("--workers", "2")


@pytest_asyncio.fixture(loop_scope="session")
async def pair(pair_process: Mesh) -> AsyncIterator[Mesh]:
    """`pair_process` under `POLICIES`; in the end again, with all workers as well as before."""
    pids = await pair_process.worker_pids()
    yield pair_process
    await pair_process.put_policies(POLICIES)
    assert await pair_process.worker_pids() == pids, pair_process.log
    assert await pair_process.metric("stream_errors_total") == 0, pair_process.log


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def hot(start_shared: Start) -> Mesh:
    """The filter in two workers of Envoy; tests leave policies as they were, and may kill what is started again."""
    return await start_shared("--concurrency", "2", wasm=True)
