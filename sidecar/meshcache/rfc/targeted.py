"""Which field rules a response for this cache: `cache-control`, or one that is addressed to caches of its kind.

Targeted fields are those of RFC 9213 (`cdn-cache-control` and fields of its form, dictionaries of structured fields)
and `surrogate-control` of the Edge Architecture Specification 1.0 (W3C note of 2001), which has a form of its own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from meshcache.rfc.cache_control import EMPTY, CacheControl, field_names
from meshcache.rfc.fields import MAX_DELTA_SECONDS, split_list
from meshcache.rfc.structured import dictionary

if TYPE_CHECKING:
    from meshcache.message import Field, Headers

SURROGATE_CONTROL: Final = "surrogate-control"
DEVICE: Final = "meshcache"
"""This cache's name among surrogates: `surrogate-control: max-age=60;meshcache` is meant for it alone."""
CAPABILITY: Final = f'{DEVICE}="Surrogate/1.0"'
"""What it says of itself in `surrogate-capability`, so that an origin knows whom it may address."""

_LIFETIMES = {
    "max-age": "max_age",
    "s-maxage": "s_maxage",
    "stale-while-revalidate": "stale_while_revalidate",
    "stale-if-error": "stale_if_error",
}
# These bind the cache more, so whatever is not a plain false sets them; the others need a plain true.
_RESTRICTIVE = {
    "no-store": "no_store",
    "must-revalidate": "must_revalidate",
    "proxy-revalidate": "proxy_revalidate",
}
_PERMISSIVE = {"public": "public", "must-understand": "must_understand", "immutable": "immutable"}
_QUALIFIABLE = {"no-cache": ("no_cache", "no_cache_fields"), "private": ("private", "private_fields")}

_MEMO_LONGEST = 200


def capability(request_headers: Headers, targets: tuple[str, ...]) -> Field | None:
    """The `surrogate-capability` with which a request goes to the origin; None where `surrogate-control` is no target.

    It is appended to what surrogates nearer to the client have said.
    """
    if SURROGATE_CONTROL not in targets:
        return None
    before = request_headers.get("surrogate-capability")
    return ("surrogate-capability", f"{before}, {CAPABILITY}" if before else CAPABILITY)


class Directives(NamedTuple):
    """What an origin has said to this cache about one response."""

    control: CacheControl
    expires: str | None
    """The `expires` field; None when it is absent or a targeted field overrules it."""


def response_directives(headers: Headers, targets: tuple[str, ...]) -> Directives:
    """The directives that bind this cache, whose target list is `targets` (names in lower case, in order).

    The first field of the list that is there, well-formed and not empty rules alone: `cache-control` and `expires`
    are then for other caches (RFC 9213 section 2.2). One that is malformed counts as absent.
    """
    for name in targets:
        value = headers.get(name)
        if value is not None:
            parse = _surrogate if name == SURROGATE_CONTROL else _targeted
            control = (parse if len(value) <= _MEMO_LONGEST else parse.__wrapped__)(value)
            if control is not None:
                return Directives(control, None)
    return Directives(CacheControl.parse(headers.get("cache-control")), headers.get("expires"))


@lru_cache(maxsize=256)
def _targeted(value: str) -> CacheControl | None:
    """The directives of a field of RFC 9213; None when it is empty or malformed.

    A member with a value of another type than its directive has makes the whole field malformed (section 2.1):
    what remained of it could say something else than was meant.
    """
    members = dictionary(value)
    if not members:
        return None
    found: dict[str, Any] = {}
    for name, said in members.items():
        if name in _LIFETIMES:
            if isinstance(said, bool) or not isinstance(said, int) or said < 0:
                return None
            found[_LIFETIMES[name]] = min(said, MAX_DELTA_SECONDS)
        elif name in _RESTRICTIVE:
            found[_RESTRICTIVE[name]] = said is not False
        elif name in _PERMISSIVE:
            found[_PERMISSIVE[name]] = said is True
        elif name in _QUALIFIABLE and said is not False:
            flag, fields = _QUALIFIABLE[name]
            listed = field_names(said.lower()) if isinstance(said, str) else []
            found |= {fields: tuple(sorted(set(listed)))} if listed else {flag: True}
    return CacheControl(**found)


@lru_cache(maxsize=256)
def _surrogate(value: str) -> CacheControl | None:
    """The directives of `surrogate-control` that are addressed to this cache; None when none is.

    A directive with parameters is for the devices that they name, one without for all, and one for this cache
    goes before one for all. `max-age=60+30` is a lifetime of 60 seconds and a stale window of 30.
    """
    for_all: list[str] = []
    for_this: list[str] = []
    for member in split_list(value.lower()):
        # A quoted argument may hold any mark; what has one is read as meant for all.
        parts = member.split(";") if '"' not in member else [member]
        directive, *targets = (part.strip(" \t") for part in parts)
        if not targets:
            for_all += _as_cache_control(directive)
        elif DEVICE in targets:
            for_this += _as_cache_control(directive)
    named = {member.partition("=")[0] for member in for_this}
    for_this += [member for member in for_all if member.partition("=")[0] not in named]
    control = CacheControl.parse(", ".join(for_this))
    return None if control == EMPTY else control


def _as_cache_control(directive: str) -> list[str]:
    name, _, argument = directive.partition("=")
    lifetime, plus, extension = argument.partition("+")
    if name == "max-age" and plus:
        return [f"{name}={lifetime}", f"stale-while-revalidate={extension}"]
    return [directive]
