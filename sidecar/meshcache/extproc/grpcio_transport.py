"""Streams over `grpc.aio`, the server of gRPC's own library.

How a stream ends (each variant was tried for leaks, see `docs/decisions/0003-end-of-an-ext-proc-stream.md`): by a
cancellation, Envoy's or this side's own after the last reply that matters. No read or write of it is broken off.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn

import grpc
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest
from grpc.aio import EOF
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from meshcache.extproc.options import METHOD, SERVICE, SOCKET_MODE
from meshcache.extproc.unbroken import Unbroken
from meshcache.process import socket_file
from meshcache.rpc.stream import MOST_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from meshcache.extproc.transport import Converse

    Context = grpc.aio.ServicerContext[ProcessingRequest, bytes]

SERVER_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    # Replies carry whole bodies; the tiers' object sizes bound them, not the transport.
    ("grpc.max_send_message_length", -1),
    # One process per socket: a second one that binds the same path is a mistake, not a helper.
    ("grpc.so_reuseport", 0),
)
"""Options for `grpc.aio.server`, shared with the bench's echo server, so that they are measured alike.

`grpc.max_concurrent_streams` is left alone on purpose: Envoy opens a stream per request, and a low bound fails them.
"""
# Envoy pings idle connections (health checks, keepalive), which must never be taken for abuse.
_KEEPALIVE_OPTIONS: Final = (
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
)


class GrpcioStream:
    """A stream of `grpc.aio`."""

    __slots__ = ("_context", "_replied")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._replied = False

    async def read(self) -> ProcessingRequest | None:
        """The next message; None at the end."""
        message: Any = await Unbroken(self._context.read())
        return None if message is EOF else message

    async def write(self, reply: bytes) -> None:
        """Send a reply."""
        if self._replied:
            # Let a reset that has come with the message that was just read cancel this task. An origin that breaks
            # off, and a client that leaves, are seen so: a head or a piece of the body, and the reset right behind it.
            # What is written to a stream that was reset fails, and gRPC gives nothing back of what fails.
            await asyncio.sleep(0)
        self._replied = True
        await Unbroken(self._context.write(reply))

    async def break_off(self, why: str) -> NoReturn:
        """End the stream with an error."""
        await self._context.abort(grpc.StatusCode.DATA_LOSS, why)


def handler(converse: Converse, on_error: Callable[[BaseException], None]) -> grpc.GenericRpcHandler:
    """What to register with a `grpc.aio` server. Replies are bytes already, so nothing serialises them again."""

    async def serve(_messages: object, context: Context) -> None:
        try:
            await converse(GrpcioStream(context))
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            on_error(error)
            await context.abort(grpc.StatusCode.INTERNAL, "failed")
        # Envoy resets the stream when it has the last reply: a status that is sent at that moment fails, and leaks.
        raise asyncio.CancelledError

    method: Any = grpc.stream_stream_rpc_method_handler(
        serve, request_deserializer=ProcessingRequest.FromString, response_serializer=None
    )
    return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})


class GrpcioTransport:
    """See `extproc.transport.Transport`. `on_error` is told of what conversations let out."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._health = health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None

    async def listen(self, path: Path, converse: Converse) -> None:
        """See `Transport`."""
        server = grpc.aio.server(options=(*SERVER_OPTIONS, *_KEEPALIVE_OPTIONS))
        server.add_generic_rpc_handlers((handler(converse, self._on_error),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        with socket_file(path, SOCKET_MODE):
            server.add_insecure_port(f"unix:{path}")
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        await server.start()
        self._server = server

    async def retire(self) -> None:
        """See `Transport`."""
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def stop(self, grace: float) -> None:
        """See `Transport`."""
        if self._server is not None:
            await self._server.stop(grace)

    async def _set_health(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for name in ("", SERVICE):
            await self._health.set(name, status)
