"""What carries a worker's streams: `meshcache.rpc`, or gRPC's own library (`extproc.grpcio_transport`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from meshcache.extproc.options import SERVICE, SOCKET_MODE
from meshcache.extproc.streams import methods
from meshcache.rpc.health import Health
from meshcache.rpc.server import Server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from meshcache.extproc.streams import EnvoyStream

    Converse = Callable[[EnvoyStream], Awaitable[None]]


class Transport(Protocol):
    """Serves one conversation for each stream, and says in `grpc.health.v1` whether it does."""

    async def listen(self, path: Path, converse: Converse) -> None:
        """Serve on the unix socket `path`, as healthy."""
        ...

    async def retire(self) -> None:
        """Say that nothing new is wanted; what comes is served all the same."""
        ...

    async def stop(self, grace: float) -> None:
        """Take nothing new; return when all streams have ended, which are cut off after `grace` seconds."""
        ...


class NativeTransport:
    """`meshcache.rpc`. `on_error` is told of what conversations let out."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._health = Health((SERVICE,))
        self._server: Server | None = None

    async def listen(self, path: Path, converse: Converse) -> None:
        """See `Transport`."""
        self._server = Server({**methods(converse), **self._health.methods()}, self._on_error)
        self._health.set(serving=True)
        await self._server.listen(path, SOCKET_MODE)

    async def retire(self) -> None:
        """See `Transport`."""
        self._health.retire()

    async def stop(self, grace: float) -> None:
        """See `Transport`."""
        if self._server is not None:
            await self._server.stop(grace)
