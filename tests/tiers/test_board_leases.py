"""What the processes of a pod tell each other through the board: whose lease holds, and which keys are shunned."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
from tier_helpers import key

from meshcache.tiers import board_leases as module
from meshcache.tiers.board import Board

SPAWN = multiprocessing.get_context("spawn")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def boards(tmp_path: Path, clock: Clock) -> tuple[Board, Board]:
    """One file, as two processes have it."""
    return Board(tmp_path / "board", clock=clock), Board(tmp_path / "board", clock=clock)


def test_whether_a_lease_is_taken(boards: tuple[Board, Board], clock: Clock) -> None:
    one, two = boards
    assert not two.leases.leased(key(1))
    lease = one.leases.lease(key(1), 5.0)
    assert lease is not None
    assert two.leases.leased(key(1))
    assert not two.leases.leased(key(2))
    clock.now += 5.0
    assert not two.leases.leased(key(1))
    one.leases.release(lease)
    assert not one.leases.leased(key(1))


def test_who_takes_it_next_is_told_of_an_answer(boards: tuple[Board, Board], clock: Clock) -> None:
    one, two = boards
    lease = one.leases.lease(key(1), 5.0)
    assert lease is not None
    assert lease.answered == math.inf
    one.leases.release(lease, answered=True)
    assert not two.leases.leased(key(1))
    clock.now += 0.5
    told = two.leases.lease(key(1), 5.0)
    assert told is not None
    assert told.answered == 0.5
    assert one.leases.lease(key(1), 5.0) is None
    two.leases.release(told, answered=True)
    clock.now += module.MARKED
    later = one.leases.lease(key(1), 5.0)
    assert later is not None
    assert later.answered == math.inf


def test_who_has_lost_it_leaves_no_mark(boards: tuple[Board, Board], clock: Clock) -> None:
    one, two = boards
    lost = one.leases.lease(key(1), 1.0)
    clock.now += 1.0
    held = two.leases.lease(key(1), 5.0)
    assert lost is not None
    assert held is not None
    one.leases.release(lost, answered=True)
    assert one.leases.lease(key(1), 5.0) is None
    two.leases.release(held)
    free = one.leases.lease(key(1), 5.0)
    assert free is not None
    assert free.answered == math.inf


def test_marks_keep_nobody_from_a_lease(tmp_path: Path, clock: Clock) -> None:
    """All in one bucket: eight rows, whose marks go one after the other, that of the key in question first."""
    board = Board(tmp_path / "board", clock=clock, lease_buckets=1)
    for number in range(8):
        lease = board.leases.lease(key(number), 5.0)
        assert lease is not None
        board.leases.release(lease, answered=True)
    known = board.leases.lease(key(5), 5.0)
    assert known is not None
    assert known.answered == 0.0
    for number in range(8, 15):
        new = board.leases.lease(key(number), 5.0)
        assert new is not None
        assert new.answered == math.inf
    assert board.leases.lease(key(20), 5.0) is None, "all rows are held"
    assert not board.leases.has_room(key(20))
    board.leases.release(known)
    assert board.leases.has_room(key(20))
    assert board.leases.lease(key(20), 5.0) is not None


def test_a_lease_holds_while_the_pulse_goes(boards: tuple[Board, Board], clock: Clock) -> None:
    one, two = boards
    one.leases.beat()
    assert one.leases.lease(key(1), 60.0) is not None
    for _ in range(20):
        clock.now += module.BEAT
        one.leases.beat()
        assert two.leases.lease(key(1), 60.0) is None
    clock.now += 1.6
    assert not two.leases.leased(key(1))
    assert two.leases.lease(key(1), 60.0) is not None


def test_without_a_pulse_a_lease_holds_for_its_time(boards: tuple[Board, Board], clock: Clock) -> None:
    one, two = boards
    assert one.leases.lease(key(1), 60.0) is not None
    clock.now += 50
    assert two.leases.lease(key(1), 60.0) is None


def test_each_process_has_a_pulse_of_its_own(boards: tuple[Board, Board], clock: Clock) -> None:
    one, two = boards
    one.leases.beat()
    two.leases.beat()
    assert one.leases.lease(key(1), 60.0) is not None
    assert two.leases.lease(key(2), 60.0) is not None
    clock.now += 1.0
    two.leases.beat()
    clock.now += 1.0
    assert not two.leases.leased(key(1))
    assert one.leases.leased(key(2))


def test_a_successor_does_not_bring_the_leases_of_the_dead_back(tmp_path: Path, clock: Clock) -> None:
    dead = Board(tmp_path / "board", clock=clock)
    dead.leases.beat()
    assert dead.leases.lease(key(1), 60.0) is not None
    dead.close()
    clock.now += 10
    heir = Board(tmp_path / "board", clock=clock)
    heir.leases.beat()
    assert not heir.leases.leased(key(1))


def test_who_was_silent_too_long_gets_a_new_pulse(boards: tuple[Board, Board], clock: Clock) -> None:
    one, two = boards
    one.leases.beat()
    old = one.leases.lease(key(1), 600.0)
    clock.now += 100
    two.leases.beat()
    one.leases.beat()
    assert old is not None
    assert not two.leases.leased(key(1)), "its row was given away"
    assert one.leases.lease(key(2), 600.0) is not None
    assert two.leases.leased(key(2))


def test_more_processes_than_rows_do_without(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PULSES", 3)
    boards = [Board(tmp_path / "board", clock=clock) for _ in range(3)]
    for board in boards:
        board.leases.beat()
    lease = boards[2].leases.lease(key(1), 10.0)
    assert lease is not None
    clock.now += 9
    assert boards[0].leases.leased(key(1))


def _hold(path: str, ready: object) -> None:
    board = Board(Path(path))
    board.leases.beat()
    assert board.leases.lease(key(1), 60.0) is not None
    ready.set()  # type: ignore[attr-defined]
    while True:
        board.leases.beat()
        time.sleep(0.1)


@pytest.mark.slow
def test_the_lease_of_a_killed_process_is_soon_free(tmp_path: Path) -> None:
    board = Board(tmp_path / "board")
    ready = SPAWN.Event()
    process = SPAWN.Process(target=_hold, args=(str(tmp_path / "board"), ready))
    process.start()
    try:
        assert ready.wait(60)
        time.sleep(0.3)
        assert board.leases.lease(key(1), 60.0) is None
    finally:
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
    killed = time.monotonic()
    while board.leases.lease(key(1), 60.0) is None:
        assert time.monotonic() - killed < 3
        time.sleep(0.02)


def test_shunned_keys(boards: tuple[Board, Board], clock: Clock) -> None:
    one, two = boards
    assert not one.leases.shunned(key(1))
    one.leases.shun(key(1), 30.0)
    assert two.leases.shunned(key(1))
    assert not two.leases.shunned(key(2))
    clock.now += 29
    assert two.leases.shunned(key(1))
    clock.now += 1.5
    assert not two.leases.shunned(key(1))
    one.leases.shun(key(1), 30.0)
    two.leases.readmit(key(2))
    assert one.leases.shunned(key(1))
    two.leases.readmit(key(1))
    assert not one.leases.shunned(key(1))


def test_nothing_is_shunned_for_longer_than_a_minute(boards: tuple[Board, Board], clock: Clock) -> None:
    boards[0].leases.shun(key(1), 1e9)
    clock.now += 60.5
    assert not boards[1].leases.shunned(key(1))


def test_keys_of_one_place_displace_each_other_and_are_never_mistaken(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHUNNED", 1)
    board = Board(tmp_path / "board", clock=clock)
    board.leases.shun(key(1), 30.0)
    board.leases.shun(key(2), 30.0)
    assert [board.leases.shunned(key(number)) for number in (1, 2, 3)] == [False, True, False]


def test_ticks_that_come_round(tmp_path: Path, clock: Clock) -> None:
    clock.now = 2**24 / 4 - 10
    board = Board(tmp_path / "board", clock=clock)
    board.leases.shun(key(1), 30.0)
    clock.now += 20
    assert board.leases.shunned(key(1))
    clock.now += 11
    assert not board.leases.shunned(key(1))
