"""How long Envoy waits for the sidecar, derived from the policies' deadlines."""

from __future__ import annotations

MARGIN = 0.1
"""Seconds on top of the deadlines: scheduling, a full event loop, the reply's own way back."""

FLOOR = 0.2
"""Seconds: Envoy's own default. Below it, a short pause of the interpreter would cost hits."""


def message_timeout(lookup_budget: float) -> float:
    """Envoy's `message_timeout` in seconds for a look-up that may take `lookup_budget` seconds.

    `lookup_budget` is the largest sum of tier deadlines over all policies (`Snapshot.lookup_budget()`). Past the
    timeout Envoy goes on to the origin without the cache, so it must be longer than the slowest look-up that the
    policies allow, and no longer than needed: a frozen sidecar costs each request this much until its health
    check has failed.
    """
    return max(FLOOR, lookup_budget + MARGIN)
