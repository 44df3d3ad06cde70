"""Who a caller is to an experiment that knows several kinds of units: one and the same, whatever he shows.

A caller may be first seen with a cookie and log in later, or the other way round. He keeps the unit with which he was
first seen, so that nobody changes arm at a login. To that end each unit that was seen is remembered with the unit in
whose place it is used; both as digests, from which nobody can tell who that is.

A weaker unit is given to one stronger one only: who logs in first on a device keeps its unit, and who logs in there
later is somebody else. So a value that many share, such as a cookie that says nothing, never makes them one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Links(Protocol):
    """What is remembered of units, by their digests (16 bytes). It may be forgotten at any time; nothing here waits."""

    def find(self, unit: bytes) -> tuple[bytes, bool] | None:
        """The unit in whose place `unit` is used (itself, for most), and whether a stronger one uses it, too."""
        ...

    def put(self, unit: bytes, used: bytes, *, taken: bool) -> None:
        """Remember both, in the place of what was remembered of `unit`."""
        ...


def unit_in_use(units: Sequence[bytes], links: Links) -> bytes:
    """The unit of a caller who shows these `units`, the strongest first; what is new in them is remembered."""
    known = [links.find(unit) for unit in units]
    used = None
    for place, link in enumerate(known):
        if link is None:
            continue
        found, taken = link
        if place == 0:
            used = found
        elif not taken:
            # He was seen without the stronger one before, and keeps what he had.
            used = found
            links.put(units[place], found, taken=True)
        else:
            continue
        break
    if used is None:
        used = units[0]
    for place, (unit, link) in enumerate(zip(units, known, strict=True)):
        if link is None:
            links.put(unit, used, taken=place > 0)
    return used
