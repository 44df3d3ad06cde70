"""A deadline that tells a slow tier from a busy event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

_TURNS = 4
"""Turns of the loop that a result at hand, in a thread or a socket, may need to reach who waits for it."""


class Deadline:
    """`async with Deadline(seconds)`: raises `TimeoutError` when the block takes longer, as `asyncio.timeout` does.

    A loop that was busy past the deadline finds the timer and the result ready at the same time. The result wins
    here: it was in time, and to throw it away would send to the origin just when everything is busy.
    """

    __slots__ = ("_cancelled", "_cancelling", "_over", "_seconds", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._over = False
        self._cancelled = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a task")
        self._task = task
        # A task that cleans up after a cancellation has one to its name already.
        self._cancelling = task.cancelling()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._late, _TURNS)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._over = True
        self._timer.cancel()
        # Someone else may have cancelled the task as well: then the cancellation goes on.
        if self._cancelled and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _late(self, turns: int) -> None:
        if self._over:
            return
        if turns:
            asyncio.get_running_loop().call_soon(self._late, turns - 1)
            return
        self._cancelled = True
        self._task.cancel()
