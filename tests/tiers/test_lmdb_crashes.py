"""The LMDB file when the disk is full, and when processes that share it are stopped or killed."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource as limits_of_process
import signal
import time
from pathlib import Path

import pytest
from tier_helpers import key, resource

from meshcache.tiers.base import TierError
from meshcache.tiers.board import Board
from meshcache.tiers.lmdb import LmdbTier
from meshcache.tiers.lmdb_file import LmdbFile, Operation

pytestmark = pytest.mark.slow

SPAWN = multiprocessing.get_context("spawn")
R = resource(1)
MIB = 1 << 20


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path / "board")


def _write_with_a_full_disk(folder: Path, results: object) -> None:
    async def main() -> list[str]:
        tier = LmdbTier(folder / "w", 64 * MIB, Board(folder / "board"))
        await tier.put(key(1), b"before", 100.0)
        # A file size limit fails writes just as a full disk does, without the rights to mount one.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limits_of_process.setrlimit(limits_of_process.RLIMIT_FSIZE, (2 * MIB, 2 * MIB))
        kinds = []
        for number in range(10, 20):
            try:
                await tier.put(key(number), os.urandom(1 * MIB), 100.0)
                kinds.append("stored")
            except TierError:
                kinds.append("failed")
        value = (await tier.get(key(1), R)).value
        kinds.append("kept" if value == b"before" else "lost")
        await tier.put(key(2), b"small", 100.0)
        kinds.append(repr((await tier.get(key(2), R)).value))
        await tier.close()
        return kinds

    results.put(asyncio.run(main()))  # type: ignore[attr-defined]


def test_a_full_disk_is_an_error_and_reading_goes_on(tmp_path: Path) -> None:
    results = SPAWN.Queue()
    process = SPAWN.Process(target=_write_with_a_full_disk, args=(tmp_path, results))
    process.start()
    *puts, kept, small = results.get(timeout=120)
    process.join()
    assert "failed" in puts
    assert kept == "kept"
    assert small == "b'small'"


def _open_on_a_full_disk(folder: Path, results: object) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = limits_of_process.getrlimit(limits_of_process.RLIMIT_FSIZE)
    limits_of_process.setrlimit(limits_of_process.RLIMIT_FSIZE, (0, hard))
    file = LmdbFile(folder / "w", 8 * MIB)
    failed = 0
    for _ in range(5):
        try:
            file.read(key(1), 0.0)
        except TierError:
            failed += 1
    left = sorted(os.listdir(folder / "w"))
    limits_of_process.setrlimit(limits_of_process.RLIMIT_FSIZE, (hard, hard))
    file.apply([Operation(key(1), b"one", time.time() + 100)], time.time())
    results.put((failed, left, file.read(key(1), time.time()), len(os.listdir(folder / "w"))))  # type: ignore[attr-defined]


def test_opening_on_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    results = SPAWN.Queue()
    process = SPAWN.Process(target=_open_on_a_full_disk, args=(tmp_path, results))
    process.start()
    assert results.get(timeout=60) == (5, ["lock"], b"one", 3)
    process.join()


def _write_for_ever(folder: Path, seed: int, writing: object) -> None:
    file = LmdbFile(folder / "w", 8 * MIB)
    number = seed
    while True:
        number += 1
        if number == seed + 2:
            writing.set()  # type: ignore[attr-defined]
        batch = [Operation(key(number * 64 + n), os.urandom(5000), time.time() + 1000 + n) for n in range(32)]
        file.apply(batch, time.time())


async def test_writers_killed_in_mid_transaction_leave_a_usable_file(tmp_path: Path, board: Board) -> None:
    tier = LmdbTier(tmp_path / "w", 8 * MIB, board)
    await tier.put(key(1), b"first", 10_000.0)
    for round_ in range(8):
        process = SPAWN.Process(target=_write_for_ever, args=(tmp_path, round_ * 100_000, writing := SPAWN.Event()))
        process.start()
        assert await asyncio.to_thread(writing.wait, 60)
        await asyncio.sleep(0.003 * round_)
        process.kill()
        async with asyncio.timeout(20):
            await tier.put(key(2), b"round %d" % round_, 10_000.0)
            assert (await tier.get(key(2), R)).value == b"round %d" % round_
        process.join()
    # Not replaced by a fresh file: what was there before is there still.
    assert (await tier.get(key(1), R)).value == b"first"
    await tier.close()


async def test_a_stopped_writer_costs_others_only_their_deadline(tmp_path: Path, board: Board) -> None:
    tier = LmdbTier(tmp_path / "w", 8 * MIB, board)
    await tier.put(key(1), b"first", 10_000.0)
    process = SPAWN.Process(target=_hold_write_lock, args=(tmp_path, holding := SPAWN.Event()))
    process.start()
    assert await asyncio.to_thread(holding.wait, 60)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await tier.put(key(2), b"x", 100.0)
    async with asyncio.timeout(10):
        assert (await tier.get(key(1), R)).value == b"first"
    process.kill()
    process.join()
    async with asyncio.timeout(20):
        await tier.put(key(3), b"y", 100.0)
    await tier.close()


def _hold_write_lock(folder: Path, holding: object) -> None:
    file = LmdbFile(folder / "w", 8 * MIB)
    with file._using() as held, held.env.begin(write=True):
        holding.set()  # type: ignore[attr-defined]
        time.sleep(60)


def _write_some(folder: Path, first: int, results: object) -> None:
    async def main() -> None:
        tier = LmdbTier(folder / "w", 32 * MIB, Board(folder / "board"))
        await asyncio.gather(*(tier.put(key(first + n), b"from %d" % (first + n), 1000.0) for n in range(200)))
        await tier.close()

    asyncio.run(main())
    results.put(first)  # type: ignore[attr-defined]


async def test_processes_share_the_file(tmp_path: Path, board: Board) -> None:
    tier = LmdbTier(tmp_path / "w", 32 * MIB, board)
    results = SPAWN.Queue()
    processes = [SPAWN.Process(target=_write_some, args=(tmp_path, first, results)) for first in (1000, 2000, 3000)]
    for process in processes:
        process.start()
    for process in processes:
        await asyncio.to_thread(process.join, 120)
    for first in (1000, 2000, 3000):
        for number in range(first, first + 200):
            assert (await tier.get(key(number), R)).value == b"from %d" % number
    await tier.close()
