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
        self._bind()

    async def start(self) -> None:
        """Return once it accepts connections."""
        await self._server.start()
        self._keeping = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """Finish what is being answered, within `STOP_TIMEOUT` seconds, and remove the socket."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await self._end(self._server, self._socket)
        self._path.unlink(missing_ok=True)

    def _bind(self) -> None:
        self._socket = bind_unix(self._path, self._mode)
        self._server = EmbeddedServer(self._app, self._socket)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            if not is_gone(self._path):
                continue
            before = self._server, self._socket
            try:
                make_folder(self._path.parent, "socket")
                self._bind()
                await self._server.start()
            except (StartError, OSError, TimeoutError) as error:
                self._log.error("a socket that has gone cannot be made anew; it is tried again", error=str(error))
                continue
            self._log.warning("a socket had gone; it is there again", socket=str(self._path))
            await self._end(*before)

    async def _end(self, server: EmbeddedServer, sock: socket.socket) -> None:
        await server.stop()
        sock.close()
