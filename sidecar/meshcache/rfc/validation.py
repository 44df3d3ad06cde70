"""Validation of stored responses, and of clients' copies by them (RFC 9111 section 4.3, RFC 9110 section 13).

Stored fields come as in `StoredResponse.fields`: pairs of lower-case name and value. `now` and `response_time` are Unix
seconds; they give the century to dates with two-digit years.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.message import Headers
from meshcache.rfc.cache_control import EMPTY
from meshcache.rfc.entity_tag import parse_entity_tag, parse_entity_tags, strong_match, weak_match
from meshcache.rfc.fields import http_date
from meshcache.rfc.storing import storable_fields
from meshcache.rfc.targeted import response_directives
from meshcache.rfc.validators import can_be_validated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from meshcache.message import Field

CONDITIONS = frozenset({"if-modified-since", "if-none-match"})
"""By these a client is content with less than the whole answer, where it holds that already (RFC 9110 section 13.1)."""

_DIGESTS = frozenset({"content-digest", "content-md5", "digest", "repr-digest"})
"""They say which octets a response has, or would have."""

# They describe the octets that are stored, or name them, and a 304 does not bring these anew (RFC 9111 section 3.2).
_NOT_UPDATED = _DIGESTS | {"content-encoding", "content-length", "content-range", "etag"}
_DESCRIBING = ("content-language", "content-location", "content-type")
"""Representation metadata that hardly changes unless the representation does (RFC 9110 sections 8.3 to 8.7)."""

# Representation metadata, which a 304 need not repeat (RFC 9110 section 15.4.5).
_NOT_IN_304 = (_NOT_UPDATED - {"etag"}) | {"content-language", "content-type"}


def add_validators(
    request_headers: Headers, status: int, stored_fields: Iterable[Field], *, now: float
) -> Mapping[str, str | None]:
    """The request fields to set (value) or remove (None) so that the origin validates a stored response of `status`.

    Both validators go when both are stored (RFC 9111 section 4.3.1). The client's own `if-none-match` and
    `if-modified-since` give way, so that a 304 speaks of the stored response and of no other; they are judged by
    `not_modified` afterwards. Empty when nothing stored can be validated by: the request then stays as it is.
    """
    stored = Headers(stored_fields)
    if not can_be_validated(status, stored):
        return {}
    etag = stored.get("etag")
    last_modified = stored.get("last-modified")
    changes: dict[str, str | None] = {}
    if etag is not None and parse_entity_tag(etag) is not None:
        changes["if-none-match"] = etag
    if last_modified is not None and http_date(last_modified, now) is not None:
        changes["if-modified-since"] = last_modified
    if changes:
        for name in ("if-none-match", "if-modified-since"):
            if name not in changes and name in request_headers:
                changes[name] = None
    return changes


def validates(stored_fields: Iterable[Field], not_modified_headers: Headers, *, now: float) -> bool:
    """Whether a 304 to a request made by `add_validators` speaks of this stored response (RFC 9111 section 4.3.4).

    A strong entity tag must equal the stored one, both being strong; a weak one must equal it; else the dates of
    last modification must agree. A 304 without any validator can only mean the one that was sent. So can one to a
    request whose only condition was the stored tag: that this tag is current is what it says, whatever it names.
    """
    stored = Headers(stored_fields)
    etag = parse_entity_tag(not_modified_headers.get("etag"))
    if etag is not None:
        stored_etag = parse_entity_tag(stored.get("etag"))
        if stored_etag is None:
            return False
        if weak_match(etag, stored_etag):
            return etag.weak or strong_match(etag, stored_etag)
        return not _was_dated(stored, now)
    last_modified = not_modified_headers.get("last-modified")
    if last_modified is None:
        return True
    return _same_date(last_modified, stored.get("last-modified"), now)


def _was_dated(stored: Headers, now: float) -> bool:
    """Whether `add_validators` has asked by date as well: an origin may then have looked at that alone."""
    modified = stored.get("last-modified")
    return modified is not None and http_date(modified, now) is not None


def _same_date(one: str, other: str | None, now: float) -> bool:
    """Whether two dates of last modification are the same moment, however they are written."""
    if other is None:
        return False
    if one == other:
        return True
    modified = http_date(one, now)
    return modified is not None and modified == http_date(other, now)


def freshened(
    stored_fields: Iterable[Field], not_modified_headers: Headers, *, targets: tuple[str, ...], response_time: float
) -> tuple[Field, ...]:
    """The stored fields brought up to date by a 304 that arrived at `response_time` (RFC 9111 sections 3.2, 4.3.4).

    Every field of the 304 replaces all lines of its name, but for what may not be stored and for those that
    describe the stored octets. The `date` is always new, given or not: by the old one the response would
    seem as old as before. `targets` is this cache's target list (`targeted.response_directives`).
    """
    updates = [
        field
        for field in storable_fields(not_modified_headers, EMPTY, response_time=response_time)
        if field[0] not in _NOT_UPDATED
    ]
    replaced = {name for name, _ in updates}
    merged = Headers([*(field for field in stored_fields if field[0] not in replaced), *updates])
    # Once more, because what rules the merged response may forbid to store some of its fields.
    return storable_fields(merged, response_directives(merged, targets).control)


def confirmed_by_head(stored_fields: Iterable[Field], length: int, head: Headers, *, now: float) -> bool:
    """Whether a 200 to HEAD speaks of the stored response to GET, whose body is `length` bytes long.

    Each validator and the length, where the answer has them, must be those that are stored (RFC 9111 section 4.3.5),
    and so must the coding and what digests both have, by which the octets differ. Without a validator, when the RFC
    has nothing to compare, or only a length that others may have too, so must the type, the language and the location.
    """
    stored = Headers(stored_fields)
    etag = head.get("etag")
    if etag is not None and parse_entity_tag(etag) != parse_entity_tag(stored.get("etag")):
        return False
    last_modified = head.get("last-modified")
    if last_modified is not None and not _same_date(last_modified, stored.get("last-modified"), now):
        return False
    if "content-encoding" in head and head.get("content-encoding") != stored.get("content-encoding"):
        return False
    if any(head.get(name) != stored.get(name) for name in _DIGESTS & head.names & stored.names):
        return False
    if (
        etag is None
        and last_modified is None
        and any(name in head.names and head.get(name) != stored.get(name) for name in _DESCRIBING)
    ):
        return False
    announced = head.get("content-length")
    return announced is None or announced == str(length)


def contradicts(stored_fields: Iterable[Field], not_modified_headers: Headers) -> bool:
    """Whether a 304 that does not validate what is stored certainly speaks of another representation.

    So it is when its entity tag differs from the stored one, which was asked about, even by weak comparison.
    """
    told = parse_entity_tag(not_modified_headers.get("etag"))
    asked = parse_entity_tag(Headers(stored_fields).get("etag"))
    return told is not None and asked is not None and not weak_match(told, asked)


def holds(request_headers: Headers, not_modified_headers: Headers) -> bool:
    """Whether a client's own `if-none-match` names the representation of which a 304 speaks."""
    told = parse_entity_tag(not_modified_headers.get("etag"))
    named = request_headers.get("if-none-match")
    if told is None or named is None:
        return False
    return any(weak_match(told, tag) for tag in parse_entity_tags(named))


def not_modified(
    request_headers: Headers, stored_fields: Iterable[Field], status: int, *, response_time: float
) -> bool:
    """Whether the client's copy is current, so that a GET or HEAD gets 304 for this stored response.

    RFC 9111 section 4.3.2, RFC 9110 sections 13.1 and 13.2. `if-none-match` is compared weakly and, when present,
    alone decides. `if-modified-since` counts only when it is one date; it is held against `last-modified`, else
    `date`, else `response_time`. Only successful responses have preconditions.
    """
    if not 200 <= status <= 299:
        return False
    if_none_match = request_headers.get("if-none-match")
    if if_none_match is not None:
        if if_none_match == "*":
            return True
        etag = parse_entity_tag(Headers(stored_fields).get("etag"))
        return etag is not None and any(weak_match(etag, tag) for tag in parse_entity_tags(if_none_match))
    if_modified_since = request_headers.get("if-modified-since")
    if if_modified_since is None:
        return False
    since = http_date(if_modified_since, response_time)
    if since is None:
        return False
    stored = Headers(stored_fields)
    modified = stored.get("last-modified")
    if modified is None:
        modified = stored.get("date")
    changed = response_time if modified is None else http_date(modified, response_time)
    return changed is not None and changed <= since


def not_modified_fields(stored_fields: Iterable[Field]) -> tuple[Field, ...]:
    """The fields that a generated 304 carries (RFC 9110 section 15.4.5).

    Left out is metadata of the representation that the client has anyway; `last-modified` stays where there is
    no `etag` to know the representation by.
    """
    fields = tuple(stored_fields)
    left_out = _NOT_IN_304
    if any(name == "etag" for name, _ in fields):
        left_out = left_out | {"last-modified"}
    return tuple(field for field in fields if field[0] not in left_out)
