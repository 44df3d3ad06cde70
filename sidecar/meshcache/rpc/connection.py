"""One connection of HTTP/2: frames in, calls to their handlers, frames out.

Of HTTP/2 it speaks what a gRPC server needs (RFC 9113): no push, no priorities, no upgrade from HTTP/1.1.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from meshcache.rpc import calls, frames
from meshcache.rpc.calls import CallReader, Status
from meshcache.rpc.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
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
from meshcache.rpc.incoming import FRAME_BYTES, Incoming
from meshcache.rpc.lingering import Lingering
from meshcache.rpc.stream import WINDOW, CallError, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from meshcache.rpc.owner import Owner

    Handler = Callable[[Stream], Coroutine[Any, Any, None]]

WINDOW_OF_ALL: Final = 1 << 30
"""Bytes that a client may send on all streams together before it is told that they have come: each has a bound."""
MOST_BLOCK_BYTES: Final = calls.MOST_FIELD_BYTES
"""Of one compressed header block, in all its frames."""
MOST_STREAMS: Final = 1 << 14
"""That one connection may have open at once. No low bound: Envoy opens a stream for each request."""
WRITE_BUFFER: Final = 1 << 20
"""Bytes that wait for the client to read them before nothing more is written, nor read from it."""
FAREWELL: Final = 1.0
"""Seconds that a client has for reading the last of what was written, before the connection is cut."""
_GOING: Final = b"meshcach"
"""What the ping carries that tells when a client has seen that this side goes away (RFC 9113 section 6.8)."""


class Connection(Incoming):
    """Serves the calls that come on one connection."""

    def __init__(self, owner: Owner) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.window = frames.DEFAULT_WINDOW
        """Bytes that may still be sent on all streams together."""
        self.stream_window = frames.DEFAULT_WINDOW
        """Bytes that may be sent on any stream before the client asks for more."""
        self.frame_bytes = frames.DEFAULT_FRAME_BYTES
        """Largest frame that the client takes."""
        self.paused = False
        """What was written waits to be read."""
        self.waiting: set[Stream] = set()
        """The streams that wait for room to write."""
        self.gone: asyncio.Future[None] = self.loop.create_future()
        """Done when the connection is no more."""
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, Stream] = {}
        self._calls = CallReader()
        # What streams have been given beyond that: none more than this.
        self._widest = 0
        self._table_bytes = frames.DEFAULT_TABLE_BYTES
        self._shrunk = False
        # The last stream that the client has opened, and that it may open.
        self._last = 0
        self._final = STREAM_MASK
        self._uncredited = 0
        self._block: tuple[int, int, bytearray] | None = None
        self._lingering = Lingering(self.loop, self._finish)
        self._going: asyncio.Future[None] | None = None
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
            Setting.MAX_CONCURRENT_STREAMS: MOST_STREAMS,
            Setting.INITIAL_WINDOW_SIZE: WINDOW,
            Setting.MAX_FRAME_SIZE: FRAME_BYTES,
            Setting.MAX_HEADER_LIST_SIZE: calls.MOST_FIELD_BYTES,
        }
        self.send(frames.settings(ours) + frames.window_update(0, WINDOW_OF_ALL - frames.DEFAULT_WINDOW))
        self._owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it was lost
        """Cancel what is being answered."""
        self._transport = None
        self._lingering.clear()
        self._cut_all()
        if self._going is not None and not self._going.done():
            self._going.set_result(None)
        if not self.gone.done():
            self.gone.set_result(None)
        self._owner.lost(self)

    def pause_writing(self) -> None:
        """The client does not read: nothing is read from it either, lest answers to its frames pile up."""
        self.paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It does again."""
        self.paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self._go_on()

    # What streams ask of it.

    def send(self, data: bytes) -> None:
        """Send whole frames."""
        if self._transport is not None:
            self._transport.write(data)

    def head(self, flags: int, number: int, block: bytes) -> bytes:
        """A HEADERS frame, to be sent next."""
        if self._shrunk:
            # What a client that keeps a smaller table now waits for (RFC 9113 section 4.3.1).
            self._shrunk = False
            block = calls.NO_TABLE + block
        return frames.frame(HEADERS, flags, number, block)

    def may_send(self, size: int) -> bool:
        """Whether a frame with so many bytes may be sent at once, for all that all streams share."""
        return size <= self.window and size <= self.frame_bytes and not self.paused

    # What the server asks of it.

    async def go_away(self, patience: float) -> None:
        """Have the client open no streams any more; returns when it knows, at the latest after `patience` seconds.

        Those that there are go on.
        """
        if self._transport is None or self._going is not None:
            return
        self._going = self.loop.create_future()
        # The number of the last stream is not known before the client has seen that it is the last.
        self.send(frames.goaway(self._final, Code.NO_ERROR) + frames.frame(PING, 0, 0, _GOING))
        await asyncio.wait((self._going,), timeout=patience)
        self._final = self._last
        self.send(frames.goaway(self._final, Code.NO_ERROR))

    def tasks(self) -> list[asyncio.Task[None]]:
        """What answers the streams that there are."""
        return [stream.task for stream in self._streams.values() if stream.task is not None]

    def end_answered(self) -> None:
        """Send the statuses that wait for the client to end or to reset its streams."""
        self._lingering.end()

    def close(self) -> None:
        """Close it when what was written is sent. Of those who still work on streams nothing is sent any more."""
        self.end_answered()
        self._cut_all()
        if self._transport is not None:
            self._transport.close()
            self.loop.call_later(FAREWELL, self._transport.abort)

    # Frames.

    def on_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """Do what a frame says."""
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
        self._cut(number)
        self.send(frames.reset(number, code))

    def _cut(self, number: int) -> None:
        stream = self._streams.pop(number, None)
        if stream is not None:
            stream.cut()
            if stream.task is not None:
                self._owner.leaving(stream.task)

    def _cut_all(self) -> None:
        for number in list(self._streams):
            self._cut(number)

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
        if stream.task is None:
            # It has been answered, and the client goes on: it waits for what is to come of that.
            self._finish(stream)
            return
        # Padding counts, too (section 6.9.1).
        stream.receive(frames.unpadded(payload, flags), len(payload))
        if flags & END_STREAM:
            self._on_end(stream)

    def _on_end(self, stream: Stream) -> None:
        stream.end()
        if stream.task is None:
            self._finish(stream)

    def _finish(self, stream: Stream) -> None:
        """Of a stream that has been answered."""
        self._streams.pop(stream.number, None)
        stream.finish()

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
        block += payload
        if flags & END_HEADERS:
            self._block = None
            self._on_block(first, number, bytes(block))
        elif not payload:
            # Bounded, too: it costs work and brings nothing.
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a header block that does not go on")
        elif len(block) > MOST_BLOCK_BYTES:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a header block that does not end")

    def _on_block(self, flags: int, number: int, block: bytes) -> None:
        if len(block) > MOST_BLOCK_BYTES:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a header block that is too long")
        # Read in any case: the blocks of a connection hang together.
        call = self._calls.read(block)
        if not number & 1:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a stream with an even number")
        if number <= self._last:
            stream = self._streams.get(number)
            if stream is not None:
                if not flags & END_STREAM:
                    raise StreamFault(Code.PROTOCOL_ERROR, "a second head")
                self._on_end(stream)
            return
        self._last = number
        if number > self._final:
            raise StreamFault(Code.REFUSED_STREAM, "going away")
        if len(self._streams) >= MOST_STREAMS:
            raise StreamFault(Code.REFUSED_STREAM, "more streams than may be open")
        if not call.grpc:
            ending = END_HEADERS | END_STREAM
            self.send(self.head(ending, number, calls.NOT_GRPC) + frames.reset(number, Code.NO_ERROR))
            return
        stream = Stream(self, number)
        handler = self._owner.methods.get(call.path)
        if handler is None:
            stream.finish(Status.UNIMPLEMENTED, f"no method {call.path[:100]}")
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
                self._lingering.add(stream)
        except CallError as error:
            stream.finish(error.status, str(error))
        except asyncio.CancelledError:
            stream.finish(Status.UNAVAILABLE, "cancelled")
            raise
        except Exception as error:
            stream.finish(Status.INTERNAL, "failed")
            self._owner.failed(error)
        finally:
            stream.task = None
            if stream.closed:
                self._streams.pop(number, None)

    def _on_reset(self, _flags: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a reset is four bytes")
        if not 0 < number <= self._last:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a reset of a stream that was never opened")
        self._cut(number)

    def _on_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "settings of a stream")
        if flags & ACK:
            if payload:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "an acknowledgement is empty")
            return
        # Of a setting that comes twice the last one holds.
        values = dict(frames.read_settings(payload))
        self.frame_bytes = values.get(Setting.MAX_FRAME_SIZE, self.frame_bytes)
        table_bytes = values.get(Setting.HEADER_TABLE_SIZE, self._table_bytes)
        self._shrunk |= table_bytes < self._table_bytes
        self._table_bytes = table_bytes
        window = values.get(Setting.INITIAL_WINDOW_SIZE, self.stream_window)
        if window != self.stream_window:
            self._change_windows(window)
        self.send(frames.frame(SETTINGS, ACK, 0))

    def _change_windows(self, window: int) -> None:
        self.stream_window = window
        if window + self._widest > frames.LARGEST_WINDOW:
            # Of a stream that is over, perhaps.
            self._widest = max((0, *(stream.window for stream in self._streams.values())))
            if window + self._widest > frames.LARGEST_WINDOW:
                # Of a setting the connection is to blame (section 6.9.2).
                raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "a window of more than 2^31-1 bytes")
        self._go_on()

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
                self._widest = max(self._widest, stream.window)
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
            # More than section 6.3 asks for: nothing may be said on a stream that does not exist yet.
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a priority is five bytes")

    def _on_goaway(self, _flags: int, number: int, _payload: bytes) -> None:
        if number:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a farewell on a stream")
        # It opens no streams any more, and closes the connection when it has had its answers.

    def _go_on(self) -> None:
        # Each once: those for whom there is none wait anew, when it is their turn.
        waiting, self.waiting = self.waiting, set()
        for stream in waiting:
            stream.go_on()

    def break_off(self, fault: ConnectionFault) -> None:
        """The client does not keep to the protocol: tell it, and close."""
        self._cut_all()
        self.send(frames.goaway(min(self._last, self._final), fault.code, str(fault)))
        self.close()
