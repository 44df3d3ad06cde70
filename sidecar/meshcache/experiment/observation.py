"""What one request has shown, as an experiment counts it, and where it is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from meshcache.experiment.exposure import Exposure


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
    """Status 500 and above, or an answer out of the cache that broke off."""
    latency: float = 0.0
    """Seconds from the request's arrival to the end of its answer."""
    age: float = 0.0
    """Seconds since the answer was made; 0 for what came from the origin."""
    cost_saved: float = 0.0
    """What the origin request that was not needed would have cost, less what was spent, in the policy's currency."""


class Tally(Protocol):
    """Where an experiment is counted. Calls are cheap and never raise; `experiment.ledger.Book` is one."""

    def count(self, exposure: Exposure, seen: Observation, now: float) -> None:
        """One request has come to its end at `now`, Unix seconds."""
        ...

    def charge(self, exposure: Exposure, requests: int, size: int, cost: float) -> None:
        """A request that was counted before has caused more: requests to the origin, bytes from it, and their cost."""
        ...
