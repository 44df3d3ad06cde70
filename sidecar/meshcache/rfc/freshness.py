"""How long a response is fresh for a shared cache (RFC 9111 section 4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.rfc.fields import http_date

if TYPE_CHECKING:
    from meshcache.rfc.cache_control import CacheControl


def explicit_lifetime(
    response_cc: CacheControl, *, expires: str | None, date: str | None, response_time: float
) -> float | None:
    """The freshness lifetime in seconds that the origin has set, never negative, or None when it has set none.

    `s-maxage`, `max-age` and `expires` minus `date` are tried in this order (section 4.2.1). `expires` and `date`
    are field values as received. An `expires` that is not one date has passed already (section 5.3); a `date` that
    is missing or not one date is taken to be `response_time`, the Unix seconds at which the response came.
    """
    if response_cc.s_maxage is not None:
        return float(response_cc.s_maxage)
    if response_cc.max_age is not None:
        return float(response_cc.max_age)
    if expires is None:
        return None
    expiry = http_date(expires, response_time)
    if expiry is None:
        return 0.0
    generated = None if date is None else http_date(date, response_time)
    return max(0.0, expiry - (response_time if generated is None else generated))
