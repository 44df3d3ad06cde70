"""What the processes take when they do nothing: the numbers that limits of pods are made from."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from own_envoy import mesh_under
from policy_sets import POLICIES
from running_mesh import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

MIB = 1 << 20
JUDGED = """routeRef: {name: tested}
  warmup: 0s
  primary: {metric: hitRatio, direction: increase}
  guardrails: [{metric: latencyP99, maxIncrease: {relative: 20%}}]"""


def own(pid: int) -> int:
    """Resident memory in bytes without mapped files: of those the kernel maps more or less as it has them at hand."""
    found = re.search(r"^RssAnon:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) * 1024


def loaded(pid: int, library: str) -> bool:
    """Whether a process has any of a library's extension modules."""
    return f"/{library}/" in Path(f"/proc/{pid}/maps").read_text()


async def test_idle_processes_take_what_the_limits_of_pods_count_on(make_folder):
    mesh = mesh_under(POLICIES, make_folder())
    try:
        await mesh.serve("--workers", "2")
        supervisor = (await mesh.status())["pid"]
        assert own(supervisor) < 60 * MIB
        assert not loaded(supervisor, "scipy")
        workers = await mesh.worker_pids()
        for pid in workers:
            assert own(pid) < 60 * MIB
        # What an experiment is judged by is loaded when there is one, and stays.
        await mesh.put_policies(POLICIES.replace("routeRef: {name: tested}", JUDGED))
        transport = httpx.AsyncHTTPTransport(uds=str(mesh.data / "run" / "admin.sock"))
        async with httpx.AsyncClient(transport=transport, base_url="http://meshcache", timeout=30) as client:

            async def judged() -> bool:
                return bool((await client.get("/experiments/comparison")).json().get("estimates"))

            assert await eventually(judged)
        assert own(supervisor) < 85 * MIB
        assert loaded(supervisor, "scipy")
        assert not any(loaded(pid, "numpy") for pid in workers)
        # Nothing is remembered of units of one kind.
        assert not (mesh.data / "links").exists()
    finally:
        await mesh.stop()
