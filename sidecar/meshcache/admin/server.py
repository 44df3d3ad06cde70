"""HTTP servers inside a running event loop, on sockets that are bound beforehand."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import uvicorn

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from starlette.types import ASGIApp

START_TIMEOUT: Final = 10.0
STOP_TIMEOUT: Final = 2.0
MAX_CONNECTIONS: Final = 128


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The signals of this process belong to whoever embeds the server.
        yield


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
            limit_concurrency=MAX_CONNECTIONS,
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
