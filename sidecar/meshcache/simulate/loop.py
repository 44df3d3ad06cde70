"""An event loop whose time is set by whoever drives it: it never waits, and nothing in it comes from outside.

The engine's coroutines run in it as they do in a worker. Where a worker would sleep, the time jumps. What is due at
one moment runs in the order in which it was asked for, so that a replay always goes the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections import deque
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator
    from contextvars import Context

Ts = TypeVarTuple("Ts")


class _Call(asyncio.TimerHandle):
    """A call that is to come. What a loop's callers do with one is to cancel it; of its base it has no more than that.

    One is made for every step of a task: asyncio's own takes three times as long to make.
    """

    __slots__ = ("_call", "_given", "_within")

    def __init__(self, call: Callable[..., object], given: tuple[Any, ...], within: Context | None) -> None:
        self._call: Callable[..., object] | None = call
        self._given = given
        self._within = within

    def __repr__(self) -> str:
        return f"<call of {self._call}>"

    def cancel(self) -> None:
        """See to it that it does not come."""
        self._call, self._given = None, ()

    def cancelled(self) -> bool:
        """Whether that has been seen to."""
        return self._call is None

    def run(self) -> None:
        """Make the call, unless it was cancelled."""
        call = self._call
        if call is not None:
            if self._within is None:
                call(*self._given)
            else:
                self._within.run(call, *self._given)
        # The traceback of a task that fails keeps this frame: what is left in it would keep the task (as in asyncio).
        del self, call


def drive(loop: VirtualLoop, coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, as a task from the point on where it waits for something: most never do."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration:
        return
    loop.create_task(_resumed(coroutine, waits_for))


async def _resumed(coroutine: Coroutine[Any, Any, None], waits_for: Any) -> None:
    await _rest(coroutine, waits_for)


@types.coroutine
def _rest(coroutine: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, None, None]:
    with contextlib.suppress(StopIteration):
        while True:
            # What it waits for is handed to the task as it would be if the task had begun with it.
            yield waits_for
            waits_for = coroutine.send(None)


class VirtualLoop(asyncio.AbstractEventLoop):
    """As much of an event loop as tasks, futures and timers need. `time` is Unix seconds, or whatever else is set."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        """The time. Set by `advance` alone."""
        self.failures: list[dict[str, Any]] = []
        """What asyncio reports of tasks whose exception nobody has asked for."""
        self._ready: deque[_Call] = deque()
        self._timers: list[tuple[float, int, _Call]] = []
        self._numbers = count()

    def advance(self, until: float) -> None:
        """Run all that is due up to `until`, each at its time, and set the time to that."""
        ready, timers = self._ready, self._timers
        while True:
            while ready:
                ready.popleft().run()
            if not timers or timers[0][0] > until:
                break
            when = timers[0][0]
            if when > self.now:
                self.now = when
            heappop(timers)[2].run()
        if until > self.now:
            self.now = until

    def settle(self, within: float) -> None:
        """Run all that is left and due within so many seconds, until nothing is."""
        until = self.now + within
        while self._ready or (self._timers and self._timers[0][0] <= until):
            self.advance(self._timers[0][0] if self._timers and not self._ready else self.now)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Let this be the loop that runs, for `asyncio.get_running_loop` in what is called here."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    # -- what asyncio asks of a loop -----------------------------------------------------------------------------

    def time(self) -> float:
        """The time."""
        return self.now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call it before the time goes on."""
        call = _Call(callback, args, context)
        self._ready.append(call)
        return call

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """The same: nothing runs elsewhere."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call it after so many seconds."""
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call it at that time."""
        call = _Call(callback, args, context)
        heappush(self._timers, (when, next(self._numbers), call))
        return call

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
        **_: Any,
    ) -> asyncio.Task[Any]:
        """A task of this loop, which begins when others have had their turn."""
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep it for whoever drives this loop."""
        self.failures.append(context)

    def get_debug(self) -> bool:
        """No."""
        return False

    def is_running(self) -> bool:
        """Yes: it is driven from outside."""
        return True

    def is_closed(self) -> bool:
        """No."""
        return False
