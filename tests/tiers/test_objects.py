from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import resource as limits_of_process
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tier_helpers import epoch_of, key, resource

from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.board import Board
from meshcache.tiers.object_folder import ObjectFolder
from meshcache.tiers.objects import ObjectTier

SPAWN = multiprocessing.get_context("spawn")
R = resource(1)
MIB = 1 << 20
NOW = 1_700_000_000.0


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path / "board")


@pytest.fixture
async def tier(tmp_path: Path, board: Board) -> AsyncIterator[ObjectTier]:
    tier = ObjectTier(tmp_path / "cold", 8 * MIB, board)
    yield tier
    await tier.close()


@pytest.fixture
def folder(tmp_path: Path) -> ObjectFolder:
    return ObjectFolder(tmp_path / "cold", 1 * MIB)


def file_of(root: Path, number: int) -> Path:
    name = key(number).hex()
    return root / "cold" / name[:2] / name[2:4] / name[4:]


def bytes_in(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        # The tier may remove files meanwhile.
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size if path.is_file() else 0
    return size


async def test_put_get_replace_delete(tier: ObjectTier) -> None:
    assert (await tier.get(key(1), R)).value is None
    await tier.put(key(1), b"one", 10.0)
    await tier.put(key(1), b"two", 10.0)
    assert (await tier.get(key(1), R)).value == b"two"
    await tier.delete(key(1))
    await tier.delete(key(1))
    assert (await tier.get(key(1), R)).value is None


async def test_epochs_are_the_boards(tier: ObjectTier, board: Board) -> None:
    before = (await tier.get(key(1), R)).epoch
    await tier.invalidate(R)
    assert await epoch_of(tier, R) == board.epoch(R) != before


async def test_many_small_values_at_once(tier: ObjectTier) -> None:
    await asyncio.gather(*(tier.put(key(n << 240 | n), b"v%d" % n, 10.0) for n in range(500)))
    reads = await asyncio.gather(*(tier.get(key(n << 240 | n), R) for n in range(500)))
    assert [read.value for read in reads] == [b"v%d" % n for n in range(500)]


def test_expiry(folder: ObjectFolder) -> None:
    folder.write(key(1), b"one", NOW + 10)
    assert folder.read(key(1), NOW + 9.9) == b"one"
    assert folder.read(key(1), NOW + 10) is None


def test_files_are_private(folder: ObjectFolder, tmp_path: Path) -> None:
    folder.write(key(1), b"one", NOW + 10)
    assert file_of(tmp_path, 1).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "cold").stat().st_mode & 0o777 == 0o700


def test_what_is_no_plain_file_is_a_miss_at_once(folder: ObjectFolder, tmp_path: Path) -> None:
    for number in range(1, 5):
        folder.write(key(number), b"x", NOW + 10)
        file_of(tmp_path, number).unlink()
    os.mkfifo(file_of(tmp_path, 1))
    file_of(tmp_path, 2).mkdir()
    (tmp_path / "secret").write_text("not for you")
    file_of(tmp_path, 3).symlink_to(tmp_path / "secret")
    with file_of(tmp_path, 4).open("wb") as file:
        file.truncate(1 << 40)
    for number in range(1, 5):
        assert folder.read(key(number), NOW) is None
    folder.remove(key(2))


def test_sweep_removes_expired_then_oldest(folder: ObjectFolder, tmp_path: Path) -> None:
    for number in range(20):
        folder.write(key(number), bytes(120_000), NOW + (5 if number % 2 else 1000 - number))
    swept = folder.sweep(NOW + 10)
    assert swept is not None
    assert (swept.expired, swept.evicted) == (10, 4)
    # Those that were written last stay, although they expire first.
    assert [n for n in range(0, 20, 2) if folder.read(key(n), NOW + 10)] == [8, 10, 12, 14, 16, 18]
    assert bytes_in(tmp_path / "cold") <= 0.75 * MIB
    assert folder.sweep(NOW + 10) == type(swept)(0, 0)


def test_sweep_removes_old_scratch_files_only(folder: ObjectFolder, tmp_path: Path, monkeypatch: object) -> None:
    folder.write(key(1), b"x", NOW + 1e6)
    scratch = tmp_path / "cold" / "tmp" / "left-behind"
    scratch.write_bytes(b"half a va")
    folder.sweep(NOW)
    assert scratch.exists()
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 3600)  # type: ignore[attr-defined]
    folder.sweep(NOW)
    assert not scratch.exists()
    assert folder.read(key(1), NOW) == b"x"


def test_sweep_of_nothing(folder: ObjectFolder) -> None:
    assert folder.sweep(NOW) is None


@pytest.mark.alone
async def test_stays_within_its_bound_while_written(tmp_path: Path, board: Board) -> None:
    gone: Counter[str] = Counter()
    tier = ObjectTier(tmp_path / "cold", 8 * MIB, board, on_evict=lambda r, n: gone.update({r: n}))
    worst = 0
    for number in range(200):
        await tier.put(key(number), os.urandom(200_000), 1000.0)
        if number % 10 == 0:
            worst = max(worst, bytes_in(tmp_path / "cold"))
    await tier.sweep()
    assert 4 * MIB < worst <= 9 * MIB
    assert gone["capacity"] > 100
    await tier.close()


async def test_a_value_too_large_is_refused(tier: ObjectTier) -> None:
    with pytest.raises(TierError) as caught:
        await tier.put(key(1), bytes(2 * MIB), 10.0)
    assert caught.value.kind is Trouble.TOO_LARGE


async def test_a_folder_removed_underneath_is_made_again(tier: ObjectTier, tmp_path: Path) -> None:
    await tier.put(key(1), b"one", 100.0)
    (tmp_path / "cold").rename(tmp_path / "elsewhere")
    assert (await tier.get(key(1), R)).value is None
    await tier.sweep()
    await tier.put(key(1), b"new", 100.0)
    assert (await tier.get(key(1), R)).value == b"new"


async def test_a_path_that_cannot_be_used(tmp_path: Path, board: Board) -> None:
    (tmp_path / "file").write_text("")
    tier = ObjectTier(tmp_path / "file" / "cold", 8 * MIB, board)
    assert (await tier.get(key(1), R)).value is None
    with pytest.raises(TierError):
        await tier.put(key(1), b"x", 1.0)
    await tier.sweep()
    await tier.close()


def _make_read_only(folder: Path) -> None:
    folder.chmod(0o755)
    for path in [folder / "cold", *(folder / "cold").rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    if os.getuid() == 0:
        # The modes of files do not bind root.
        os.setuid(65534)


def _as_nobody(folder: Path, results: object) -> None:
    async def main() -> list[str]:
        tier = ObjectTier(folder / "cold", 8 * MIB, Board(folder / "board"))
        await tier.put(key(1), b"one", 100.0)
        _make_read_only(folder)
        seen = [repr((await tier.get(key(1), R)).value)]
        for call in (tier.put(key(1), b"two", 1.0), tier.delete(key(1))):
            try:
                await call
                seen.append("done")
            except TierError as error:
                seen.append(error.kind)
        await tier.sweep()
        await tier.close()
        return seen

    results.put(asyncio.run(main()))  # type: ignore[attr-defined]


def test_a_read_only_folder_is_an_error_and_reading_goes_on(tmp_path: Path) -> None:
    # Up to the folder of all runs, which is one further for one of several processes.
    for parent in [tmp_path, *tmp_path.parents][:4]:
        parent.chmod(parent.stat().st_mode | 0o055)
    results = SPAWN.Queue()
    process = SPAWN.Process(target=_as_nobody, args=(tmp_path, results))
    process.start()
    assert results.get(timeout=60) == ["b'one'", "refused", "refused"]
    process.join()


def _with_a_full_disk(folder: Path, results: object) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    cold = ObjectFolder(folder / "cold", 64 * MIB)
    cold.write(key(1), b"one", NOW + 10)
    limits_of_process.setrlimit(limits_of_process.RLIMIT_FSIZE, (MIB, MIB))
    try:
        cold.write(key(1), bytes(2 * MIB), NOW + 10)
    except TierError as error:
        results.put((error.kind, cold.read(key(1), NOW), os.listdir(folder / "cold" / "tmp")))  # type: ignore[attr-defined]


def test_a_full_disk_is_an_error_that_leaves_no_partial_file(tmp_path: Path) -> None:
    results = SPAWN.Queue()
    process = SPAWN.Process(target=_with_a_full_disk, args=(tmp_path, results))
    process.start()
    assert results.get(timeout=60) == (Trouble.FULL, b"one", [])
    process.join()


def _write_for_ever(folder: Path) -> None:
    cold = ObjectFolder(folder / "cold", 64 * MIB)
    while True:
        for letter in b"abcdefgh":
            cold.write(key(1), bytes([letter]) * 700_000, NOW + 1e6)


def test_readers_and_kill_never_see_a_partial_file(tmp_path: Path) -> None:
    cold = ObjectFolder(tmp_path / "cold", 64 * MIB)
    process = SPAWN.Process(target=_write_for_ever, args=(tmp_path,))
    process.start()
    seen = 0
    until = time.monotonic() + 60
    while seen < 200 and time.monotonic() < until:
        value = cold.read(key(1), NOW)
        if value is not None:
            seen += 1
            assert len(value) == 700_000
            assert len(set(value[::1000])) == 1
    process.kill()
    process.join()
    value = cold.read(key(1), NOW)
    assert seen == 200
    assert value is not None
    assert len(value) == 700_000


def _sweep_for_ever(folder: Path) -> None:
    cold = ObjectFolder(folder / "cold", MIB)
    while True:
        cold.sweep(NOW)


def test_sweepers_of_two_processes_do_not_hurt_each_other(tmp_path: Path) -> None:
    cold = ObjectFolder(tmp_path / "cold", MIB)
    cold.write(key(0), b"x", NOW + 100)
    process = SPAWN.Process(target=_sweep_for_ever, args=(tmp_path,))
    process.start()
    for number in range(400):
        cold.write(key(number % 50), bytes(30_000), NOW + 100)
        if number % 20 == 0:
            cold.sweep(NOW)
    process.kill()
    process.join()
    assert cold.sweep(NOW) is not None
