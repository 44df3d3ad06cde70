"""What the filters have counted is taken once: whatever comes twice, late or out of order, and whoever dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from filter_batches import ARMS, ONE, Hit, batch
from meshcache.experiment.exposure import CountedExperiment, Exposure
from meshcache.experiment.observation import Observation
from meshcache.extproc.book_files import ABOUT, FILTERS_BOOK, FOLDER, BookFiles, id_of
from meshcache.extproc.filter_books import FilterBooks
from meshcache.extproc.filter_numbers import FilterNumbers
from meshcache.extproc.filter_state import KEPT, MOST_PLAIN, MOST_WORKERS, StateFile, Worker
from meshcache.extproc.pod_books import Shelf
from meshcache.observe.metrics import Metrics
from meshcache.wasm.booked import Words
from meshcache.wasm.numbers import decode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from meshcache.experiment.counted import Counted

HELPER = Path(__file__).with_name("taking_process.py")
KILLS = int(os.environ.get("KILLS") or 4)
UNITS = [Random(turn).randbytes(16) for turn in range(20)]
TWO = ONE._replace(epoch=2)


@dataclass
class Pod:
    """A supervisor's side of the filters' counts."""

    data: Path
    counted: list[CountedExperiment] = field(default_factory=lambda: [ONE])
    clock: float = 1_700_000_000.0

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A process begins."""
        self.metrics = Metrics()
        self.numbers = FilterNumbers(
            self.data,
            lambda: {one.experiment: one for one in self.counted},
            self.metrics,
            structlog.get_logger(),
            lambda: self.clock,
        )
        self.numbers.start()

    async def restart(self) -> None:
        await self.numbers.stop()
        self.begin()
        await self.begun()

    async def begun(self) -> None:
        assert self.numbers._beginning is not None
        await self.numbers._beginning

    def hits(self, route: str = "route", arm: str = "control", decision: str = "hit") -> float:
        return self.metrics.get("requests_total", (decision, "", "wasm", route, arm))

    def batches(self) -> dict[str, float]:
        series = self.metrics.snapshot().counters["filter_batches_total"]
        return {outcome: count for (outcome,), count in series.items()}

    def booked(self, one: CountedExperiment = ONE) -> Counted | None:
        found = Shelf(self.data, lambda: self.clock).read(id_of(one))
        return None if found is None else found[1]

    def requests(self, one: CountedExperiment = ONE) -> int:
        found = self.booked(one)
        return 0 if found is None else int(found.counters[:, :, 0].sum())


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[Pod]:
    made = Pod(tmp_path)
    await made.begun()
    yield made
    await made.numbers.stop()


async def test_a_batch_is_taken_once(pod: Pod) -> None:
    body = batch(1, 1, [Hit(UNITS[0]), Hit(UNITS[1], 1, stale=True), Hit()])
    assert await pod.numbers.take(body)
    assert await pod.numbers.take(body)
    assert pod.requests() == 2
    assert (pod.hits(), pod.hits(arm=""), pod.hits(arm="candidate", decision="stale-swr")) == (1, 1, 1)
    assert pod.metrics.get("bytes_total", ("out", "wasm")) == 1500
    assert pod.metrics.get("filter_age_seconds_total") == 3
    assert pod.batches() == {"taken": 1, "again": 1}
    # Another worker's first is another one.
    assert await pod.numbers.take(batch(2, 1, [Hit(UNITS[0])]))
    assert pod.requests() == 3


async def test_what_is_no_batch_is_refused(pod: Pod) -> None:
    with pytest.raises(ValueError, match="batch"):
        await pod.numbers.take(b"MCN1")
    assert pod.batches() == {"refused": 1}


async def test_metrics_and_books_go_on_after_a_restart(pod: Pod) -> None:
    first, second = batch(1, 1, [Hit(UNITS[0])]), batch(1, 2, [Hit(UNITS[1])])
    await pod.numbers.take(first)
    await pod.restart()
    assert pod.hits() == 1
    await pod.numbers.take(first)
    await pod.numbers.take(second)
    assert (pod.hits(), pod.requests()) == (2, 2)


async def test_requests_past_the_sidecar_are_counted_by_why(pod: Pod) -> None:
    for sequence, route in enumerate(("", "route"), 1):
        found = decode(batch(1, sequence, [Hit(route=route)]))
        (plain,) = found.plain
        made = found._replace(plain=(plain._replace(fresh=0, passed=5, not_modified=0),))
        counted = await asyncio.to_thread(FilterBooks.take, pod.numbers._books, made, {})
        assert counted
    await pod.restart()
    assert pod.metrics.get("requests_total", ("bypass", "no-route", "", "", "")) == 5
    assert pod.metrics.get("requests_total", ("bypass", "route-not-cached", "", "route", "")) == 5


async def test_requests_without_a_unit_are_told_apart(pod: Pod) -> None:
    await pod.numbers.take(batch(1, 1, [Hit(missing="e"), Hit(missing="e", stale=True), Hit(), Hit(missing="f")]))
    await pod.restart()
    await pod.numbers.take(batch(1, 2, [Hit(missing="e")]))
    assert [pod.metrics.get("missing_units_total", (name,)) for name in ("e", "f")] == [3, 1]
    assert pod.hits(arm="") == 4


async def test_workers_and_filters_are_added_up(pod: Pod) -> None:
    worker = BookFiles(pod.data, 0).open({"e": ONE})[0]["e"]
    worker.count(Exposure("e", 0, UNITS[0]), Observation(latency=0.02, origin_requests=1), pod.clock)
    await pod.numbers.take(batch(1, 1, [Hit(unit, cost=0.25) for unit in UNITS]))
    found = pod.booked()
    assert found is not None
    (control, *_) = found.totals()
    assert control.requests.sum() == 21
    assert control.hits_hot.sum() == 20
    assert control.origin_requests.sum() == 1
    assert control.cost_micros.sum() == 20 * 250_000
    assert control.latency.total == 21
    assert control.units == 20


async def test_an_epoch_that_is_over_is_still_counted(pod: Pod) -> None:
    await pod.numbers.take(batch(1, 1, [Hit(UNITS[0])]))
    pod.counted = [TWO]
    await pod.numbers.take(batch(1, 2, [Hit(UNITS[0]), Hit(UNITS[0], counted=TWO)]))
    assert (pod.requests(), pod.requests(TWO)) == (2, 1)


async def test_an_epoch_that_is_not_known_is_told_and_makes_no_book(pod: Pod) -> None:
    strange = ONE._replace(epoch=7)
    assert await pod.numbers.take(batch(1, 1, [Hit(UNITS[0], counted=strange), Hit(UNITS[0])]))
    assert pod.requests() == 1
    assert not (pod.data / FOLDER / id_of(strange).hex()).exists()
    assert pod.metrics.get("filter_unbooked_total", ("e",)) == 1
    # Nor do other arms than are counted.
    await pod.numbers.take(batch(1, 2, [Hit(UNITS[0], counted=ONE._replace(arms=("a", "b")))]))
    assert pod.metrics.get("filter_unbooked_total", ("e",)) == 2


async def test_an_epoch_that_was_removed_does_not_come_back(pod: Pod) -> None:
    await pod.numbers.take(batch(1, 1, [Hit(UNITS[0])]))
    shutil.rmtree(pod.data / FOLDER / id_of(ONE).hex())
    pod.counted = [TWO]
    await pod.numbers.take(batch(1, 2, [Hit(UNITS[0])]))
    assert not (pod.data / FOLDER / id_of(ONE).hex()).exists()
    assert pod.metrics.get("filter_unbooked_total", ("e",)) == 1
    # One that is counted now is begun anew, without what is gone.
    pod.counted = [ONE]
    await pod.restart()
    await pod.numbers.take(batch(1, 3, [Hit(UNITS[0])]))
    assert (pod.data / FOLDER / id_of(ONE).hex() / ABOUT).exists()
    assert pod.requests() == 1


async def test_what_the_disk_does_not_take_is_sent_again(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    body = batch(1, 1, [Hit(UNITS[0])])

    def full(self: StateFile, state: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(StateFile, "write", full)
        assert not await pod.numbers.take(body)
        assert (pod.hits(), pod.requests()) == (0, 0)
    assert await pod.numbers.take(body)
    assert (pod.hits(), pod.requests()) == (1, 1)
    assert pod.batches() == {"failed": 1, "taken": 1}


async def test_two_processes_do_not_take_into_the_same_files(pod: Pod) -> None:
    body = batch(1, 1, [Hit(UNITS[0])])
    await pod.numbers.take(body)
    other = Pod(pod.data)
    second = batch(1, 2, [Hit(UNITS[0])])
    assert not await other.numbers.take(second)
    await pod.numbers.stop()
    assert await other.numbers.take(second)
    assert other.requests() == 2
    await other.numbers.stop()


async def test_at_the_end_nothing_more_is_taken(pod: Pod) -> None:
    await pod.numbers.stop()
    with structlog.testing.capture_logs() as logs:
        assert not await pod.numbers.take(batch(1, 1, [Hit(UNITS[0])]))
    assert not logs
    pod.begin()
    assert await pod.numbers.take(batch(1, 1, [Hit(UNITS[0])]))


async def test_a_state_that_is_damaged_is_begun_anew(pod: Pod) -> None:
    await pod.numbers.take(batch(1, 1, [Hit(UNITS[0])]))
    await pod.numbers.stop()
    for damage in (b"", b"MCFSTAT1" + bytes(40), (pod.data / "filters" / "state").read_bytes()[:-1]):
        (pod.data / "filters" / "state").write_bytes(damage)
        pod.begin()
        with structlog.testing.capture_logs() as logs:
            await pod.begun()
        assert [line["log_level"] for line in logs] == ["warning"]
        assert await pod.numbers.take(batch(1, 1, [Hit(UNITS[0])]))
        await pod.numbers.stop()
    assert pod.requests() == 4


async def test_what_is_remembered_is_bounded(pod: Pod) -> None:
    books = pod.numbers._books
    made = decode(batch(1, 1, [Hit(route=f"r{turn}") for turn in range(MOST_PLAIN + 5)]))
    books.take(made, {})
    assert len(books.totals) == MOST_PLAIN + 1
    assert sum(one.fresh for one in books.totals) == MOST_PLAIN + 5
    books._state.workers.clear()
    for worker in range(MOST_WORKERS + 3):
        pod.clock += 0.001
        books._state.workers[worker] = Worker(1, pod.clock)
    books.take(decode(batch(9_999_999, 1, [Hit()])), {})
    assert len(books._state.workers) == MOST_WORKERS
    assert 0 not in books._state.workers
    pod.clock += KEPT + 1
    books.take(decode(batch(8_888_888, 1, [Hit()])), {})
    assert set(books._state.workers) == {8_888_888}
    # At a start, routes of which nothing has come for long are forgotten as well.
    pod.clock += KEPT + 1
    await pod.restart()
    assert books.totals
    assert pod.numbers._books.totals == ()


def test_numpy_is_not_loaded() -> None:
    told = "import sys, meshcache.extproc.filter_numbers; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", told], capture_output=True, check=True).stdout == b"False\n"


# -- laws ------------------------------------------------------------------------------------------------------------

HITS = st.builds(
    Hit,
    unit=st.none() | st.sampled_from(UNITS),
    arm=st.integers(0, len(ARMS) - 1),
    stale=st.booleans(),
    latency_us=st.integers(0, 10**6),
    route=st.sampled_from(("a", "b")),
    counted=st.sampled_from((ONE, TWO._replace(experiment="f", uid="f"))),
)


class Killed(BaseException):
    """A process has come to its end."""


def dying_at(monkeypatch: pytest.MonkeyPatch, word: int) -> Callable[[], None]:
    """From now on a process dies having stored so many of a batch's words."""
    whole = Words.store

    def part(self: Words, words: bytes, sample: bytes) -> None:
        count = len(words) // 12
        kept = min(word, count)
        whole(self, words[: 4 * kept] + words[4 * count :][: 8 * kept], sample if word >= count else b"")
        if word <= count:
            raise Killed

    monkeypatch.setattr(Words, "store", part)
    return lambda: monkeypatch.setattr(Words, "store", whole)


@settings(deadline=None, max_examples=max(10, settings().max_examples * 2 // 5))
@given(st.data())
def test_every_hit_is_counted_once_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Two filter workers, whose batches are lost on the way or come twice, and a process that is killed and begins."""
    folder = tmp_path_factory.mktemp("law")
    current = {id_of(one): one for one in (ONE, TWO._replace(experiment="f", uid="f"))}
    books = FilterBooks(folder, lambda: 1e9)
    sequences = [0, 0]
    everything: list[Hit] = []
    sent: list[bytes] = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        for _ in range(data.draw(st.integers(1, 8))):
            worker = data.draw(st.integers(0, 1))
            hits = data.draw(st.lists(HITS, min_size=1, max_size=6))
            sequences[worker] += 1
            everything += hits
            body = batch(worker + 1, sequences[worker], hits)
            sent.append(body)
            # It is sent until somebody says that he has it, and each time what was sent before may come late.
            while True:
                event = data.draw(st.sampled_from(("taken", "taken", "unheard", "late", "restart", "killed")))
                if event == "late":
                    books.take(decode(data.draw(st.sampled_from(sent[:-1] or sent))), current)
                elif event == "restart":
                    books.close()
                    books = FilterBooks(folder, lambda: 1e9)
                elif event == "killed":
                    alive = dying_at(monkeypatch, data.draw(st.integers(0, 60)))
                    with contextlib.suppress(Killed):
                        books.take(decode(body), current)
                    alive()
                    books.close()
                    books = FilterBooks(folder, lambda: 1e9)
                else:
                    books.take(decode(body), current)
                    if event == "taken":
                        break
        books.close()
        books = FilterBooks(folder, lambda: 1e9)
        books.begin()
    assert sum(one.fresh + one.stale for one in books.totals) == len(everything)
    assert sum(one.stale for one in books.totals) == sum(hit.stale for hit in everything)
    for one in current.values():
        mine = [hit for hit in everything if hit.unit and hit.counted == one]
        found = Shelf(folder, lambda: 1e9).read(id_of(one))
        counters = 0 if found is None else found[1].counters.sum(axis=1)
        for arm in range(len(ARMS)):
            those = [hit for hit in mine if hit.arm == arm]
            if found is None:
                assert not those
                continue
            requests, hot, _, _, stale, _, _, _, latency, *_ = counters[arm]  # type: ignore[index]
            assert (requests, hot) == (len(those), len(those))
            assert stale == sum(hit.stale for hit in those)
            assert latency == sum(hit.latency_us for hit in those)
            assert found[1].latency[arm].sum() == len(those)
    books.close()


@pytest.mark.slow
def test_each_hit_counts_once_though_the_process_is_killed_again_and_again(tmp_path: Path) -> None:
    """A process that takes batches is killed (SIGKILL) at any moment; what it has not said it has is sent again."""
    random = Random(17)
    sequence, hits = 0, 0
    body = b""
    for life in range(KILLS):
        taking = subprocess.Popen(
            [sys.executable, HELPER, tmp_path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert taking.stdin
        assert taking.stdout
        answered, enough = 0, random.randrange(2, 40)
        while True:
            if not body:
                sequence += 1
                count = random.randrange(1, 60)
                hits += count
                body = batch(9, sequence, [Hit(random.choice(UNITS), random.randrange(3)) for _ in range(count)])
            taking.stdin.write(struct.pack("<I", len(body)) + body)
            taking.stdin.flush()
            if answered >= enough:
                # In the middle of taking it, somewhere.
                busy = random.random() * 0.002
                try:
                    taking.wait(busy)
                except subprocess.TimeoutExpired:
                    taking.kill()
                break
            assert taking.stdout.read(1) == b"\1"
            answered += 1
            body = b""
        taking.wait()
        if taking.stdout.read() == b"\1" and life % 2:
            # It was heard in time.
            body = b""
        taking.stdin = None
        taking.stdout.close()
    books = FilterBooks(tmp_path, lambda: 1e9)
    books.begin()
    if body:
        books.take(decode(body), {id_of(ONE): ONE})
    assert sum(one.fresh for one in books.totals) == hits
    found = Shelf(tmp_path).read(id_of(ONE))
    assert found is not None
    assert found[1].counters[:, :, 0].sum() == hits
    assert found[1].counters[:, :, 1].sum() == hits
    assert found[1].latency.sum() == hits
    assert (tmp_path / FOLDER / id_of(ONE).hex() / FILTERS_BOOK).exists()
    books.close()
