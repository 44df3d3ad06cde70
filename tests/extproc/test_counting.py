"""The ledger of a pod and of a fleet: what workers have counted, added up, over real files and a real store."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from meshcache.experiment.exposure import CountedExperiment, Exposure
from meshcache.experiment.observation import Observation
from meshcache.extproc import book_files, shared_counts
from meshcache.extproc.book_files import ABOUT, ASIDE, FOLDER, BookFiles, book_name, id_of
from meshcache.extproc.control import WorkerOptions
from meshcache.extproc.counting import Counting
from meshcache.extproc.pod_books import KEPT, LINGER, Shelf
from meshcache.observe import logs
from meshcache.observe.metrics import Metrics
from meshcache.tiers.fleet_ledger import FleetRecords
from meshcache.tiers.signing import Keyring
from meshcache.tiers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fixtures_valkey import LocalValkey
    from meshcache.experiment.ledger import Book
    from meshcache.experiment.totals import EpochTotals

ARMS = ("control", "candidate", "baseline")
ONE = CountedExperiment("e", "0123", 1, ARMS, "e")
TWO = ONE._replace(epoch=2)
KEYS = Keyring([b"k" * 32], b"s" * 32)


def counted(*which: CountedExperiment) -> dict[str, CountedExperiment]:
    return {one.experiment: one for one in which}


def book(data: Path, slot: int = 0, one: CountedExperiment = ONE) -> Book:
    books, failures = BookFiles(data, slot).open(counted(one))
    assert not failures
    return books[one.experiment]


def count(into: Book, requests: int, arm: int = 0, **seen: Any) -> None:
    random = Random(f"{requests}{arm}")
    for _ in range(requests):
        into.count(Exposure("e", arm, random.randbytes(16)), Observation(**{"latency": 0.01} | seen), time.time())


def requests_of(totals: EpochTotals) -> list[int]:
    return [int(arm.requests.sum()) for arm in totals.arms]


@dataclass
class Pod:
    """A supervisor's side of the ledger, and what is counted."""

    data: Path
    url: str = ""
    current: Mapping[str, CountedExperiment] = None  # type: ignore[assignment]
    keys: Keyring = KEYS

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self.current = counted(ONE)
        self.data.mkdir(exist_ok=True)
        options = WorkerOptions(0, 1, "", str(self.data), warm_url=self.url)
        self.counting = Counting(options, lambda: self.current, lambda: self.keys, self.metrics, logs.get_logger())

    async def totals(self, one: CountedExperiment = ONE) -> EpochTotals:
        return await self.counting.totals(one.experiment, one.spec_hash, one.epoch, uid=one.uid)

    async def fresh(self, one: CountedExperiment = ONE) -> EpochTotals:
        """The totals once what was read before is no longer good."""
        await asyncio.sleep(0.6)
        return await self.totals(one)


async def test_the_sum_of_all_workers(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    assert (await pod.totals()).arms == ()
    for slot in range(3):
        into = book(tmp_path, slot)
        count(into, 10 * (slot + 1), slot, tier=1, error=slot == 2, origin_requests=2)
    totals = await pod.totals()
    assert requests_of(totals) == [10, 20, 30]
    assert totals.units == (10, 20, 30)
    assert time.time() - totals.updated_at < 5
    await pod.counting.tick()
    assert pod.metrics.get("experiment_units", ("e", "baseline")) == 30
    # What was there before this process is none of its counts.
    assert pod.metrics.get("experiment_requests_total", ("e", "baseline")) == 0
    count(into, 5, 2, tier=1, error=True, origin_requests=2)
    await pod.counting.tick()
    found = {
        name: pod.metrics.get(f"experiment_{name}_total", ("e", "baseline"))
        for name in ("requests", "hits", "errors", "origin_requests")
    }
    assert found == {"requests": 5, "hits": 5, "errors": 5, "origin_requests": 10}


async def test_epochs_and_experiments_are_kept_apart(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    others = [
        TWO,
        ONE._replace(spec_hash="4567"),
        ONE._replace(uid="made again"),
        ONE._replace(experiment="f", uid="f"),
    ]
    for number, one in enumerate([ONE, *others]):
        count(book(tmp_path, 0, one), number + 1)
    assert [requests_of(await pod.totals(one))[0] for one in [ONE, *others]] == [1, 2, 3, 4, 5]
    # The name stands in for a uid that there is none of.
    assert requests_of(await pod.totals(ONE._replace(uid="")))[0] == 1


def test_a_book_is_gone_on_with_by_the_next_worker(tmp_path: Path) -> None:
    count(book(tmp_path), 3)
    count(book(tmp_path), 4)
    found = Shelf(tmp_path).read(id_of(ONE))
    assert found is not None
    assert found[1].counters[0, :, 0].sum() == 7


def test_one_file_is_counted_into_by_one_process(tmp_path: Path) -> None:
    files = BookFiles(tmp_path, 0)
    held, _ = files.open(counted(ONE))
    again, _ = files.open(counted(ONE))
    assert again["e"] is held["e"]
    assert files.held(counted(ONE)) == held
    assert files.held(counted(TWO)) == {}
    books, failures = BookFiles(tmp_path, 0).open(counted(ONE))
    assert not books
    assert "temporarily unavailable" in failures["e"]
    del held, again
    assert BookFiles(tmp_path, 0).open(counted(ONE))[0]


@pytest.mark.parametrize("content", [b"", b"MCLEDGER", b"x" * 4096])
def test_a_file_of_another_form_is_set_aside(tmp_path: Path, content: bytes) -> None:
    count(book(tmp_path), 3)
    path = tmp_path / FOLDER / id_of(ONE).hex() / book_name(0)
    path.write_bytes(content)
    shelf = Shelf(tmp_path)
    found = shelf.read(id_of(ONE))
    assert found is not None
    assert found[1].counters.sum() == 0
    count(book(tmp_path), 2)
    assert path.with_name(path.name + ASIDE).read_bytes() == content
    found = shelf.read(id_of(ONE))
    assert found is not None
    assert found[1].counters[0, :, 0].sum() == 2


def test_what_a_folder_is_about_is_written_anew_where_it_was_lost(tmp_path: Path) -> None:
    about = tmp_path / FOLDER / id_of(ONE).hex() / ABOUT
    for content in (b"", b"{}"):
        book(tmp_path)
        about.write_bytes(content)
        count(book(tmp_path), 1)
    found = Shelf(tmp_path).read(id_of(ONE))
    assert found is not None
    assert found[1].counters.sum() > 0


def test_a_full_disk_costs_the_counts_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int, _size: int) -> None:
        raise OSError(28, "No space left on device")

    files = BookFiles(tmp_path, 0)
    with monkeypatch.context() as patched:
        patched.setattr(book_files, "allocate", full)
        books, failures = files.open(counted(ONE))
        assert not books
        assert "No space left" in failures["e"]
        assert [path.name for path in (tmp_path / FOLDER).rglob("*.book*")] == []
    assert files.open(counted(ONE))[0]


def test_files_have_all_their_blocks(tmp_path: Path) -> None:
    held = book(tmp_path)
    status = (tmp_path / FOLDER / id_of(ONE).hex() / book_name(0)).stat()
    assert status.st_size == len(held.buffer)
    assert status.st_blocks * 512 >= status.st_size
    assert status.st_mode & 0o077 == 0


def test_what_is_no_longer_needed_is_removed(tmp_path: Path) -> None:
    now = time.time()
    three, other = ONE._replace(epoch=3), ONE._replace(experiment="f", uid="f")
    for age, one in ((5000.0, ONE), (4000.0, TWO), (100.0, three), (9000.0, other)):
        count(book(tmp_path, 0, one), 1)
        about = tmp_path / FOLDER / id_of(one).hex() / "about.json"
        os.utime(about, (now - age, now - age))
    clock = now
    shelf = Shelf(tmp_path, lambda: clock)
    (tmp_path / FOLDER / "else").mkdir()
    assert shelf.keys() == [id_of(one) for one in (three, TWO, ONE, other)]
    assert shelf.tidy({id_of(ONE)}) == []
    clock = now + LINGER
    # What is counted stays, and the last epoch of each.
    assert shelf.tidy({id_of(ONE)}) == [id_of(TWO)]
    assert shelf.tidy({id_of(three)}) == [id_of(ONE)]
    assert shelf.read(id_of(ONE)) is None
    clock = now + KEPT
    assert shelf.tidy({id_of(three)}) == [id_of(other)]
    assert shelf.keys() == [id_of(three)]
    assert (tmp_path / FOLDER / "else").is_dir()


async def test_sampled_latencies_are_folded_once_over_restarts(tmp_path: Path) -> None:
    now = 1_800_000_000.0
    into = [book(tmp_path, slot) for slot in range(2)]

    def window(seconds: float) -> None:
        for slot in range(4):
            into[slot % 2].count(Exposure("e", 1, bytes(16)), Observation(latency=0.01), now + seconds)

    window(0)

    def sampled(seconds: float) -> Any:
        # A new supervisor each time.
        found = Shelf(tmp_path, lambda: now + seconds).read(id_of(ONE))
        assert found is not None
        return found[1].sampled

    assert sampled(15).sum() == 1
    window(20)
    assert sampled(25).sum() == 1
    assert sampled(40).sum() == sampled(45)[1].sum() == 2


# -- pods ------------------------------------------------------------------------------------------------------------


async def test_pods_add_up_and_nothing_counts_twice(tmp_path: Path, valkey: LocalValkey) -> None:
    pods = [Pod(tmp_path / name, valkey.url) for name in "abc"]
    for number, pod in enumerate(pods):
        count(book(pod.data), 10 * (number + 1), number, origin_bytes=7, origin_requests=1)
        # Half of their units are seen by all.
        count(book(pod.data), 8, 0)
        await pod.counting.tick()
    for pod in pods:
        totals = await pod.fresh()
        assert requests_of(totals) == [34, 20, 30]
        assert totals.units == (18, 20, 30), "units that several pods have seen count once"
        assert [arm.units for arm in totals.arms] == [18, 20, 30]
        assert [arm.latency.total for arm in totals.arms] == [34, 20, 30]
    # Told again, and read at the same time by many.
    for pod in pods:
        await pod.counting.tick()
    again = await asyncio.gather(*(pod.fresh() for pod in pods * 4))
    assert [requests_of(totals) for totals in again] == [[34, 20, 30]] * 12
    # One is started anew, and counts on.
    await pods[2].counting.stop()
    pods[2] = Pod(tmp_path / "c", valkey.url)
    count(book(tmp_path / "c"), 5, 2)
    await pods[2].counting.tick()
    assert requests_of(await pods[0].fresh()) == [34, 20, 35]
    # One is gone for good.
    assert requests_of(await Pod(tmp_path / "d", valkey.url).totals()) == [34, 20, 35]
    for pod in pods:
        await pod.counting.stop()


async def test_the_store_goes_away_and_comes_back_empty(
    tmp_path: Path, valkey: LocalValkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Pod(tmp_path / "a", valkey.url), Pod(tmp_path / "b", valkey.url)
    for pod in (one, two):
        count(book(pod.data), 10)
        await pod.counting.tick()
    before = await one.totals()
    assert requests_of(before)[0] == 20
    valkey.kill()
    count(book(two.data), 1)
    count(book(one.data), 2)
    await two.counting.tick()
    while_away = await one.fresh()
    # Its own counts, and what it had read of the other.
    assert requests_of(while_away)[0] == 22
    assert while_away.updated_at == before.updated_at
    assert one.metrics.get("tier_errors_total", ("warm", "unreachable")) == 1
    assert two.metrics.get("tier_errors_total", ("warm", "unreachable")) == 1
    valkey.ensure()
    await asyncio.sleep(0.5)
    for pod in (one, two):
        await pod.counting.tick()
    after = await one.fresh()
    assert requests_of(after)[0] == 23
    assert after.updated_at > before.updated_at
    with valkey.client() as client:
        client.flushall()
    # What it has lost is remembered, and told anew though nothing has changed.
    assert requests_of(await one.fresh())[0] == 23
    newcomer = Pod(tmp_path / "c", valkey.url)
    assert (await newcomer.totals()).arms == ()
    monkeypatch.setattr(shared_counts, "TELL_AGAIN", 0.0)
    for pod in (one, two):
        await pod.counting.tick()
    assert requests_of(await newcomer.fresh())[0] == 23
    for pod in (one, two):
        await pod.counting.stop()


async def test_what_is_told_of_samples_comes_at_the_end_at_the_latest(tmp_path: Path, valkey: LocalValkey) -> None:
    one, two = Pod(tmp_path / "a", valkey.url), Pod(tmp_path / "b", valkey.url)
    count(book(one.data), 10)
    one.counting.start()
    await asyncio.sleep(0.3)
    count(book(one.data), 7, 1)
    await one.counting.stop()
    totals = await two.totals()
    assert requests_of(totals) == [10, 7, 0]
    assert totals.units == (10, 7, 0)
    await two.counting.stop()


@pytest.mark.parametrize("answer", [5, [b"a"], {3: b"x"}, {b"pod": 2}, {b"pod": b"x"}, b"OK", None])
async def test_a_store_that_answers_something_else_costs_the_others_counts_only(tmp_path: Path, answer: Any) -> None:
    async def send(commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [answer] * len(commands)

    threads = Threads("ledger", 1)
    told = shared_counts.SharedCounts(FleetRecords(send, "here"), lambda: KEYS, threads, Metrics(), logs.get_logger())
    assert (await told.read(id_of(ONE)))[0] == []
    count(book(tmp_path), 1)
    found = Shelf(tmp_path).read(id_of(ONE))
    assert found is not None
    await told.publish(id_of(ONE), found[1])
    await threads.close(1.0)


async def test_records_of_strangers_are_left_out(tmp_path: Path, valkey: LocalValkey) -> None:
    one = Pod(tmp_path / "a", valkey.url)
    stranger = Pod(tmp_path / "b", valkey.url, keys=Keyring([b"other" * 8], b"s" * 32))
    for pod in (one, stranger):
        count(book(pod.data), 10)
        await pod.counting.tick()
    assert requests_of(await one.fresh())[0] == 10
    with valkey.client() as client:
        # A record under another pod's name, a foreign type, and garbage.
        (name,) = client.keys("mc1:x:*:c")
        mine = next(value for pod, value in client.hgetall(name).items() if pod == one_id(one))
        for pod in (b"forged", b"\xff"):
            client.hset(name, pod, mine)
            client.hset(name[:-1] + b"v", pod, b"\x92\xc4\x01a\xc4\x01b")
        client.hset(name[:-1] + b"v", b"garbage", b"\xff")
    assert requests_of(await one.fresh())[0] == 10
    for pod in (one, stranger):
        await pod.counting.stop()


def one_id(pod: Pod) -> bytes:
    return (pod.data / "pod.id").read_bytes().strip()


# -- processes -------------------------------------------------------------------------------------------------------

WRITER = """
import os, sys, time
from pathlib import Path
from meshcache.experiment.exposure import CountedExperiment, Exposure
from meshcache.experiment.observation import Observation
from meshcache.extproc.book_files import BookFiles

one = CountedExperiment("e", "0123", 1, ("control", "candidate", "baseline"), "e")
books, failures = BookFiles(Path(sys.argv[1]), int(sys.argv[2])).open({"e": one})
done = 0
while True:
    books["e"].count(Exposure("e", done % 3, os.urandom(16)), Observation(latency=0.01), time.time())
    done += 1
    os.write(1, b"%d\\n" % done)
"""


@pytest.mark.slow
def test_what_was_counted_survives_the_process_that_counted_it(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(slot)], stdout=subprocess.PIPE)
        for slot in range(2)
    ]
    shelf = Shelf(tmp_path)
    said = []
    try:
        for writer in writers:
            assert writer.stdout is not None
            for _ in range(200):
                writer.stdout.readline()
        # Read while it is written to, by two at once.
        for _ in range(20):
            for reader in (shelf, Shelf(tmp_path)):
                found = reader.read(id_of(ONE))
                assert found is not None
                assert found[1].counters[:, :, 0].sum() >= 400
    finally:
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
            assert writer.stdout is not None
            said.append(int(writer.stdout.read().split(b"\n")[-2]))
            writer.wait()
    found = shelf.read(id_of(ONE))
    assert found is not None
    # Of each, the last may be counted and not said.
    assert 0 <= found[1].counters[:, :, 0].sum() - sum(said) <= 2
    assert np.all(found[1].latency.sum(axis=1) >= found[1].counters[:, :, 0].sum(axis=1) - 2)


def test_numpy_is_not_loaded_where_nothing_is_counted() -> None:
    both = "meshcache.extproc.worker, meshcache.extproc.supervisor"
    code = f"import sys, {both}; assert not {{'numpy', 'scipy'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
