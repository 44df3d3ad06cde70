"""Purges over workers that the test plays: who has applied them, who is named, what is counted."""

from __future__ import annotations

import asyncio
import time

import pytest
import pytest_asyncio
import structlog
from supervised import until

from meshcache.extproc import purger as module
from meshcache.extproc.purge_book import PurgeBook
from meshcache.extproc.purger import Purger, PurgeRequest
from meshcache.observe.metrics import Metrics
from meshcache.policy.identity import subject_hash
from meshcache.tiers.board import Board
from meshcache.tiers.sweeping import Sweeper

SECRET = b"s" * 32
WHO = {"uid": 1}


class Member:
    def __init__(self, name: str, pod: Pod) -> None:
        self.name = name
        self.ready = True
        self.applied = pod.book.generation
        self.sleeps = False
        self.keys: tuple[bytes, ...] = ()
        self._pod = pod

    def tell(self, generation: int) -> None:
        if self.sleeps:
            return
        first, self.applied = self.applied + 1, generation
        self._pod.purger.counted(self.name, first, generation, self.keys)


class Pod:
    def __init__(self, folder) -> None:
        self.board = Board(folder / "board", slots=1 << 16, lease_buckets=16)
        self.book = PurgeBook(folder / "purges.log", self.board, structlog.get_logger(), tell=self.tell)
        self.book.open()
        self.members: list[Member] = []
        self.audited: list[tuple[str, dict]] = []
        self.metrics = Metrics()
        self.sweeper = Sweeper({})
        self.filters = lambda _generation: ([], [])
        self.purger = Purger(
            self.book,
            lambda: self.members,
            self.sweeper,
            None,
            lambda: SECRET,
            self.metrics,
            audit=lambda action, fields: self.audited.append((action, dict(fields))),
            filters=lambda generation: self.filters(generation),
        )
        self.members = [Member(f"worker-{number}", self) for number in range(2)]

    async def tell(self, generation: int) -> None:
        for member in self.members:
            member.tell(generation)


@pytest_asyncio.fixture
async def pod(tmp_path, monkeypatch):
    # Of those that are played most are quick; a busy machine may not be.
    monkeypatch.setattr(module, "PATIENCE", 5.0)
    monkeypatch.setattr(module, "COUNT_PATIENCE", 5.0)
    made = Pod(tmp_path)
    yield made
    await made.sweeper.close()
    made.book.close()
    made.board.close()


@pytest.fixture
def impatient(pod, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    return pod


async def test_what_everybody_has_applied(pod):
    pod.members[0].keys = (b"a", b"b")
    pod.members[1].keys = (b"b", b"c")
    result = await pod.purger.purge(PurgeRequest(tags=("t", "u", "t")), WHO)
    assert (result.acknowledged, result.pending) == (("worker-0", "worker-1"), ())
    assert (result.entries, result.counted, result.widened, result.generation) == (3, True, False, 3)
    assert pod.metrics.get("purges_total", ("tag", "hard")) == 2
    assert pod.metrics.get("purged_entries_total") == 3


async def test_who_is_silent_is_named_after_a_second_and_not_waited_for_longer(impatient):
    pod = impatient
    pod.members[1].sleeps = True
    began = time.monotonic()
    result = await pod.purger.purge(PurgeRequest(all=True), WHO)
    assert 0.1 <= time.monotonic() - began < module.COUNT_PATIENCE - 1
    assert (result.acknowledged, result.pending, result.counted) == (("worker-0",), ("worker-1",), False)
    pod.members[1].sleeps = False
    pod.members[1].tell(pod.book.generation)
    later = await pod.purger.result(result.id)
    assert later is not None
    assert (later.pending, later.counted) == ((), True)


async def test_a_worker_that_does_not_serve_is_not_waited_for(pod):
    pod.members[1].ready = False
    pod.members[1].sleeps = True
    result = await pod.purger.purge(PurgeRequest(all=True), WHO)
    assert (result.acknowledged, result.pending) == (("worker-0",), ())


async def test_purges_at_once_are_counted_apart(pod):
    pod.members[0].keys = (b"a",)
    results = await asyncio.gather(*(pod.purger.purge(PurgeRequest(tags=(str(number),)), WHO) for number in range(20)))
    assert [result.entries for result in results] == [1] * 20
    assert all(result.counted for result in results)
    assert len({result.generation for result in results}) == 20


async def test_what_is_asked_is_audited_and_a_person_only_by_a_hash(pod):
    result = await pod.purger.purge(PurgeRequest(subjects=("alice",), urls=("https://a.example/x",), soft=True), WHO)
    (purge, made), (outcome, came) = pod.audited
    assert (purge, outcome) == ("purge", "purge-result")
    assert (made["id"], made["who"], made["soft"], made["generation"]) == (result.id, WHO, True, result.generation)
    hashed = subject_hash(SECRET, "alice").hex()
    assert made["what"] == [{"by": "url", "value": "a.example/x"}, {"by": "subject", "value": hashed}]
    assert (came["id"], came["entries"], came["acknowledged"], came["pending"]) == (result.id, 0, 2, ())
    assert "alice" not in str(pod.audited)


async def test_whoever_does_not_wait_for_the_end_changes_nothing(impatient):
    pod = impatient
    pod.members[1].sleeps = True
    asking = asyncio.create_task(pod.purger.purge(PurgeRequest(all=True), WHO))
    await asyncio.sleep(0.02)
    asking.cancel()
    await until(lambda: len(pod.audited) > 1)
    assert [action for action, _ in pod.audited] == ["purge", "purge-result"]


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (PurgeRequest(), "nothing is named"),
        (PurgeRequest(soft=True), "nothing is named"),
        (PurgeRequest(tags=("a,b",)), "without commas"),
        (PurgeRequest(subjects=("",)), "subject: expected 1"),
        (PurgeRequest(tags=tuple(map(str, range(1001)))), "more than 1000"),
    ],
)
async def test_a_request_that_makes_no_sense_changes_nothing(pod, request_, says):
    generation = pod.book.generation
    with pytest.raises(ValueError, match=says):
        await pod.purger.purge(request_, WHO)
    assert (pod.book.generation, pod.audited) == (generation, [])


async def test_a_purge_that_is_not_remembered(pod):
    assert await pod.purger.result("x") is None


async def test_filters_are_waited_for_as_workers_are(pod, monkeypatch):
    asked: list[int] = []

    def filters(generation: int) -> tuple[list[str], list[str]]:
        asked.append(generation)
        return ["envoy-1"], (["envoy-2"] if len(asked) < 4 else [])

    pod.filters = filters
    result = await pod.purger.purge(PurgeRequest(tags=("t",)), WHO)
    assert (result.acknowledged, result.pending) == (("worker-0", "worker-1", "envoy-1"), ())
    assert set(asked) == {pod.book.generation}
    # One that is behind for good is named, and nobody waits for it longer than for a worker.
    pod.filters = lambda _generation: ([], ["envoy-2"])
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    began = time.monotonic()
    result = await pod.purger.purge(PurgeRequest(tags=("t",)), WHO)
    assert result.pending == ("envoy-2",)
    assert 0.1 <= time.monotonic() - began < 4.0
