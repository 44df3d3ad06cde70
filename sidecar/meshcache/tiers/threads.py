"""A few daemon threads for calls that block: they never keep the process from ending, and their queue is bounded.

`concurrent.futures` joins its threads when the interpreter exits, so that one call stuck on a disk or on another
process's lock would hang a shutdown.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from meshcache.tiers.base import TierError, Trouble

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Threads:
    """`count` threads that run calls in order of arrival; they start with the first call."""

    def __init__(self, name: str, count: int, *, longest_queue: int = 1024) -> None:
        self._name = name
        self._count = count
        self._longest_queue = longest_queue
        self._queue: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closed = False

    async def run(self, call: Callable[..., T], *arguments: Any) -> T:
        """What `call` returns or raises, run in one of the threads.

        When the caller is cancelled, a call that has not begun is skipped; one that has runs to its end unseen.
        Raises `TierError` (busy) when too many calls wait already or the threads are closed.
        """
        if self._closed or self._queue.qsize() >= self._longest_queue:
            raise TierError(f"{self._name}: too much is waiting", Trouble.BUSY)
        if not self._threads:
            self._start()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waiting = [future, call, *arguments]
        self._queue.put(waiting)
        try:
            return await future
        except asyncio.CancelledError:
            # Threads that hang may never come to it, and what it was given may be large.
            waiting.clear()
            raise

    async def close(self, patience: float) -> None:
        """Let what is waiting run, for at most `patience` seconds, and end the threads."""
        self._closed = True
        for _ in self._threads:
            self._queue.put(None)
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while any(thread.is_alive() for thread in self._threads) and loop.time() < until:  # noqa: ASYNC110  nothing to await
            await asyncio.sleep(0.005)

    def _start(self) -> None:
        for number in range(self._count):
            thread = threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _work(self) -> None:
        while (waiting := self._queue.get()) is not None:
            # A copy: it may be cleared at any moment.
            taken = waiting[:]
            future: Any = taken[0] if taken else None
            if future is not None and not future.cancelled():
                try:
                    outcome: Any = taken[1](*taken[2:])
                    settle: Callable[[Any], None] = future.set_result
                except BaseException as error:  # whatever it is, it belongs to who called
                    outcome, settle = error, future.set_exception
                # The loop may have been closed while the call ran.
                with contextlib.suppress(RuntimeError):
                    future.get_loop().call_soon_threadsafe(_settle, future, settle, outcome)
                del outcome, settle
            # Nothing is held on to while the thread waits: what a call was given, or gave, may be large.
            del future, taken, waiting


def _settle(future: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    if not future.done():
        settle(outcome)
