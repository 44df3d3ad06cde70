"""Names of fields that an origin may take for one another.

Many origins get fields as variables, in whose names `-` and `_` are one (RFC 3875 section 4.1.18): to them a field
`x_forwarded_host` is `x-forwarded-host`, or goes before it. To all others it is a name of its own. So it is minded as
if it were the one that it looks like, and never taken for it.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from meshcache.message import Headers


def meant(name: str) -> str:
    """The name of a field that the field `name` may be taken for."""
    return name.replace("_", "-")


def spellings(names: Iterable[str]) -> frozenset[str]:
    """These names (a few, of few parts) and all that may be taken for one of them."""
    found: set[str] = set()
    for name in names:
        first, *others = name.split("-")
        marks = product("-_", repeat=len(others))
        found.update(first + "".join(map("".join, zip(mark, others, strict=True))) for mark in marks)
    return frozenset(found)


def among(names: Set[str], minded: Set[str]) -> set[str]:
    """Those of `names` that are in `minded`, or may be taken for what is."""
    return {name for name in names if name in minded or ("_" in name and meant(name) in minded)}


def lookalikes(name: str, headers: Headers) -> str:
    """What `headers` say in fields that may be taken for `name`; empty where there are none, as a rule."""
    if "-" not in name:
        return ""
    others = [other for other in headers.names if "_" in other and meant(other) == name]
    # No value has such a byte.
    return "".join([f"\0{other}\0{headers.get(other)}" for other in sorted(others)]) if others else ""


def with_lookalikes(said: str | None, name: str, headers: Headers) -> str | None:
    """`said`, which is what `headers` say to `name`, kept apart by what its `lookalikes` say, if there are any."""
    others = lookalikes(name, headers)
    return f"{'-' if said is None else '+' + said}{others}" if others else said
