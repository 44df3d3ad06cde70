"""Streams that have been answered and that the client has not ended: it is given a moment to reset them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from meshcache.rpc.stream import Stream

LINGER: Final = 0.05
"""Seconds, at least, for which a stream is left open; at most twice as long."""


class Lingering:
    """Hands streams to `finish` after a moment.

    Envoy resets a stream as soon as it has the last reply that it wants, and would not read a status.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, finish: Callable[[Stream], None]) -> None:
        self._loop = loop
        self._finish = finish
        self._streams: deque[Stream] = deque()
        # One for all of them: most have been reset when it ends.
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: Stream) -> None:
        """It has been answered."""
        self._streams.append(stream)
        if self._timer is None:
            self._wait()

    def end(self) -> None:
        """Wait no longer."""
        self._stop()
        self._finish_first(len(self._streams))

    def clear(self) -> None:
        """Nobody is there any more."""
        self._stop()
        self._streams.clear()

    def _wait(self) -> None:
        self._timer = self._loop.call_later(LINGER, self._waited, len(self._streams))

    def _waited(self, count: int) -> None:
        self._finish_first(count)
        self._timer = None
        if self._streams:
            self._wait()

    def _finish_first(self, count: int) -> None:
        for _ in range(count):
            self._finish(self._streams.popleft())

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
