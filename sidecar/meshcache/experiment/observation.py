"""What one request has shown, as an experiment counts it."""

from __future__ import annotations

import msgspec


class Observation(msgspec.Struct):
    """The outcome of one request."""

    tier: int = 0
    """Where its answer came from: 0 the origin, 1 hot, 2 warm, 3 cold."""
    stale: bool = False
    """Whether the answer was no longer fresh."""
    origin_requests: int = 0
    """Requests to the origin that it has caused, a background refresh among them."""
    origin_bytes: int = 0
    """Bytes of body that the origin sent for it."""
    error: bool = False
    """Status 500 and above, or cut short by the origin."""
    latency: float = 0.0
    """Seconds from the request's arrival to the end of its answer."""
    age: float = 0.0
    """Seconds since the answer was made; 0 for what came from the origin."""
    cost_saved: float = 0.0
    """What the origin request that was not needed would have cost, in the policy's currency."""
