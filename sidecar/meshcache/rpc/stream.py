"""One call: the messages that a client sends, and the replies to them, within the windows of HTTP/2's flow control."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, NoReturn

from meshcache.rpc import calls, frames
from meshcache.rpc.calls import Status
from meshcache.rpc.frames import Code, StreamFault

if TYPE_CHECKING:
    from meshcache.rpc.connection import Connection

MOST_MESSAGE_BYTES: Final = 64 << 20
"""Largest message that is taken: what a buffered request may hold."""
WINDOW: Final = 1 << 20
"""Bytes that a client may send on a stream before it is told that there is room for more."""
_PREFIX_BYTES: Final = 5
"""In front of a message: whether it is compressed, and its length (gRPC over HTTP2, "Length-Prefixed-Message")."""
_PART: Final = 256 << 10
"""Bytes of a long reply that are handed to the transport at a time."""
_OK_TRAILERS: Final = calls.trailers(Status.OK)


class CallError(Exception):
    """Ends a call with an error: raised by its handler, or by `Stream.abort`."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


class Stream:
    """A call as its handler sees it. The handler's task is cancelled when the client resets the stream."""

    __slots__ = (
        "_arrival",
        "_connection",
        "_headed",
        "_messages",
        "_partial",
        "_room",
        "_uncredited",
        "_unread",
        "closed",
        "ended",
        "number",
        "task",
        "window",
    )

    def __init__(self, connection: Connection, number: int) -> None:
        self.closed = False
        """Nothing is sent any more: this side has ended it, or somebody has reset it."""
        self.ended = False
        """The client sends no more."""
        self.number = number
        self.window = 0
        """Bytes that may still be sent on it, beyond those that may on any: below zero when some were sent."""
        self.task: asyncio.Task[None] | None = None
        self._connection = connection
        self._messages: deque[bytes] = deque()
        self._unread = 0
        self._partial = bytearray()
        self._uncredited = 0
        self._headed = False
        self._arrival: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    async def read(self) -> bytes | None:
        """The next message; None when the client has sent all of them. Not for two tasks at once."""
        messages = self._messages
        while not messages:
            if self.ended:
                return None
            self._arrival = self._connection.loop.create_future()
            try:
                await self._arrival
            finally:
                self._arrival = None
        message = messages.popleft()
        self._unread -= len(message) + _PREFIX_BYTES
        if self._uncredited >= WINDOW // 2 and not self.ended:
            self._credit()
        return message

    async def write(self, message: bytes) -> None:
        """Send a message, as soon as the client has room for it. Not for two tasks at once.

        To a stream that was reset nothing is sent.
        """
        connection = self._connection
        size = len(message) + _PREFIX_BYTES
        if self.closed:
            return
        head = b""
        if not self._headed:
            self._headed = True
            head = connection.head(frames.END_HEADERS, self.number, calls.HEAD)
        if size <= self.window + connection.stream_window and connection.may_send(size):
            self.window -= size
            connection.window -= size
            connection.send(
                b"%b%b\0\0%b\0%b%b"
                % (head, size.to_bytes(3), self.number.to_bytes(4), (size - _PREFIX_BYTES).to_bytes(4), message)
            )
            return
        if head:
            connection.send(head)
        await self._write_in_parts(b"\0%b%b" % (len(message).to_bytes(4), message))

    async def _write_in_parts(self, data: bytes) -> None:
        connection, view, sent = self._connection, memoryview(data), 0
        while sent < len(data) and not self.closed:
            # Below zero after the client has made its windows smaller.
            room = min(self.window + connection.stream_window, connection.window, _PART)
            if room <= 0 or connection.paused:
                await self._wait_for_room()
                continue
            part = view[sent : sent + room]
            sent += len(part)
            self.window -= len(part)
            connection.window -= len(part)
            size = connection.frame_bytes
            connection.send(
                b"".join(
                    frames.frame(frames.DATA, 0, self.number, bytes(part[at : at + size]))
                    for at in range(0, len(part), size)
                )
            )

    async def _wait_for_room(self) -> None:
        self._room = self._connection.loop.create_future()
        self._connection.waiting.add(self)
        try:
            await self._room
        finally:
            self._connection.waiting.discard(self)
            self._room = None

    async def abort(self, status: Status, message: str) -> NoReturn:
        """End the call with an error."""
        raise CallError(status, message)

    # What the connection tells it.

    def receive(self, data: bytes, size: int) -> None:
        """Bytes of messages have come, with padding `size` bytes; raises `StreamFault`."""
        if self.ended:
            raise StreamFault(Code.STREAM_CLOSED, "data after the end of a stream")
        self._uncredited += size
        if self._uncredited >= WINDOW // 2:
            self._credit()
        if not self._partial and len(data) >= _PREFIX_BYTES:
            size = int.from_bytes(data[1:_PREFIX_BYTES])
            if len(data) == size + _PREFIX_BYTES:
                self._check(data[0], size)
                self._unread += len(data)
                self._messages.append(data[_PREFIX_BYTES:])
                self._wake()
                return
        self._partial += data
        self._take_messages()

    def _take_messages(self) -> None:
        partial, at = self._partial, 0
        while len(partial) - at >= _PREFIX_BYTES:
            size = int.from_bytes(partial[at + 1 : at + _PREFIX_BYTES])
            self._check(partial[at], size)
            after = at + _PREFIX_BYTES + size
            if after > len(partial):
                break
            self._messages.append(bytes(partial[at + _PREFIX_BYTES : after]))
            self._unread += after - at
            at = after
        if at:
            del partial[:at]
            self._wake()

    def _check(self, compressed: int, size: int) -> None:
        if compressed:
            raise StreamFault(Code.PROTOCOL_ERROR, "a compressed message, and no compression was agreed on")
        if size > MOST_MESSAGE_BYTES:
            raise StreamFault(Code.ENHANCE_YOUR_CALM, "a message that is too long")

    def _credit(self) -> None:
        # Whole messages count for as long as nobody has read them. One that is longer than the window has to get in.
        if self._unread < WINDOW:
            self._connection.send(frames.window_update(self.number, self._uncredited))
            self._uncredited = 0
        elif self._uncredited > WINDOW:
            raise StreamFault(Code.FLOW_CONTROL_ERROR, "more than the window allows")

    def end(self) -> None:
        """The client sends no more; raises `StreamFault`."""
        if self.ended:
            raise StreamFault(Code.STREAM_CLOSED, "a second end of a stream")
        if self._partial:
            raise StreamFault(Code.PROTOCOL_ERROR, "a message that is cut short")
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def widen(self, increment: int) -> None:
        """So many bytes more may be sent; raises `StreamFault`."""
        self.window += increment
        if self.window + self._connection.stream_window > frames.LARGEST_WINDOW:
            raise StreamFault(Code.FLOW_CONTROL_ERROR, "a window of more than 2^31-1 bytes")
        self.go_on()

    def go_on(self) -> None:
        """There may be room again."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def cut(self) -> None:
        """Nobody is there any more."""
        self.closed = self.ended = True
        if self.task is not None:
            if self._arrival is not None and self._messages:
                # What has come with the reset is read first: it may be the end of an answer that is to be stored.
                self._connection.loop.call_soon(self.task.cancel)
            else:
                self.task.cancel()
        # Whoever works for the handler may wait, too.
        self._wake()
        self.go_on()

    def finish(self, status: Status = Status.OK, message: str = "") -> None:
        """End the answer, if it has not ended."""
        if self.closed:
            return
        self.closed = True
        block = calls.trailers(status, message) if status or message else _OK_TRAILERS
        if not self._headed:
            block = calls.HEAD + block
        self._connection.send(self._connection.head(frames.END_HEADERS | frames.END_STREAM, self.number, block))
