"""Herds while other processes want all of the machine's cores, too: nobody is lost for want of time."""

from __future__ import annotations

import os
import subprocess
import sys

import httpx
import pytest
from herds import SlowStep, herd
from test_herds import POLICY, SLOTS

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

CLIENTS = int(os.environ.get("HERD_CLIENTS", "500"))
# The deadlines of the tiers are the default ones: it is not by them that Envoy waits for who is kept waiting.

PATIENT = POLICY.replace("{wait}", "60s").replace("  tiers: {warm: {deadline: 400ms}, cold: {deadline: 400ms}}\n", "")


@pytest.fixture
def busy_machine():
    """For each core a process that never rests."""
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    yield
    for process in burning:
        process.kill()
        process.wait()


async def passed_by(mesh):
    """How many messages Envoy did not wait for any longer."""
    transport = httpx.AsyncHTTPTransport(uds=str(mesh.data / "run" / "envoy-admin.sock"))
    async with httpx.AsyncClient(transport=transport, timeout=10) as client:
        text = (await client.get("http://envoy/stats?filter=ext_proc.message_timeouts")).text
    return int(text.rpartition(":")[2])


@pytest.mark.usefixtures("busy_machine")
async def test_a_herd_is_one_request(start_mesh, origin, name):
    mesh = await start_mesh("--workers", "2", policies=PATIENT)
    step = SlowStep(3.0)
    origin.script(f"/{name}", step)
    answers = await herd(mesh.port, f"/{name}", CLIENTS)
    assert {(one.status, one.body) for one in answers} == {(200, f"/{name} 1".encode())}
    assert step.times == 1
    assert await passed_by(mesh) == 0
    await mesh.stop()


@pytest.mark.usefixtures("busy_machine")
async def test_what_is_not_for_sharing_comes_a_few_at_a_time(start_mesh, origin, name):
    mesh = await start_mesh("--workers", "2", policies=PATIENT)
    step = SlowStep(1.0, (("cache-control", "no-store"),), later=0.04)
    origin.script(f"/{name}", step)
    answers = await herd(mesh.port, f"/{name}", 200)
    assert len({one.body for one in answers}) == step.times == 200
    assert step.most_after_first <= SLOTS
    assert await passed_by(mesh) == 0
    await mesh.stop()
