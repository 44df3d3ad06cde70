from __future__ import annotations

import errno
import gc
import mmap
import multiprocessing
import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tier_helpers import resource

from meshcache.tiers import board_file as module
from meshcache.tiers.board import Board, BoardError

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "board"


def test_epochs_change_with_a_bump_and_only_there(path: Path) -> None:
    board = Board(path)
    first, other = board.epoch(resource(1)), board.epoch(resource(2))
    assert len(first) == 8
    board.bump(resource(1))
    assert board.epoch(resource(1)) != first
    assert board.epoch(resource(2)) == other


def test_a_bump_leaves_its_time(path: Path) -> None:
    board = Board(path, wall_clock=lambda: 1000.5)
    assert board.bumped_at(resource(1)) == 0
    board.bump(resource(1))
    assert board.bumped_at(resource(1)) == 1000.5
    assert board.bumped_at(resource(100)) == 0
    last = (1 << 20) - 1
    board.bump(resource(last))
    assert Board(path).bumped_at(resource(last)) == 1000.5
    assert board.leases.lease(resource(1), 1.0) is not None, "nothing was written past its place"


def test_a_second_board_on_the_file_sees_the_same(path: Path) -> None:
    one, two = Board(path), Board(path)
    one.bump(resource(1))
    assert one.epoch(resource(1)) == two.epoch(resource(1))
    one.close()
    assert Board(path).epoch(resource(1)) == two.epoch(resource(1))


def test_a_lost_board_makes_every_epoch_new(path: Path) -> None:
    before = Board(path).epoch(resource(1))
    path.unlink()
    assert Board(path).epoch(resource(1)) != before


def test_the_file_is_private_has_its_space_and_is_alone(path: Path) -> None:
    Board(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # A hole that is written to on a full disk would kill the process.
    assert path.stat().st_blocks * 512 >= path.stat().st_size > 8 << 20
    assert [entry.name for entry in path.parent.iterdir()] == ["board"]


@pytest.mark.parametrize("damage", [b"", b"garbage", b"MCBOARD\x00" + bytes(100), os.urandom(4096)])
def test_a_damaged_board_is_replaced(path: Path, damage: bytes) -> None:
    board = Board(path)
    before = board.epoch(resource(1))
    board.close()
    path.write_bytes(damage)
    board = Board(path)
    assert board.epoch(resource(1)) != before
    board.bump(resource(1))


def test_a_board_of_another_size_is_replaced(path: Path) -> None:
    before = Board(path, slots=1 << 10).epoch(resource(1))
    board = Board(path, slots=1 << 12)
    assert board.epoch(resource(1)) != before


def test_a_board_from_before_a_reboot_is_replaced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board(path)
    before = board.epoch(resource(1))
    assert board.leases.lease(b"k", 1000.0)
    monkeypatch.setattr(module, "boot_id", lambda: b"another boot 16b")
    rebooted = Board(path)
    assert rebooted.epoch(resource(1)) != before
    assert rebooted.leases.lease(b"k", 1000.0)


def test_refresh_follows_a_replaced_file(path: Path) -> None:
    one = Board(path)
    before = one.epoch(resource(1))
    assert not one.refresh()
    path.unlink()
    two = Board(path)
    assert one.refresh()
    assert before != one.epoch(resource(1)) == two.epoch(resource(1))
    two.bump(resource(1))
    assert one.epoch(resource(1)) == two.epoch(resource(1))


def test_refresh_makes_a_lost_folder_again(path: Path) -> None:
    board = Board(path)
    path.unlink()
    path.parent.rmdir()
    assert board.refresh()
    assert path.exists()
    assert not board.refresh()


def test_refresh_that_fails_keeps_the_old_map(path: Path) -> None:
    board = Board(path)
    before = board.epoch(resource(1))
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("in the way")
    assert not board.refresh()
    assert board.epoch(resource(1)) == before


@pytest.mark.parametrize("error", [OSError(errno.ENOMEM, "no memory"), ValueError("mmap length is greater than size")])
def test_a_map_that_fails_is_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    board = Board(path)
    before = board.epoch(resource(1))
    lease = board.leases.lease(b"k", 60.0)
    assert lease is not None
    path.unlink()
    other = Board(path)
    gc.collect()  # what other tests have left open
    descriptors = len(os.listdir("/proc/self/fd"))

    def fails(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(mmap, "mmap", fails)
        for _ in range(3):
            assert not board.refresh()
            assert board.epoch(resource(1)) == before
        with pytest.raises(BoardError, match="board"):
            Board(path)
    assert board.leases.lease(b"k", 60.0) is None, "the old board is whole"
    board.leases.release(lease)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert board.refresh()
    assert before != board.epoch(resource(1)) == other.epoch(resource(1))
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_path_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BoardError, match="file"):
        Board(tmp_path / "file" / "board")
    with pytest.raises(BoardError):
        Board(tmp_path)


def test_lease_is_held_released_and_taken_again(path: Path) -> None:
    now = [100.0]
    board = Board(path, clock=lambda: now[0])
    lease = board.leases.lease(b"k", 5.0)
    assert lease is not None
    assert board.leases.lease(b"k", 5.0) is None
    assert board.leases.lease(b"other", 5.0) is not None
    board.leases.release(lease)
    again = board.leases.lease(b"k", 5.0)
    assert again is not None
    now[0] += 4.99
    assert board.leases.lease(b"k", 5.0) is None
    now[0] += 0.01
    assert board.leases.lease(b"k", 5.0) is not None


def test_a_late_release_does_not_free_anothers_lease(path: Path) -> None:
    now = [100.0]
    board = Board(path, clock=lambda: now[0])
    late = board.leases.lease(b"k", 1.0)
    now[0] += 2.0
    current = board.leases.lease(b"k", 10.0)
    assert late is not None
    assert current is not None
    board.leases.release(late)
    assert board.leases.lease(b"k", 10.0) is None
    board.leases.release(current)
    assert board.leases.lease(b"k", 10.0) is not None


def test_a_full_bucket_refuses_until_one_runs_out(path: Path) -> None:
    now = [100.0]
    board = Board(path, lease_buckets=1, clock=lambda: now[0])
    assert all(board.leases.lease(b"%d" % n, 1.0 + n) for n in range(8))
    assert board.leases.lease(b"ninth", 1.0) is None
    now[0] += 1.5
    assert board.leases.lease(b"ninth", 1.0) is not None


def test_an_impossible_deadline_does_not_hold_for_ever(path: Path) -> None:
    now = [1e9]
    board = Board(path, clock=lambda: now[0])
    assert board.leases.lease(b"k", 10.0)
    now[0] = 5.0
    assert board.leases.lease(b"k", 10.0)


def _bump_for(path: Path, ready: object, numbers: range) -> None:
    board = Board(path)
    ready.wait()  # type: ignore[attr-defined]
    for number in numbers:
        board.bump(resource(number))


@pytest.mark.slow
def test_bumps_of_processes_are_all_seen(path: Path) -> None:
    board = Board(path)
    before = {n: board.epoch(resource(n)) for n in range(400)}
    ready = SPAWN.Event()
    processes = [SPAWN.Process(target=_bump_for, args=(path, ready, range(s, 400, 4))) for s in range(4)]
    for process in processes:
        process.start()
    ready.set()
    for process in processes:
        process.join(60)
    assert all(board.epoch(resource(n)) != before[n] for n in range(400))


def _lease_each(path: Path, ready: object, results: object) -> None:
    board = Board(path)
    ready.wait()  # type: ignore[attr-defined]
    won = [n for n in range(300) if board.leases.lease(b"key %d" % n, 60.0)]
    results.put(won)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_of_processes_at_most_one_gets_a_lease(path: Path) -> None:
    Board(path)
    ready, results = SPAWN.Event(), SPAWN.Queue()
    processes = [SPAWN.Process(target=_lease_each, args=(path, ready, results)) for _ in range(4)]
    for process in processes:
        process.start()
    ready.set()
    won = [n for _ in processes for n in results.get(timeout=60)]
    for process in processes:
        process.join()
    assert len(won) == len(set(won))
    # A bucket that is locked for a moment refuses, so a few may have gone to nobody; they are not lost.
    assert len(won) >= 250


def _create_at_once(path: Path, ready: object, results: object) -> None:
    ready.wait()  # type: ignore[attr-defined]
    results.put(Board(path).epoch(resource(1)))  # type: ignore[attr-defined]


@pytest.mark.slow
def test_processes_that_start_at_once_share_one_board(path: Path) -> None:
    ready, results = SPAWN.Event(), SPAWN.Queue()
    processes = [SPAWN.Process(target=_create_at_once, args=(path, ready, results)) for _ in range(4)]
    for process in processes:
        process.start()
    ready.set()
    epochs = {results.get(timeout=60) for _ in processes}
    for process in processes:
        process.join()
    assert len(epochs) == 1


def _hold_bucket(path: Path, holding: object) -> None:
    board = Board(path, lease_buckets=1)
    assert board.leases._lock(board._file.leases_at)
    holding.set()  # type: ignore[attr-defined]
    time.sleep(60)


def _within(seconds: float, call: Callable[[], object]) -> object:
    began = time.monotonic()
    result = call()
    assert time.monotonic() - began < seconds
    return result


@pytest.mark.slow
def test_a_stopped_or_killed_holder_never_blocks(path: Path) -> None:
    board = Board(path, lease_buckets=1)
    lease = board.leases.lease(b"mine", 60.0)
    assert lease is not None
    holding = SPAWN.Event()
    process = SPAWN.Process(target=_hold_bucket, args=(path, holding))
    process.start()
    assert holding.wait(60)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    assert _within(5, lambda: board.leases.lease(b"k", 1.0)) is None
    assert _within(5, lambda: board.leases.has_room(b"k"))
    _within(5, lambda: board.leases.release(lease))
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert board.leases.lease(b"k", 1.0) is not None
    assert board.leases.lease(b"mine", 1.0) is None
    board.leases.beat()
    assert board.leases.lease(b"mine", 1.0) is not None, "given back as soon as that could be"
