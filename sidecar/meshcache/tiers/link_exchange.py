"""How the pods that share a store tell each other what they remember of units (`tiers/link_table.py`).

A stream, `mc1:x:links`, whose messages hold which pod tells (`p`) and entries one behind the other (`l`): the unit, the
unit in whose place it is used, when that was made, and whether a stronger unit uses it. It is told a moment after the
request, and heard by the supervisor (`extproc/links.py`): no request waits for it, and what cannot be told is left
out. The stream keeps the newest, so that a pod that has just started knows the callers of the last minutes.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any, Final

from meshcache.tiers.base import TierError
from meshcache.tiers.link_table import Link
from meshcache.tiers.redis_words import PREFIX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    Send = Callable[[Sequence[tuple[Any, ...]]], Awaitable[list[Any]]]

STREAM: Final = f"{PREFIX}x:links"
_KEPT: Final = 2048
"""Messages."""
_LASTS: Final = 7 * 86400
"""Seconds for which the stream outlives the last experiment that needs it."""
_ENTRY: Final = struct.Struct(">16s16sIB")
_PER_MESSAGE: Final = 256
_AT_ONCE: Final = 1024
"""Entries that wait to be told; more are left out."""
_GATHER: Final = 0.1
"""Seconds for which what is new is gathered."""


class LinkTeller:
    """Tells the other pods what a worker has put into the table. Belongs to the worker's event loop."""

    def __init__(self, send: Send, pod: str, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        """`send` is `RedisTier.send`; `pod` names this one among those that share the store."""
        self._send = send
        self._pod = pod
        self._spawn = spawn
        self._new: list[Link] = []
        self._telling = False

    def add(self, link: Link) -> None:
        """Have `link` told soon."""
        if len(self._new) < _AT_ONCE:
            self._new.append(link)
        if not self._telling:
            self._telling = True
            self._spawn(self._tell())

    async def _tell(self) -> None:
        try:
            await asyncio.sleep(_GATHER)
            links, self._new = self._new, []
            commands: list[tuple[Any, ...]] = [
                ("XADD", STREAM, "MAXLEN", "~", _KEPT, "*", "p", self._pod, "l", packed(links[at : at + _PER_MESSAGE]))
                for at in range(0, len(links), _PER_MESSAGE)
            ]
            await self._send([*commands, ("EXPIRE", STREAM, _LASTS)])
        except TierError:
            # The store is away, which others tell of. The callers of this moment may change arm once.
            pass
        finally:
            self._telling = False


def packed(links: Sequence[Link]) -> bytes:
    """Links as they stand in a message."""
    return b"".join(_ENTRY.pack(link.unit, link.used, link.made, link.taken) for link in links)


def unpacked(entries: bytes) -> list[Link]:
    """The links in a message; what is cut off or more than a message holds is left out."""
    whole = min(len(entries), _PER_MESSAGE * _ENTRY.size) // _ENTRY.size * _ENTRY.size
    return [Link(unit, used, bool(taken), made) for unit, used, made, taken in _ENTRY.iter_unpack(entries[:whole])]
