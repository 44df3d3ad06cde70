"""An HTTP/1.1 origin over bare sockets: a test decides every byte of its answers, and sees what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

Fields = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    method: str
    target: str
    fields: tuple[tuple[str, str], ...]
    """Names in lower case; values as ISO-8859-1."""
    body: bytes

    def get(self, name: str) -> str | None:
        """All values of a field joined by a comma."""
        values = [value for key, value in self.fields if key == name]
        return ", ".join(values) if values else None


class Wire:
    """The connection on which a step answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Send bytes as they are. Raises `ConnectionError` when the other side is gone."""
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        """Close the connection, in the middle of an answer or not."""
        self._writer.close()

    def reset(self) -> None:
        """Break the connection off with a reset."""
        self._writer.transport.abort()

    async def gone(self) -> None:
        """Return when the other side has closed."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


Step = bytes | Callable[[Asked, Wire], Awaitable[None]]
"""What answers one request: raw bytes, or a coroutine function that writes to the wire itself."""


def reply(status: int = 200, fields: Fields = (), body: bytes = b"") -> bytes:
    """A whole answer with a right `content-length`."""
    lines = [f"HTTP/1.1 {status} x", *(f"{name}: {value}" for name, value in fields)]
    if status >= 200 and status not in (204, 304):
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def head(fields: Fields = (), status: int = 200) -> bytes:
    """The head of an answer alone; `fields` say how its body ends."""
    lines = [f"HTTP/1.1 {status} x", *(f"{name}: {value}" for name, value in fields)]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def cut(data: bytes) -> Step:
    """Send these bytes, then close the connection."""

    async def step(_asked: Asked, wire: Wire) -> None:
        await wire.send(data)
        wire.close()

    return step


@dataclass
class ScriptedOrigin:
    """Answers each path by its own steps, one for each request; the last is repeated.

    A path without steps gets a cacheable answer that names the path and counts the requests for it.
    """

    port: int = 0
    _steps: dict[str, list[Step]] = field(default_factory=dict)
    _asked: dict[str, list[Asked]] = field(default_factory=lambda: defaultdict(list))
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def script(self, path: str, *steps: Step) -> None:
        """From now on answer `path` (without its query) by `steps`, and forget what was asked for it."""
        self._steps[path] = list(steps)
        self._asked.pop(path, None)

    def asked(self, path: str) -> list[Asked]:
        """The requests for `path` so far, whatever their query."""
        return self._asked[path]

    def count(self, path: str) -> int:
        """How many requests came for `path`."""
        return len(self._asked[path])

    async def start(self) -> None:
        """Listen on a free loopback port, or on the one it had before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 20)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and drop all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def down(self) -> AsyncIterator[None]:
        """Refuse connections meanwhile."""
        with socket.socket() as place:
            # So that nobody else gets the port before it listens there again.
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            await self.stop()
            place.bind(("127.0.0.1", self.port))
            try:
                yield
            finally:
                await self.start()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while not writer.is_closing():
                    await self._answer(await _read_request(reader, writer), Wire(reader, writer))
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, asked: Asked, wire: Wire) -> None:
        path = asked.target.partition("?")[0]
        seen = self._asked[path]
        seen.append(asked)
        steps = self._steps.get(path)
        if steps is None:
            body = f"{path} {len(seen)}".encode("latin-1")
            step: Step = reply(200, [("cache-control", "max-age=60")], b"" if asked.method == "HEAD" else body)
        else:
            step = steps[min(len(seen), len(steps)) - 1]
        if isinstance(step, bytes):
            await wire.send(step)
        else:
            await step(asked, wire)


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Asked:
    raw = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *rest = raw[:-4].split("\r\n")
    method, target, _ = line.split(" ")
    fields = []
    for item in rest:
        name, _, value = item.partition(":")
        fields.append((name.lower(), value.strip(" \t")))
    found = dict(fields)
    if found.get("expect") == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = b""
    if "content-length" in found:
        body = await reader.readexactly(int(found["content-length"]))
    elif found.get("transfer-encoding") == "chunked":
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
    return Asked(method, target, tuple(fields), body)
