"""What a server of the tests serves, and what has become of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from rpc_clients import PATIENCE

from rpc_peer import ECHO, echo

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshcache.rpc.stream import Stream

COUNT, FLOOD, HOLD, LAST, SINK = "/t.S/Count", "/t.S/Flood", "/t.S/Hold", "/t.S/Last", "/t.S/Sink"
FLOOD_BYTES = 64 << 20


class Methods:
    """What is served, and what has become of it."""

    def __init__(self) -> None:
        self.running = 0
        self.cancelled = 0
        self.written = 0
        self.streams: list[Stream] = []
        self.changed = asyncio.Condition()
        self.release = asyncio.Event()

    def all(self) -> dict[str, Callable[[Stream], Any]]:
        plain = {
            ECHO: echo,
            COUNT: self._count,
            FLOOD: self._flood,
            HOLD: self._hold,
            LAST: self._last,
            SINK: self._sink,
        }
        return {path: self._watched(handler) for path, handler in plain.items()}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE), self.changed:
            await self.changed.wait_for(condition)

    def _watched(self, handler: Callable[[Stream], Any]) -> Callable[[Stream], Any]:
        async def serve(stream: Stream) -> None:
            self.running += 1
            self.streams.append(stream)
            await self._tell()
            try:
                await handler(stream)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            finally:
                self.running -= 1
                await self._tell()

        return serve

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def _count(self, stream: Stream) -> None:
        """Say how many messages of how many bytes came."""
        count = size = 0
        while (content := await stream.read()) is not None:
            count, size = count + 1, size + len(content)
        await stream.write(b"%d %d" % (count, size))

    async def _flood(self, stream: Stream) -> None:
        """Write more than anybody buffers, in replies of all sizes."""
        await stream.read()
        while self.written < FLOOD_BYTES:
            size = (self.written * 7919) % 300_000
            await stream.write(bytes(size))
            self.written += size + 1
            await self._tell()

    async def _hold(self, stream: Stream) -> None:
        await stream.read()
        await asyncio.Event().wait()

    async def _last(self, stream: Stream) -> None:
        """Answer when it is released."""
        content = await stream.read()
        await self.release.wait()
        await stream.write(content or b"")

    async def _sink(self, stream: Stream) -> None:
        """Read when it is released."""
        await self.release.wait()
        await self._count(stream)
