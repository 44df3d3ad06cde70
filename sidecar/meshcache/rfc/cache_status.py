"""The `cache-status` response field (RFC 9211): one member says how this cache handled the request."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from meshcache.decisions import MissReason

CACHE_NAME = "meshcache"

Forward = Literal["bypass", "method", "uri-miss", "vary-miss", "miss", "request", "stale", "partial"]
"""Why a request was forwarded (RFC 9211 section 2.2)."""

_LARGEST_INTEGER = 999_999_999_999_999  # RFC 8941 section 3.3.1
_NOT_IN_STRING = re.compile(r"[^ -~]")


def hit(*, ttl: float | None = None, detail: str | None = None) -> str:
    """The member for an answer from the cache. `ttl` is the freshness left in seconds, negative when stale."""
    return f"{CACHE_NAME}; hit{_ttl(_whole(ttl))}{_detail(detail)}"


def forwarded(
    reason: Forward | MissReason,
    *,
    status: int | None = None,
    stored: bool = False,
    ttl: float | None = None,
    collapsed: bool | None = None,
    detail: str | None = None,
) -> str:
    """The member for an answer that took a request to the origin.

    `status` is what the origin said to it where that differs from what the client gets, as for a 304 (RFC 9211
    section 2.3); `stored` whether its answer is kept; `collapsed` whether it was another request that went, and
    False when waiting for that one was in vain (section 2.6).
    """
    return _forwarded(reason, status, stored, _whole(ttl), collapsed, detail)


@lru_cache(maxsize=1024)
def _forwarded(
    reason: str, status: int | None, stored: bool, ttl: int | None, collapsed: bool | None, detail: str | None
) -> str:
    # Most misses of one route get the same words.
    fwd_status = "" if status is None else f"; fwd-status={status}"
    kept = "; stored" if stored else ""
    return f"{CACHE_NAME}; fwd={reason}{fwd_status}{kept}{_COLLAPSED[collapsed]}{_ttl(ttl)}{_detail(detail)}"


_COLLAPSED = {None: "", True: "; collapsed", False: "; collapsed=?0"}


def refused(*, detail: str | None = None) -> str:
    """The member for an answer that is neither from the cache nor took a request to the origin."""
    return f"{CACHE_NAME}{_detail(detail)}"


def with_key(member: str, key: str) -> str:
    """`member` with the cache key that was used (section 2.7)."""
    return f"{member}; key={sf_string(key)}"


def append(existing: str | None, member: str) -> str:
    """`member` behind those of the caches nearer to the origin, which come first (RFC 9211 section 2)."""
    return f"{existing}, {member}" if existing else member


def sf_string(text: str) -> str:
    """`text` as a string of structured fields (RFC 8941 section 3.3.3); what such a string cannot hold becomes `?`."""
    printable = _NOT_IN_STRING.sub("?", text)
    escaped = printable.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _whole(ttl: float | None) -> int | None:
    """Whole seconds, rounded down, as far as a field can say them."""
    if ttl is None:
        return None
    if not -_LARGEST_INTEGER <= ttl <= _LARGEST_INTEGER:
        ttl = max(-_LARGEST_INTEGER, min(ttl, _LARGEST_INTEGER))
    return math.floor(ttl)


def _ttl(ttl: int | None) -> str:
    return "" if ttl is None else f"; ttl={ttl}"


@lru_cache(maxsize=1024)
def _detail(detail: str | None) -> str:
    return "" if detail is None else f"; detail={sf_string(detail)}"
