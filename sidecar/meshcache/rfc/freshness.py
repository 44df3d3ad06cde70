"""How long a response is fresh for a shared cache (RFC 9111 section 4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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


HEURISTIC_LONGEST: Final = 86_400.0
"""The longest lifetime that is assumed, a day: what has not changed for years may still change tomorrow."""
HEURISTIC_LONGEST_OF_ERRORS: Final = 60.0
"""The same for an error, which its origin may be about to mend."""

_FIRST_ERROR = 400


def heuristic_lifetime(
    status: int, *, last_modified: str | None, date: str | None, response_time: float, fraction: float
) -> float | None:
    """The lifetime to assume where the origin has set none, in seconds (section 4.2.2); None without `last_modified`.

    It is `fraction` of the time that the response had gone unchanged when it was made. Whether a response may be given
    such a lifetime at all is for `storing.may_use_heuristics`.
    """
    changed = None if last_modified is None else http_date(last_modified, response_time)
    if changed is None:
        return None
    made = None if date is None else http_date(date, response_time)
    unchanged = (response_time if made is None else min(made, response_time)) - changed
    return max(
        0.0, min(fraction * unchanged, HEURISTIC_LONGEST if status < _FIRST_ERROR else HEURISTIC_LONGEST_OF_ERRORS)
    )
