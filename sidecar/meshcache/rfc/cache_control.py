"""The `cache-control` field of requests and responses, parsed once (RFC 9111 section 5.2, RFC 5861).

Of several lifetimes the first counts, and one that is not a number is 0 (RFC 9111 section 4.2.1). Where a value
contradicts itself otherwise, the reading that caches less wins: the unqualified form of `no-cache` and `private` goes
before the qualified one.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from meshcache.rfc.fields import delta_seconds, is_token, split_list, unquote

if TYPE_CHECKING:
    from meshcache.message import Headers

# These bind the cache more, so they count with whatever argument they come.
_RESTRICTIVE = {
    "no-store": "no_store",
    "must-revalidate": "must_revalidate",
    "proxy-revalidate": "proxy_revalidate",
}
# These free the cache, so they count only in the form that the RFCs define: without an argument.
_PERMISSIVE = {
    "public": "public",
    "must-understand": "must_understand",
    "immutable": "immutable",
    "only-if-cached": "only_if_cached",
}
# Of several values the first is taken; one that is not a number is 0.
_LIFETIMES = {
    "max-age": "max_age",
    "s-maxage": "s_maxage",
    "stale-while-revalidate": "stale_while_revalidate",
    "stale-if-error": "stale_if_error",
}
_QUALIFIABLE = {"no-cache": ("no_cache", "no_cache_fields"), "private": ("private", "private_fields")}

# A directive as the grammar has it, or nearly: blanks beside its `=` do no harm. A single quote may stand in a token,
# but in no directive that there is.
_DIRECTIVE = re.compile(r'[!#$%&*+\-.^_`|~0-9a-z]+[ \t]*(?:=[ \t]*(?:[^\x00-\x20;"]*|"(?:[^"\\]|\\.)*"))?', re.DOTALL)
_WORD = re.compile(r"[a-z-]+")

# Fields that a stored response cannot be judged or read without. A qualified directive that names one of them
# cannot be met by leaving the field out, and so is taken as unqualified.
_INDISPENSABLE = frozenset(
    {"cache-control", "content-encoding", "content-length", "content-type", "date", "expires", "location", "vary"}
)

# Longer values are parsed anew each time, so that a hostile sender cannot fill the memo with large strings.
_MEMO_LONGEST = 200


class CacheControl(msgspec.Struct, frozen=True, gc=False):
    """The directives of one message. Times are seconds; None says that the directive is absent."""

    max_age: int | None = None
    s_maxage: int | None = None
    invalid_lifetime: bool = False
    """Whether a `max-age` or `s-maxage` was there that is not a number, and so counts as 0."""
    stale_while_revalidate: int | None = None
    stale_if_error: int | None = None
    no_cache: bool = False
    """Unqualified `no-cache`: nothing may be used without validation."""
    no_cache_fields: tuple[str, ...] = ()
    """The fields, in lower case and sorted, that may not be used without validation; empty when `no_cache` is set."""
    no_store: bool = False
    private: bool = False
    """Unqualified `private`."""
    private_fields: tuple[str, ...] = ()
    """The fields, in lower case and sorted, that are for one user only; empty when `private` is set."""
    must_revalidate: bool = False
    proxy_revalidate: bool = False
    must_understand: bool = False
    public: bool = False
    immutable: bool = False
    """The response does not change while it is fresh (RFC 8246)."""
    only_if_cached: bool = False
    """The client wants nothing that would have to be fetched."""
    max_stale: float | None = None
    """How stale an answer the client takes; infinite for `max-stale` without an argument."""
    min_fresh: int | None = None

    @classmethod
    def parse(cls, value: str | None) -> CacheControl:
        """Parse a field value (lines joined by commas); None is the absence of the field. Raises nothing.

        Unknown and malformed members are passed over without harm to the others. Results are shared: equal values
        may give the same object.
        """
        if value is None:
            return EMPTY
        if len(value) > _MEMO_LONGEST:
            return _parse(value)
        return _memo(value)


EMPTY: Final = CacheControl()
"""What a message without the field says."""


def request_cache_control(headers: Headers) -> CacheControl:
    """The directives of a request. `pragma` says nothing: RFC 9111 section 5.4 deprecates it."""
    value = headers.get("cache-control")
    return EMPTY if value is None else CacheControl.parse(value)


def _parse(value: str) -> CacheControl:
    found: dict[str, Any] = {}
    for member in split_list(value.lower()):
        if _DIRECTIVE.fullmatch(member) is None:
            _read_loosely(member, found)
        name, equals, argument = member.partition("=")
        if equals:
            # The grammar allows no blanks beside `=`. The directive is still recognised, so that a sloppy
            # restriction holds, but its argument is then not valid.
            name = name.rstrip(" \t")
        if name in _RESTRICTIVE:
            found[_RESTRICTIVE[name]] = True
        elif name in _LIFETIMES:
            attribute = _LIFETIMES[name]
            if attribute in found:
                continue
            seconds = _seconds(member, name, argument)
            if seconds is None and name in ("max-age", "s-maxage"):
                found["invalid_lifetime"] = True
            found[attribute] = seconds or 0
        elif name in _PERMISSIVE:
            if not equals:
                found[_PERMISSIVE[name]] = True
        elif name in _QUALIFIABLE:
            flag, fields = _QUALIFIABLE[name]
            listed = field_names(argument)
            if listed:
                found[fields] = tuple(sorted({*found.get(fields, ()), *listed}))
            else:
                found[flag] = True
        elif name == "min-fresh":
            seconds = _seconds(member, name, argument)
            if seconds is not None:
                found["min_fresh"] = max(seconds, found.get("min_fresh", seconds))
        elif name == "max-stale":
            limit = _seconds(member, name, argument) if equals else math.inf
            if limit is not None:
                found["max_stale"] = min(limit, found.get("max_stale", limit))
    for flag, fields in _QUALIFIABLE.values():
        if flag in found:
            found.pop(fields, None)
    return CacheControl(**found) if found else EMPTY


_memo = lru_cache(maxsize=1024)(_parse)


def _read_loosely(member: str, found: dict[str, Any]) -> None:
    """What `member`, which is no directive, binds all the same: `no-store; max-age=60`, `private no-cache`.

    Where something else than commas is between directives, nobody knows what was meant by the numbers, which so are 0,
    and what would free the cache counts for nothing. That it was to be bound is plain.
    """
    for word in _WORD.findall(member):
        if word in _RESTRICTIVE:
            found[_RESTRICTIVE[word]] = True
        elif word in _QUALIFIABLE:
            found[_QUALIFIABLE[word][0]] = True
        elif word in _LIFETIMES and _LIFETIMES[word] not in found:
            found[_LIFETIMES[word]] = 0
            found["invalid_lifetime"] = found.get("invalid_lifetime", False) or word in ("max-age", "s-maxage")


def _seconds(member: str, name: str, argument: str) -> int | None:
    """The number that `name=argument` or `name="argument"` gives (either form: section 5.2), or None."""
    if len(member) != len(name) + 1 + len(argument):  # blanks before the `=`
        return None
    seconds = delta_seconds(argument)
    if seconds is None and argument.startswith('"'):
        inner = unquote(argument)
        return None if inner is None else delta_seconds(inner)
    return seconds


def field_names(argument: str) -> list[str]:
    """The field names in the argument of a qualified directive; empty when it must be read as unqualified."""
    inner = unquote(argument) if argument.startswith('"') else argument
    if not inner:
        return []
    names = split_list(inner)
    return names if all(is_token(name) and name not in _INDISPENSABLE for name in names) else []
