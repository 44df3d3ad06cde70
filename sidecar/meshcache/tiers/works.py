"""Work of the tiers that goes on in the background, bounded and never forgotten."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

MOST: Final = 256
"""Works that may be under way; each waits for something, and holds little while it does."""


class Works:
    """The background tasks of one owner. Belongs to one event loop."""

    def __init__(self, on_error: Callable[[], None]) -> None:
        """`on_error` is called for each that ends with an exception."""
        self._on_error = on_error
        self._tasks: set[asyncio.Task[None]] = set()
        self._keys: set[bytes] = set()
        self._closed = False

    def begin(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run `work`; False when too much is under way already, or all is over: then it is dropped."""
        if self._closed or len(self._tasks) >= MOST:
            work.close()
            return False
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return True

    async def drain(self) -> None:
        """Return when nothing is under way."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def close(self) -> None:
        """Break off what is under way, and begin nothing any more."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._on_error()
