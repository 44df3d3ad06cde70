"""Clients of a soak: connections that ask one thing after another, check what they get, and sometimes just leave."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections import Counter
from typing import TYPE_CHECKING, Final, cast

from soak.mix import Ask, End

if TYPE_CHECKING:
    from collections.abc import Callable

_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_RIGHT: Final = frozenset({200, 204, 206, 304})
PATIENCE: Final = 30.0
"""Seconds after which an answer that has not come never will."""
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER so that closing sends a reset."""


class Client(asyncio.Protocol):
    """One client, on one connection after another. Ends when `next_ask` returns None."""

    def __init__(self, port: int, next_ask: Callable[[], Ask | None], seen: Counter[str]) -> None:
        self._port = port
        self._next = next_ask
        self._seen = seen
        self._transport: asyncio.Transport | None = None
        self._ask: Ask | None = None
        self._began = 0.0
        self._head: bytes | None = None
        self._buffer = bytearray()
        self._length: int | None = None
        self._got = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Ask until there is nothing to ask any more."""
        await self._connect()
        await self.done

    def check(self, now: float) -> None:
        """Give an answer up that takes too long."""
        if self._ask is not None and now - self._began > PATIENCE:
            self._wrong(f"no answer within {PATIENCE:g} s")
            self._reset()

    # -- the connection ------------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self._port)
        except OSError as error:
            self._seen[f"wrong: {error}"] += 1
            self._end()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not `isinstance`: uvloop's are no subclass.
        self._transport = cast("asyncio.Transport", transport)
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        ask, self._ask = self._ask, None
        if ask is not None:
            if ask.end is End.CUT:
                self._seen["cut by the origin"] += 1
            else:
                self._wrong(f"connection lost: {exc}", ask)
        if not self.done.done():
            asyncio.get_running_loop().create_task(self._connect())

    def _reset(self) -> None:
        """Leave, without a word."""
        self._ask = None
        if self._transport is not None:
            held = self._transport.get_extra_info("socket")
            held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    def _end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
        if self._transport is not None:
            self._transport.close()

    # -- one request ---------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        ask = self._next()
        if ask is None:
            self._end()
            return
        assert self._transport is not None
        self._ask, self._head, self._length, self._got = ask, None, None, 0
        self._buffer.clear()
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        self._transport.write(f"{ask.method} {ask.path} HTTP/1.1\r\nhost: soak\r\n{ask.fields}\r\n".encode())
        if ask.end is End.LEAVES_EARLY:
            loop.call_later(0.01, self._leave, ask)

    def _leave(self, ask: Ask) -> None:
        if self._ask is ask:
            self._seen["left before an answer"] += 1
            self._reset()

    def data_received(self, data: bytes) -> None:
        ask = self._ask
        if ask is None:
            return
        if self._head is None:
            self._buffer += data
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            self._head = bytes(self._buffer[:end])
            del self._buffer[: end + 4]
            found = _LENGTH.search(self._head)
            bare = ask.method == "HEAD" or self._status() in (204, 304)
            self._length = 0 if bare else int(found[1]) if found else None
            data = bytes(self._buffer)
        elif self._length is None:
            self._buffer += data
        self._got += len(data)
        if ask.end is End.LEAVES_HALF_WAY and self._got:
            self._seen["left half-way"] += 1
            self._reset()
        elif self._length is not None and self._got >= self._length:
            self._finished(ask, self._got)
        elif self._length is None and self._buffer.endswith(b"0\r\n\r\n"):
            self._finished(ask, int(self._buffer.split(b"\r\n", 1)[0], 16))

    def _status(self) -> int:
        return 0 if self._head is None else int(self._head[9:12])

    def _finished(self, ask: Ask, size: int) -> None:
        status = self._status()
        self._ask = None
        if ask.end is End.CUT:
            # Envoy may find out before it has sent a byte: then it says so.
            self._seen[f"cut by the origin, {status}"] += 1
        elif status not in _RIGHT:
            self._wrong(f"status {status}", ask)
        elif status == 200 and ask.body is not None and size != ask.body:
            self._wrong(f"{size} bytes instead of {ask.body}", ask)
        else:
            self._seen[str(status)] += 1
        self._go_on()

    def _wrong(self, what: str, ask: Ask | None = None) -> None:
        asked = ask or self._ask
        self._seen[f"wrong: {what}"] += 1
        if asked is not None and self._seen[f"wrong: {what}"] == 1:
            self._seen[f"wrong, for example: {asked.method} {asked.path} {what}"] = 1
