"""An LMDB file that is divided among pools."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tier_helpers import key, resource

from meshcache.engine.pools import COMMON, UNDIVIDED, Division
from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.board import Board
from meshcache.tiers.fates import Fate
from meshcache.tiers.lmdb import LmdbTier
from meshcache.tiers.lmdb_file import LmdbFile, Operation, Outcome
from meshcache.tiers.lmdb_rows import Rows

A, B = b"a" * 8, b"b" * 8
MIB = 1 << 20
NOW = 1_700_000_000.0
LIMIT = 8 * MIB * 3 // 4


@pytest.fixture
def file(tmp_path: Path) -> LmdbFile:
    return LmdbFile(tmp_path / "w", 8 * MIB)


def write(file: LmdbFile, pool: bytes, numbers: range, size: int = 10_000, ttl: float = 60.0) -> Outcome:
    """Entries that expire in the order in which they are written."""
    total = Outcome([])
    for number in numbers:
        outcome = file.apply([Operation(key(number) + pool, bytes(size), NOW + ttl + number / 1000)], NOW)
        assert outcome.errors == [None]
        total.evicted += outcome.evicted
        total.expired += outcome.expired
    return total


def there(file: LmdbFile, pool: bytes, numbers: range) -> list[int]:
    return [number for number in numbers if file.read(key(number) + pool, NOW) is not None]


def taken(file: LmdbFile) -> dict[bytes, int]:
    with file._using() as held, held.env.begin() as txn:
        rows = Rows(held, txn)
        return {pool: rows.taken(pool) for pool in rows.pools()}


def test_each_pool_gives_up_its_own(file: LmdbFile) -> None:
    file.divide(Division({A: 0.5, B: 0.1}, 0.4))
    write(file, COMMON, range(100))
    write(file, A, range(200))
    outcome = write(file, B, range(300))
    kept = {pool: there(file, pool, range(300)) for pool in (COMMON, A, B)}
    assert kept[COMMON] == list(range(100))
    assert kept[A] == list(range(200))
    # Those that expire last; pages of 4 KiB and what is beside a value make 12.6 KiB of one of 10,000 bytes.
    assert kept[B] == list(range(300 - len(kept[B]), 300))
    assert outcome.evicted == 300 - len(kept[B])
    assert 0.9 * 0.1 * LIMIT / 12_600 <= len(kept[B]) <= 0.1 * LIMIT / 12_288


@pytest.mark.parametrize("size", [200, 1000, 3000, 10_000, 100_000])
def test_what_is_counted_is_about_what_is_used(file: LmdbFile, size: int) -> None:
    file.divide(Division({A: 1.0}, 0.0))
    # Keys in no order, as digests are, of which two thirds have gone again.
    source = random.Random(1)
    names = [source.randbytes(32) + A for _ in range(2 * MIB // size)]
    steps = []
    for at, name in enumerate(names):
        steps.append(Operation(name, bytes(size), NOW + 60 + at))
        if at > len(names) // 3:
            steps.append(Operation(names[at - len(names) // 3]))
    for at in range(0, len(steps), 64):
        file.apply(steps[at : at + 64], NOW)
    with file._using() as held, held.env.begin() as txn:
        used = held.used(txn)
    assert 0.75 * used <= taken(file)[A] <= 1.25 * used


def test_a_share_that_shrinks_gives_way_in_steps_and_the_file_is_never_too_full(file: LmdbFile) -> None:
    file.divide(Division({A: 0.9, B: 0.1}, 0.0))
    write(file, A, range(600), 1000)
    file.divide(Division({A: 0.02, B: 0.98}, 0.0))
    # It gives way as it is written to,
    assert [write(file, A, range(at, at + 1), 1000).evicted for at in range(600, 605)][:2] == [256, 256]
    assert taken(file)[A] <= 0.02 * LIMIT
    # and to whoever needs the room.
    file.divide(Division({A: 0.98, B: 0.02}, 0.0))
    write(file, A, range(400), 10_000)
    file.divide(Division({A: 0.02, B: 0.98}, 0.0))
    write(file, B, range(400), 10_000)
    assert len(there(file, B, range(400))) == 400
    assert len(there(file, A, range(400))) < 100


def test_arms_without_a_share_live_off_the_common_pool(file: LmdbFile) -> None:
    file.divide(Division({A: 0.5}, 0.5))
    write(file, A, range(100))
    file.divide(Division({B: 0.5}, 0.5))
    assert len(there(file, A, range(100))) == 100
    # What expires first goes first, whoever it is of.
    write(file, COMMON, range(150), ttl=30.0)
    assert len(there(file, A, range(100))) == 100
    write(file, COMMON, range(300), ttl=3600.0)
    assert there(file, A, range(100)) == []
    assert taken(file) == {}


def test_undivided_again(file: LmdbFile) -> None:
    file.divide(Division({A: 0.5, B: 0.5}, 0.0))
    write(file, A, range(200))
    file.divide(UNDIVIDED)
    write(file, COMMON, range(1000), ttl=600.0)
    assert there(file, A, range(200)) == []
    assert len(there(file, COMMON, range(1000))) > 400


def test_the_expired_of_all_pools_go(file: LmdbFile) -> None:
    file.divide(Division({A: 0.5}, 0.5))
    write(file, A, range(10))
    write(file, COMMON, range(10))
    outcome = file.apply([Operation(key(99))], NOW + 100)
    assert (outcome.expired, taken(file)) == (20, {})


def test_counts_follow_every_change(file: LmdbFile) -> None:
    file.divide(Division({A: 0.5}, 0.5))
    write(file, A, range(3), 10_000)
    one = taken(file)[A] // 3
    write(file, A, range(1), 10_000)
    assert taken(file) == {A: 3 * one}
    kept = file.apply([Operation(key(1) + A, bytes(10_000), NOW + 500, keep=True)], NOW)
    assert (kept.kept, taken(file)) == ({key(1) + A}, {A: 3 * one})
    assert file.extend([key(0) + A, key(7) + A], NOW + 300, NOW) == {key(7) + A}
    file.apply([Operation(key(2) + A)], NOW)
    assert taken(file) == {A: 2 * one}
    # What was made to last does.
    assert there(file, A, range(3)) == [0, 1]
    file.apply([Operation(key(99))], NOW + 200)
    assert file.read(key(0) + A, NOW + 200) is not None
    visited = file.visit(b"", 100, NOW, lambda _key, _value: Fate.CONDEMNED)
    assert (sorted(visited.matched), taken(file)) == ([key(0) + A, key(1) + A], {})


def test_a_row_that_leads_nowhere_goes(file: LmdbFile) -> None:
    file.divide(Division({A: 0.5}, 0.5))
    write(file, A, range(2))
    with file._using() as held, held.env.begin(write=True) as txn:
        # As a release does that knows no pools.
        for database in (held.meta, held.values):
            txn.delete(key(0) + A, db=database)
    file.apply([Operation(key(99))], NOW + 100)
    with file._using() as held, held.env.begin() as txn:
        assert txn.stat(held.pooled)["entries"] == 0


async def test_a_value_above_its_share_is_too_large(tmp_path: Path) -> None:
    tier = LmdbTier(tmp_path / "warm", 8 * MIB, Board(tmp_path / "board"))
    tier.divide(Division({A: 0.01}, 0.99))
    await tier.put(key(1), bytes(100_000), 60.0)
    for refused in (tier.put(key(1) + A, bytes(100_000), 60.0), tier.keep(key(1) + A, bytes(100_000), 60.0)):
        with pytest.raises(TierError) as raised:
            await refused
        assert raised.value.kind is Trouble.TOO_LARGE
    assert (await tier.get(key(1), resource(1))).value is not None
    await tier.close()
