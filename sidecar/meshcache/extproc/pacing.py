"""How far a body may be slowed down so that the stores can follow it: a little, so that slow stores cost hits only."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from meshcache.engine.ports import Spool

HEAD_START: Final = 0.5
"""Seconds that one body may lose to stores that pause."""
LEAST_PACE: Final = 25 << 20
"""Bytes a second to which stores may slow a body down: those that take less are left without it."""


class Pace:
    """What one body may still lose, in seconds: `HEAD_START`, and what its bytes take at `LEAST_PACE`.

    Without it a body that comes faster than a disk takes it (from an origin on the same machine) would never be stored.
    """

    __slots__ = ("_longest", "_slack")

    def __init__(self, longest: float) -> None:
        """`longest` is how many seconds one chunk may wait, whatever has been saved up."""
        self._longest = longest
        self._slack = HEAD_START

    async def keep(self, behind: Spool, size: int) -> None:
        """Wait, after `size` bytes were taken, until the stores have room, or the body would lose too much."""
        self._slack += size / LEAST_PACE
        if self._slack <= 0.0:
            return
        clock = asyncio.get_running_loop().time
        began = clock()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(self._slack, self._longest)):
                await behind.has_room()
        self._slack -= clock() - began
