"""One tier below memory with what keeps its troubles from its users: deadline, breaker, error counts, write queue."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.breaker import Breaker, BreakerState
from meshcache.tiers.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from meshcache.decisions import TierName
    from meshcache.tiers.base import Tier
    from meshcache.tiers.hooks import TierHooks

T = TypeVar("T")

_LINGER = 0.005
"""Seconds for which a write waits for others to be made with it: one hop to a thread, one transaction for all."""


@dataclass(slots=True)
class Write:
    """A write that waits for its turn."""

    key: bytes
    size: int
    """Bytes it holds in memory while it waits."""
    run: Callable[[], Awaitable[bool]]
    """Makes it, or returns False without asking the tier when it has no point any more; raises what the tier raises."""


class GuardedTier:
    """Never raises but `CancelledError`; belongs to one event loop.

    Reading and writing have a breaker each: a disk that is full can still be read.
    """

    def __init__(
        self,
        tier: Tier,
        hooks: TierHooks,
        *,
        clock: Callable[[], float] = time.monotonic,
        write_deadline: float = 2.0,
        longest_queue: int = 2048,
        queue_bytes: int = 64 << 20,
        first_pause: float = 0.5,
    ) -> None:
        """`write_deadline`: seconds for one write. What waits is bounded by `longest_queue` and `queue_bytes`."""
        self.tier = tier
        self.name: TierName = tier.name
        self._hooks = hooks
        self._write_deadline = write_deadline
        self._longest_queue = longest_queue
        self._queue_bytes = queue_bytes
        self._reading = Breaker(clock=clock, on_change=self._changed, first_pause=first_pause)
        self._writing = Breaker(clock=clock, on_change=self._changed, first_pause=first_pause)
        self._reported_open = False
        self._waiting: deque[Write] = deque()
        self._waiting_bytes = 0
        self._unwritten: dict[bytes, int] = {}
        """How many writes wait or are under way, of keys of which there are any."""
        self._told: dict[bytes, list[Callable[[], None]]] = {}
        """Who wants to know when there are none, by key."""
        self._flushing: asyncio.Task[None] | None = None
        self._closed = False

    async def read(self, call: Callable[[], Awaitable[T]], deadline: float) -> T | None:
        """What `call` returns within `deadline` seconds, or None, counted, when it fails or must not be tried."""
        return await self._guarded(self._reading, call, deadline)

    async def write(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """The same for a write that is made now, by who waits for it and bounds how many there are."""
        return await self._guarded(self._writing, call, self._write_deadline)

    async def _guarded(self, breaker: Breaker, call: Callable[[], Awaitable[T]], deadline: float) -> T | None:
        if not breaker.allow():
            return None
        try:
            async with Deadline(deadline):
                result = await call()
        except asyncio.CancelledError:
            breaker.abandoned()
            raise
        except Exception as error:
            # Tiers promise to raise only TierError; a library that breaks the promise must not break a request.
            self._count(error)
            breaker.failed()
            return None
        breaker.succeeded()
        return result

    def offer(self, write: Write) -> bool:
        """Queue a write to be made in the background; False, counted, when too much waits already."""
        if self._closed:
            return False
        if len(self._waiting) >= self._longest_queue or self._waiting_bytes + write.size > self._queue_bytes:
            self._hooks.write_dropped(self.name, "queue-full")
            return False
        self._waiting.append(write)
        self._unwritten[write.key] = self._unwritten.get(write.key, 0) + 1
        self._waiting_bytes += write.size
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.get_running_loop().create_task(self._flush())
        return True

    def delete(self, key: bytes) -> bool:
        """Queue the deletion of `key`, to be made after the writes of it that wait or are under way; see `offer`."""
        return self.offer(Write(key, 0, partial(self._delete, key)))

    def withdraw(self, key: bytes) -> None:
        """Take back the writes of `key` that have not begun."""
        if self._waiting:
            before, self._waiting = self._waiting, deque(write for write in self._waiting if write.key != key)
            self._waiting_bytes = sum(write.size for write in self._waiting)
            for write in before:
                if write.key == key:
                    self._written(write)

    def when_written(self, key: bytes, call: Callable[[], None]) -> None:
        """Call `call` when no write of `key` waits or is under way, however they went: at once when none is."""
        if key in self._unwritten:
            self._told.setdefault(key, []).append(call)
        else:
            call()

    async def drain(self) -> None:
        """Return when no write waits or is under way."""
        while self._flushing is not None and not self._flushing.done():
            await asyncio.wait({self._flushing})

    async def close(self) -> None:
        """Give up what still waits and close the tier."""
        self._closed = True
        given_up, self._waiting = self._waiting, deque()
        self._waiting_bytes = 0
        for write in given_up:
            self._written(write)
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.gather(self._flushing, return_exceptions=True)
        try:
            async with asyncio.timeout(self._write_deadline):
                await self.tier.close()
        except Exception as error:
            self._count(error)

    async def _flush(self) -> None:
        """Make what waits, many at once, until nothing waits any more."""
        await asyncio.sleep(_LINGER)
        while batch := self._next_batch():
            if not self._writing.allow():
                for write in batch:
                    self._hooks.write_dropped(self.name, "breaker-open")
                    self._written(write)
                continue
            try:
                if len(batch) == 1:
                    # As a rule, where misses are few: a task more would cost as much as the write itself.
                    self._judge((await self._attempt(batch[0]),))
                else:
                    self._judge(await asyncio.gather(*map(self._attempt, batch)))
            except asyncio.CancelledError:
                self._writing.abandoned()
                raise

    async def _attempt(self, write: Write) -> Exception | bool:
        """Make one write within its deadline: whether the tier was asked, or how it failed."""
        try:
            async with Deadline(self._write_deadline):
                return await write.run()
        except Exception as error:
            self._count(error)
            return error
        finally:
            self._written(write)

    def _written(self, write: Write) -> None:
        """A write is done with."""
        left = self._unwritten[write.key] - 1
        if left:
            self._unwritten[write.key] = left
        else:
            del self._unwritten[write.key]
            for call in self._told.pop(write.key, ()):
                call()

    async def _delete(self, key: bytes) -> bool:
        await self.tier.delete(key)
        return True

    def _next_batch(self) -> list[Write]:
        """The writes to make at once: as many as the tier likes, and never two of one key, whose order matters."""
        batch: dict[bytes, Write] = {}
        while self._waiting and len(batch) < self.tier.writes_at_once and self._waiting[0].key not in batch:
            write = self._waiting.popleft()
            self._waiting_bytes -= write.size
            batch[write.key] = write
        return list(batch.values())

    def _judge(self, outcomes: Sequence[Exception | bool]) -> None:
        """Tell the breaker how the writes of a batch went: one that was made shows that the tier works."""
        if all(outcome is False for outcome in outcomes):
            self._writing.abandoned()
        elif any(outcome is True or _is_too_large(outcome) for outcome in outcomes):
            self._writing.succeeded()
        else:
            self._writing.failed()

    def _count(self, error: Exception) -> None:
        match error:
            case TierError():
                kind = error.kind
            case TimeoutError():
                kind = Trouble.TIMEOUT
            case _:
                kind = Trouble.INTERNAL
        self._hooks.tier_error(self.name, kind)

    def _changed(self, _: BreakerState) -> None:
        """Report the tier as open while either breaker is not closed; half-open is part of an opening."""
        opened = self._reading.state is not BreakerState.CLOSED or self._writing.state is not BreakerState.CLOSED
        if opened != self._reported_open:
            self._reported_open = opened
            self._hooks.breaker(self.name, opened)


def _is_too_large(outcome: Exception | bool) -> bool:
    """Whether the tier refused one object for its size, which says nothing against the tier."""
    return isinstance(outcome, TierError) and outcome.kind is Trouble.TOO_LARGE
