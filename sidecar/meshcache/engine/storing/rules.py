"""Which responses may be stored, and what they say of the one stored before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.decisions import NoStoreReason
from meshcache.engine.key import is_unusual
from meshcache.engine.sharing import disguised
from meshcache.rfc import stale
from meshcache.rfc.cache_control import request_cache_control
from meshcache.rfc.fields import split_list
from meshcache.rfc.storing import no_store_reason
from meshcache.rfc.tags import TAG_FIELDS
from meshcache.rfc.validators import can_be_validated
from meshcache.rfc.vary import parse_vary

if TYPE_CHECKING:
    from meshcache.engine.storing.arrival import Arrival
    from meshcache.message import Headers

NOT_REPLAYED = TAG_FIELDS | {"content-length", "cache-status"}
"""Computed anew for each answer, or kept beside it."""

_AUTHORIZATION = frozenset({"authorization"})
_LIFELESS = frozenset({NoStoreReason.NO_FRESHNESS, NoStoreReason.STATUS})
_FIRST_REDIRECT = 300
_GONE = frozenset({404, 410})


def unstorable(arrival: Arrival, *, part: bool = False) -> NoStoreReason | None:
    """Why a response must not be stored, or None; with `part`, a 206 may be stored as a part."""
    response, target, reading = arrival.response, arrival.target, arrival.reading
    if not response.from_origin:
        return NoStoreReason.LOCAL_REPLY
    headers, control = response.headers, reading.control
    if not target.policy.key.host and "host" in parse_vary(headers.get("vary")):
        # The key leaves the host out, and variants are not told apart by it: no request is known to match.
        return NoStoreReason.VARY_STAR
    if not response.complete and _ends_with_its_connection(headers):
        return NoStoreReason.UNDELIMITED
    if arrival.tags is None:
        return NoStoreReason.TAGS
    request, granted = target.request, arrival.granted
    reason = no_store_reason(
        method=request.method,
        request_headers=arrival.asked,
        request_cc=request_cache_control(request.headers),
        status=response.status,
        response_headers=headers,
        response_cc=control,
        has_lifetime=granted is not None,
        part=part,
    )
    if reason is not None:
        given = reading.lifetimes.granted is not None
        return NoStoreReason.COOKIE if arrival.personal and reason in _LIFELESS and given else reason
    if arrival.personal and (not granted or control.no_cache):
        # To keep it for its validation would be to rely on that no two callers have answers of one version.
        return NoStoreReason.COOKIE
    if response.status >= _FIRST_REDIRECT and target.policy.key.host and is_unusual(request.authority, request.scheme):
        return NoStoreReason.HOST_SPELLING
    if disguised(request.path, response.status, request.headers, headers, control, reading.policy):
        return NoStoreReason.TYPE_MISMATCH
    return None if can_be_validated(response.status, headers) else _nothing_left(arrival)


def _ends_with_its_connection(headers: Headers) -> bool:
    """Whether the body of a response over HTTP/1.1 is delimited by nothing else (RFC 9112 section 6.3).

    Without `connection: close` it came over HTTP/2, where a stream has an end of its own, or over HTTP/1.0.
    """
    if "content-length" in headers.names or "transfer-encoding" in headers.names:
        return False
    connection = headers.get("connection")
    return connection is not None and "close" in split_list(connection.lower())


def _nothing_left(arrival: Arrival) -> NoStoreReason | None:
    """Why a response that cannot be validated is of no use from the start: it is past its time as it comes.

    Where its origin has given it a time, and allows it to be served stale, a client may still ask for that.
    """
    control, policy, granted = arrival.reading.control, arrival.reading.policy, arrival.granted or 0.0
    if granted > 0.0 and stale.may_serve_stale(control):
        return None
    window = max(
        stale.stale_while_revalidate_window(control, policy.stale_while_revalidate),
        stale.stale_if_error_window(control, policy.stale_if_error),
    )
    return NoStoreReason.NO_FRESHNESS if granted + window - arrival.age <= 0.0 else None


def supersedes(status: int) -> bool:
    """Whether an answer of this status, given in full, means that the one before is no longer current.

    An error says so only when it says that there is nothing any more: what a client gets for a wrong or an
    unwelcome request must not cost the others their answer, nor must a failure of the origin.
    """
    return (200 <= status <= 399 and status != 304) or status in _GONE
