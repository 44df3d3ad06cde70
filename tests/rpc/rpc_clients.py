"""Clients of other make that call a server on a unix socket: gRPC's library, and the `h2` library."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    SettingsAcknowledged,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes

from meshcache.rpc.server import Server
from rpc_peer import FIELDS, message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from meshcache.rpc.connection import Handler

LARGE = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
PATIENCE = 60.0


def call(channel: grpc.aio.Channel, path: str, **options: Any) -> Any:
    return channel.stream_stream(path)(timeout=PATIENCE, **options)


class Served:
    """A server on a unix socket of its own."""

    def __init__(self, folder: str) -> None:
        self.socket = Path(folder) / "s"
        self.errors: list[BaseException] = []
        self.server: Server

    def channel(self) -> grpc.aio.Channel:
        """A connection of gRPC's library, shared with no other channel."""
        options = [*LARGE, ("grpc.use_local_subchannel_pool", 1)]
        return grpc.aio.insecure_channel(f"unix:{self.socket}", options=options)


@contextlib.asynccontextmanager
async def served(methods: Mapping[str, Handler]) -> AsyncIterator[Served]:
    # Not pytest's folder, whose path may be too long for a socket.
    with tempfile.TemporaryDirectory(prefix="mc-", dir="/tmp") as folder:
        made = Served(folder)
        made.server = Server(methods, made.errors.append)
        await made.server.listen(made.socket, 0o600)
        try:
            yield made
        finally:
            await made.server.stop(0)


class H2Client:
    """One connection; what comes is kept by stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reads = asyncio.Event()
        """Unset, nothing is read from the socket."""
        self.reads.set()
        self.contents: dict[int, bytearray] = defaultdict(bytearray)
        self.fields: dict[int, dict[str, str]] = defaultdict(dict)
        self.ended: set[int] = set()
        self.reset: dict[int, int] = {}
        self.farewells: list[tuple[int | None, int]] = []
        self.gone = False
        self.complaint: H2Error | None = None
        """What the server has done wrong."""
        self.credits = True
        """Unset, the server is given no room for more than it has already."""
        self.settled = asyncio.Event()
        """Set when the server has seen the settings."""
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._reader, self._writer = reader, writer
        self._news = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, served: Served, **settings: int) -> AsyncIterator[H2Client]:
        """`settings` are by the names of `SettingCodes`."""
        client = cls(*await asyncio.open_unix_connection(str(served.socket)))
        client.h2.initiate_connection()
        client.h2.update_settings({SettingCodes[name]: value for name, value in settings.items()})
        client.flush()
        try:
            yield client
        finally:
            client._reading.cancel()
            client._writer.transport.abort()

    def opens(self, path: str, *, end: bool = False, **changed: str) -> int:
        number: int = self.h2.get_next_available_stream_id()
        fields = {":path": path, **FIELDS, **{name.replace("_", "-"): value for name, value in changed.items()}}
        self.h2.send_headers(number, list(fields.items()), end_stream=end)
        self.flush()
        return number

    async def sends(self, number: int, content: bytes, *, end: bool = False) -> None:
        """Send a message, as the server's windows allow."""
        left = memoryview(message(content))
        while left:
            room = min(self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size)
            if room <= 0:
                await self._more()
                continue
            self.h2.send_data(number, bytes(left[:room]))
            self.flush()
            left = left[room:]
            await self._writer.drain()
        if end:
            self.h2.end_stream(number)
            self.flush()

    def flush(self) -> None:
        self._writer.write(self.h2.data_to_send())

    async def until_ended(self, number: int) -> dict[str, str]:
        """The fields of the answer, once it has ended."""
        while number not in self.ended and number not in self.reset and not self.gone:
            await self._more()
        return self.fields[number]

    async def until(self, number: int, size: int) -> bytes:
        """What has come, once it is so long."""
        while len(self.contents[number]) < size:
            assert number not in self.reset
            assert not self.gone
            await self._more()
        return bytes(self.contents[number])

    async def until_farewell(self) -> tuple[int | None, int]:
        """The last stream and the code of a GOAWAY."""
        while not self.farewells:
            await self._more()
        return self.farewells.pop(0)

    async def until_gone(self) -> None:
        while not self.gone:
            await self._more()

    async def _more(self) -> None:
        assert self.complaint is None
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait()

    async def _read(self) -> None:
        try:
            await self._read_all()
        except ConnectionError:
            pass
        except H2Error as error:
            self.complaint = error
        finally:
            self.gone = True
            async with self._news:
                self._news.notify_all()

    async def _read_all(self) -> None:
        while True:
            await self.reads.wait()
            data = await self._reader.read(1 << 16)
            if not data:
                return
            for event in self.h2.receive_data(data):
                self._on_event(event)
            self.flush()
            async with self._news:
                self._news.notify_all()

    def _on_event(self, event: Event) -> None:
        found: Any = event
        match found:
            case DataReceived():
                self.contents[found.stream_id] += found.data
                if self.credits:
                    self.h2.acknowledge_received_data(found.flow_controlled_length, found.stream_id)
            case ResponseReceived() | TrailersReceived():
                self.fields[found.stream_id].update(found.headers)
            case StreamEnded():
                self.ended.add(found.stream_id)
            case StreamReset():
                self.reset[found.stream_id] = found.error_code
            case ConnectionTerminated():
                self.farewells.append((found.last_stream_id, found.error_code))
            case SettingsAcknowledged():
                self.settled.set()
