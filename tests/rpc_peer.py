"""A client that says to a `Connection` byte for byte what a test wants, and reads what comes back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpack import Decoder, Encoder

from meshcache.rpc import frames
from meshcache.rpc.connection import Connection
from meshcache.rpc.frames import Code
from meshcache.rpc.stream import CallError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshcache.rpc.connection import Handler
    from meshcache.rpc.stream import Stream

ECHO, HOLD = "/t.S/Echo", "/t.S/Hold"
OPENING = frames.PREFACE + frames.settings({})
END = frames.END_STREAM
FIELDS = {":method": "POST", ":scheme": "http", ":authority": "x", "content-type": "application/grpc", "te": "trailers"}


def message(content: bytes) -> bytes:
    """As gRPC frames it."""
    return b"\0" + len(content).to_bytes(4) + content


def data(number: int, payload: bytes, flags: int = 0) -> bytes:
    return frames.frame(frames.DATA, flags, number, payload)


def block(path: str = ECHO, encoder: Encoder | None = None, **changed: str) -> bytes:
    """The header block of a call; without an `encoder` one that leaves the table alone."""
    fields = {":path": path, **FIELDS, **{name.replace("_", "-"): value for name, value in changed.items()}}
    if encoder is not None:
        return encoder.encode(fields.items())
    return Encoder().encode([(name, value, True) for name, value in fields.items()])


def opens(number: int, path: str = ECHO, flags: int = 0) -> bytes:
    """A HEADERS frame that opens a stream."""
    return frames.frame(frames.HEADERS, frames.END_HEADERS | flags, number, block(path))


@dataclass(frozen=True)
class Frame:
    kind: int
    flags: int
    number: int
    payload: bytes

    @property
    def code(self) -> Code:
        """Of a RST_STREAM or GOAWAY frame."""
        return Code(int.from_bytes(self.payload[4:8] if self.kind == frames.GOAWAY else self.payload))


def read_frames(sent: bytes) -> list[Frame]:
    found, at = [], 0
    while at < len(sent):
        size = int.from_bytes(sent[at : at + 3])
        assert at + 9 + size <= len(sent), "frames are written whole"
        number = int.from_bytes(sent[at + 5 : at + 9])
        found.append(Frame(sent[at + 3], sent[at + 4], number, sent[at + 9 : at + 9 + size]))
        at += 9 + size
    return found


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.news = asyncio.Event()
        """Set by a write."""
        self.reading = True
        self.closed = False
        self.aborted = asyncio.Event()
        self.pause_after: int | None = None
        """So many bytes may be written before `pause` is called."""
        self.pause: Callable[[], None] = lambda: None

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def write(self, data: bytes) -> None:
        assert not self.closed, "nothing is written after the end"
        self.written += data
        self.news.set()
        if self.pause_after is not None and len(self.written) > self.pause_after and self.reading:
            self.pause()

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted.set()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.closed
        self.reading = True


async def echo(stream: Stream) -> None:
    while (content := await stream.read()) is not None:
        await stream.write(content)


class Peer:
    """The client of one connection, and its owner. `methods` are served besides `ECHO` and `HOLD`."""

    def __init__(self, methods: Mapping[str, Handler] | None = None, opening: bytes = OPENING) -> None:
        self.methods: dict[str, Handler] = {ECHO: self._counted(echo), HOLD: self._counted(self._hold)}
        self.methods |= {path: self._counted(handler) for path, handler in (methods or {}).items()}
        self.begun = 0
        """Calls of handlers."""
        self.running = 0
        self.cancelled = 0
        self.errors: list[BaseException] = []
        self.read: list[bytes] = []
        """What the handlers of `HOLD` have read."""
        self.is_lost = False
        self.left: list[asyncio.Task[None]] = []
        self.wire = Wire()
        self.connection = Connection(self)
        self.connection.connection_made(self.wire)  # type: ignore[arg-type] # what it uses of one
        self._seen = 0
        self._decoder = Decoder()
        if opening:
            self.send(opening)
            self.received()

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            if not self.wire.closed:
                self.connection.data_received(piece)

    def received(self) -> list[Frame]:
        """What has come since this was asked last."""
        new, self._seen = bytes(self.wire.written[self._seen :]), len(self.wire.written)
        return read_frames(new)

    async def settled(self) -> list[Frame]:
        """What has come when nothing more is to be done without the client."""
        for _ in range(12):
            await asyncio.sleep(0)
        return self.received()

    async def more(self) -> list[Frame]:
        """What has come, as soon as something has."""
        async with asyncio.timeout(60):
            while not (received := self.received()):
                self.wire.news.clear()
                await self.wire.news.wait()
        return received

    def fields(self, frame: Frame) -> dict[str, str]:
        assert frame.kind == frames.HEADERS
        return {str(name): str(value) for name, value in self._decoder.decode(frame.payload)}

    def lose(self) -> None:
        self.wire.closed = True
        self.connection.connection_lost(None)

    def _counted(self, handler: Handler) -> Handler:
        async def serve(stream: Stream) -> None:
            self.begun += 1
            self.running += 1
            try:
                await handler(stream)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            finally:
                self.running -= 1

        return serve

    async def _hold(self, stream: Stream) -> None:
        while (content := await stream.read()) is not None:
            self.read.append(content)
        await asyncio.Event().wait()

    # The owner of the connection.

    def opened(self, connection: Connection) -> None:  # noqa: ARG002 - its only one
        assert not self.is_lost

    def lost(self, connection: Connection) -> None:  # noqa: ARG002
        assert not self.is_lost
        self.is_lost = True

    def leaving(self, task: asyncio.Task[None]) -> None:
        self.left.append(task)

    def failed(self, error: BaseException) -> None:
        assert not isinstance(error, CallError)
        self.errors.append(error)


def broken_off(received: list[Frame]) -> Code:
    """The code with which the connection was ended, at the end of what was received."""
    assert received, "nothing was answered"
    assert received[-1].kind == frames.GOAWAY
    return received[-1].code


def resets(received: list[Frame]) -> dict[int, Code]:
    return {frame.number: frame.code for frame in received if frame.kind == frames.RST_STREAM}


def contents(received: list[Frame], number: int) -> bytes:
    """The bytes of all DATA frames of a stream."""
    return b"".join(frame.payload for frame in received if frame.kind == frames.DATA and frame.number == number)


def kinds(received: list[Frame]) -> list[int]:
    return [frame.kind for frame in received]
