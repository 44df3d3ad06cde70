"""Herds while other processes want all of the machine's cores, too: nobody is lost for want of time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import pytest_asyncio
from herds import SlowStep, envoy_count, herd, until_waiting
from test_herds import POLICY, SLOTS

from meshcache.process import die_with_parent

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session"), pytest.mark.alone]

CLIENTS = int(os.environ.get("HERD_CLIENTS", "300"))
LONG = 3.0 if CLIENTS > 1000 else 2.0
"""Seconds that the first answer takes: all have come by then."""
# The deadlines of the tiers are the default ones: it is not by them that Envoy waits for who is kept waiting.
PATIENT = POLICY.replace("{wait}", "60s").replace("  tiers: {warm: {deadline: 900ms}, cold: {deadline: 900ms}}\n", "")


@pytest.fixture
def busy_machine():
    """For each core a process that never rests."""
    parent = os.getpid()
    burning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=lambda: die_with_parent(parent))
        for _ in range(os.cpu_count() or 1)
    ]
    yield
    for process in burning:
        process.kill()
        process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def patient(start_mesh):
    """Two workers, started while the machine was at rest."""
    return await start_mesh("--workers", "2", policies=PATIENT)


async def passed_by(mesh):
    """How many messages Envoy did not wait for any longer."""
    return await envoy_count(mesh, "message_timeouts")


@pytest.mark.usefixtures("busy_machine")
async def test_a_herd_is_one_request(patient, origin, name):
    step = SlowStep(LONG)
    origin.script(f"/{name}", step)
    answers = await herd(patient.port, f"/{name}", CLIENTS)
    assert {(one.status, one.body) for one in answers} == {(200, f"/{name} 1".encode())}
    assert step.times == 1
    assert await passed_by(patient) == 0


@pytest.mark.usefixtures("busy_machine")
async def test_what_is_not_for_sharing_comes_a_few_at_a_time(patient, origin, name):
    # Who comes after its answer does not wait at all.
    step = SlowStep(LONG, (("cache-control", "no-store"),), later=0.04, until=await until_waiting(patient, 199))
    origin.script(f"/{name}", step)
    answers = await herd(patient.port, f"/{name}", 200)
    assert len({one.body for one in answers}) == step.times == 200
    assert step.most_after_first <= SLOTS
    assert await passed_by(patient) == 0
