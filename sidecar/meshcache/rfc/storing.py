"""What of a response may be stored by a shared cache (RFC 9111 sections 3, 3.1 and 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.decisions import NoStoreReason
from meshcache.rfc.fields import are_fields, format_http_date
from meshcache.rfc.hop_by_hop import hop_by_hop_names
from meshcache.rfc.validators import can_be_validated
from meshcache.rfc.vary import parse_vary

if TYPE_CHECKING:
    from meshcache.message import Field, Headers
    from meshcache.rfc.cache_control import CacheControl

STORABLE_METHODS = frozenset({"GET"})
"""Methods whose responses are stored. A stored GET answers HEAD as well; a response to HEAD has no content to store."""

HEURISTICALLY_CACHEABLE = frozenset({200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501})
"""Status codes for which a lifetime may be assumed (RFC 9110 section 15.1)."""

NEVER_STORED = frozenset({407, 408, 413, 417, 421, 425, 428, 429, 431, 511})
"""What these say is of one client, connection or request, and of nothing that the key holds.

Of four of them RFC 6585 says that a cache must not store them (sections 3 to 6). The others answer to credentials for a
proxy, to how fast, how large or by which connection a request came, to `expect` and to early data.
"""

UNDERSTOOD = frozenset(
    {200, 201, 202, 203, 204, 205, 206, 300, 301, 302, 303, 305, 307, 308}
    | set(range(400, 418))
    | {421, 422, 426, 500, 501, 502, 503, 504, 505}
)
"""Final status codes of RFC 9110 whose caching behaviour is implemented: what `must-understand` asks for."""

# Never replayed to anybody else: they belong to one client's session, to one client's proxy (section 3.1), or to
# the moment of arrival (`age` is stored as a number and computed afresh).
_NOT_STORED = frozenset(
    {"age", "proxy-authenticate", "proxy-authentication-info", "proxy-authorization", "set-cookie", "set-cookie2"}
)
# Internal fields, and what Envoy says of or to one exchange (service time, overload, degraded upstream).
_NOT_STORED_PREFIXES = ("x-meshcache-", "x-envoy-")


def may_use_heuristics(status: int, response_cc: CacheControl) -> bool:
    """Whether a response without an explicit lifetime may be given one (section 4.2.2).

    One that is calculated from its age, or a default that an operator has set.
    """
    return status in HEURISTICALLY_CACHEABLE or response_cc.public


def shareable_despite_authorization(response_cc: CacheControl) -> bool:
    """Whether the answer to a request with `authorization` may be used for others (section 3.5).

    The RFC names three directives; `proxy-revalidate` is not among them. An `s-maxage` that is not a number
    permits nothing.
    """
    return (
        response_cc.public
        or response_cc.must_revalidate
        or (response_cc.s_maxage is not None and not response_cc.invalid_lifetime)
    )


def no_store_reason(
    *,
    method: str,
    request_headers: Headers,
    request_cc: CacheControl,
    status: int,
    response_headers: Headers,
    response_cc: CacheControl,
    has_lifetime: bool,
    part: bool = False,
) -> NoStoreReason | None:
    """Why a shared cache must not store this response, or None when it may (section 3).

    `response_cc` is what rules the response for this cache (`targeted.response_directives`). `has_lifetime` says
    whether anyone gives it a lifetime: its origin, the policy in force for this very status, or, where
    `may_use_heuristics` holds, a default or a calculation.

    A 206 is stored as a `part` of an answer or not at all. What only a request for ranges may have got is not stored: a
    416, or a 200 that has a `content-range` all the same, as origins with units of their own (rows, items) send it. An
    origin that ignores `range` answers as if the field were not there.

    Stricter than the RFC in one point: what could never be used again is not stored, neither fresh by anyone's word nor
    possible to validate.
    """
    if method not in STORABLE_METHODS:
        return NoStoreReason.METHOD
    if status == 206:
        if not part:
            return NoStoreReason.PARTIAL
    elif "range" in request_headers.names and (
        status not in HEURISTICALLY_CACHEABLE or "content-range" in response_headers.names
    ):
        return NoStoreReason.PARTIAL
    if not 200 <= status <= 599 or status == 304 or status in NEVER_STORED:
        return NoStoreReason.STATUS
    if not are_fields(response_headers.fields):
        return NoStoreReason.BAD_HEADERS
    if request_cc.no_store:
        return NoStoreReason.REQUEST_NO_STORE
    if response_cc.must_understand:
        # It overrides `no-store` for caches that understand the status, and binds the others (section 5.2.2.3).
        if status not in UNDERSTOOD:
            return NoStoreReason.STATUS
    elif response_cc.no_store:
        return NoStoreReason.RESPONSE_NO_STORE
    if response_cc.private:
        # The fields of a qualified `private` are left out, so that the rest may be stored (section 5.2.2.7).
        return NoStoreReason.PRIVATE
    if "authorization" in request_headers.names and not shareable_despite_authorization(response_cc):
        return NoStoreReason.AUTHORIZATION
    if parse_vary(response_headers.get("vary")) == "*":
        return NoStoreReason.VARY_STAR
    return _no_lifetime_reason(status, response_headers, response_cc, has_lifetime)


def storable_fields(
    headers: Headers, response_cc: CacheControl, *, response_time: float | None = None
) -> tuple[Field, ...]:
    """The fields of a response that are stored (section 3.1), in their order.

    Left out are hop-by-hop fields and those that `connection` nominates, cookies, proxy authentication, `age`,
    internal and Envoy's own fields, and the fields of a qualified `no-cache` (section 5.2.2.4: leaving them out is
    what allows the rest to be used without validation) or `private` (section 5.2.2.7).

    `response_cc` is what rules the response for this cache. With `response_time` (Unix seconds) a missing `date` is
    added, as RFC 9110 section 6.6.1 asks of a recipient with a clock.
    """
    left_out = hop_by_hop_names(headers) | _NOT_STORED
    if response_cc.no_cache_fields or response_cc.private_fields:
        left_out = left_out.union(response_cc.no_cache_fields, response_cc.private_fields)
    kept = [
        field for field in headers.fields if field[0] not in left_out and not field[0].startswith(_NOT_STORED_PREFIXES)
    ]
    if response_time is not None and "date" not in headers.names:
        kept.append(("date", format_http_date(response_time)))
    return tuple(kept)


def _no_lifetime_reason(
    status: int, headers: Headers, response_cc: CacheControl, has_lifetime: bool
) -> NoStoreReason | None:
    """The last condition of section 3: something must make the response usable again."""
    can_validate = can_be_validated(status, headers)
    if response_cc.no_cache and not can_validate:
        # To be validated at each use, whatever its lifetime, and nothing to validate it by.
        return NoStoreReason.NO_FRESHNESS
    if has_lifetime:
        return None
    if not may_use_heuristics(status, response_cc):
        return NoStoreReason.STATUS
    return None if can_validate else NoStoreReason.NO_FRESHNESS
