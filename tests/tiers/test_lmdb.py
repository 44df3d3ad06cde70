from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tier_helpers import epoch_of, key, resource

from meshcache.tiers import lmdb_folder as module
from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.board import Board
from meshcache.tiers.lmdb import LmdbTier
from meshcache.tiers.lmdb_file import LmdbFile, Operation

R = resource(1)
MIB = 1 << 20


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path / "board")


@pytest.fixture
async def tier(tmp_path: Path, board: Board, clock: Clock) -> AsyncIterator[LmdbTier]:
    tier = LmdbTier(tmp_path / "warm", 8 * MIB, board, wall_clock=clock)
    yield tier
    await tier.close()


def data_file(folder: Path) -> Path:
    (found,) = folder.glob("*/data.mdb")
    return found


async def test_put_get_replace_delete(tier: LmdbTier) -> None:
    assert (await tier.get(key(1), R)).value is None
    await tier.put(key(1), b"one", 10.0)
    await tier.put(key(1), b"two", 10.0)
    assert (await tier.get(key(1), R)).value == b"two"
    await tier.delete(key(1))
    await tier.delete(key(1))
    assert (await tier.get(key(1), R)).value is None


async def test_expiry(tier: LmdbTier, clock: Clock) -> None:
    await tier.put(key(1), b"one", 10.0)
    clock.now += 9.9
    assert (await tier.get(key(1), R)).value == b"one"
    clock.now += 0.2
    assert (await tier.get(key(1), R)).value is None


async def test_epochs_are_the_boards(tier: LmdbTier, board: Board) -> None:
    before = (await tier.get(key(1), R)).epoch
    assert before == board.epoch(R) == await epoch_of(tier, R)
    await tier.invalidate(R)
    assert (await tier.get(key(1), R)).epoch == board.epoch(R) != before


async def test_expired_entries_leave_with_the_next_writes(tmp_path: Path, board: Board, clock: Clock) -> None:
    gone: Counter[str] = Counter()
    tier = LmdbTier(tmp_path / "w", 8 * MIB, board, on_evict=lambda r, n: gone.update({r: n}), wall_clock=clock)
    for number in range(50):
        await tier.put(key(number), b"x" * 100, 1.0)
    clock.now += 2
    await tier.put(key(99), b"y", 100.0)
    assert gone == {"expired": 50}
    await tier.close()


async def test_bounded_with_the_first_to_expire_going_first(tmp_path: Path, board: Board, clock: Clock) -> None:
    gone: Counter[str] = Counter()
    tier = LmdbTier(tmp_path / "w", 4 * MIB, board, on_evict=lambda r, n: gone.update({r: n}), wall_clock=clock)
    for number in range(400):
        await tier.put(key(number), os.urandom(40_000), 1000.0 + number)
    kept = [n for n in range(400) if (await tier.get(key(n), R)).value is not None]
    assert len(kept) > 40
    assert kept == list(range(400 - len(kept), 400))
    assert gone["capacity"] == 400 - len(kept)
    assert data_file(tmp_path / "w").stat().st_size <= 4 * MIB
    await tier.close()


async def test_sizes_that_tear_the_map(tmp_path: Path, board: Board, clock: Clock) -> None:
    """Many small values, then large ones that each need a run of pages."""
    tier = LmdbTier(tmp_path / "w", 4 * MIB, board, wall_clock=clock)
    await asyncio.gather(*(tier.put(key(n), os.urandom(3000), 500.0) for n in range(1000)))
    for number in range(2000, 2040):
        await tier.put(key(number), os.urandom(500_000), 1000.0 + number)
        assert (await tier.get(key(number), R)).value is not None
    await asyncio.gather(*(tier.put(key(n), os.urandom(200_000), 9000.0) for n in range(3000, 3040)))
    assert data_file(tmp_path / "w").stat().st_size <= 4 * MIB
    await tier.close()


async def test_a_value_too_large_is_refused(tier: LmdbTier) -> None:
    with pytest.raises(TierError) as caught:
        await tier.put(key(1), bytes(2 * MIB), 10.0)
    assert caught.value.kind is Trouble.TOO_LARGE


async def test_writes_at_once_share_transactions(tier: LmdbTier, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = LmdbFile.apply

    def counted(self: LmdbFile, batch: list[Operation], now: float) -> object:
        sizes.append(len(batch))
        return real(self, batch, now)

    monkeypatch.setattr(LmdbFile, "apply", counted)
    await asyncio.gather(*(tier.put(key(n), b"v%d" % n, 10.0) for n in range(100)))
    assert sum(sizes) == 100
    assert len(sizes) <= 5
    for number in range(100):
        assert (await tier.get(key(number), R)).value == b"v%d" % number


async def test_kept_over_a_restart(tmp_path: Path, board: Board) -> None:
    tier = LmdbTier(tmp_path / "w", 8 * MIB, board)
    await tier.put(key(1), b"one", 100.0)
    await tier.close()
    tier = LmdbTier(tmp_path / "w", 8 * MIB, board)
    assert (await tier.get(key(1), R)).value == b"one"
    await tier.close()


async def test_dropped_after_a_reboot(tmp_path: Path, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = LmdbTier(tmp_path / "w", 8 * MIB, board)
    await tier.put(key(1), b"one", 100.0)
    await tier.close()
    monkeypatch.setattr(module, "boot_id", lambda: b"another boot 16b")
    tier = LmdbTier(tmp_path / "w", 8 * MIB, board)
    assert (await tier.get(key(1), R)).value is None
    await tier.put(key(1), b"two", 100.0)
    assert len(list((tmp_path / "w").glob("*/data.mdb"))) == 1
    await tier.close()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _garbage(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def _truncated(path: Path) -> None:
    os.truncate(path, 3 * 4096)


def _odd(path: Path) -> None:
    os.truncate(path, 5000)


def _folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [_empty, _garbage, _truncated, _odd, _folder_instead, _gone])
async def test_a_damaged_file_is_replaced_at_open(tmp_path: Path, board: Board, damage: Callable[[Path], None]) -> None:
    tier = LmdbTier(tmp_path / "w", 8 * MIB, board)
    for number in range(30):
        await tier.put(key(number), os.urandom(30_000), 100.0)
    await tier.close()
    damage(data_file(tmp_path / "w"))
    tier = LmdbTier(tmp_path / "w", 8 * MIB, board)
    assert (await tier.get(key(1), R)).value is None
    await tier.put(key(1), b"new", 100.0)
    assert (await tier.get(key(1), R)).value == b"new"
    await tier.close()


@pytest.mark.parametrize("content", ["", "garbage", "1 ../../../etc abc", "2 aa bb", "\x00\xff"])
async def test_a_damaged_pointer_file_is_replaced(tmp_path: Path, board: Board, content: str) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "current").write_text(content, "latin-1")
    tier = LmdbTier(tmp_path / "w", 8 * MIB, board)
    await tier.put(key(1), b"new", 100.0)
    assert (await tier.get(key(1), R)).value == b"new"
    await tier.close()


async def test_a_file_whose_first_pages_are_damaged_while_it_is_open_is_replaced(
    tier: LmdbTier, tmp_path: Path
) -> None:
    for number in range(30):
        await tier.put(key(number), os.urandom(3000), 100.0)
    with data_file(tmp_path / "warm").open("r+b") as file:
        for page in (0, 4096):
            # Behind the page's header, magic and version: the size of the map is among what follows.
            file.seek(page + 40)
            file.write(b"\x7f" * 100)
    for number in range(3):
        with contextlib.suppress(TierError):
            await tier.put(key(number), b"new", 100.0)
    await tier.put(key(1), b"newer", 100.0)
    assert (await tier.get(key(1), R)).value == b"newer"


@pytest.mark.parametrize("damage", [_gone, _truncated])
async def test_a_file_lost_or_cut_short_while_open_is_replaced(
    tier: LmdbTier, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    for number in range(30):
        await tier.put(key(number), os.urandom(30_000), 100.0)
    damage(data_file(tmp_path / "warm"))
    assert (await tier.get(key(29), R)).value is None
    await tier.put(key(1), b"new", 100.0)
    assert (await tier.get(key(1), R)).value == b"new"


async def test_what_dead_processes_left_is_tidied_up(tmp_path: Path, board: Board) -> None:
    tier = LmdbTier(tmp_path / "w", 8 * MIB, board)
    await tier.put(key(1), b"one", 100.0)
    await tier.close()
    (tmp_path / "w" / "0123456789abcdef").mkdir()
    (tmp_path / "w" / "current.0123456789abcdef").write_text("1 0123456789abcdef 00\n")
    tier = LmdbTier(tmp_path / "w", 8 * MIB, board)
    assert (await tier.get(key(1), R)).value == b"one"
    assert sorted(os.listdir(tmp_path / "w")) == sorted([data_file(tmp_path / "w").parent.name, "current", "lock"])
    await tier.close()


async def test_a_folder_removed_while_open_is_made_again(tier: LmdbTier, tmp_path: Path) -> None:
    await tier.put(key(1), b"one", 100.0)
    (tmp_path / "warm").rename(tmp_path / "elsewhere")
    assert (await tier.get(key(1), R)).value is None
    await tier.put(key(1), b"new", 100.0)
    assert (await tier.get(key(1), R)).value == b"new"


async def test_a_path_that_cannot_be_used(tmp_path: Path, board: Board) -> None:
    (tmp_path / "file").write_text("")
    tier = LmdbTier(tmp_path / "file" / "warm", 8 * MIB, board)
    for call in (tier.open(), tier.get(key(1), R), tier.put(key(1), b"x", 1.0), tier.delete(key(1))):
        with pytest.raises(TierError):
            await call
    await tier.close()


async def test_too_many_waiting_writes_are_refused(tier: LmdbTier) -> None:
    puts = [asyncio.ensure_future(tier.put(key(n), bytes(1000), 10.0)) for n in range(1200)]
    outcomes = await asyncio.gather(*puts, return_exceptions=True)
    refused = [o for o in outcomes if isinstance(o, TierError)]
    assert refused
    assert {o.kind for o in refused} == {Trouble.BUSY}
    assert len(refused) < 1200 - 1000


def test_a_bound_too_small_is_a_fault(tmp_path: Path, board: Board) -> None:
    with pytest.raises(ValueError, match="max_bytes"):
        LmdbTier(tmp_path / "w", MIB, board)
