"""An HTTP server on a unix socket that comes back when the name of the socket has gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from meshcache.admin.server import EmbeddedServer
from meshcache.process import StartError, bind_unix, is_gone, make_folder

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from starlette.types import ASGIApp
    from structlog.typing import FilteringBoundLogger

INTERVAL: Final = 1.0
"""Seconds between two looks at the name."""


class KeptServer:
    """Serves `app` on the unix socket `path` from `start` until `stop`."""

    def __init__(self, app: ASGIApp, path: Path, mode: int, log: FilteringBoundLogger) -> None:
        """Binds the socket. Raises `StartError`."""
        self._app = app
        self._path = path
        self._mode = mode
        self._log = log
        self._keeping: asyncio.Task[None] | None = None
        self._socket, self._server = self._bind()

    async def start(self) -> None:
        """Return once it accepts connections."""
        await self._server.start()
        self._keeping = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """Finish what is being answered, within `STOP_TIMEOUT` seconds, and remove the socket."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await _end(self._server, self._socket)
        self._path.unlink(missing_ok=True)

    def _bind(self) -> tuple[socket.socket, EmbeddedServer]:
        bound = bind_unix(self._path, self._mode)
        return bound, EmbeddedServer(self._app, bound)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            if not is_gone(self._path):
                continue
            try:
                make_folder(self._path.parent, "socket")
                await self._renew()
            except (StartError, OSError, TimeoutError) as error:
                self._log.error(
                    "a socket that has gone cannot be made anew; it is tried again", error=str(error) or "not in time"
                )

    async def _renew(self) -> None:
        """Have another server on another socket. When it cannot be started, nothing is left of it."""
        bound, server = self._bind()
        try:
            await server.start()
        except BaseException:
            self._path.unlink(missing_ok=True)
            await _end(server, bound)
            raise
        before = self._server, self._socket
        self._socket, self._server = bound, server
        self._log.warning("a socket had gone; it is there again", socket=str(self._path))
        await _end(*before)


async def _end(server: EmbeddedServer, bound: socket.socket) -> None:
    await server.stop()
    bound.close()
