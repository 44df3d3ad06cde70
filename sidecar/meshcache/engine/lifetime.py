"""How long a stored response may be used, by the policy in force and by what the origin said."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshcache.policy.compiled import Freshness

_FIRST_ERROR = 400


def lifetime(policy: Freshness, *, status: int, explicit: float | None, by_default: bool) -> float | None:
    """Seconds that a response is fresh from its birth, or None when nothing gives it a lifetime.

    `explicit` is what the origin's headers say (None: nothing), `by_default` whether the status may be stored
    without explicit freshness (RFC 9110 section 15.1). Under `override` the policy's values rule where it has
    one; under `rfc9111` they stand in where the origin said nothing. `defaultTtl` never applies to errors:
    those have `negative`.
    """
    assigned = policy.negative.get(status)
    if assigned is None and by_default and status < _FIRST_ERROR:
        assigned = policy.default_ttl
    if policy.mode == "override":
        seconds = assigned if assigned is not None else explicit
    else:
        seconds = explicit if explicit is not None else assigned
    if seconds is None:
        return None
    return seconds if policy.max_ttl is None else min(seconds, policy.max_ttl)
