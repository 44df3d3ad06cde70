"""Which responses may be stored, for how long they are fresh, and what they say of the one stored before."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshcache.decisions import NoStoreReason
from meshcache.engine.key import is_unusual
from meshcache.engine.lifetime import lifetime
from meshcache.engine.sharing import directives_of, disguised, may_be_personal
from meshcache.rfc import stale
from meshcache.rfc.age import age_value, corrected_initial_age
from meshcache.rfc.cache_control import request_cache_control
from meshcache.rfc.fields import http_date, split_list
from meshcache.rfc.storing import no_store_reason
from meshcache.rfc.tags import TAG_FIELDS, response_tags
from meshcache.rfc.validators import can_be_validated
from meshcache.rfc.vary import parse_vary

if TYPE_CHECKING:
    from meshcache.engine.target import Target
    from meshcache.message import Headers, Response
    from meshcache.policy.compiled import Freshness
    from meshcache.rfc.cache_control import CacheControl

NOT_REPLAYED = TAG_FIELDS | {"content-length", "cache-status"}
"""Computed anew for each answer, or kept beside it."""

_AUTHORIZATION = frozenset({"authorization"})
_LIFELESS = frozenset({NoStoreReason.NO_FRESHNESS, NoStoreReason.STATUS})
_FIRST_REDIRECT = 300
_GONE = frozenset({404, 410})


def unstorable(target: Target, response: Response, *, part: bool = False) -> NoStoreReason | None:
    """Why `response` must not be stored for `target`, or None; with `part`, a 206 may be stored as a part."""
    if not response.from_origin:
        return NoStoreReason.LOCAL_REPLY
    headers = response.headers
    if not target.policy.key.host and "host" in parse_vary(headers.get("vary")):
        # The key leaves the host out, and variants are not told apart by it: no request is known to match.
        return NoStoreReason.VARY_STAR
    if not response.complete and _ends_with_its_connection(headers):
        return NoStoreReason.UNDELIMITED
    if response_tags(headers) is None:
        return NoStoreReason.TAGS
    policy, request = target.policy.freshness, target.request
    asked = request.headers.without(_AUTHORIZATION) if "authorization" in policy.ignore else request.headers
    directives = directives_of(headers, policy)
    personal = may_be_personal(asked, headers, directives.control, policy)
    times = partial(
        lifetime,
        policy,
        status=response.status,
        headers=headers,
        directives=directives,
        response_time=target.request_time,
    )
    granted = times(origin_alone=personal)
    reason = no_store_reason(
        method=request.method,
        request_headers=asked,
        request_cc=request_cache_control(request.headers),
        status=response.status,
        response_headers=headers,
        response_cc=directives.control,
        has_lifetime=granted is not None,
        part=part,
    )
    if reason is not None:
        return NoStoreReason.COOKIE if personal and reason in _LIFELESS and times() is not None else reason
    if personal and (not granted or directives.control.no_cache):
        # To keep it for its validation would be to rely on that no two callers have answers of one version.
        return NoStoreReason.COOKIE
    if response.status >= _FIRST_REDIRECT and target.policy.key.host and is_unusual(request.authority, request.scheme):
        return NoStoreReason.HOST_SPELLING
    if disguised(request.path, response.status, request.headers, headers, directives.control, policy):
        return NoStoreReason.TYPE_MISMATCH
    if not can_be_validated(response.status, headers):
        return _nothing_left(policy, headers, directives.control, granted or 0.0)
    return None


def fresh_for(target: Target, response: Response, now: float) -> float:
    """For how many seconds a response that has come `now`, and may be stored, is fresh; negative when it is stale."""
    headers, policy = response.headers, target.policy.freshness
    directives = directives_of(headers, policy)
    granted = lifetime(
        policy,
        status=response.status,
        headers=headers,
        directives=directives,
        response_time=now,
        origin_alone=may_be_personal(target.request.headers, headers, directives.control, policy),
    )
    date = headers.get("date")
    age = corrected_initial_age(
        age=age_value(headers.get("age")),
        date=None if date is None else http_date(date, now),
        request_time=target.request_time,
        response_time=now,
    )
    return (granted or 0.0) - age


def _ends_with_its_connection(headers: Headers) -> bool:
    """Whether the body of a response over HTTP/1.1 is delimited by nothing else (RFC 9112 section 6.3).

    Without `connection: close` it came over HTTP/2, where a stream has an end of its own, or over HTTP/1.0.
    """
    if "content-length" in headers or "transfer-encoding" in headers:
        return False
    connection = headers.get("connection")
    return connection is not None and "close" in split_list(connection.lower())


def _nothing_left(
    policy: Freshness, headers: Headers, directives: CacheControl, granted: float
) -> NoStoreReason | None:
    """Why a response that cannot be validated is of no use from the start: it is past its time as it comes.

    Where its origin has given it a time, and allows it to be served stale, a client may still ask for that.
    """
    if granted > 0.0 and stale.may_serve_stale(directives):
        return None
    window = max(
        stale.stale_while_revalidate_window(directives, policy.stale_while_revalidate),
        stale.stale_if_error_window(directives, policy.stale_if_error),
    )
    useful = granted + window - age_value(headers.get("age"))
    return NoStoreReason.NO_FRESHNESS if useful <= 0.0 else None


def supersedes(status: int) -> bool:
    """Whether an answer of this status, given in full, means that the one before is no longer current.

    An error says so only when it says that there is nothing any more: what a client gets for a wrong or an
    unwelcome request must not cost the others their answer, nor must a failure of the origin.
    """
    return (200 <= status <= 399 and status != 304) or status in _GONE
