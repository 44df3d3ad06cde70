"""Cookies as they enter the cache key."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from meshcache.engine.material import join
from meshcache.lookalikes import cookie, hides, parameter

if TYPE_CHECKING:
    from meshcache.message import Headers


def said_by_cookies(headers: Headers, names: tuple[str, ...]) -> list[bytes]:
    """What the cookies of these names (one at least) say, and those that an origin may take for one of them.

    Where it is not certain which cookies there are, all that the field says is in it.
    """
    wanted = _wanted(names)
    jar: dict[str, list[bytes]] = {}
    alike: dict[str, list[bytes]] = {}
    for name, value in headers.cookies():
        if name in names:
            jar.setdefault(name, []).append(value.encode("latin-1", "replace"))
            continue
        meant = cookie(name)
        if meant in wanted:
            alike.setdefault(meant, []).extend(said.encode("latin-1", "replace") for said in (name, value))
    made = [join(jar.get(name, ())) for name in names]
    for meant, said in alike.items():
        # What is joined begins with a digit, if it is not empty.
        made[wanted[meant]] += b"\0" + join(said)
    if hides(headers, names):
        made[-1] += b"\1" + join(line.encode("latin-1", "replace") for line in headers.get_all("cookie"))
    return made


@lru_cache(maxsize=256)
def _wanted(names: tuple[str, ...]) -> dict[str, int]:
    """What these may be taken for, and the place of each."""
    return {parameter(name): place for place, name in enumerate(names)}
