"""Time and waiting for the engine, by the event loop."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshcache.engine.ports import Signal, Timer

T = TypeVar("T")


class LoopWaits:
    """`Waits` of the event loop that runs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now(self) -> float:
        """See `Waits`."""
        return time.monotonic()

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        """See `Waits`."""
        return self._loop.call_later(seconds, call)

    async def sleep(self, seconds: float) -> None:
        """See `Waits`."""
        await asyncio.sleep(seconds)

    def signal(self) -> Signal[Any]:
        """See `Waits`."""
        return _Signal[Any](self._loop)


class _Signal(Generic[T]):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._future: asyncio.Future[T] = loop.create_future()

    def set(self, value: T) -> None:
        """See `Signal`. One whose waiter was cancelled is set in vain."""
        if not self._future.done():
            self._future.set_result(value)

    async def wait(self) -> T:
        """See `Signal`."""
        return await self._future
