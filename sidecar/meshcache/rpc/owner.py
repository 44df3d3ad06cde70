"""What a connection asks of the server that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from meshcache.rpc.connection import Connection, Handler


class Owner(Protocol):
    """Whose connection it is."""

    @property
    def methods(self) -> Mapping[str, Handler]:
        """What is served, by its full path."""
        ...

    def opened(self, connection: Connection) -> None:
        """It begins."""
        ...

    def lost(self, connection: Connection) -> None:
        """It is no more."""
        ...

    def leaving(self, task: asyncio.Task[None]) -> None:
        """It was cancelled, and has yet to end."""
        ...

    def failed(self, error: BaseException) -> None:
        """A handler has let an error out that is not a `CallError`."""
        ...
