"""What has been decided about experiments reaches every worker, also those that are started again."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest
import structlog
from supervised import EXPERIMENT, ROUTED, pids, until

from meshcache.experiment.overlay import Adoption, Overlay, Phase
from meshcache.extproc.assembly import build
from meshcache.extproc.child import COMMAND
from meshcache.extproc.control import Overlays, WorkerOptions
from meshcache.extproc.deciding import Deciding
from meshcache.message import Headers, Request
from meshcache.observe.metrics import Metrics
from meshcache.policy.compile import compile_documents
from meshcache.policy.documents import Documents

SET = ROUTED + EXPERIMENT


@pytest.mark.alone
@pytest.mark.e2e
async def test_workers_have_them_in_milliseconds_and_from_their_start(bench, monkeypatch):
    # Nobody but the test decides.
    monkeypatch.setattr(Deciding, "_put_in_force", lambda _self: None)
    bench.write(SET)
    supervisor = bench.make(2, COMMAND)
    supervisor.load()
    (experiment,) = supervisor.snapshot.experiments
    back = Overlay("e", experiment.spec_hash, Phase.ROLLED_BACK, (1, 0), 1, False)
    # Known before the workers start, it is in force before they answer anybody.
    first = supervisor.overlays.apply({"e": back}, [Adoption("r", "digest", b"home")])
    supervisor.start()
    bench.running.append(supervisor)
    await until(lambda: any(worker.ready for worker in supervisor.status().workers))
    assert supervisor.overlays.installed == first
    await until(lambda: all(worker.ready for worker in supervisor.status().workers))
    (status,) = supervisor.status().experiments
    assert (status.name, status.weights, status.overlay) == ("e", (1, 0), back)

    times = []
    for epoch in range(2, 42):
        began = time.perf_counter()
        version = supervisor.overlays.apply(
            {"e": Overlay("e", experiment.spec_hash, Phase.RUNNING, (1, 1), epoch, True)}
        )
        assert await supervisor.overlays.wait_installed(version, 5)
        times.append(time.perf_counter() - began)
    # Most of them on a machine at rest; where others want it too, some.
    assert sorted(times)[10] < 0.05
    assert supervisor.snapshot.counted["e"].epoch == 41

    killed = pids(supervisor)[0]
    os.kill(killed, signal.SIGKILL)
    await until(lambda: pids(supervisor)[0] not in (killed, None))
    await until(lambda: all(worker.ready for worker in supervisor.status().workers))
    assert supervisor.overlays.installed == version
    assert not await supervisor.overlays.wait_installed(version + 1, 0.05)


async def test_what_was_decided_before_a_set_came_holds_for_it(tmp_path):
    options = WorkerOptions(index=0, workers=1, socket_path="", data_dir=str(tmp_path))
    service = await build(options, Metrics(), structlog.get_logger())
    documents = Documents.of([("a.yaml", SET)])
    (experiment,) = compile_documents(documents, generation=1, secret=b"").experiments
    service.overlay(Overlays(1, (Overlay("e", experiment.spec_hash, Phase.ROLLED_BACK, (1, 0), 1, False),), ()))
    await asyncio.to_thread(service.install, documents, 1)
    begun = service._cache.snapshot
    assert arms(begun) == {"control"}
    # The next set has no such experiment; as long as it is on its way, this one's goes on as it was.
    service.overlay(Overlays(2, (), (), generation=2))
    assert arms(service._cache.snapshot) == {"control"}
    service.overlay(Overlays(3, (), (), generation=2))
    assert arms(service._cache.snapshot) == {"control"}
    service.overlay(Overlays(4, (), (), generation=1))
    assert arms(service._cache.snapshot) == {"control", "candidate"}
    assert arms(begun) == {"control"}
    await service.close()


def arms(snapshot):
    asked = (Request("GET", "h", "/", Headers([("x-user-id", str(number))])) for number in range(100))
    return {snapshot.select(request).arm for request in asked}


async def test_workers_of_a_pod_know_each_others_callers(tmp_path):
    text = SET.replace("unit: [{header: x-user-id}]", "unit: [{header: x-user-id}, {cookie: sid}]")
    documents = Documents.of([("a.yaml", text)])
    services = []
    for index in range(2):
        options = WorkerOptions(index=index, workers=2, socket_path="", data_dir=str(tmp_path))
        services.append(await build(options, Metrics(), structlog.get_logger()))
    assert not (tmp_path / "links").exists()
    for service in services:
        await asyncio.to_thread(service.install, documents, 1)
    one, other = (service._cache.snapshot for service in services)
    for number in range(30):
        user, cookie = ("x-user-id", str(number)), ("cookie", f"sid={number}")
        steps = (one, [cookie]), (other, [user, cookie]), (one, [user]), (other, [cookie])
        assert len({snapshot.select(Request("GET", "h", "/", Headers(fields))).arm for snapshot, fields in steps}) == 1
    for service in services:
        await service.close()


async def test_without_a_place_for_links_the_preferred_unit_counts(tmp_path):
    (tmp_path / "links").mkdir()
    options = WorkerOptions(index=0, workers=1, socket_path="", data_dir=str(tmp_path))
    with structlog.testing.capture_logs() as entries:
        service = await build(options, Metrics(), structlog.get_logger())
        text = SET.replace("unit: [{header: x-user-id}]", "unit: [{header: x-user-id}, {cookie: sid}]")
        await asyncio.to_thread(service.install, Documents.of([("a.yaml", text)]), 1)
    assert [entry["event"] for entry in entries if entry["log_level"] == "warning"] == [
        "units are not remembered: callers may change arm at a login"
    ]
    assert arms(service._cache.snapshot) == {"control", "candidate"}
    await service.close()
