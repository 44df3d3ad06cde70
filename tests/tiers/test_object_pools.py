"""A folder of objects that is divided among pools."""

from __future__ import annotations

from pathlib import Path

from tier_helpers import key

from meshcache.engine.pools import COMMON, UNDIVIDED, Division
from meshcache.tiers.object_folder import ObjectFolder

A, B = b"a" * 8, b"b" * 8
MIB = 1 << 20
NOW = 1_700_000_000.0
LATER = NOW + 1e9


def write(folder: ObjectFolder, pool: bytes, count: int, size: int = 60_000) -> None:
    for number in range(count):
        folder.write(key(number) + pool, bytes(size), LATER)


def there(folder: ObjectFolder, pool: bytes) -> int:
    return sum(folder.read(key(number) + pool, NOW) is not None for number in range(200))


def test_each_pool_is_swept_to_its_own_share(tmp_path: Path) -> None:
    folder = ObjectFolder(tmp_path, 10 * MIB)
    folder.divide(Division({A: 0.5, B: 0.1}, 0.4))
    write(folder, COMMON, 60)
    write(folder, A, 80)
    write(folder, B, 30)
    swept = folder.sweep(NOW)
    assert swept is not None
    # Down to three quarters of a share, and only where it was exceeded: 64,096 bytes for each file.
    assert (there(folder, COMMON), there(folder, A), there(folder, B)) == (60, 80, 12)
    assert swept.evicted == 18
    # What was written first goes.
    assert folder.read(key(17) + B, NOW) is None
    assert folder.read(key(18) + B, NOW) is not None


def test_arms_without_a_share_live_off_the_common_pool(tmp_path: Path) -> None:
    folder = ObjectFolder(tmp_path, 10 * MIB)
    folder.divide(Division({A: 1.0}, 0.0))
    write(folder, A, 20)
    write(folder, B, 20)
    folder.sweep(NOW)
    assert (there(folder, A), there(folder, B)) == (20, 0)
    folder.divide(UNDIVIDED)
    write(folder, B, 20)
    folder.sweep(NOW)
    assert (there(folder, A), there(folder, B)) == (20, 20)


def test_a_small_pool_asks_for_a_sweep_after_less(tmp_path: Path) -> None:
    folder = ObjectFolder(tmp_path, 64 * MIB)
    folder.divide(Division({A: 0.9, B: 0.1}, 0.0))
    write(folder, A, 4, 400_000)
    assert not folder.wants_sweep()
    write(folder, B, 1, 220_000)
    assert folder.wants_sweep()
    folder.sweep(NOW)
    assert not folder.wants_sweep()


def test_what_a_folder_takes_depends_on_the_share(tmp_path: Path) -> None:
    folder = ObjectFolder(tmp_path, 16 * MIB)
    folder.divide(Division({A: 0.05}, 0.95))
    assert folder.takes(key(1), 2 * MIB)
    assert not folder.takes(key(1), 2 * MIB + 1)
    assert folder.takes(key(1) + A, 800_000)
    assert not folder.takes(key(1) + A, MIB)


def test_foreign_names_are_of_the_common_pool(tmp_path: Path) -> None:
    folder = ObjectFolder(tmp_path, 10 * MIB)
    folder.divide(Division({A: 0.5}, 0.5))
    write(folder, COMMON, 1)
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size == 60_000]
    file.rename(file.with_name("z" * 70))
    swept = folder.sweep(NOW)
    assert (swept and swept.evicted) == 0
