"""Cookies as they enter the cache key.

Origins do not agree on what a `cookie` field says. Many split it at each `;`, as RFC 6265 does. Others know quoted
values, in which a `;` is nothing, or take commas or blanks for separators as well (RFC 2965 and before it).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from meshcache.engine.material import join
from meshcache.rfc.spelling import parameter

if TYPE_CHECKING:
    from meshcache.message import Headers

_ODD: Final = re.compile('[",]|(?<![;\x00-\x20])[\x00-\x20]')
"""What some take for more than part of a value. Blanks behind a `;` say nothing."""
_BLANKS: Final = re.compile("[\x00-\x20]")
_MEMO_LONGEST = 64


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
        meant = _remembered(name) if len(name) <= _MEMO_LONGEST else parameter(name)
        if meant in wanted:
            alike.setdefault(meant, []).extend(said.encode("latin-1", "replace") for said in (name, value))
    made = [join(jar.get(name, ())) for name in names]
    for meant, said in alike.items():
        # What is joined begins with a digit, if it is not empty.
        made[wanted[meant]] += b"\0" + join(said)
    lines = headers.get_all("cookie")
    if any(map(_ODD.search, lines)) and _hides(headers, names):
        made[-1] += b"\1" + join(line.encode("latin-1", "replace") for line in lines)
    return made


def _hides(headers: Headers, names: tuple[str, ...]) -> bool:
    """Whether some origin may see another cookie of these names in there, or none where one is."""
    for name, value in headers.cookies():
        text = value if name in names else f"{name}={value}"
        if not _ODD.search(text):
            continue
        if '"' in text and ("\\" in text or text.count('"') % 2):
            return True
        plain = _BLANKS.sub("", text).lower()
        if any(f"{keyed.lower()}{mark}" in plain for keyed in names for mark in "=["):
            return True
    return False


@lru_cache(maxsize=256)
def _wanted(names: tuple[str, ...]) -> dict[str, int]:
    """What these may be taken for, and the place of each."""
    return {parameter(name): place for place, name in enumerate(names)}


_remembered = lru_cache(maxsize=1024)(parameter)
