"""Choosing among stored responses by the request fields that `vary` names (RFC 9111 section 4.1, RFC 9110 12.5.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from meshcache.rfc.fields import is_token, split_commas, split_list
from meshcache.rfc.negotiation import NEGOTIATED, canonical
from meshcache.rfc.spelling import with_lookalikes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshcache.message import Headers

Selecting = tuple[tuple[str, str | None], ...]
"""Names of selecting fields with their normalised values; None for a field that the request did not have."""


def parse_vary(value: str | None) -> tuple[str, ...] | Literal["*"]:
    """The lower-case names in a `vary` field, sorted and each once; `"*"` when no request can be known to match.

    A member that is not a field name could have meant any field, and so counts as `*`.
    """
    if not value:
        return ()
    names = set(split_list(value.lower()))
    if "*" in names or not all(is_token(name) for name in names):
        return "*"
    return tuple(sorted(names))


def selecting_names(response: Headers, request: Headers) -> tuple[str, ...] | Literal["*"]:
    """The names of the request fields by which this answer to `request` was chosen, as `parse_vary` gives them.

    An answer that allows the very `origin` of its request, and no other, was made for that one, though it should have
    said so in `vary` (Fetch, section on CORS and caches): given to a page of another origin, it would be refused there.
    """
    names = parse_vary(response.get("vary"))
    allowed = response.get("access-control-allow-origin")
    if allowed is None or names == "*" or "origin" in names or allowed != request.get("origin"):
        return names
    return tuple(sorted((*names, "origin")))


def normalise(name: str, value: str) -> str:
    """A value of the selecting field `name` in the form that is compared (section 4.1).

    Blanks around its commas say nothing. In the fields of content negotiation neither does the order of the members,
    nor the case of their names. Of any other field empty members stay: where it is no list they may mean something. A
    comma in a cookie separates nothing.
    """
    if name in NEGOTIATED:
        return canonical(name, value)
    if "," not in value or name == "cookie":
        return value.strip(" \t")
    return ",".join(split_commas(value))


def selecting_values(names: Iterable[str], request_headers: Headers) -> Selecting:
    """What `request_headers` say to each of `names`. A field that is absent differs from an empty one.

    So does one beside another that the origin may have taken for it.
    """
    return tuple((name, _value(name, request_headers)) for name in names)


def _value(name: str, headers: Headers) -> str | None:
    value = headers.get(name)
    return with_lookalikes(None if value is None else normalise(name, value), name, headers)
