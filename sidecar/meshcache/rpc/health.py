"""`grpc.health.v1`: whether the server takes calls. What Envoy's health check asks for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from meshcache.rpc.calls import Status
from meshcache.rpc.stream import CallError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from meshcache.rpc.connection import Handler
    from meshcache.rpc.stream import Stream

NAME: Final = "grpc.health.v1.Health"
_SERVING: Final[bytes] = HealthCheckResponse(status=HealthCheckResponse.SERVING).SerializeToString()
_NOT_SERVING: Final[bytes] = HealthCheckResponse(status=HealthCheckResponse.NOT_SERVING).SerializeToString()
_UNKNOWN: Final[bytes] = HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN).SerializeToString()


class Health:
    """Tells for each of `services` the same; not serving until it is told so. "" is the server as a whole."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset(("", *services))
        self._serving = False
        self._over = False
        self._changed = asyncio.Event()

    def set(self, *, serving: bool) -> None:
        """Whether calls are taken."""
        if not self._over:
            self._serving = serving
            self._tell()

    def retire(self) -> None:
        """Calls are not taken any more, for good: those who watch are told, and their calls end."""
        self._serving, self._over = False, True
        self._tell()

    def methods(self) -> Mapping[str, Handler]:
        """What to serve."""
        return {f"/{NAME}/Check": self._check, f"/{NAME}/Watch": self._watch}

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _status(self, service: str) -> bytes:
        if service not in self._services:
            return _UNKNOWN
        return _SERVING if self._serving else _NOT_SERVING

    async def _check(self, stream: Stream) -> None:
        service = await _asked(stream)
        if service not in self._services:
            raise CallError(Status.NOT_FOUND, "no such service")
        await stream.write(self._status(service))

    async def _watch(self, stream: Stream) -> None:
        service = await _asked(stream)
        told = b""
        while True:
            changed = self._changed
            status = self._status(service)
            if status != told:
                await stream.write(status)
                told = status
            if self._over:
                return
            await changed.wait()


async def _asked(stream: Stream) -> str:
    message = await stream.read()
    if message is None:
        raise CallError(Status.INTERNAL, "a call without a request")
    try:
        service: str = HealthCheckRequest.FromString(message).service
    except DecodeError as error:
        raise CallError(Status.INTERNAL, "not a request of a health check") from error
    return service
