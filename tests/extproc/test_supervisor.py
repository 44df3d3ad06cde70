"""The supervisor with real worker processes, real sockets and real folders."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import grpc
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from meshcache.extproc import child
from meshcache.extproc.control import WorkerOptions
from meshcache.extproc.supervisor import LAST_GOOD_NAME, Supervisor, SupervisorOptions
from meshcache.policy.errors import PolicyErrors
from meshcache.policy.sources import FolderSource
from meshcache.process import StartError

STUB = (sys.executable, str(Path(__file__).with_name("stub_worker.py")))
PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"

GOOD = """\
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: plain}
spec: {eviction: ttl}
"""


async def until(condition, seconds=20.0, what="the condition"):
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

    def make(self, workers: int = 1, command=STUB) -> Supervisor:
        worker = WorkerOptions(
            index=0, workers=workers, socket_path="", data_dir=str(self.data), log_level="warning", drain_timeout=5
        )
        options = SupervisorOptions(self.data, self.data / "run", workers, worker)
        return Supervisor(options, FolderSource(self.policies), str(self.policies), self.log, command)

    async def start(self, workers: int = 1, command=STUB) -> Supervisor:
        supervisor = self.make(workers, command)
        supervisor.load()
        supervisor.start()
        self.running.append(supervisor)
        await until(lambda: all(worker.ready for worker in supervisor.status().workers), what="all workers ready")
        return supervisor

    async def close(self) -> None:
        for supervisor in self.running:
            supervisor.kill()
            await supervisor.stop(0)


@pytest.fixture
async def bench(tmp_path):
    with structlog.testing.capture_logs() as entries:
        made = Bench(tmp_path, structlog.get_logger())
        made.entries = entries
        yield made
        await made.close()


def pids(supervisor: Supervisor) -> list[int]:
    return [worker.pid for worker in supervisor.status().workers]


def channel_to(supervisor: Supervisor, index: int = 0) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"unix:{supervisor.status().workers[index].socket}")


async def health_of(channel: grpc.aio.Channel, service: str = "") -> int:
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
    return answer.status


def conditions(supervisor: Supervisor) -> dict[str, bool]:
    return {item.type: item.status for item in supervisor.status().conditions}


async def test_workers_serve_on_their_own_sockets(bench):
    supervisor = await bench.start(workers=2)
    assert supervisor.ready
    for index in range(2):
        async with channel_to(supervisor, index) as channel:
            assert await health_of(channel) == health_pb2.HealthCheckResponse.SERVING
            assert (
                await health_of(channel, "envoy.service.ext_proc.v3.ExternalProcessor")
                == health_pb2.HealthCheckResponse.SERVING
            )
            call = channel.stream_stream(PROCESS)()
            await call.write(b"abc")
            assert await call.read() == b"abc"
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
            await call.write(b"x")
            await call.read()
            call.cancel()
    stored = lambda: supervisor.metrics().counters["store_total"].get(("stored",), 0)  # noqa: E731
    await until(lambda: stored() == 3, what="the report of three streams")
    first, other = pids(supervisor)
    os.kill(first, signal.SIGKILL)
    await until(lambda: not alive(first))
    killed_at = time.monotonic()
    await until(lambda: pids(supervisor)[0] not in (None, first), 5)
    assert time.monotonic() - killed_at < 1.0
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
    await until(lambda: supervisor.ready, what="its successor")
    assert pids(supervisor) != [pid]


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
    await until(lambda: not alive(pid), 5)
    await until(lambda: supervisor.status().workers[0].restarts >= 1)
    assert any(entry["event"] == "worker spoke out of turn" for entry in bench.entries)


async def test_an_edit_is_in_effect_in_all_workers_within_a_second(bench):
    supervisor = await bench.start(workers=2)
    bench.write(GOOD.replace("plain", "other"))
    began = time.monotonic()
    await until(lambda: [worker.generation for worker in supervisor.status().workers] == [2, 2])
    assert time.monotonic() - began < 1.0
    assert supervisor.status().policies.policies == ("other",)
    assert supervisor.metrics().gauges["policy_generation"][()] == 2


async def test_a_bad_edit_keeps_the_last_good_set_and_is_reported(bench):
    supervisor = await bench.start()
    bench.write(GOOD.replace("eviction: ttl", "eviction: nonsense"))
    refusal = await until(lambda: supervisor.status().policies.refusal)
    assert "a.yaml:4:" in refusal.errors[0]
    assert "spec.eviction" in refusal.errors[0]
    status = supervisor.status()
    assert status.policies.generation == 1
    assert [worker.generation for worker in status.workers] == [1]
    assert status.ready
    assert not status.well
    assert conditions(supervisor)["Accepted"] is False
    assert supervisor.metrics().counters["policy_refusals_total"][()] == 1
    (line,) = [entry for entry in bench.entries if entry["event"].startswith("policies refused")]
    assert "a.yaml:4:" in line["errors"][0]
    # Back to what is in force: no new generation, and the refusal is over.
    bench.write(GOOD)
    await until(lambda: supervisor.status().policies.refusal is None)
    assert supervisor.status().policies.generation == 1
    bench.write(GOOD + "# mended\n")
    await until(lambda: supervisor.status().workers[0].generation == 2)
    assert supervisor.status().well


async def test_a_worker_restarted_beside_a_bad_folder_gets_the_last_good_set(bench):
    supervisor = await bench.start()
    bench.write("kind: [")
    await until(lambda: supervisor.status().policies.refusal)
    (pid,) = pids(supervisor)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not supervisor.ready)
    await until(lambda: supervisor.ready)
    assert supervisor.status().workers[0].generation == 1


async def test_a_worker_that_refuses_what_the_supervisor_accepts_is_reported(bench):
    supervisor = await bench.start()
    bench.write(GOOD + "# refused by workers\n")
    await until(lambda: any(entry["event"] == "worker refused policies" for entry in bench.entries))
    assert supervisor.ready
    assert supervisor.status().workers[0].generation == 1
    assert conditions(supervisor)["Programmed"] is False


async def test_a_restart_beside_a_broken_folder_serves_the_last_good_set(bench):
    first = await bench.start()
    bench.write(GOOD + "# second\n")
    await until(lambda: first.status().workers[0].generation == 2)
    await first.stop(1)
    bench.write("nonsense: true")
    second = await bench.start()
    status = second.status()
    assert status.policies.from_last_good
    assert status.policies.generation == 2
    assert status.policies.policies == ("plain",)
    assert status.policies.refusal is not None
    assert not status.well
    assert second.ready
    # A good edit ends it, under a new number.
    bench.write(GOOD + "# third\n")
    await until(lambda: second.status().workers[0].generation == 3)
    assert not second.status().policies.from_last_good
    assert second.status().well


async def test_the_same_set_keeps_its_number_over_a_restart(bench):
    first = await bench.start()
    await first.stop(1)
    second = await bench.start()
    assert second.status().policies.generation == 1


async def test_a_vanished_folder_changes_nothing(bench, tmp_path):
    supervisor = await bench.start()
    bench.policies.rename(tmp_path / "elsewhere")
    await until(lambda: supervisor.status().policies.refusal)
    assert supervisor.ready
    (tmp_path / "elsewhere").rename(bench.policies)
    await until(lambda: supervisor.status().policies.refusal is None)
    assert supervisor.status().policies.generation == 1


async def test_no_good_set_at_the_first_start_is_an_error_with_places(bench):
    bench.write("apiVersion: meshcache.dev/v1alpha1\nkind: Nothing\nmetadata: {name: x}\n")
    supervisor = bench.make()
    with pytest.raises(PolicyErrors) as raised:
        supervisor.load()
    assert "a.yaml:2:" in str(raised.value)
    assert not (bench.data / LAST_GOOD_NAME).exists()


async def test_a_socket_folder_that_is_too_deep_is_refused(bench, tmp_path):
    bench.data = tmp_path / ("deep" * 30)
    with pytest.raises(StartError, match="too long"):
        bench.make().load()


async def test_drain_lets_a_stream_in_flight_finish(bench):
    supervisor = await bench.start()
    (pid,) = pids(supervisor)
    async with channel_to(supervisor) as channel:
        call = channel.stream_stream(PROCESS)()
        await call.write(b"1")
        assert await call.read() == b"1"
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        stopping = asyncio.create_task(supervisor.stop(10))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert not supervisor.ready
        watch.cancel()
        # Still in both directions, while new connections are refused.
        await call.write(b"2")
        assert await call.read() == b"2"
        async with channel_to(supervisor) as late:
            with pytest.raises(grpc.aio.AioRpcError):
                await health_of(late)
        assert alive(pid)
        call.cancel()  # Envoy resets a stream at its end
    began = time.monotonic()
    await asyncio.wait_for(stopping, 10)
    assert time.monotonic() - began < 5
    assert not alive(pid)
    assert supervisor.status().workers[0].restarts == 0
    # What was counted last, during the drain, has been reported.
    assert supervisor.metrics().counters["refreshes_total"]["drained",] == 1


async def test_drain_is_bounded(bench):
    supervisor = await bench.start()
    (pid,) = pids(supervisor)
    async with channel_to(supervisor) as channel:
        call = channel.stream_stream(PROCESS)()
        await call.write(b"1")
        assert await call.read() == b"1"
        began = time.monotonic()
        await supervisor.stop(0.3)
        assert time.monotonic() - began < 4
        assert not alive(pid)


async def test_a_frozen_worker_does_not_hold_up_the_stop(bench):
    supervisor = await bench.start()
    (pid,) = pids(supervisor)
    os.kill(pid, signal.SIGSTOP)
    await asyncio.wait_for(supervisor.stop(0.2), 10)
    assert not alive(pid)


async def test_a_worker_told_to_end_by_signal_drains_and_is_replaced(bench):
    supervisor = await bench.start()
    (pid,) = pids(supervisor)
    os.kill(pid, signal.SIGINT)  # not for workers
    os.kill(pid, signal.SIGTERM)
    await until(lambda: not alive(pid))
    await until(lambda: supervisor.ready)
    (ended,) = [entry for entry in bench.entries if entry["event"] == "worker ended"]
    assert ended["status"] == "exit status 0"


async def test_stop_before_a_worker_is_up_leaves_nothing(bench):
    supervisor = bench.make(workers=2)
    supervisor.load()
    supervisor.start()
    await until(lambda: all(pids(supervisor)))
    started = pids(supervisor)
    await asyncio.wait_for(supervisor.stop(1), 20)
    assert not any(alive(pid) for pid in started)


async def test_workers_do_not_outlive_a_killed_supervisor(bench, tmp_path):
    script = f"""
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
import structlog
from meshcache.extproc.control import WorkerOptions
from meshcache.extproc.supervisor import Supervisor, SupervisorOptions
from meshcache.policy.sources import FolderSource

async def main():
    data = Path({str(bench.data)!r})
    worker = WorkerOptions(index=0, workers=2, socket_path="", data_dir=str(data), log_level="warning")
    structlog.configure(logger_factory=structlog.WriteLoggerFactory(file=sys.stderr))
    s = Supervisor(SupervisorOptions(data, data / "run", 2, worker), FolderSource({str(bench.policies)!r}), "p",
                   structlog.get_logger(), {STUB!r})
    s.load()
    s.start()
    while not all(w.ready for w in s.status().workers):
        await asyncio.sleep(0.01)
    print(*[w.pid for w in s.status().workers], flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    line = await asyncio.wait_for(process.stdout.readline(), 30)
    workers = [int(pid) for pid in line.split()]
    assert len(workers) == 2
    process.kill()
    await process.wait()
    await until(lambda: not any(alive(pid) for pid in workers), 5, "the end of the workers")
