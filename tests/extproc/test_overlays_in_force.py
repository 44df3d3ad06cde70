"""What has been decided about experiments reaches every worker, also those that are started again."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest
import structlog
from supervised import GOOD, pids, until

from meshcache.experiment.overlay import Adoption, Overlay, Phase
from meshcache.extproc.assembly import build
from meshcache.extproc.child import COMMAND
from meshcache.extproc.control import Overlays, WorkerOptions
from meshcache.message import Headers, Request
from meshcache.observe.metrics import Metrics
from meshcache.policy.compile import compile_documents
from meshcache.policy.documents import Documents

SET = (
    GOOD
    + """\
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: r}
spec: {match: [{path: {prefix: /}}], policyRef: {name: plain}}
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
)


@pytest.mark.e2e
async def test_workers_have_them_in_milliseconds_and_from_their_start(bench):
    bench.write(SET)
    supervisor = bench.make(2, COMMAND)
    supervisor.load()
    (experiment,) = supervisor.snapshot.experiments
    back = Overlay("e", experiment.spec_hash, Phase.ROLLED_BACK, (1, 0), 1, False)
    # Known before the workers start, it is in force before they answer anybody.
    first = supervisor.apply_overlays({"e": back}, [Adoption("r", "digest", b"home")])
    supervisor.start()
    bench.running.append(supervisor)
    await until(lambda: any(worker.ready for worker in supervisor.status().workers))
    assert supervisor.overlays.installed == first
    await until(lambda: all(worker.ready for worker in supervisor.status().workers))
    (status,) = supervisor.status().experiments
    assert (status.name, status.weights, status.overlay) == ("e", (1, 0), back)

    times = []
    for epoch in range(2, 22):
        began = time.perf_counter()
        version = supervisor.apply_overlays(
            {"e": Overlay("e", experiment.spec_hash, Phase.RUNNING, (1, 1), epoch, True)}
        )
        assert await supervisor.overlays.wait_installed(version, 5)
        times.append(time.perf_counter() - began)
    assert sorted(times)[10] < 0.05
    assert supervisor.snapshot.counted["e"].epoch == 21

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
    service.overlay(Overlays(2, (), ()))
    assert arms(service._cache.snapshot) == {"control", "candidate"}
    assert arms(begun) == {"control"}
    await service.close()


def arms(snapshot):
    asked = (Request("GET", "h", "/", Headers([("x-user-id", str(number))])) for number in range(100))
    return {snapshot.select(request).arm for request in asked}
