"""Streams of ext_proc messages, whatever carries them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Protocol

from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest

from meshcache.extproc.options import METHOD, SERVICE
from meshcache.rpc.calls import Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from meshcache.rpc.connection import Handler
    from meshcache.rpc.stream import Stream


class EnvoyStream(Protocol):
    """The messages of one HTTP request. Whoever works on it is cancelled when Envoy resets it."""

    async def read(self) -> ProcessingRequest | None:
        """The next message; None at the end."""
        ...

    async def write(self, reply: bytes) -> None:
        """Send a serialised `ProcessingResponse`, when there is room for it."""
        ...

    async def break_off(self, why: str) -> NoReturn:
        """End the stream with an error, by which Envoy breaks off the client's answer."""
        ...


class _Stream:
    """A stream of `meshcache.rpc`."""

    __slots__ = ("_stream", "write")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.write = stream.write

    async def read(self) -> ProcessingRequest | None:
        message = await self._stream.read()
        return None if message is None else ProcessingRequest.FromString(message)

    async def break_off(self, why: str) -> NoReturn:
        await self._stream.abort(Status.DATA_LOSS, why)


def methods(converse: Callable[[EnvoyStream], Awaitable[None]]) -> Mapping[str, Handler]:
    """What `meshcache.rpc` is to serve, by the method's path: each stream as a conversation."""

    async def serve(stream: Stream) -> None:
        await converse(_Stream(stream))

    return {f"/{SERVICE}/{METHOD}": serve}
