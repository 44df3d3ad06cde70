"""Pods that decide about experiments by one real store: rollbacks, orders, and stores that are away."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog
from supervised import until

from experiment_plans import HARM, HARMLESS, NOTHING, SPEC, Estimate, files, findings
from fixtures_valkey import LocalValkey
from meshcache.experiment.findings import ArmNumbers, Findings
from meshcache.experiment.orders import Order
from meshcache.experiment.overlay import Adoption, Overlay, Phase
from meshcache.experiment.state import Record
from meshcache.extproc.control import WorkerOptions
from meshcache.extproc.decider import EVERY
from meshcache.extproc.deciding import Deciding, NotKnownError, OrderRefusedError
from meshcache.observe.audit import AuditLog
from meshcache.observe.metrics import Metrics
from meshcache.policy.compile import compile_documents
from meshcache.policy.compiled import Experiment
from meshcache.policy.documents import Documents
from meshcache.policy.snapshot import Snapshot

SETTLING = 0.7
"""Seconds; longer than a pod takes to see that a store is another one."""
QUICK = SPEC.replace("warmup: 5s", "warmup: 0s")


def policies(spec: str = QUICK, ttl: str = "2m", more: str = "") -> Snapshot:
    return compile_documents(Documents.of([("a.yaml", files(spec, ttl) + more)]), generation=1, secret=b"s")


class Found:
    """What the ledger shows, to all pods."""

    def __init__(self) -> None:
        self.latency: Estimate = HARMLESS

    async def findings(self, experiment: Experiment, record: Record) -> Findings | None:  # noqa: ARG002
        return findings(record, latency=self.latency, hits=NOTHING)

    async def all(self, experiment: Experiment, record: Record) -> tuple[Findings | None, tuple[ArmNumbers, ...]]:
        return await self.findings(experiment, record), tuple(ArmNumbers(units=5) for _ in experiment.arms)


class Pod:
    def __init__(self, data: Path, url: str, found: Found, snapshot: Snapshot, every: float) -> None:
        data.mkdir(exist_ok=True)
        self.data = data
        self.in_force: dict[str, Overlay] = {}
        self.adoptions: tuple[Adoption, ...] = ()
        self.since = 0.0
        self.waited_for: Phase | None = None
        self.metrics = Metrics()
        options = WorkerOptions(
            index=0, workers=1, socket_path="", data_dir=str(data), warm_url=url, keys_dir=str(data.parent / "keys")
        )
        self.deciding = Deciding(
            options,
            found,
            self.apply,
            self.metrics,
            structlog.get_logger(),
            AuditLog(data / "audit.log"),
            installed=self.installed,
            every=every,
            settling=SETTLING,
        )
        self.deciding.open(snapshot)
        self.deciding.start()

    def apply(self, overlays: Mapping[str, Overlay], adoptions: Iterable[Adoption]) -> None:
        self.in_force = dict(overlays)
        self.adoptions = tuple(adoptions)
        self.since = time.monotonic()

    async def installed(self) -> None:
        self.waited_for = self.phase

    @property
    def phase(self) -> Phase | None:
        overlay = self.in_force.get("e")
        return None if overlay is None else overlay.phase

    @property
    def audited(self) -> dict[str, Any]:
        """The newest line of the audit log, which a thread writes a moment after what it tells of."""
        lines = text(self.data / "audit.log").splitlines()
        return json.loads(lines[-1]) if lines else {}


def text(path: Path) -> str:
    """What the file holds; nothing where another thread has just moved it away, or has not written it yet."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


Start = Callable[..., Pod]


@pytest.fixture
def found() -> Found:
    return Found()


@pytest.fixture
async def start(tmp_path: Path, valkey: LocalValkey, found: Found) -> AsyncIterator[Start]:
    pods: list[Pod] = []

    def begin(name: str, url: str | None = None, every: float = 0.1) -> Pod:
        address = valkey.unix_url if url is None else url
        pods.append(Pod(tmp_path / name, address, found, policies(), every))
        return pods[-1]

    with structlog.testing.capture_logs():
        yield begin
        for pod in pods:
            await pod.deciding.stop()


async def running(*pods: Pod) -> None:
    await until(lambda: all(pod.phase is Phase.RUNNING for pod in pods), what="all pods at the same")


async def test_a_rollback_is_in_force_in_every_pod_within_two_seconds(start: Start, found: Found) -> None:
    pods = [start(name, every=EVERY) for name in "abc"]
    await running(*pods)
    assert sum(pod.deciding.leads for pod in pods) == 1
    began = time.monotonic()
    found.latency = HARM
    await until(lambda: all(pod.phase is Phase.ROLLED_BACK for pod in pods))
    assert max(pod.since for pod in pods) - began < 2.0
    # One leads and decides, so the others hear of it as soon as it is written.
    assert max(pod.since for pod in pods) - min(pod.since for pod in pods) < 0.8 * EVERY
    assert {pod.in_force["e"].weights for pod in pods} == {(1, 0, 0)}
    leader = next(pod for pod in pods if pod.deciding.leads)
    await until(lambda: leader.audited.get("what") == "RolledBack")
    assert leader.audited["action"] == "experiment"
    assert leader.audited["evidence"][0]["metric"] == "latencyMean"
    assert leader.metrics.get("experiment_decisions_total", ("e", "RolledBack", "decider")) == 1
    assert all(pod.metrics.get("experiment_phase", ("e", "RolledBack")) == 1 for pod in pods)
    assert all(pod.metrics.get("experiment_phase", ("e", "Running")) == 0 for pod in pods)


async def test_a_person_decides_from_any_pod(start: Start) -> None:
    pods = [start("a"), start("b")]
    await running(*pods)
    follower = next(pod for pod in pods if not pod.deciding.leads)
    began = time.monotonic()
    shown = await follower.deciding.order("e", Order.ROLLBACK, {"user": "sam", "uid": 7}, text="too slow")
    assert (shown.phase, shown.leads, shown.decisions[-1].who) == ("RolledBack", False, "sam")
    assert follower.waited_for is Phase.ROLLED_BACK
    await until(lambda: all(pod.phase is Phase.ROLLED_BACK for pod in pods))
    assert max(pod.since for pod in pods) - began < 2.0
    await until(lambda: follower.audited.get("who") == {"user": "sam", "uid": 7})
    assert follower.audited["text"] == "too slow"
    with pytest.raises(ValueError, match="e is RolledBack already"):
        await follower.deciding.order("e", Order.ROLLBACK, {})
    with pytest.raises(NotKnownError, match="no experiment in force is named f"):
        await follower.deciding.order("f", Order.ROLLBACK, {})
    # What a person has said holds, whatever the leader looks at.
    await asyncio.sleep(1.5)
    assert {pod.phase for pod in pods} == {Phase.ROLLED_BACK}
    await pods[0].deciding.order("e", Order.RESUME, {"user": "sam"})
    await running(*pods)
    await pods[1].deciding.order("e", Order.PROMOTE, {"user": "sam"})
    await until(lambda: all(pod.phase is Phase.PROMOTED and pod.adoptions for pod in pods))
    assert {pod.in_force["e"].winner for pod in pods} == {"candidate"}


async def test_a_store_that_dies_and_comes_back_empty_costs_no_verdict(
    start: Start, valkey: LocalValkey, found: Found
) -> None:
    pods = [start("a"), start("b")]
    await running(*pods)
    before = pods[0].deciding.overview()
    valkey.kill()
    found.latency = HARM
    await until(lambda: not any(pod.deciding.connected for pod in pods))
    # Nobody decides, and what is in force stays.
    await asyncio.sleep(1.5)
    assert {pod.phase for pod in pods} == {Phase.RUNNING}
    with pytest.raises(OrderRefusedError, match="nothing was decided: unix://"):
        await pods[0].deciding.order("e", Order.STOP, {})
    valkey.start()
    await until(lambda: all(pod.phase is Phase.ROLLED_BACK for pod in pods))
    record = (await pods[0].deciding.show("e")).decisions
    assert [decision.what for decision in record] == ["Started", "Counting", "RolledBack"]
    assert before.experiments[0].since == record[1].at

    # And a verdict outlives the loss of everything in the store.
    valkey.kill()
    valkey.start()
    found.latency = HARMLESS

    def kept() -> bool:
        with valkey.client() as client:
            names = client.keys("mc1:{x*}:records")
            return bool(names) and client.hlen(names[0]) == 1

    await asyncio.sleep(SETTLING + 1.5)
    await until(kept)
    assert {pod.phase for pod in pods} == {Phase.ROLLED_BACK}


async def test_a_pod_starts_with_what_was_decided_last_beside_a_store_that_is_away(
    start: Start, valkey: LocalValkey, found: Found
) -> None:
    first = start("a")
    await running(first)
    found.latency = HARM
    await until(lambda: first.phase is Phase.ROLLED_BACK)
    await until(lambda: "RolledBack" in text(first.data / "experiments.json"), what="a copy on disk")
    await first.deciding.stop()
    valkey.kill()
    again = start("a")
    await asyncio.sleep(0.3)
    assert (again.phase, again.deciding.leads) == (Phase.ROLLED_BACK, False)


async def test_the_next_pod_leads_soon_after_the_leader_has_gone(start: Start) -> None:
    pods = [start("a"), start("b")]
    await running(*pods)
    leader, follower = sorted(pods, key=lambda pod: not pod.deciding.leads)
    await leader.deciding.stop()
    began = time.monotonic()
    await until(lambda: follower.deciding.leads)
    assert time.monotonic() - began < 2.0


async def test_without_a_store_one_pod_keeps_its_verdicts_in_a_file(start: Start, found: Found) -> None:
    pod = start("a", "")
    await running(pod)
    found.latency = HARM
    began = time.monotonic()
    await until(lambda: pod.phase is Phase.ROLLED_BACK)
    assert pod.since - began < 2.0
    await pod.deciding.stop()
    found.latency = HARMLESS
    again = start("a", "")
    assert again.phase is Phase.ROLLED_BACK
    await asyncio.sleep(1.2)
    assert again.phase is Phase.ROLLED_BACK
    # Another text is another experiment, and the old one is where it was left.
    again.deciding.install(policies(ttl="3m"))
    assert again.phase is None or again.in_force["e"].spec_hash != policies(ttl="3m").experiments[0].spec_hash
    await running(again)
    again.deciding.install(policies())
    await until(lambda: again.phase is Phase.ROLLED_BACK)
    shown = await again.deciding.show("e")
    await until(lambda: again.deciding.overview().experiments[0].decided == "Restored")
    assert shown.arms[0].name == "control"


@pytest.mark.parametrize("content", [None, "{"])
async def test_a_file_that_is_lost_while_it_runs_costs_no_verdict(
    start: Start, found: Found, content: str | None
) -> None:
    pod = start("a", url="")
    await running(pod)
    found.latency = HARM
    await until(lambda: pod.phase is Phase.ROLLED_BACK)
    path = pod.data / "experiments.json"
    phases = []
    pod.deciding._apply = lambda overlays, _: phases.append(overlays["e"].phase)
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    await until(lambda: "RolledBack" in text(path))
    await asyncio.sleep(SETTLING + 0.3)
    assert set(phases) <= {Phase.ROLLED_BACK}
    assert "RolledBack" in text(path)


async def test_arms_that_were_added_a_moment_ago_can_be_shown(start: Start) -> None:
    pod = start("a")
    await running(pod)
    await pod.deciding.stop()
    more = "arms: [{name: extra, policyRef: {name: new}, weight: 1}, "
    pod.deciding.install(policies(QUICK.replace("arms: [", more).replace("weight: 1}", "weight: 50}")))
    (shown,) = pod.deciding.overview().experiments
    assert (shown.phase, list(shown.shares)) == ("Pending", ["extra", "control", "candidate", "baseline"])
    assert (await pod.deciding.show("e")).phase == "Pending"


async def test_pods_with_other_files_for_a_while_undo_nothing(start: Start, found: Found) -> None:
    pods = [start("a"), start("b")]
    await running(*pods)
    found.latency = HARM
    await until(lambda: all(pod.phase is Phase.ROLLED_BACK for pod in pods))
    found.latency = HARMLESS
    new, old = sorted(pods, key=lambda pod: not pod.deciding.leads)
    changed = policies(ttl="3m")
    new.deciding.install(changed)
    await until(lambda: new.in_force.get("e", old.in_force["e"]).spec_hash == changed.experiments[0].spec_hash)
    await running(new)
    assert old.phase is Phase.ROLLED_BACK
    assert not old.in_force["e"].counting
