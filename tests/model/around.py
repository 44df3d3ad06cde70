"""Time, the event loop, and the tiers below memory, as a history needs them: nothing waits but for the history."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from meshcache.extproc.waits import LoopWaits
from meshcache.tiers.base import TierRead

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshcache.decisions import TierName
    from meshcache.engine.pools import Division
    from meshcache.tiers.board import Board

START = 1_700_000_000.0


class Time:
    """Wall time as the history has it, and the loop's, which runs a little ahead with every step."""

    def __init__(self) -> None:
        self.now = START
        self.ahead = 0.0

    def wall(self) -> float:
        return self.now

    def loop(self) -> float:
        return self.now + self.ahead


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers go off when the history says that time has passed."""

    def __init__(self, time: Time) -> None:
        self._time = time
        super().__init__()

    def time(self) -> float:
        return self._time.loop()


class VirtualWaits(LoopWaits):
    """Waiting in the history's time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        return self._loop.time()


class AtOnce:
    """Threads that are none."""

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0)
        return work(*arguments)

    async def close(self, _patience: float) -> None:
        pass


class SharedTier:
    """A lower tier of all workers, in a dictionary."""

    on_board = True
    writes_at_once = 8

    def __init__(self, name: TierName, time: Time, board: Board) -> None:
        self.name = name
        self._time = time
        self._board = board
        self._values: dict[bytes, tuple[bytes, float]] = {}

    def absent(self, key: bytes) -> bool:
        return key not in self._values

    def divide(self, division: Division) -> None:
        """There is room for everything."""

    async def get(self, key: bytes, resource: bytes) -> TierRead:
        await asyncio.sleep(0)
        value, until = self._values.get(key, (None, 0.0))
        return TierRead(value if until > self._time.now else None, self._board.epoch(resource))

    async def put(self, key: bytes, value: bytes, ttl: float) -> None:
        await asyncio.sleep(0)
        self._values[key] = (value, self._time.now + ttl)

    async def delete(self, key: bytes) -> None:
        await asyncio.sleep(0)
        self._values.pop(key, None)

    async def invalidate(self, resource: bytes) -> None:  # noqa: ARG002
        raise AssertionError("the board has it")

    # No body of a history is large enough for chunks.

    async def keep(self, digest: bytes, chunk: bytes, ttl: float) -> bool:
        raise NotImplementedError

    async def extend(self, digests: Sequence[bytes], ttl: float) -> frozenset[bytes]:
        raise NotImplementedError

    async def fetch(self, digest: bytes) -> bytes | None:
        raise NotImplementedError

    async def drop(self, digests: Sequence[bytes]) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        pass
