"""Supervisors with real worker processes, real sockets and real folders, for their tests."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import grpc
from envoy_streams import request
from grpc_health.v1 import health_pb2, health_pb2_grpc

from meshcache.envoy.timeouts import message_timeout
from meshcache.extproc.control import WorkerOptions
from meshcache.extproc.options import METHOD, SERVICE, Grpc
from meshcache.extproc.settings import SupervisorOptions
from meshcache.extproc.supervisor import Supervisor
from meshcache.policy.sources import FolderSource

STUB = (sys.executable, str(Path(__file__).with_name("stub_worker.py")))
PROCESS = f"/{SERVICE}/{METHOD}"
MESSAGE = request().SerializeToString()
"""What the stub gives back as it is."""

GOOD = """\
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: plain}
spec: {eviction: ttl}
"""
ROUTED = (
    GOOD
    + """\
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: r}
spec: {match: [{path: {prefix: /}}], policyRef: {name: plain}}
"""
)
EXPERIMENT = """\
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheExperiment
metadata: {name: e}
spec:
  routeRef: {name: r}
  unit: [{header: x-user-id}]
  arms:
    - {name: control, policyRef: {name: plain}, weight: 90}
    - {name: candidate, policyRef: {name: plain}, weight: 10}
"""
"""To be put behind `ROUTED`."""


async def until(condition, seconds=60.0, what="the condition"):
    """Poll until `condition()` is true; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true within {seconds} s"
        await asyncio.sleep(0.01)
    return value


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Bench:
    """A folder, a data folder, and supervisors on them."""

    def __init__(self, root: Path, log) -> None:
        self.policies = root / "policies"
        self.data = root / "data"
        self.policies.mkdir()
        self.write(GOOD)
        self.log = log
        self.running: list[Supervisor] = []

    def write(self, text: str, name: str = "a.yaml") -> None:
        (self.policies / name).write_text(text)

    def make(self, workers: int = 1, command=STUB, kind: Grpc = Grpc.NATIVE, **more) -> Supervisor:
        worker = WorkerOptions(
            index=0,
            workers=workers,
            socket_path="",
            data_dir=str(self.data),
            log_level="warning",
            grpc=kind,
            drain_timeout=5,
        )
        options = SupervisorOptions(self.data, self.data / "run", workers, worker, message_timeout, **more)
        return Supervisor(options, FolderSource(self.policies), str(self.policies), self.log, command)

    async def start(self, workers: int = 1, command=STUB, **more) -> Supervisor:
        supervisor = self.make(workers, command, **more)
        supervisor.load()
        supervisor.start()
        self.running.append(supervisor)
        await until(lambda: all(worker.ready for worker in supervisor.status().workers), what="all workers ready")
        return supervisor

    async def close(self) -> None:
        for supervisor in self.running:
            supervisor.kill()
            await supervisor.stop(0)


def pids(supervisor: Supervisor) -> list[int]:
    return [worker.pid for worker in supervisor.status().workers]


def channel_to(supervisor: Supervisor, index: int = 0) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"unix:{supervisor.status().workers[index].socket}")


async def health_of(channel: grpc.aio.Channel, service: str = "") -> int:
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=20)
    return answer.status


def conditions(supervisor: Supervisor) -> dict[str, bool]:
    return {item.type: item.status for item in supervisor.status().conditions}
