"""How a pod hears what others that share its store have invalidated, for what its workers hold in memory.

An unsafe request changes an epoch in the store, which every read from there goes by; a copy in a worker's memory, or in
the cold folder, is not looked up there. So each pod tells the others, and each puts what it hears on its own board.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final

from meshcache.process import raise_if_cancelled
from meshcache.tiers.base import TierError
from meshcache.tiers.redis import EVERYTHING, INVALIDATED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from meshcache.tiers.board import Board

_RESOURCE_BYTES: Final = 16
_AT_ONCE: Final = 500
_BLOCK_MS: Final = 500
_LONGEST_PAUSE: Final = 2.0


class InvalidationFollower:
    """`run` in a task. Belongs to the supervisor's event loop."""

    def __init__(
        self,
        send: Callable[[Sequence[tuple[Any, ...]]], Awaitable[list[Any]]],
        board: Board,
        pod: str,
        heard: Callable[[Sequence[bytes] | None], None] = lambda _resources: None,
    ) -> None:
        """`send` is `RedisTier.send`; what `pod` itself has told is on its board already.

        `heard` is told of resource ids that have been put on the board; None: of all.
        """
        self._heard = heard
        self._send = send
        self._board = board
        self._pod = pod.encode()
        self._last = b""
        """Id of the newest message; empty before the first look."""
        self._missed = False
        """Whether there has been no stream to read from: what the others would have told is not known."""

    async def run(self) -> None:
        """Follow until cancelled. Troubles of the store are waited out: what is missed meanwhile is read then."""
        pause = 0.1
        while True:
            try:
                await self._resume()
                pause = 0.1
                while True:
                    await self._read()
                    raise_if_cancelled()
            except TierError:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  spreads load, hides nothing
                pause = min(_LONGEST_PAUSE, pause * 2)

    async def _resume(self) -> None:
        """Find where to go on; when what came in between is not kept any more, everything counts as invalidated."""
        oldest, newest = await self._ask(
            ("XRANGE", INVALIDATED, "-", "+", "COUNT", 1), ("XREVRANGE", INVALIDATED, "+", "-", "COUNT", 1)
        )
        if not self._last:
            # What there is in memory now has been read from the store under its epochs of now, or is younger.
            self._last = newest[0][0] if newest else b"0-0"
        if self._missed:
            self._missed = False
            self._bump_all()
        elif oldest and _place(oldest[0][0]) > _place(self._last) > (0, 0):
            self._bump_all()

    async def _read(self) -> None:
        command = ("XREAD", "COUNT", _AT_ONCE, "BLOCK", _BLOCK_MS, "STREAMS", INVALIDATED, self._last)
        (reply,) = await self._ask(command)
        for message, fields in reply[0][1] if reply else ():
            self._last = message
            if fields.get(b"p") != self._pod:
                self._put_on_board(fields.get(b"r", b""))

    async def _ask(self, *commands: tuple[Any, ...]) -> list[Any]:
        """The replies. Raises `TierError` also where something else than a stream has its name."""
        replies = await self._send(commands)
        for reply in replies:
            if isinstance(reply, Exception):
                self._missed = True
                raise TierError(f"what is invalidated: {reply}")
        return replies

    def _put_on_board(self, resources: bytes) -> None:
        if resources == EVERYTHING:
            self._bump_all()
            return
        starts = range(0, len(resources) - _RESOURCE_BYTES + 1, _RESOURCE_BYTES)
        ids = [resources[at : at + _RESOURCE_BYTES] for at in starts]
        for resource in ids:
            self._board.bump(resource, told=True)
        self._heard(ids)

    def _bump_all(self) -> None:
        self._board.bump_all()
        self._heard(None)


def _place(message: bytes) -> tuple[int, int]:
    """The order of messages."""
    milliseconds, _, number = message.partition(b"-")
    return int(milliseconds), int(number)
