"""`meshcache serve` as a real process with real workers."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import grpc
import httpx
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from grpc_health.v1 import health_pb2, health_pb2_grpc
from running import BAD, GOOD, alive, until

from meshcache.process import bind_tcp

pytestmark = pytest.mark.e2e

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"


def stream(path, requests):
    channel = grpc.insecure_channel(f"unix:{path}")
    call = channel.stream_stream(
        PROCESS,
        request_serializer=pb.ProcessingRequest.SerializeToString,
        response_deserializer=pb.ProcessingResponse.FromString,
    )(requests)
    return channel, call


def request_headers(path="/x"):
    message = pb.ProcessingRequest()
    for name, value in ((":method", b"GET"), (":path", path.encode()), (":authority", b"h"), (":scheme", b"http")):
        message.request_headers.headers.headers.add(key=name, raw_value=value)
    message.request_headers.end_of_stream = True
    return message


def get(status, path):
    return httpx.get(f"http://{status.metrics_address}{path}", timeout=20)


@pytest.mark.parametrize("grpc_server", ["native", "grpcio"])
def test_serves_shows_itself_and_drains(place, grpc_server):
    command = place.serve("--workers", "2", "--grpc", grpc_server)
    status = place.ready(command)
    assert status.well
    assert status.policies.policies == ("plain",)
    assert get(status, "/readyz").status_code == 200
    assert "meshcache_policy_generation 1.0" in get(status, "/metrics").text
    assert stat.S_IMODE(os.stat(place.data / "run" / "admin.sock").st_mode) == 0o600
    for worker in status.workers:
        with grpc.insecure_channel(f"unix:{worker.socket}") as channel:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=20)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        # gRPC's library brings threads and memory of its own: it is there for those who want it alone.
        assert ("cygrpc" in Path(f"/proc/{worker.pid}/maps").read_text()) == (grpc_server == "grpcio")
    command.signal(signal.SIGTERM)
    assert command.wait() == 0
    command.assert_nothing_left()
    assert not (place.data / "run" / "admin.sock").exists()
    with pytest.raises(httpx.ConnectError):
        get(status, "/healthz")


def test_requests_are_counted_over_all_workers_and_never_fall(place):
    command = place.serve()
    status = place.ready(command)
    channel, call = stream(status.workers[0].socket, iter([request_headers()]))
    with channel:
        assert next(call).WhichOneof("response") == "request_headers"
        call.cancel()

    def counted():
        lines = get(status, "/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("meshcache_requests_total{"))

    until(lambda: counted() == 1, what="the request in /metrics")
    os.kill(status.workers[0].pid, signal.SIGKILL)
    until(lambda: (found := place.status()) and found.ready and found.workers[0].restarts == 1)
    assert counted() == 1
    assert "meshcache_worker_restarts_total 1.0" in get(status, "/metrics").text


def test_readiness_can_be_turned_off_before_the_stop(place):
    command = place.serve()
    status = place.ready(command)
    command.signal(signal.SIGUSR1)
    until(lambda: get(status, "/readyz").status_code == 503)
    assert get(status, "/healthz").status_code == 200
    assert place.status().draining
    assert place.status().workers[0].ready, "still serving"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stream_in_flight_outlives_the_first_signal_and_not_the_second(place, number):
    command = place.serve("--drain-timeout", "60")
    status = place.ready(command)

    def requests():
        yield request_headers()
        until(lambda: not alive(command.pid), 60)

    channel, call = stream(status.workers[0].socket, requests())
    with channel:
        next(call)
        command.signal(number)
        until(lambda: get(status, "/readyz").status_code == 503)
        assert call.is_active()
        assert command.process.poll() is None
        began = time.monotonic()
        command.signal(number)
        command.wait()
        assert time.monotonic() - began < 40, "not the sixty seconds of a drain"
    command.assert_nothing_left()


def test_workers_go_with_a_killed_supervisor_and_the_next_one_takes_their_place(place):
    first = place.serve("--workers", "2")
    place.ready(first)
    first.signal(signal.SIGKILL)
    first.wait()
    first.assert_nothing_left()
    second = place.serve("--workers", "2")
    status = place.ready(second)
    assert status.pid == second.pid
    assert status.well


def test_bad_policies_at_the_first_start_are_listed_and_nothing_is_left(place):
    place.write(BAD)
    command = place.serve()
    assert command.wait() == 1
    assert "policies/a.yaml:4:" in command.stderr
    assert "spec.eviction" in command.stderr
    assert "Traceback" not in command.stderr
    assert not [line for line in command.children().values() if "worker" in line]
    assert not (place.data / "run" / "worker-0.sock").exists()


def test_bad_policies_at_a_restart_leave_the_last_good_ones_in_force(place):
    first = place.serve()
    place.ready(first)
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    place.write(BAD)
    second = place.serve()
    status = place.ready(second)
    assert status.policies.from_last_good
    assert "a.yaml:4:" in status.policies.refusal.errors[0]
    second.said("policies refused; the last good set stays")
    place.write(GOOD + "# mended\n")
    until(lambda: (found := place.status()) and found.well and found.policies.generation == 2)


def test_what_cannot_work_is_told_in_one_line_and_starts_nothing(place):
    command = place.serve("--warm", "redis://")
    assert command.wait() == 2
    (line,) = command.stderr.splitlines()
    assert line.startswith("meshcache: --warm: expected a URL such as redis://")
    assert not command.started


def test_a_taken_metrics_port_is_told_in_one_line(place):
    with bind_tcp("127.0.0.1", 0, "") as taken:
        port = taken.getsockname()[1]
        command = place.serve("--metrics-listen", f"127.0.0.1:{port}")
        assert command.wait() == 1
    (line,) = command.stderr.splitlines()[-1:]
    assert line.startswith(f"meshcache: --metrics-listen 127.0.0.1:{port} cannot be used: Address already in use")
    assert not (place.data / "run" / "admin.sock").exists()


def test_a_data_folder_in_use_is_refused_and_its_owner_unharmed(place):
    first = place.serve()
    place.ready(first)
    second = place.serve()
    assert second.wait() == 1
    assert f"in use by another meshcache (pid {first.pid})" in second.stderr
    assert place.status().pid == first.pid
    assert place.status().well


def test_a_folder_of_sockets_in_use_is_refused_and_its_owner_unharmed(place):
    first = place.serve("--workers", "1", "--socket-dir", "sockets")
    before = [(worker.socket, os.stat(worker.socket).st_ino) for worker in place.ready(first).workers]
    second = place.run("serve", "--data", "other", "--metrics-listen", "127.0.0.1:0", "--socket-dir", "sockets")
    assert second.wait() == 1
    assert f"in use by another meshcache (pid {first.pid}): stop it or choose another --socket-dir" in second.stderr
    assert [(path, os.stat(path).st_ino) for path, _ in before] == before
    assert (place.folder / "sockets" / "filter.sock").exists()


def test_sockets_that_someone_has_tidied_away_come_back(place):
    command = place.serve("--workers", "1")
    before = place.ready(command)
    shutil.rmtree(place.data / "run")

    def back():
        status = place.status()
        return status and status.well and status.workers[0].pid != before.workers[0].pid

    until(back, what="a status")
    feed = httpx.HTTPTransport(uds=str(place.data / "run" / "filter.sock"))
    with httpx.Client(transport=feed, timeout=5) as client:
        assert client.get("http://x/nothing").status_code == 404
    assert stat.S_IMODE(os.stat(place.data / "run" / "admin.sock").st_mode) == 0o600
    command.signal(signal.SIGTERM)
    assert command.wait() == 0
    assert not (place.data / "run" / "admin.sock").exists()


@pytest.mark.usefixtures("shell_signals")
def test_a_hangup_without_a_terminal_asks_for_nothing(place):
    command = place.serve("--workers", "1")
    before = place.ready(command)
    command.signal(signal.SIGHUP)
    until(lambda: "SIGHUP asks for nothing" in command.stderr, what="a line of the log")
    after = place.status()
    assert (after.pid, after.workers[0].pid, after.ready) == (before.pid, before.workers[0].pid, True)


@pytest.mark.usefixtures("shell_signals")
def test_a_terminal_that_goes_stops_what_runs_on_it(place):
    ours, theirs = os.openpty()
    arguments = ("serve", "--data", "data", "--metrics-listen", "127.0.0.1:0", "--workers", "1")
    process = subprocess.Popen(
        [sys.executable, "-m", "meshcache", *arguments], cwd=place.folder, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    try:
        until(lambda: (status := place.status()) and status.ready, 60, "a worker that is ready")
        os.close(ours)
        process.send_signal(signal.SIGHUP)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_a_change_of_stores_is_said_to_need_a_restart(place):
    command = place.serve()
    place.ready(command)
    place.write(
        GOOD + "---\napiVersion: meshcache.dev/v1alpha1\nkind: CacheConfig\nmetadata: {name: c}\n"
        "spec: {budgets: {hot: 8Mi}}\n"
    )
    command.said("they need a restart")
    # The workers have it a moment later.
    status = until(lambda: (found := place.status()) and found.workers[0].generation == 2 and found)
    assert status.policies.generation == 2
    assert [item.type for item in status.conditions if not item.status] == ["StoresCurrent"]


def test_a_tier_that_is_given_up_makes_the_status_not_well(place):
    command = place.serve("--warm", "redis://127.0.0.1:1/0")
    status = place.ready(command)
    for number in range(20):
        channel, call = stream(status.workers[0].socket, iter([request_headers(f"/{number}")]))
        with channel:
            next(call)
            call.cancel()
    status = until(lambda: (found := place.status()) and not found.well and found)
    assert status.ready
    (condition,) = [item for item in status.conditions if not item.status]
    assert (condition.type, condition.reason) == ("TiersReachable", "BreakerOpen")
    assert "warm" in condition.message
    shown = place.run("status", "--data", "data")
    assert shown.wait() == 1
    assert "condition TiersReachable is false" in shown.stdout


EARLY = """
import os, signal
from meshcache.cli import main
from meshcache.observe import logs

configure = logs.configure

def interrupted(*arguments):
    os.kill(os.getpid(), signal.SIGINT)
    configure(*arguments)

logs.configure = interrupted
main(["serve", "--data", "data", "--metrics-listen", "127.0.0.1:0"])
"""


def test_ctrl_c_before_anything_has_begun(place):
    ended = subprocess.run(
        [sys.executable, "-c", EARLY], cwd=place.folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr
    assert not (place.data / "run" / "admin.sock").exists()


@pytest.mark.parametrize("kind", ["closed", "full", "reader-gone", "reader-stalled"])
def test_logs_that_cannot_be_written_cost_nothing_but_themselves(place, kind):
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "meshcache", "serve", "--data", "data", "--metrics-listen", "127.0.0.1:0"]
    if kind == "closed":
        command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    with open("/dev/full", "w") as full:
        # At a level at which a pipe that nobody reads is soon full.
        level = ("--log-level", "debug") if kind == "reader-stalled" else ()
        process = subprocess.Popen([*command, *level], cwd=place.folder, stderr=full if kind == "full" else writer)
    os.close(writer)
    if kind == "reader-gone":
        os.close(reader)
    try:

        def worker(other_than=None):
            status = place.status()
            ready = status is not None and status.ready and status.workers[0].pid != other_than
            return status.workers[0].pid if ready else None

        first = until(worker, 60, "a worker that is ready")
        # Which is told in several lines.
        os.kill(first, signal.SIGKILL)
        until(lambda: worker(first), 30, "another worker")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        if kind != "reader-gone":
            os.close(reader)


def test_names_of_policies_that_are_not_utf8(place):
    place.policies.rename(place.folder / "p\udcff")
    (place.folder / "p\udcff" / "b\udcff.yaml").write_text("# nothing\n")
    command = place.serve("--policies", "p\udcff", "--workers", "1")
    assert place.ready(command).policies.source == "p\\xff"
    (place.folder / "p\udcff" / "c\udcff.yaml").write_text(BAD)
    refusal = until(lambda: place.status().policies.refusal, what="a refusal")
    assert "p\\xff/c\\xff.yaml:" in refusal.errors[0]
    command.signal(signal.SIGTERM)
    assert command.wait() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces of processes take root")
@pytest.mark.parametrize("after", [0.05, 0.2, 0.5])
def test_the_first_process_of_a_container_ends_when_it_is_told_to(place, after):
    # The kernel keeps from it what it does not mind, and at its start it minds nothing.
    command = [sys.executable, "-m", "meshcache", "serve", "--data", "data", "--metrics-listen", "127.0.0.1:0"]
    outer = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", *command], cwd=place.folder)
    try:
        inner = until(lambda: Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split())
        time.sleep(after)
        until(lambda: b"meshcache" in Path(f"/proc/{inner[0]}/cmdline").read_bytes())
        until(lambda: signal.SIGTERM in _minded(inner[0]), 10, "a handler of the signal")
        os.kill(int(inner[0]), signal.SIGTERM)
        assert outer.wait(20) in (0, 128 + signal.SIGTERM)
    finally:
        outer.kill()
        outer.wait()


def _minded(pid):
    found = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:"))
    return {number for number in signal.Signals if int(found.split()[1], 16) >> (number - 1) & 1}
