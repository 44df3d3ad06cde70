"""How long a body waits for stores that do not follow."""

from __future__ import annotations

import asyncio

import pytest

from meshcache.extproc import pacing
from meshcache.extproc.pacing import Pace


class Stuck:
    """Stores that have room when a test says so."""

    refused = None
    behind = True

    def __init__(self) -> None:
        self.may_go = asyncio.Event()
        self.asked = 0
        """How often somebody has waited."""

    async def has_room(self) -> None:
        self.asked += 1
        await self.may_go.wait()

    def add(self, data: bytes) -> bool:
        raise NotImplementedError

    async def written(self) -> tuple[bytes, ...] | None:
        raise NotImplementedError

    def drop(self) -> None:
        raise NotImplementedError


async def took(pace: Pace, stuck: Stuck, size: int) -> float:
    clock = asyncio.get_running_loop().time
    began = clock()
    await pace.keep(stuck, size)
    return clock() - began


async def test_who_has_room_again_is_not_waited_for_any_longer() -> None:
    stuck, pace = Stuck(), Pace(30.0)
    asyncio.get_running_loop().call_later(0.05, stuck.may_go.set)
    assert 0.04 < await took(pace, stuck, 0) < 10.0


async def test_a_chunk_waits_no_longer_than_its_bound() -> None:
    stuck, pace = Stuck(), Pace(0.1)
    async with asyncio.timeout(20):
        assert await took(pace, stuck, 1 << 20) > 0.09


async def test_a_body_waits_so_long_together_and_then_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "HEAD_START", 0.2)
    stuck, pace = Stuck(), Pace(0.15)
    async with asyncio.timeout(20):
        # No more than two of them wait: the second uses up what the first has left.
        assert sum([await took(pace, stuck, 0) for _ in range(20)]) > 0.19
        asked = stuck.asked
        await took(pace, stuck, 0)
    assert stuck.asked == asked <= 3, "all is used up"
    # What the last wait took too long is to be made up for first.
    assert sum([await took(pace, stuck, pacing.LEAST_PACE // 10) for _ in range(5)]) > 0.2
