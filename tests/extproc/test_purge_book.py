"""The pod's log of purges as the supervisor keeps it."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest
import structlog

from meshcache.engine.purges import ALIVE, DEAD, Labels, PurgeKind, Rule
from meshcache.extproc import purge_book
from meshcache.extproc.purge_book import NOTHING_SHARED, PurgeBook
from meshcache.tiers.board import Board
from meshcache.tiers.purge_log import LogReader

TAGGED = Labels(b"", b"", "", "", "", "", b"", ("t",))


def rule(value: str = "t", *, soft: bool = False, kind: PurgeKind = PurgeKind.TAG) -> Rule:
    return Rule(kind, value, soft, 1000.0, f"{value} {soft} {next(_numbers)}")


_numbers = iter(range(1 << 30))


class Pod:
    """A data folder with a board, and books on it."""

    def __init__(self, folder, *, shared: bool = False) -> None:
        self.path = folder / "purges.log"
        self.board = Board(folder / "board", slots=1 << 16, lease_buckets=16)
        self.shared = shared
        self.told: list[int] = []
        self.announced: list[tuple[list[str] | None, int]] = []
        self.words: list[int] = []
        self.now = 1000.0
        self.slow = False
        self.book = self.open()

    async def tell(self, generation: int) -> None:
        self.told.append(generation)
        self.words.append(self.board.purges)
        if self.slow:
            await asyncio.sleep(5)

    def open(self) -> PurgeBook:
        log = structlog.get_logger()
        book = PurgeBook(
            self.path,
            self.board,
            log,
            tell=self.tell,
            shared=self.shared,
            wall_clock=lambda: self.now,
            announce=lambda rules, generation: self.announced.append(
                (rules and [rule.value for rule in rules], generation)
            ),
        )
        book.open()
        return book

    def again(self) -> PurgeBook:
        """As after a restart."""
        self.book.close()
        self.book = self.open()
        return self.book

    def on_disk(self) -> list[str]:
        return [step.rule.value for step in LogReader(self.path).read().steps if step.rule is not None]


@pytest.fixture
def pod(tmp_path):
    made = Pod(tmp_path)
    yield made
    made.book.close()
    made.board.close()


async def test_a_rule_is_on_the_disk_before_anybody_hears_of_it(pod, monkeypatch):
    before = pod.board.purges
    born = pod.book.state.born
    assert await pod.book.add([(rule("t"), 0)])
    assert pod.on_disk() == ["t"]
    # Workers hear of it before it is asked of them.
    assert pod.told == [pod.book.generation]
    assert pod.words == [before]
    assert pod.board.purges == pod.book.generation == before + 1
    assert pod.book.state.verdict(born, TAGGED, shared=False) is DEAD


async def test_a_worker_that_is_slow_does_not_keep_the_board_from_knowing(pod):
    pod.slow = True
    async with asyncio.timeout(4):
        await pod.book.add([(rule("t"), 0)])
    assert pod.board.purges == pod.book.generation


async def test_rules_outlive_a_restart(pod):
    born = pod.book.state.born
    await pod.book.add([(rule("t"), 0), (rule("u", soft=True), 0)])
    generation = pod.book.generation
    again = pod.again()
    assert (again.generation, pod.board.purges) == (generation, generation)
    assert again.state.verdict(born, TAGGED, shared=False) is DEAD
    assert again.state.born[0] == generation
    await again.add([(rule("v"), 0)])
    assert again.generation == generation + 1


async def test_a_record_that_was_cut_off_before_it_was_in_effect_is_no_loss(pod):
    await pod.book.add([(rule("t"), 0)])
    generation = pod.book.generation
    with pod.path.open("ab") as file:
        file.write(b"\0\0\0\x20torn")
    again = pod.again()
    assert again.generation == generation
    await again.add([(rule("u"), 0)])
    assert pod.on_disk() == ["t", "u"]


@pytest.mark.parametrize("harm", ["gone", "garbage", "cut", "flipped"])
async def test_a_log_that_cannot_be_trusted_makes_all_that_was_stored_before_dead(pod, harm):
    await pod.book.add([(rule("t"), 0)])
    born = pod.book.state.born
    content = pod.path.read_bytes()
    match harm:
        case "gone":
            pod.path.unlink()
        case "garbage":
            pod.path.write_bytes(os.urandom(100))
        case "cut":
            pod.path.write_bytes(content[:-3])
        case "flipped":
            pod.path.write_bytes(content.replace(b"TAG", b"tag").replace(b"tag", b"tog"))
    again = pod.again()
    untouched = Labels(b"", b"", "", "", "", "", b"", ())
    assert again.state.verdict(born, untouched, shared=False) is DEAD
    assert again.state.verdict(again.state.born, untouched, shared=False) == ALIVE
    assert again.lost
    assert again.state.shared_floor == NOTHING_SHARED
    assert pod.board.purges == again.generation


async def test_a_new_board_is_told(pod):
    await pod.book.add([(rule("t"), 0)])
    pod.board.path.unlink()
    await pod.book.check()
    assert pod.board.purges == pod.book.generation
    pod.board.purges = 0
    born = pod.book.state.born
    assert pod.again().state.verdict(born, TAGGED, shared=False) == ALIVE, "the log is whole"


async def test_a_disk_that_takes_no_more_purges_everything_instead(pod, monkeypatch):
    born = pod.book.state.born
    untouched = Labels(b"", b"", "", "", "", "", b"", ())

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        assert not await pod.book.add([(rule("t"), 0)])
        assert not pod.path.exists()
        assert pod.board.purges == pod.book.generation
        assert pod.book.state.verdict(born, untouched, shared=False) is DEAD
        later = pod.book.state.born
        assert not await pod.book.add([(rule("u"), 0)])
        assert pod.book.state.verdict(later, untouched, shared=False) is DEAD
        last = pod.book.state.born
    # There is room again: the log is written, and what was stored since stays.
    await pod.book.check()
    assert pod.path.exists()
    assert pod.book.state.verdict(last, untouched, shared=False) == ALIVE
    assert await pod.book.add([(rule("v"), 0)])
    again = pod.again()
    assert again.state.verdict(last, untouched, shared=False) == ALIVE
    assert again.state.verdict(later, untouched, shared=False) is DEAD


async def test_a_log_that_was_removed_is_written_again(pod):
    await pod.book.add([(rule("t"), 0)])
    pod.path.unlink()
    await pod.book.check()
    assert pod.on_disk() == ["t"]
    await pod.book.add([(rule("u"), 0)])
    assert pod.on_disk() == ["t", "u"]


async def test_a_rule_comes_into_effect_once_whoever_tells_of_it(tmp_path):
    pod = Pod(tmp_path, shared=True)
    made = rule("t")
    await pod.book.add([(made, 0)])
    assert list(pod.book.state.owed) == [made.uid]
    await pod.book.add([(made, 50)])
    assert not pod.book.state.owed
    assert pod.book.known[made.uid].fleet == 50
    assert pod.book.state.fleet == 0, "what is before it in the fleet's log has not been read"
    number = pod.book.state.number
    await pod.book.add([(made, 50)])
    await pod.book.published(made.uid, 50)
    assert pod.book.state.number == number
    await pod.book.add([(made, 50)], read=50)
    assert (pod.book.state.number, pod.book.state.fleet) == (number + 1, 50)
    assert (pod.again().state.fleet, pod.book.known[made.uid].fleet) == (50, 50)


async def test_what_newer_rules_cover_is_left_out(pod):
    born = pod.book.state.born
    for _ in range(5):
        await pod.book.add([(rule("t"), 0), (rule("u"), 0), (rule("t", soft=True), 0)])
    generation = pod.book.generation
    again = pod.again()
    assert sorted(pod.on_disk()) == ["t", "t", "u"]
    assert again.generation == generation
    assert again.state.verdict(born, TAGGED, shared=False) is DEAD
    assert again.state.verdict((generation - 1, 0), TAGGED, shared=False).stale_since == 1000.0


async def test_old_rules_are_forgotten_and_what_is_older_is_dead(pod):
    born = pod.book.state.born
    untouched = Labels(b"", b"", "", "", "", "", b"", ())
    await pod.book.add([(rule("t"), 0)])
    between = pod.book.state.born
    pod.now += 31 * 86400
    await pod.book.add([(rule("u"), 0)])
    again = pod.again()
    assert pod.on_disk() == ["u"]
    assert again.state.verdict(born, untouched, shared=False) is DEAD
    assert again.state.verdict(between, untouched, shared=False) == ALIVE


async def test_the_log_is_bounded(pod, monkeypatch):
    monkeypatch.setattr(purge_book, "MOST_RULES", 10)
    born = pod.book.state.born
    for number in range(25):
        await pod.book.add([(rule(str(number)), 0)])
    assert len(pod.on_disk()) <= 11
    assert pod.on_disk()[-1] == "24"
    assert pod.book.state.verdict(born, TAGGED, shared=False) is DEAD
    assert pod.book.state.verdict(pod.book.state.born, TAGGED, shared=False) == ALIVE


async def test_what_is_owed_to_the_fleet_is_never_forgotten(tmp_path, monkeypatch):
    pod = Pod(tmp_path, shared=True)
    first, second = rule("t"), rule("t")
    await pod.book.add([(first, 0), (second, 0)])
    pod.now += 31 * 86400
    assert set(pod.again().state.owed) == {first.uid, second.uid}
    pod.path.write_bytes(b"")
    # Not even with the log: but that is what a log is for.
    assert pod.again().lost


@pytest.mark.parametrize("place", [0, -8], ids=["head", "newest rule"])
async def test_a_log_that_is_damaged_while_it_is_in_use_is_written_anew(pod, place):
    await pod.book.add([(rule("one"), 0), (rule("two"), 0)])
    await pod.book.check()
    before = pod.path.stat().st_ino
    await pod.book.check()
    assert pod.path.stat().st_ino == before, "a sound one is left alone"
    await pod.book.add([(rule("three"), 0)])
    data = bytearray(pod.path.read_bytes())
    data[place] ^= 0xFF
    with pod.path.open("r+b") as file:
        file.write(data)
    await pod.book.check()
    assert pod.on_disk() == ["one", "two", "three"]
    assert await pod.book.add([(rule("four"), 0)])
    assert pod.on_disk() == ["one", "two", "three", "four"]


async def test_what_comes_into_the_log_is_announced(pod):
    await pod.book.add([(rule("a"), 0), (rule("b"), 0)])
    assert pod.announced == [(["a", "b"], pod.book.generation)]
    # One that is known already, and how far another log was read, are no news.
    known = pod.book.known
    await pod.book.add([(step.rule, 0) for step in known.values()], read=7)
    assert len(pod.announced) == 1
    await pod.book.give_up("for the test")
    assert pod.announced[1:] == [(None, pod.book.generation)]
