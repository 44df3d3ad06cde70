"""A real Envoy between a recording origin and a sidecar that the test scripts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as ext_proc_grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from meshcache.envoy.bootstrap import BootstrapOptions
from meshcache.envoy.process import EnvoyProcess

Responder = Callable[[ext_proc.ProcessingRequest], "ext_proc.ProcessingResponse | list[Any]"]
"""Gives the reply to a message; or several, and a `grpc.StatusCode` for an end of the stream with an error."""


def pass_on(message: ext_proc.ProcessingRequest) -> ext_proc.ProcessingResponse:
    """Let everything through, asking for response headers as well."""
    reply = ext_proc.ProcessingResponse()
    if message.WhichOneof("request") == "request_headers":
        reply.request_headers.SetInParent()
        reply.mode_override.response_header_mode = 1
    else:
        reply.response_headers.SetInParent()
    return reply


@dataclass
class RecordingOrigin:
    """An HTTP/1.1 origin over bare sockets, so that a test sees and says exactly what is on the wire."""

    answer: bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    heads: list[str] = field(default_factory=list)
    port: int = 0
    hold: asyncio.Event | None = None
    closes: bool = False
    """After each answer."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head.decode("latin-1"))
                if self.hold is not None:
                    await self.hold.wait()
                writer.write(self.answer)
                await writer.drain()
                if self.closes:
                    break
        writer.close()


class ScriptedSidecar(ext_proc_grpc.ExternalProcessorServicer):
    """Answers each message by `respond` and keeps what it was sent."""

    def __init__(self) -> None:
        self.respond: Responder = pass_on
        self.seen: list[ext_proc.ProcessingRequest] = []
        self.sent_all = asyncio.Event()
        """All of a list of replies was written, and the stream ended."""

    async def Process(self, messages: Any, context: Any) -> AsyncIterator[ext_proc.ProcessingResponse]:  # noqa: N802
        async for message in messages:
            self.seen.append(message)
            replies = self.respond(message)
            for reply in replies if isinstance(replies, list) else [replies]:
                if isinstance(reply, grpc.StatusCode):
                    await context.abort(reply)
                yield reply
            if isinstance(replies, list):
                self.sent_all.set()
                return
        raise asyncio.CancelledError

    def headers(self, kind: str = "request_headers") -> dict[str, str]:
        """The headers of the last message of a kind."""
        for message in reversed(self.seen):
            if message.WhichOneof("request") == kind:
                sent = getattr(message, kind).headers.headers
                return {item.key: item.raw_value.decode("latin-1") for item in sent}
        msg = f"no {kind} seen"
        raise AssertionError(msg)


async def start_sidecar(servicer: ScriptedSidecar, socket: Path) -> grpc.aio.Server:
    server = grpc.aio.server()
    ext_proc_grpc.add_ExternalProcessorServicer_to_server(servicer, server)
    checks = health.aio.HealthServicer()
    await checks.set("", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    return server


@dataclass
class Rig:
    """Envoy with everything around it."""

    folder: Path
    options: BootstrapOptions
    origin: RecordingOrigin
    sidecar: ScriptedSidecar
    envoy: EnvoyProcess
    server: grpc.aio.Server
    client: httpx.AsyncClient
    port: int

    async def raw(self, data: bytes) -> bytes:
        """Send bytes on a connection of their own, and read until Envoy closes it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return answer
