"""The simulated tier keeps the contract of the real ones: what is kept, for how long, and what goes first."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.decisions import TierName
from meshcache.engine.pools import Division
from meshcache.simulate.tier import SimulatedTier, _Packed
from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.board import Board

T = TypeVar("T")


class World:
    def __init__(self, board: Board) -> None:
        self.now = 1000.0
        self.gone: list[str] = []
        self.board = board

    def tier(self, max_bytes: int, shrink_to: float = 1.0, *, by_age: bool = False) -> SimulatedTier:
        return SimulatedTier(
            TierName.WARM,
            max_bytes,
            self.board,
            lambda: self.now,
            cost=lambda size: size + 32,
            by_age=by_age,
            shrink_to=shrink_to,
            on_evict=self.gone.append,
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    board = Board(tmp_path / "board", slots=16, lease_buckets=1)
    yield World(board)
    board.close()


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that waits for nothing."""
    with pytest.raises(StopIteration) as done:
        work.send(None)
    result: T = done.value.value
    return result


def key(number: int) -> bytes:
    return bytes([number]) * 32


def test_what_is_put_is_there_until_its_time_is_over(world: World) -> None:
    tier = world.tier(10_000)
    at_once(tier.put(key(1), b"value", 10.0))
    assert not tier.absent(key(1))
    assert at_once(tier.get(key(1), bytes(16))).value == b"value"
    assert at_once(tier.get(key(1), bytes(16))).epoch == world.board.epoch(bytes(16))
    world.now += 10.0
    assert tier.absent(key(1))
    assert at_once(tier.get(key(1), bytes(16))).value is None
    at_once(tier.put(key(2), b"", 1.0))
    assert (len(tier), world.gone) == (1, ["expired"])


def test_what_expires_first_goes_first(world: World) -> None:
    tier = world.tier(4 * 42, shrink_to=0.5)
    for number, ttl in enumerate((40.0, 10.0, 30.0, 20.0), start=1):
        at_once(tier.put(key(number), bytes(10), ttl))
    assert (tier.used_bytes, world.gone) == (4 * 42, [])
    at_once(tier.put(key(5), bytes(10), 50.0))
    assert [tier.absent(key(number)) for number in range(1, 6)] == [False, True, True, True, False]
    assert (tier.used_bytes, tier.peak_bytes, world.gone) == (2 * 42, 4 * 42, ["capacity"] * 3)


def test_by_age_what_was_written_first_goes_first(world: World) -> None:
    tier = world.tier(4 * 42, by_age=True)
    for number, ttl in enumerate((40.0, 10.0, 30.0, 20.0, 50.0), start=1):
        at_once(tier.put(key(number), bytes(10), ttl))
        world.now += 1.0
    assert [tier.absent(key(number)) for number in range(1, 6)] == [True, False, False, False, False]
    world.now += 15.0
    at_once(tier.put(key(6), bytes(10), 50.0))
    assert [tier.absent(key(number)) for number in range(1, 7)] == [True, True, False, False, False, False]
    assert world.gone == ["capacity", "expired"]


def test_a_pool_keeps_to_its_share(world: World) -> None:
    arm = b"eight by"
    tier = world.tier(8 * 42)
    tier.divide(Division({arm: 0.25}, 0.75))
    for number in range(9):
        at_once(tier.put(key(number) + arm, bytes(10), 100.0 + number))
        at_once(tier.put(key(number), bytes(10), 100.0 + number))
    assert [tier.absent(key(number) + arm) for number in range(9)] == [True] * 7 + [False] * 2
    assert [tier.absent(key(number)) for number in range(9)] == [True] * 3 + [False] * 6
    at_once(tier.delete(key(8)))
    at_once(tier.keep(key(8) + arm, bytes(10), 500.0))
    assert tier.used_bytes == 7 * 42
    with pytest.raises(TierError):
        tier.put(key(1) + arm, bytes(85), 1.0).send(None)


def test_a_value_too_large_is_refused(world: World) -> None:
    with pytest.raises(TierError) as refused:
        world.tier(800).put(key(1), bytes(101), 1.0).send(None)
    assert refused.value.kind is Trouble.TOO_LARGE


def test_chunks_are_kept_once_and_never_made_to_go_earlier(world: World) -> None:
    tier = world.tier(10_000)
    assert at_once(tier.keep(key(1), b"chunk", 10.0))
    assert not at_once(tier.keep(key(1), b"chunk", 5.0))
    assert at_once(tier.extend([key(1), key(2)], 20.0)) == {key(2)}
    world.now += 15.0
    assert at_once(tier.fetch(key(1))) == b"chunk"
    at_once(tier.drop([key(1), key(2)]))
    assert tier.used_bytes == 0


def test_deleted_and_invalidated(world: World) -> None:
    tier = world.tier(10_000)
    at_once(tier.put(key(1), b"value", 10.0))
    before = at_once(tier.get(key(1), bytes(16))).epoch
    at_once(tier.invalidate(bytes(16)))
    assert at_once(tier.get(key(1), bytes(16))).epoch != before
    at_once(tier.delete(key(1)))
    at_once(tier.delete(key(1)))
    assert tier.absent(key(1))


@given(
    st.binary(max_size=80), st.integers(0, 5000), st.binary(max_size=80), st.integers(0, 200), st.binary(max_size=1500)
)
def test_packing_loses_nothing(head: bytes, zeros: int, middle: bytes, more: int, tail: bytes) -> None:
    value = head + bytes(zeros) + middle + bytes(more) + tail
    packed = _Packed.of(value)
    assert packed.value() == value
    assert len(packed.head) + len(packed.tail) <= len(value)
