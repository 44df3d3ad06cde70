"""How long a stored response may be used, by the policy in force and by what the origin said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.rfc.freshness import explicit_lifetime, heuristic_lifetime
from meshcache.rfc.storing import may_use_heuristics

if TYPE_CHECKING:
    from meshcache.message import Headers
    from meshcache.policy.compiled import Freshness
    from meshcache.rfc.targeted import Directives

_FIRST_ERROR = 400


def lifetime(
    policy: Freshness,
    *,
    status: int,
    headers: Headers,
    directives: Directives,
    response_time: float,
    origin_alone: bool = False,
) -> float | None:
    """Seconds that a response is fresh from its birth, or None when nothing gives it a lifetime.

    `directives` is what the origin has said to this cache, `response_time` the Unix seconds at which it came. Under
    `override` the policy's values rule where it has one; under `rfc9111` they stand in where the origin said nothing,
    and where neither says anything, a lifetime is calculated from `last-modified`. `defaultTtl` never applies to
    errors: those have `negative`. `maxTtl` cuts whatever it is. With `origin_alone` only what the origin has said
    counts (see `sharing`).
    """
    control, expires = directives
    explicit = explicit_lifetime(control, expires=expires, date=headers.get("date"), response_time=response_time)
    by_default = may_use_heuristics(status, control)
    assigned = policy.negative.get(status)
    if assigned is None and by_default and status < _FIRST_ERROR:
        assigned = policy.default_ttl
    if origin_alone:
        seconds = explicit
    elif policy.mode == "override":
        seconds = assigned if assigned is not None else explicit
    else:
        seconds = explicit if explicit is not None else assigned
        if seconds is None and by_default and policy.heuristic > 0.0:
            seconds = heuristic_lifetime(
                status,
                last_modified=headers.get("last-modified"),
                date=headers.get("date"),
                response_time=response_time,
                fraction=policy.heuristic,
            )
    if seconds is None:
        return None
    return seconds if policy.max_ttl is None else min(seconds, policy.max_ttl)
