"""The pod's memory of units, kept up to date with what other pods remember; see `tiers/link_exchange.py`."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import TYPE_CHECKING, Final

from meshcache.extproc.locations import pod_id
from meshcache.process import raise_if_cancelled
from meshcache.tiers.base import TierError
from meshcache.tiers.link_exchange import STREAM, unpacked
from meshcache.tiers.link_table import FILE_NAME, LinkTable
from meshcache.tiers.redis import RedisTier

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshcache.extproc.control import WorkerOptions
    from meshcache.tiers.link_exchange import Send

_READ: Final = 16
"""Messages at once."""
_BLOCK_MS: Final = 500
_IDLE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0


class LinkFollower:
    """Puts into a pod's table what other pods tell. Belongs to the supervisor's event loop."""

    def __init__(self, send: Send, pod: str, table: LinkTable, wanted: Callable[[], bool]) -> None:
        """`wanted` says whether any experiment in force has several kinds of units; else nothing is asked."""
        self._send = send
        self._pod = pod.encode()
        self._table = table
        self._wanted = wanted
        self._last: bytes | str = "0-0"

    async def run(self) -> None:
        """Follow until cancelled. Troubles of the store are waited out."""
        pause = 0.1
        while True:
            raise_if_cancelled()
            if not self._wanted():
                await asyncio.sleep(_IDLE)
                continue
            try:
                await asyncio.to_thread(self._table.open)
                await self._read()
                pause = 0.1
            except (TierError, OSError):
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  spreads load, hides nothing
                pause = min(_LONGEST_PAUSE, pause * 2)

    async def _read(self) -> None:
        command = ("XREAD", "COUNT", _READ, "BLOCK", _BLOCK_MS, "STREAMS", STREAM, self._last)
        (reply,) = await self._send([command])
        if isinstance(reply, Exception):
            raise TierError(f"links of units: {reply}")
        for message, fields in reply[0][1] if reply else ():
            self._last = message
            if isinstance(fields, dict) and fields.get(b"p") != self._pod:
                for link in unpacked(fields.get(b"l", b"")):
                    self._table.merge(link)
            await asyncio.sleep(0)


class SharedLinks:
    """For the supervisor. Where pods share no store, nothing is done."""

    def __init__(self, options: WorkerOptions, wanted: Callable[[], bool]) -> None:
        """`wanted` says whether any experiment in force has several kinds of units."""
        data = Path(options.data_dir)
        self._store = RedisTier(options.warm_url) if options.warm_url else None
        self._task: asyncio.Task[None] | None = None
        self._follower = None
        if self._store is not None:
            self._follower = LinkFollower(self._store.send, pod_id(data), LinkTable(data / FILE_NAME), wanted)

    def start(self) -> None:
        """Begin to follow."""
        if self._follower is not None:
            self._task = asyncio.create_task(self._follower.run())

    async def stop(self) -> None:
        """Follow nobody any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._store is not None:
            await self._store.close()
