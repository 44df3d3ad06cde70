"""One connection of HTTP/2: frames in, calls to their handlers, frames out.

Of HTTP/2 it speaks what a gRPC server needs (RFC 9113): no push, no priorities, no upgrade from HTTP/1.1.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from meshcache.rpc import calls, frames
from meshcache.rpc.calls import CallReader, Status
from meshcache.rpc.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEAD_BYTES,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    STREAM_MASK,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    Code,
    ConnectionFault,
    Setting,
    StreamFault,
)
from meshcache.rpc.stream import WINDOW, CallError, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    Handler = Callable[[Stream], Coroutine[Any, Any, None]]

WINDOW_OF_ALL: Final = 1 << 30
"""Bytes that a client may send on all streams together before it is told that they have come: each has a bound."""
FRAME_BYTES: Final = 64 << 10
"""Largest frame that is taken."""
MOST_BLOCK_BYTES: Final = 128 << 10
"""Of one compressed header block, in all its frames."""
WRITE_BUFFER: Final = 1 << 20
"""Bytes that wait for the client to read them before nothing more is written, nor read from it."""
LINGER: Final = 0.05
"""Seconds, at least, for which a stream that has been answered stays open for the client to reset it."""
_LAST_STREAM: Final = STREAM_MASK
_GOING: Final = b"meshcach"
"""What the ping carries that tells when a client has seen that this side goes away (RFC 9113 section 6.8)."""


class Owner(Protocol):
    """Whose connection it is."""

    @property
    def methods(self) -> Mapping[str, Handler]:
        """What is served, by its full path."""
        ...

    def opened(self, connection: Connection) -> None:
        """It begins."""
        ...

    def lost(self, connection: Connection) -> None:
        """It is no more."""
        ...

    def failed(self, error: BaseException) -> None:
        """A handler has let an error out that is not a `CallError`."""
        ...


class Connection(asyncio.Protocol):
    """Serves the calls that come on one connection."""

    def __init__(self, owner: Owner) -> None:
        self.loop = asyncio.get_running_loop()
        self.window = frames.DEFAULT_WINDOW
        """Bytes that may still be sent on all streams together."""
        self.frame_bytes = frames.DEFAULT_FRAME_BYTES
        """Largest frame that the client takes."""
        self.paused = False
        """What was written waits to be read."""
        self.waiting: set[Stream] = set()
        """The streams that wait for room to write."""
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, Stream] = {}
        self._calls = CallReader()
        self._stream_window = frames.DEFAULT_WINDOW
        self._last = 0
        self._greeted = False
        self._pieces: list[bytes] = []
        self._missing = 0
        self._uncredited = 0
        self._block: tuple[int, int, bytearray] | None = None
        self._lingering: deque[Stream] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._going: asyncio.Future[None] | None = None
        self._refusing = False
        self._others: dict[int, Callable[[int, int, bytes], None]] = {
            RST_STREAM: self._on_reset,
            SETTINGS: self._on_settings,
            PING: self._on_ping,
            WINDOW_UPDATE: self._on_window_update,
            CONTINUATION: self._on_continuation,
            frames.PUSH_PROMISE: self._on_push_promise,
            frames.PRIORITY: self._on_priority,
            frames.GOAWAY: self._on_goaway,
        }

    # What the transport tells it.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the client."""
        # uvloop's transports are none by their class.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        ours = {
            Setting.INITIAL_WINDOW_SIZE: WINDOW,
            Setting.MAX_FRAME_SIZE: FRAME_BYTES,
            Setting.MAX_HEADER_LIST_SIZE: calls.MOST_FIELD_BYTES,
        }
        self.send(frames.settings(ours) + frames.window_update(0, WINDOW_OF_ALL - frames.DEFAULT_WINDOW))
        self._owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it was lost
        """Cancel what is being answered."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._lingering.clear()
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.cut()
        if self._going is not None and not self._going.done():
            self._going.set_result(None)
        self._owner.lost(self)

    def pause_writing(self) -> None:
        """The client does not read: nothing is read from it either, lest answers to its frames pile up."""
        self.paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It does again."""
        self.paused = False
        if self._transport is not None:
            self._transport.resume_reading()
        self._go_on()

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        if self._missing:
            # Not joined before all of it is there: a long frame comes in many pieces.
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        self._missing = 0
        try:
            self._take(data)
        except ConnectionFault as fault:
            self._break_off(fault)

    # What streams ask of it.

    def send(self, data: bytes) -> None:
        """Send whole frames."""
        if self._transport is not None:
            self._transport.write(data)

    def may_send(self, size: int) -> bool:
        """Whether a frame with so many bytes may be sent at once, for all that all streams share."""
        return size <= self.window and size <= self.frame_bytes and not self.paused

    # What the server asks of it.

    async def go_away(self) -> None:
        """Have the client open no streams any more; returns when it knows. Those that there are go on."""
        if self._transport is None or self._going is not None:
            return
        self._going = self.loop.create_future()
        # The number of the last stream is not known before the client has seen that it is the last.
        self.send(frames.goaway(_LAST_STREAM, Code.NO_ERROR) + frames.frame(PING, 0, 0, _GOING))
        try:
            await self._going
        finally:
            self._refusing = True
            self.send(frames.goaway(self._last, Code.NO_ERROR))

    def tasks(self) -> list[asyncio.Task[None]]:
        """What answers the streams that there are."""
        return [stream.task for stream in self._streams.values() if stream.task is not None]

    def close(self) -> None:
        """Close it when what was written is sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._end_lingering(len(self._lingering))
        if self._transport is not None:
            self._transport.close()

    # Frames.

    def _take(self, data: bytes) -> None:
        at, end = 0, len(data)
        if not self._greeted:
            known = frames.PREFACE[: min(end, len(frames.PREFACE))]
            if not data.startswith(known):
                raise ConnectionFault(Code.PROTOCOL_ERROR, "not HTTP/2")
            if end < len(frames.PREFACE):
                self._keep(data, len(frames.PREFACE) - end)
                return
            self._greeted = True
            at = len(frames.PREFACE)
        while end - at >= HEAD_BYTES:
            size = int.from_bytes(data[at : at + 3])
            if size > FRAME_BYTES:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            after = at + HEAD_BYTES + size
            if after > end:
                self._keep(data[at:], after - end)
                return
            kind, flags = data[at + 3], data[at + 4]
            number = int.from_bytes(data[at + 5 : at + HEAD_BYTES]) & STREAM_MASK
            self._on_frame(kind, flags, number, data[at + HEAD_BYTES : after])
            at = after
        if at < end:
            self._keep(data[at:], HEAD_BYTES - (end - at))

    def _keep(self, rest: bytes, missing: int) -> None:
        self._pieces.append(rest)
        self._missing = missing

    def _on_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block is not None and kind != CONTINUATION:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a header block is not continued")
        try:
            if kind == DATA:
                self._on_data(flags, number, payload)
            elif kind == HEADERS:
                self._on_headers(flags, number, payload)
            elif other := self._others.get(kind):
                other(flags, number, payload)
            # A type that nobody knows says nothing (section 5.5).
        except StreamFault as fault:
            self._reset(number, fault.code)

    def _reset(self, number: int, code: Code) -> None:
        stream = self._streams.pop(number, None)
        if stream is not None:
            stream.cut()
        self.send(frames.reset(number, code))

    def _on_data(self, flags: int, number: int, payload: bytes) -> None:
        if not 0 < number <= self._last:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "data on a stream that was never opened")
        self._uncredited += len(payload)
        if self._uncredited >= WINDOW_OF_ALL // 2:
            self.send(frames.window_update(0, self._uncredited))
            self._uncredited = 0
        stream = self._streams.get(number)
        if stream is None:
            # Sent before the client had heard that the stream has ended.
            return
        data = frames.unpadded(payload, flags)
        if data:
            stream.receive(data)
        if flags & END_STREAM:
            stream.end()

    def _on_headers(self, flags: int, number: int, payload: bytes) -> None:
        block = frames.unpadded(payload, flags)
        if flags & WITH_PRIORITY:
            if len(block) < 5:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a priority is five bytes")
            block = block[5:]
        if flags & END_HEADERS:
            self._on_block(flags, number, block)
        else:
            self._block = number, flags, bytearray(block)

    def _on_continuation(self, flags: int, number: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != number:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "the continuation of nothing")
        _, first, block = self._block
        # An empty one is bounded, too: it costs work and brings nothing.
        block += payload
        if len(block) > MOST_BLOCK_BYTES or not payload:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a header block that does not end")
        if flags & END_HEADERS:
            self._block = None
            self._on_block(first, number, bytes(block))

    def _on_block(self, flags: int, number: int, block: bytes) -> None:
        # Read in any case: the blocks of a connection hang together.
        call = self._calls.read(block)
        if not number & 1:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a stream with an even number")
        if number <= self._last:
            stream = self._streams.get(number)
            if stream is not None:
                if not flags & END_STREAM:
                    raise StreamFault(Code.PROTOCOL_ERROR, "a second head")
                stream.end()
            return
        self._last = number
        if self._refusing:
            raise StreamFault(Code.REFUSED_STREAM, "going away")
        if not call.grpc:
            ending = END_HEADERS | END_STREAM
            self.send(frames.frame(HEADERS, ending, number, calls.NOT_GRPC) + frames.reset(number, Code.NO_ERROR))
            return
        stream = Stream(self, number, self._stream_window)
        handler = self._owner.methods.get(call.path)
        if handler is None:
            stream.finish(Status.UNIMPLEMENTED, f"no method {call.path}")
            return
        self._streams[number] = stream
        if flags & END_STREAM:
            stream.end()
        stream.task = self.loop.create_task(self._serve(handler, stream, number))

    async def _serve(self, handler: Handler, stream: Stream, number: int) -> None:
        try:
            await handler(stream)
            if stream.ended:
                stream.finish()
            elif not stream.closed:
                self._linger(stream)
        except CallError as error:
            stream.finish(error.status, str(error))
        except asyncio.CancelledError:
            stream.finish(Status.UNAVAILABLE, "cancelled")
            raise
        except Exception as error:
            self._owner.failed(error)
            stream.finish(Status.INTERNAL, "failed")
        finally:
            stream.task = None
            if stream.closed:
                self._streams.pop(number, None)

    def _linger(self, stream: Stream) -> None:
        """Give the client a moment to reset a stream that it has not ended, before it is sent a status.

        Envoy does so as soon as it has the last reply that it wants, and would not read it.
        """
        self._lingering.append(stream)
        if self._timer is None:
            self._timer = self.loop.call_later(LINGER, self._end_lingering, len(self._lingering))

    def _end_lingering(self, count: int) -> None:
        """End the first `count` of the streams that linger: since they began to, the time has passed."""
        self._timer = None
        for _ in range(count):
            stream = self._lingering.popleft()
            self._streams.pop(stream.number, None)
            stream.finish()
        if self._lingering:
            self._timer = self.loop.call_later(LINGER, self._end_lingering, len(self._lingering))

    def _on_reset(self, _flags: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a reset is four bytes")
        if not 0 < number <= self._last:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a reset of a stream that was never opened")
        stream = self._streams.pop(number, None)
        if stream is not None:
            stream.cut()

    def _on_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "settings of a stream")
        if flags & ACK:
            if payload:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "an acknowledgement is empty")
            return
        for name, value in frames.read_settings(payload):
            if name == Setting.INITIAL_WINDOW_SIZE:
                change, self._stream_window = value - self._stream_window, value
                for stream in list(self._streams.values()):
                    try:
                        stream.widen(change)
                    except StreamFault as fault:
                        # Of a setting the connection is to blame (section 6.9.2).
                        raise ConnectionFault(fault.code, str(fault)) from fault
            elif name == Setting.MAX_FRAME_SIZE:
                self.frame_bytes = value
        self.send(frames.frame(SETTINGS, ACK, 0))

    def _on_ping(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a ping of a stream")
        if len(payload) != 8:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a ping is eight bytes")
        if not flags & ACK:
            self.send(frames.frame(PING, ACK, 0, payload))
        elif payload == _GOING and self._going is not None and not self._going.done():
            self._going.set_result(None)

    def _on_window_update(self, _flags: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a window update is four bytes")
        increment = int.from_bytes(payload) & STREAM_MASK
        if number:
            if number > self._last:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "a window of a stream that was never opened")
            stream = self._streams.get(number)
            if not increment:
                raise StreamFault(Code.PROTOCOL_ERROR, "an increment of nothing")
            if stream is not None:
                stream.widen(increment)
            return
        self.window += increment
        if not increment:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "an increment of nothing")
        if self.window > frames.LARGEST_WINDOW:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "a window of more than 2^31-1 bytes")
        self._go_on()

    def _on_push_promise(self, _flags: int, _number: int, _payload: bytes) -> None:
        raise ConnectionFault(Code.PROTOCOL_ERROR, "a client that pushes")

    def _on_priority(self, _flags: int, number: int, payload: bytes) -> None:
        if not number:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a priority of no stream")
        if len(payload) != 5:
            raise StreamFault(Code.FRAME_SIZE_ERROR, "a priority is five bytes")

    def _on_goaway(self, _flags: int, number: int, _payload: bytes) -> None:
        if number:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a farewell on a stream")
        # It opens no streams any more, and closes the connection when it has had its answers.

    def _go_on(self) -> None:
        for stream in list(self.waiting):
            stream.go_on()

    def _break_off(self, fault: ConnectionFault) -> None:
        self.send(frames.goaway(self._last, fault.code, str(fault)))
        self.close()
