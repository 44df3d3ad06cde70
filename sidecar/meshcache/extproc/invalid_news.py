"""What a worker has to tell of resources that have become invalid: gathered, so that many are one message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from meshcache.extproc.control import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST: Final = 1024
"""Resources of one message: of more it is only said that they are many."""


class InvalidNews:
    """Belongs to one event loop. `add` waits for nobody."""

    def __init__(self) -> None:
        self._resources: set[bytes] = set()
        self._everything = False
        self._some = asyncio.Event()

    def add(self, resources: Iterable[bytes]) -> None:
        """These have become invalid."""
        if not self._everything:
            self._resources.update(resources)
            if len(self._resources) > MOST:
                self._resources.clear()
                self._everything = True
        self._some.set()

    async def take(self) -> Invalid:
        """What has come since the last call, as soon as there is something."""
        await self._some.wait()
        self._some.clear()
        invalid = Invalid(tuple(sorted(self._resources)), self._everything)
        self._resources.clear()
        self._everything = False
        return invalid
