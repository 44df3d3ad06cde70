"""Serves methods on a unix socket until it is told to stop, and lets what has begun finish."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from meshcache.process import bind_unix
from meshcache.rpc.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from meshcache.rpc.connection import Handler

BACKLOG: Final = 1024
"""Connections that may wait to be taken."""
_FAREWELL: Final = 1.0
"""Seconds within which a client is to have seen that no streams are taken any more, or to have gone."""


class Server:
    """A gRPC server.

    `methods` are coroutines by full path ("/package.Service/Method"), called once for each stream; `on_error` is told
    of what they let out, other than `CallError`.
    """

    def __init__(self, methods: Mapping[str, Handler], on_error: Callable[[BaseException], None]) -> None:
        self.methods = methods
        self.failed = on_error
        self._connections: set[Connection] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Server | None = None
        self._stopping = False

    async def listen(self, path: Path, mode: int) -> None:
        """Take connections on the unix socket `path`, whose file gets exactly `mode`. Raises `StartError`."""
        loop = asyncio.get_running_loop()
        bound = bind_unix(path, mode)
        self._listening = await loop.create_unix_server(lambda: Connection(self), sock=bound, backlog=BACKLOG)

    async def stop(self, grace: float) -> None:
        """Take nothing new; return when all streams have ended, at the latest after `grace` seconds.

        Those that have not are cut off then.
        """
        self._stopping = True
        if self._listening is not None:
            self._listening.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        patience = min(grace, _FAREWELL)
        await asyncio.gather(*(connection.go_away(patience) for connection in self._connections))
        tasks = {task for connection in self._connections for task in connection.tasks()} | self._leaving
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=max(0.0, deadline - loop.time()))
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=_FAREWELL)
        for connection in tuple(self._connections):
            connection.end_answered()
        if gone := [connection.gone for connection in self._connections]:
            # What a client writes to a socket that has been closed may cost it the answers that it has yet to read.
            await asyncio.wait(gone, timeout=min(_FAREWELL, max(0.0, deadline - loop.time())))
        for connection in tuple(self._connections):
            connection.close()

    def opened(self, connection: Connection) -> None:
        """A connection begins."""
        self._connections.add(connection)
        if self._stopping:
            # It was taken just before, and nobody has told it.
            connection.close()

    def lost(self, connection: Connection) -> None:
        """It is no more."""
        self._connections.discard(connection)

    def leaving(self, task: asyncio.Task[None]) -> None:
        """It was cancelled, and has yet to end: what it does until then is part of its stream."""
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
