"""The supervisor's end: drains, bounds, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from supervised import MESSAGE, PROCESS, STUB, alive, channel_to, health_of, pids, until

from meshcache.extproc import child
from meshcache.extproc.options import Grpc

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("kind", list(Grpc))
async def test_drain_lets_a_stream_in_flight_finish(bench, kind, monkeypatch):
    monkeypatch.setattr(child, "PING_INTERVAL", 0.05)
    supervisor = await bench.start(kind=kind)
    (pid,) = pids(supervisor)
    async with channel_to(supervisor) as channel:
        call = channel.stream_stream(PROCESS)()
        await call.write(MESSAGE)
        assert await call.read() == MESSAGE
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        stopping = asyncio.create_task(supervisor.stop(60))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert not supervisor.ready
        watch.cancel()
        # Still in both directions, while new connections are refused.
        await call.write(MESSAGE)
        assert await call.read() == MESSAGE
        async with channel_to(supervisor) as late:
            with pytest.raises(grpc.aio.AioRpcError):
                await health_of(late)
        # A socket that is taken away in a drain, as some servers do, has not been lost.
        await asyncio.sleep(0.3)
        assert not [entry for entry in bench.entries if "socket" in entry["event"]]
        assert alive(pid)
        call.cancel()  # Envoy resets a stream at its end
    await asyncio.wait_for(stopping, 20)
    assert not alive(pid)
    assert supervisor.status().workers[0].restarts == 0
    # What was counted last, during the drain, has been reported.
    assert supervisor.metrics().counters["refreshes_total"]["drained", "stale"] == 1


async def test_drain_is_bounded(bench):
    supervisor = await bench.start()
    (pid,) = pids(supervisor)
    async with channel_to(supervisor) as channel:
        call = channel.stream_stream(PROCESS)()
        await call.write(MESSAGE)
        assert await call.read() == MESSAGE
        await asyncio.wait_for(supervisor.stop(0.3), 20)
        assert not alive(pid)
    # It has ended by itself, before its own five seconds were over.
    assert not [entry for entry in bench.entries if "did not drain" in entry["event"]]


async def test_a_frozen_worker_does_not_hold_up_the_stop(bench):
    supervisor = await bench.start()
    (pid,) = pids(supervisor)
    os.kill(pid, signal.SIGSTOP)
    await asyncio.wait_for(supervisor.stop(0.2), 20)
    assert not alive(pid)


async def test_a_worker_told_to_end_by_signal_drains_and_is_replaced(bench):
    supervisor = await bench.start()
    (pid,) = pids(supervisor)
    os.kill(pid, signal.SIGINT)  # not for workers
    os.kill(pid, signal.SIGTERM)
    await until(lambda: not alive(pid))
    # The supervisor hears of it a moment later.
    await until(lambda: [entry for entry in bench.entries if entry["event"] == "worker ended"])
    await until(lambda: supervisor.ready)
    (ended,) = [entry for entry in bench.entries if entry["event"] == "worker ended"]
    assert ended["status"] == "exit status 0"


async def test_stop_before_a_worker_is_up_leaves_nothing(bench):
    supervisor = bench.make(workers=2)
    supervisor.load()
    supervisor.start()
    await until(lambda: all(pids(supervisor)))
    started = pids(supervisor)
    await asyncio.wait_for(supervisor.stop(1), 60)
    assert not any(alive(pid) for pid in started)


async def test_workers_do_not_outlive_a_killed_supervisor(bench, tmp_path):
    script = f"""
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
import structlog
from meshcache.extproc.control import WorkerOptions
from meshcache.extproc.settings import SupervisorOptions
from meshcache.extproc.supervisor import Supervisor
from meshcache.policy.sources import FolderSource

async def main():
    data = Path({str(bench.data)!r})
    worker = WorkerOptions(index=0, workers=2, socket_path="", data_dir=str(data), log_level="warning")
    structlog.configure(logger_factory=structlog.WriteLoggerFactory(file=sys.stderr))
    options = SupervisorOptions(data, data / "run", 2, worker, lambda budget, wait: 1.0)
    s = Supervisor(options, FolderSource({str(bench.policies)!r}), "p", structlog.get_logger(), {STUB!r})
    s.load()
    s.start()
    while not all(w.ready for w in s.status().workers):
        await asyncio.sleep(0.01)
    print(*[w.pid for w in s.status().workers], flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    line = await asyncio.wait_for(process.stdout.readline(), 120)
    workers = [int(pid) for pid in line.split()]
    assert len(workers) == 2
    process.kill()
    await process.wait()
    await until(lambda: not any(alive(pid) for pid in workers), what="the end of the workers")
