"""How long Envoy waits for the sidecar, derived from the policies' deadlines."""

from __future__ import annotations

from meshcache.policy.values import MOST_WAIT

MARGIN = 0.1
"""Seconds on top of the deadlines: scheduling, a full event loop, the reply's own way back."""

FLOOR = 0.2
"""Seconds: Envoy's own default. Below it, a short pause of the interpreter would cost hits."""

CROWD = 2.0
"""Seconds in which a worker has seen each of a crowd of requests for one thing, of which Envoy has to be told that they
wait: a thousand of them for each worker, on a machine that is busy with other things as well. Who is not seen in time
goes to the origin, and that at the same time as all others like it.

It costs nothing where a worker has died (then Envoy goes on at once) and little where one is frozen: its streams end
when its health check fails, after a second and a half."""

MAX_MESSAGE_TIMEOUT = MOST_WAIT + 35.0
"""Seconds for which the sidecar may have Envoy wait (`max_message_timeout`), when a request waits for another's answer.

The same whatever the policies say, so that an edit of them needs no new configuration of Envoy: above the largest
`collapse.maxWait` and the largest look-up that comes after it. What the sidecar asks for is the policy's."""


def message_timeout(lookup_budget: float, collapse_wait: float) -> float:
    """Envoy's `message_timeout` in seconds for a look-up that may take `lookup_budget` seconds.

    `lookup_budget` is the largest sum of tier deadlines over all policies (`Snapshot.lookup_budget()`), `collapse_wait`
    the longest for which one lets a request wait for another's answer (`Snapshot.longest_wait()`; 0 for not at all).
    Past the timeout Envoy goes on to the origin without the cache, so it must be longer than the slowest look-up that
    the policies allow, and no longer than needed: a frozen or overloaded sidecar costs each request this much.
    """
    return max(FLOOR, lookup_budget + MARGIN, min(CROWD, collapse_wait))
