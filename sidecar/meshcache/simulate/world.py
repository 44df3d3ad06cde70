"""One worker's cache for a replay, put together as `extproc.assembly` does, but for what would wait or cost disk."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from meshcache.decisions import TierName
from meshcache.engine.cache import Cache
from meshcache.engine.flights import Flights
from meshcache.simulate.loop import VirtualLoop
from meshcache.simulate.tier import SimulatedTier
from meshcache.tiers.board import Board
from meshcache.tiers.hooks import NoHooks
from meshcache.tiers.lmdb_folder import FILLED
from meshcache.tiers.lmdb_rows import entry_cost
from meshcache.tiers.memory import MemoryTier
from meshcache.tiers.purges import Purges
from meshcache.tiers.signing import MAC_BYTES, Keyring
from meshcache.tiers.stack import TierStack
from meshcache.tiers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from meshcache.engine.ports import Meter, Refresher, Renderer, Signal, Timer
    from meshcache.policy.compiled import Eviction
    from meshcache.policy.snapshot import Snapshot
    from meshcache.tiers.memory import HotEntry

T = TypeVar("T")

_FILE_OVERHEAD: Final = 4096
"""Bytes that a file of the cold folder takes besides its own: whole blocks, and an inode."""
_PAGE: Final = 4096
"""Of the warm file."""
_COLD_SWEPT_TO: Final = 0.75
"""As `tiers.object_folder` has it."""


@dataclass(frozen=True)
class Sizes:
    """Bytes that each tier may take, and copies under way."""

    hot: int = 256 << 20
    warm: int = 1 << 30
    cold: int = 10 << 30
    copies: int = 256 << 20


class _AtOnce(Threads):
    """No threads: while a call blocks, the time stands still."""

    async def run(self, call: Callable[..., T], *arguments: Any) -> T:
        return call(*arguments)


class _Unsigned(Keyring):
    """Nobody meddles with what a replay keeps in its own memory, and signatures cost a third of a miss."""

    def sign(self, context: bytes, payload: bytes | memoryview) -> bytes:  # noqa: ARG002
        return bytes(MAC_BYTES)

    def verify(self, key_id: bytes, context: bytes, payload: bytes | memoryview, mac: bytes) -> bool:  # noqa: ARG002
        return True


class _OwnBoard(Board):
    """Nobody else puts another file in its place: it need not be looked at again every second."""

    def refresh(self) -> bool:
        return False


class MeasuredMemory(MemoryTier):
    """The memory tier, and the most that it ever held."""

    __slots__ = ("peak_bytes", "peak_entries")

    def __init__(self, budget_bytes: int, on_evict: Callable[[str], None]) -> None:
        super().__init__(budget_bytes, on_evict)
        self.peak_bytes = 0
        self.peak_entries = 0

    def put(self, key: bytes, entry: HotEntry, now: float, eviction: Eviction = "lru") -> bool:
        """See `MemoryTier`."""
        kept = super().put(key, entry, now, eviction)
        self._measure()
        return kept

    def attach(self, key: bytes, entry: HotEntry, rendered: bytes, now: float) -> None:
        """See `MemoryTier`."""
        super().attach(key, entry, rendered, now)
        self._measure()

    def _measure(self) -> None:
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        self.peak_entries = max(self.peak_entries, len(self))


class _Waits:
    """Implements `engine.ports.Waits`."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.now = loop.time

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        return self._loop.call_later(seconds, call)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def signal(self) -> Signal[Any]:
        return _Signal(self._loop)


class _Signal:
    """Implements `engine.ports.Signal`."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._future: asyncio.Future[Any] = loop.create_future()

    def set(self, value: Any) -> None:
        if not self._future.done():
            self._future.set_result(value)

    async def wait(self) -> Any:
        return await self._future


class Evictions(NoHooks):
    """Implements `TierHooks`: counts what tiers give up for want of room, and what goes wrong."""

    def __init__(self) -> None:
        self.evicted_from: Counter[tuple[TierName, str]] = Counter()
        self.errors: Counter[str] = Counter()

    def evicted(self, tier: TierName, reason: str, count: int) -> None:
        """See `TierHooks`."""
        self.evicted_from[tier, reason] += count

    def tier_error(self, tier: TierName, kind: str) -> None:
        """See `TierHooks`."""
        self.errors[f"{tier}: {kind}"] += 1

    def write_dropped(self, tier: TierName, reason: str) -> None:
        """See `TierHooks`."""
        self.errors[f"{tier}: write dropped, {reason}"] += 1


class World:
    """A cache under one policy set, its tiers and its time. Use within `loop.running()`."""

    def __init__(
        self,
        folder: Path,
        snapshot: Snapshot,
        sizes: Sizes,
        *,
        start: float,
        meter: Meter,
        refresher: Callable[[VirtualLoop], Refresher],
        render: Renderer,
        secret: bytes = b"",
    ) -> None:
        """`folder` is for the board, a file of less than a MiB; `start` is when the clock begins, in Unix seconds."""
        # What it lacks is for sockets and processes.
        self.loop = loop = VirtualLoop(start)  # type: ignore[abstract]
        self.hooks = hooks = Evictions()
        clock = loop.time
        self.board = _OwnBoard(folder / "board", slots=1 << 16, lease_buckets=64, clock=clock, wall_clock=clock)
        self.memory = MeasuredMemory(sizes.hot, lambda reason: hooks.evicted(TierName.HOT, reason, 1))

        def gone(name: TierName) -> Callable[[str], None]:
            return lambda reason: hooks.evicted(name, reason, 1)

        self.warm = SimulatedTier(
            TierName.WARM,
            int(sizes.warm * FILLED),
            self.board,
            clock,
            cost=lambda size: entry_cost(size, _PAGE),
            on_evict=gone(TierName.WARM),
        )
        self.cold = SimulatedTier(
            TierName.COLD,
            sizes.cold,
            self.board,
            clock,
            cost=lambda size: size + _FILE_OVERHEAD,
            by_age=True,
            shrink_to=_COLD_SWEPT_TO,
            on_evict=gone(TierName.COLD),
        )
        self.stack = TierStack(
            self.memory,
            self.warm,
            self.cold,
            self.board,
            _Unsigned([bytes(32)], secret),
            hooks,
            clock,
            purges=Purges(self.board, wall_clock=clock),
            queue_bytes=sizes.copies,
            opening_bytes=sizes.copies,
            threads=_AtOnce,
        )
        self._background: set[asyncio.Task[None]] = set()
        self.cache = Cache(
            stack=self.stack,
            leases=self.board.leases,
            refresher=refresher(loop),
            meter=meter,
            clock=clock,
            spawn=self._spawn,
            waits=_Waits(loop),
            render=render,
            copy_bytes=sizes.copies,
            flights=Flights(clock),
        )
        self.cache.install(snapshot.untold())

    def close(self) -> None:
        """Give up what is under way. Use within `loop.running()`, and nothing afterwards."""
        for task in self._background:
            task.cancel()
        closing = self.loop.create_task(self.stack.close())
        self.loop.settle(10.0)
        closing.result()
        self.board.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
