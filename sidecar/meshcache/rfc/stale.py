"""When a stale response may be served (RFC 9111 section 4.2.4, RFC 5861). All windows are seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshcache.rfc.cache_control import CacheControl

ERROR_STATUSES = frozenset({500, 502, 503, 504})
"""What counts as an error of the origin for stale-if-error (RFC 5861 section 4)."""


def may_serve_stale(response_cc: CacheControl) -> bool:
    """Whether the origin leaves it open to serve its response stale.

    `s-maxage` forbids it as `proxy-revalidate` does (RFC 9111 section 5.2.2.10).
    """
    return not _forbidden(response_cc) and response_cc.s_maxage is None


def stale_while_revalidate_window(response_cc: CacheControl, policy: float) -> float:
    """How long past its lifetime a response may be served while it is refreshed (RFC 5861 section 3).

    The response's own window goes before `policy`, the operator's; 0 where the response may not be served stale.
    """
    return _window(response_cc, response_cc.stale_while_revalidate, policy)


def stale_if_error_window(response_cc: CacheControl, policy: float) -> float:
    """How long past its lifetime a response may stand in for an error of the origin (RFC 5861 section 4).

    The response's own window goes before `policy`, the operator's; 0 where the response may not be served stale.
    """
    return _window(response_cc, response_cc.stale_if_error, policy)


def disconnected_window(response_cc: CacheControl, policy: float) -> float:
    """How long past its lifetime a response may be served while its origin cannot be reached (RFC 9111 4.2.4).

    A cache that is disconnected needs no leave to do so, only that nobody forbids it: `policy` is the operator's bound,
    and 0 is the window where the response must not be served stale, or its own window for errors rules.
    """
    return policy if may_serve_stale(response_cc) and response_cc.stale_if_error is None else 0.0


def within(window: float, *, lifetime: float, age: float) -> bool:
    """Whether a stale response of this age is still inside `window`; an empty window holds nothing."""
    return window > 0.0 and age - lifetime <= window


def _window(response_cc: CacheControl, own: int | None, policy: float) -> float:
    if _forbidden(response_cc):
        return 0.0
    if own is not None:
        # A window that the origin sets beside `s-maxage` is its word on the very question that `s-maxage` only
        # implies an answer to; `s-maxage=1, stale-while-revalidate=59` is how origins speak to shared caches.
        return float(own)
    return policy if response_cc.s_maxage is None else 0.0


def _forbidden(response_cc: CacheControl) -> bool:
    return response_cc.must_revalidate or response_cc.proxy_revalidate or response_cc.no_cache
