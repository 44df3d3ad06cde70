"""HTTP servers inside a running event loop, on sockets that are bound beforehand."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp

START_TIMEOUT: Final = 10.0
STOP_TIMEOUT: Final = 2.0
UID: Final = "uid:"
"""Before the number of the user, where the address of a client stands otherwise."""
_CREDENTIALS: Final = struct.Struct("=iii")
"""`struct ucred`: process, user, group (unix(7))."""
MAX_CONNECTIONS: Final = 128
"""Beyond, the connection that has been idle for longest makes room for a new one: whoever opens many and asks nothing
must not keep a probe or a scrape from its answer."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The signals of this process belong to whoever embeds the server.
        yield


class _Protocol(H11Protocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base does
        super().connection_made(transport)
        self._since = self.loop.time()
        peer = _peer_uid(transport)
        if peer is not None:
            # Where the address of a client stands otherwise: a unix socket has none.
            self.client = (f"{UID}{peer}", 0)
        held = [
            other for other in self.connections if isinstance(other, _Protocol) and not other.transport.is_closing()
        ]
        if len(held) > MAX_CONNECTIONS:
            idle = [other for other in held if other is not self and other.idle]
            (min(idle, key=lambda other: other._since) if idle else self).transport.abort()

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete


def _peer_uid(transport: asyncio.Transport) -> int | None:
    """The user who has connected to a unix socket; None for other sockets."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family != socket.AF_UNIX:
        return None
    try:
        _, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    except OSError:
        return None
    return int(uid)


class EmbeddedServer:
    """Serves `app` on `sock` from `start` until `stop`."""

    def __init__(self, app: ASGIApp, sock: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            loop="none",
            http=_Protocol,
            ws="none",
            # Whoever reaches the port could fill the log with what he gets wrong.
            log_level="error",
            timeout_graceful_shutdown=int(STOP_TIMEOUT),
        )
        self._server = _Server(config)
        self._socket = sock
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return once it accepts connections."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        async with asyncio.timeout(START_TIMEOUT):
            while not self._server.started:
                if self._task.done():
                    await self._task
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Finish what is being answered, within `STOP_TIMEOUT` seconds."""
        if self._task is None:
            return
        self._server.should_exit = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._task, STOP_TIMEOUT + 1)
