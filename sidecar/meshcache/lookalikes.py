"""Query parameters and cookies that an origin may take for one another, and cookies that not every origin sees.

Many origins do not mind the case of parameters and cookies, make lists of `a[]` and `a[0]` under the name `a`, or read
dots and blanks as `_`. Nor do they agree on what a `cookie` field says. Many split it at each `;`, as RFC 6265 does.
Others know quoted values, in which a `;` is nothing, or take commas or blanks for separators as well (RFC 2965 and
before it).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_plus

if TYPE_CHECKING:
    from meshcache.message import Headers

_PLAIN: Final = re.compile("[a-z0-9_-]*")
_FOLDED: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)} | {ord("."): "_", ord(" "): "_"}
_ODD: Final = re.compile('[",]|(?<![;\x00-\x20])[\x00-\x20]')
"""What some take for more than part of a value. Blanks behind a `;` say nothing."""
_BLANKS: Final = re.compile("[\x00-\x20]")
_MEMO_LONGEST: Final = 64


def parameter(name: str) -> str:
    """A form of the name of a query parameter or a cookie: the same for all that may be taken for one another."""
    if _PLAIN.fullmatch(name):
        return name
    if "%" in name or "+" in name:
        name = unquote_plus(name, "latin-1")
    name = name.partition("\0")[0].strip().translate(_FOLDED)
    # A bracket that is never closed is read as `_`, or as it is.
    return name.partition("[")[0] if "]" in name.partition("[")[2] else name.replace("[", "_")


def cookie(name: str) -> str:
    """The same form of a cookie's name: of short ones, which come again and again, it is remembered."""
    return _remembered(name) if len(name) <= _MEMO_LONGEST else parameter(name)


def hides(headers: Headers, names: tuple[str, ...]) -> bool:
    """Whether some origin may see another cookie of these names in the `cookie` fields, or none where one is."""
    if not any(map(_ODD.search, headers.get_all("cookie"))):
        return False
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


def one_value(headers: Headers, name: str) -> str:
    """The value of the cookie `name` that every origin sees; empty without one, and in doubt.

    It is in doubt where the cookie comes with several values, beside another that may be taken for it, or in a field in
    which some origins see others.
    """
    found: set[str] = set()
    meant = cookie(name)
    for other, value in headers.cookies():
        if other == name:
            found.add(value)
        elif cookie(other) == meant:
            return ""
    return found.pop() if len(found) == 1 and not hides(headers, (name,)) else ""


_remembered = lru_cache(maxsize=1024)(parameter)
