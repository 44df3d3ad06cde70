"""How long a stored response may be used, by the policy in force and by what the origin said."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from meshcache.rfc.freshness import explicit_lifetime, heuristic_lifetime
from meshcache.rfc.storing import may_use_heuristics

if TYPE_CHECKING:
    from meshcache.message import Headers
    from meshcache.policy.compiled import Freshness
    from meshcache.rfc.targeted import Directives

_FIRST_ERROR = 400


class Lifetimes(NamedTuple):
    """Seconds that a response is fresh from its birth; None where nothing gives it a lifetime."""

    granted: float | None
    """By the policy in force and by what the origin has said."""
    by_origin: float | None
    """By what the origin has said alone (see `sharing`)."""


def lifetimes(
    policy: Freshness, *, status: int, headers: Headers, directives: Directives, response_time: float
) -> Lifetimes:
    """How long a response is fresh.

    `directives` is what the origin has said to this cache, `response_time` the Unix seconds at which it came. Under
    `override` the policy's values rule where it has one; under `rfc9111` they stand in where the origin said nothing,
    and where neither says anything, a lifetime is calculated from `last-modified`. `defaultTtl` never applies to
    errors: those have `negative`. `maxTtl` cuts whatever it is.
    """
    control, expires = directives
    explicit = explicit_lifetime(control, expires=expires, date=headers.get("date"), response_time=response_time)
    if explicit is not None and policy.max_ttl is not None:
        explicit = min(explicit, policy.max_ttl)
    if explicit is not None and policy.mode == "rfc9111":
        return Lifetimes(explicit, explicit)
    by_default = may_use_heuristics(status, control)
    seconds = policy.negative.get(status)
    if seconds is None and by_default and status < _FIRST_ERROR:
        seconds = policy.default_ttl
    if seconds is None:
        seconds = explicit
    if seconds is None and by_default and policy.mode == "rfc9111" and policy.heuristic > 0.0:
        seconds = heuristic_lifetime(
            status,
            last_modified=headers.get("last-modified"),
            date=headers.get("date"),
            response_time=response_time,
            fraction=policy.heuristic,
        )
    if seconds is not None and policy.max_ttl is not None:
        seconds = min(seconds, policy.max_ttl)
    return Lifetimes(seconds, explicit)
