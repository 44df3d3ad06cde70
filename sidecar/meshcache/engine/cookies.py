"""Cookies as they enter the cache key.

Origins do not agree on what a `cookie` field says. Many split it at each `;`, as RFC 6265 does. Others know quoted
values, in which a `;` is nothing, or take commas or blanks for separators as well (RFC 2965 and before it).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from meshcache.engine.material import join
from meshcache.rfc.spelling import parameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshcache.message import Headers

_ODD: Final = re.compile('[\x00-\x20",]')
"""What some take for more than part of a value."""
_BLANKS: Final = re.compile("[\x00-\x20]")


def said_by_cookies(headers: Headers, names: tuple[str, ...]) -> list[bytes]:
    """What the cookies of these names (one at least) say, and those that an origin may take for one of them.

    Where it is not certain which cookies there are, all that the field says is in it.
    """
    jar: dict[str, list[bytes]] = {}
    others: dict[str, list[bytes]] = {}
    odd: list[str] = []
    for name, value in headers.cookies():
        text = value
        if name in names:
            jar.setdefault(name, []).append(value.encode("latin-1", "replace"))
        else:
            text = f"{name}={value}"
            others.setdefault(parameter(name), []).extend(said.encode("latin-1", "replace") for said in (name, value))
        if _ODD.search(text):
            odd.append(text)
    made = [join(jar.get(name, ())) for name in names]
    if others:
        for place, name in enumerate(names):
            alike = others.get(parameter(name))
            if alike:
                # What is joined begins with a digit, if it is not empty.
                made[place] += b"\0" + join(alike)
    if odd and _hides(odd, names):
        made[-1] += b"\1" + join(line.encode("latin-1", "replace") for line in headers.get_all("cookie"))
    return made


def _hides(odd: Sequence[str], names: tuple[str, ...]) -> bool:
    """Whether some origin may see another cookie of these names in there, or none where one is."""
    for text in odd:
        if '"' in text and ("\\" in text or text.count('"') % 2):
            return True
        plain = _BLANKS.sub("", text).lower()
        if any(f"{name.lower()}{mark}" in plain for name in names for mark in "=["):
            return True
    return False
