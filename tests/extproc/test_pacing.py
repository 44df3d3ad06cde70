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

    async def has_room(self) -> None:
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
    assert 0.04 < await took(pace, stuck, 0) < 0.4


async def test_a_chunk_waits_no_longer_than_its_bound() -> None:
    stuck, pace = Stuck(), Pace(0.1)
    assert 0.09 < await took(pace, stuck, 1 << 20) < 0.4


async def test_a_body_waits_so_long_together_and_then_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "HEAD_START", 0.2)
    stuck, pace = Stuck(), Pace(0.15)
    spent = sum([await took(pace, stuck, 0) for _ in range(20)])
    assert 0.19 < spent < 0.5
    assert await took(pace, stuck, 0) < 0.01, "all is used up"
    # What the last wait took too long is to be made up for first.
    assert sum([await took(pace, stuck, pacing.LEAST_PACE // 10) for _ in range(5)]) > 0.2
