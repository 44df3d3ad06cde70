"""The supervisor and its workers: started, watched, started again."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import sys
import time

import pytest
from grpc_health.v1 import health_pb2
from supervised import MESSAGE, PROCESS, alive, channel_to, conditions, health_of, pids, until

from meshcache.extproc import child
from meshcache.extproc.options import SERVICE, Grpc
from meshcache.process import StartError

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("kind", list(Grpc))
async def test_workers_serve_on_their_own_sockets(bench, kind):
    supervisor = await bench.start(workers=2, kind=kind)
    assert supervisor.ready
    for index in range(2):
        async with channel_to(supervisor, index) as channel:
            assert await health_of(channel) == health_pb2.HealthCheckResponse.SERVING
            assert await health_of(channel, SERVICE) == health_pb2.HealthCheckResponse.SERVING
            call = channel.stream_stream(PROCESS)()
            await call.write(MESSAGE)
            assert await call.read() == MESSAGE
            call.cancel()
        assert os.stat(supervisor.status().workers[index].socket).st_mode & 0o777 == 0o660
    status = supervisor.status()
    assert status.policies.generation == 1
    assert status.policies.policies == ("plain",)
    assert [worker.generation for worker in status.workers] == [1, 1]
    assert status.well


async def test_a_killed_worker_comes_back_and_its_counts_stay(bench):
    supervisor = await bench.start(workers=2)
    async with channel_to(supervisor) as channel:
        for _ in range(3):
            call = channel.stream_stream(PROCESS)()
            await call.write(MESSAGE)
            await call.read()
            call.cancel()
    stored = lambda: supervisor.metrics().counters["store_total"].get(("stored",), 0)  # noqa: E731
    await until(lambda: stored() == 3, what="the report of three streams")
    first, other = pids(supervisor)
    os.kill(first, signal.SIGKILL)
    await until(lambda: not alive(first))
    killed_at = time.monotonic()
    await until(lambda: pids(supervisor)[0] not in (None, first))
    assert time.monotonic() - killed_at < 15.0, "the first time at once"
    assert supervisor.ready, "the other worker still serves"
    await until(lambda: supervisor.status().workers[0].ready)
    async with channel_to(supervisor) as channel:
        assert await health_of(channel) == health_pb2.HealthCheckResponse.SERVING
    assert pids(supervisor)[1] == other
    assert stored() == 3
    metrics = supervisor.metrics()
    assert metrics.counters["worker_restarts_total"][()] == 1
    # The gauge of the one that was killed went with it.
    await until(lambda: supervisor.metrics().gauges["hot_entries"][()] == 2, what="the gauges of two workers")
    assert supervisor.status().workers[0].restarts == 1


async def test_a_frozen_worker_is_killed_and_started_again(bench, monkeypatch):
    supervisor = await bench.start()
    (pid,) = pids(supervisor)
    os.kill(pid, signal.SIGSTOP)
    with monkeypatch.context() as patience:
        patience.setattr(child, "PING_INTERVAL", 0.05)
        patience.setattr(child, "START_PINGS", child.MISSED_PINGS)
        await until(lambda: not alive(pid), what="the end of the frozen worker")
    await until(lambda: supervisor.ready and pids(supervisor) != [pid], what="its successor")


@pytest.mark.parametrize("what", ["socket", "folder"])
async def test_a_worker_whose_socket_has_gone_gets_a_successor(bench, what):
    supervisor = await bench.start()
    (before,) = supervisor.status().workers
    socket = before.socket
    if what == "folder":
        shutil.rmtree(os.path.dirname(socket))
    else:
        os.unlink(socket)

    def successor():
        (worker,) = supervisor.status().workers
        return worker.pid != before.pid and worker.ready

    await until(successor, what="another worker")
    assert stat.S_ISSOCK(os.stat(socket).st_mode)
    assert supervisor.metrics().counters["worker_restarts_total"][()] == 1


async def test_a_worker_that_cannot_start_is_tried_again_with_growing_pauses(bench):
    supervisor = bench.make(command=(sys.executable, "-c", "import sys; sys.exit(3)"))
    supervisor.load()
    supervisor.start()
    bench.running.append(supervisor)
    ends = lambda: [entry for entry in bench.entries if entry["event"] == "worker ended"]  # noqa: E731
    await until(lambda: len(ends()) >= 4)
    waits = [entry["restart_in"] for entry in ends()]
    assert waits == sorted(waits)
    assert waits[0] <= 0.1
    assert ends()[0]["status"] == "exit status 3"
    assert not supervisor.ready
    assert conditions(supervisor)["WorkersReady"] is False


async def test_a_worker_that_speaks_garbage_is_replaced(bench):
    garbage = (
        "import socket, sys, time; s = socket.socket(fileno=int(sys.argv[2])); s.sendall(b'x' * 64); time.sleep(60)"
    )
    supervisor = bench.make(command=(sys.executable, "-c", garbage))
    supervisor.load()
    supervisor.start()
    bench.running.append(supervisor)
    pid = await until(lambda: pids(supervisor)[0])
    await until(lambda: not alive(pid))
    await until(lambda: supervisor.status().workers[0].restarts >= 1)
    assert any(entry["event"] == "worker spoke out of turn" for entry in bench.entries)


async def test_a_socket_folder_that_is_too_deep_is_refused(bench, tmp_path):
    bench.data = tmp_path / ("deep" * 30)
    with pytest.raises(StartError, match="too long"):
        bench.make().load()
