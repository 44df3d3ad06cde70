from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.tiers.presence import BUCKET_SECONDS, Presence

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_700_000_000.0
DAY = 86_400.0

keys = st.binary(min_size=32, max_size=32)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Presence:
    return Presence(tmp_path_factory.mktemp("presence") / "map")


def test_nothing_is_there_at_first(tmp_path: Path) -> None:
    assert not Presence(tmp_path / "map").may_hold(bytes(range(32)), NOW)


def test_the_file_has_its_space(tmp_path: Path) -> None:
    Presence(tmp_path / "map")
    # A hole that is written to on a full disk would kill the process.
    assert (tmp_path / "map").stat().st_blocks * 512 >= (tmp_path / "map").stat().st_size > 0


@given(key=keys, ttl=st.floats(0, 29 * DAY), at=st.floats(0, 1))
def test_what_was_written_is_never_denied_while_it_lives(shared: Presence, key: bytes, ttl: float, at: float) -> None:
    shared.add(key, ttl, NOW)
    assert shared.may_hold(key, NOW + at * ttl)


@given(key=keys, other=keys, ttl=st.floats(0, 29 * DAY), shorter=st.floats(0, DAY))
def test_a_shorter_life_on_the_same_byte_takes_nothing_away(
    shared: Presence, key: bytes, other: bytes, ttl: float, shorter: float
) -> None:
    shared.add(key, ttl, NOW)
    shared.add(key[:8] + other[8:], min(shorter, ttl), NOW)
    assert shared.may_hold(key, NOW + ttl)


@given(key=keys, days=st.lists(st.floats(0.1, 29), min_size=1, max_size=100))
def test_time_goes_round_the_circle_of_values(
    tmp_path_factory: pytest.TempPathFactory, key: bytes, days: list[float]
) -> None:
    presence, now = Presence(tmp_path_factory.mktemp("circle") / "map"), NOW
    for step in days:
        presence.add(key, DAY, now)
        assert presence.may_hold(key, now + DAY)
        now += step * DAY


def test_it_forgets_what_expired(tmp_path: Path) -> None:
    presence, key = Presence(tmp_path / "map"), b"k" * 32
    presence.add(key, 60.0, NOW)
    assert presence.may_hold(key, NOW + 60)
    assert not presence.may_hold(key, NOW + 60 + 2 * BUCKET_SECONDS)
    presence.add(key, 60.0, NOW + 20 * DAY)
    assert presence.may_hold(key, NOW + 20 * DAY + 60)


def test_a_very_long_life_is_cut_not_lost_at_once(tmp_path: Path) -> None:
    presence, key = Presence(tmp_path / "map"), b"k" * 32
    presence.add(key, 10_000 * DAY, NOW)
    assert presence.may_hold(key, NOW)
    assert presence.may_hold(key, NOW + 29 * DAY)


def test_processes_share_it(tmp_path: Path) -> None:
    path = tmp_path / "map"
    presence = Presence(path)
    code = (
        "import sys; from pathlib import Path; from meshcache.tiers.presence import Presence\n"
        f"Presence(Path(sys.argv[1])).add(b'k' * 32, 60.0, {NOW})"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert presence.may_hold(b"k" * 32, NOW)


def test_a_file_of_another_size_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "map"
    path.write_bytes(b"\x01" * 100)
    assert not Presence(path).may_hold(b"k" * 32, NOW)
    assert [entry.name for entry in tmp_path.iterdir()] == ["map"]
