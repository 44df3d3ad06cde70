"""What the engine needs from outside, as protocols: it imports no I/O itself."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from meshcache.decisions import RefreshCause, RefreshOutcome, Stage, TierName
    from meshcache.engine.fill import CopyBudget
    from meshcache.engine.records import StoredResponse
    from meshcache.message import Headers, Response


@dataclass(frozen=True, slots=True)
class RefreshRequest:
    """A background request for a fresh copy of what is stored. Always GET, never with a client's credentials."""

    scheme: str
    authority: str
    path: str
    headers: Headers
    cluster: str = ""
    """The Envoy cluster that it goes to, one of those named at the start; empty: where the refresh address leads."""


class RefreshError(Exception):
    """The origin could not be asked, or its answer did not arrive whole."""


class Refresher(Protocol):
    """Asks the origin in the background."""

    async def fetch(self, request: RefreshRequest, limit: int, budget: CopyBudget) -> tuple[Response, bytes]:
        """The response and its whole body of at most `limit` bytes. Raises `RefreshError`.

        What has come of the body is reserved in `budget` until it is returned; when there is no room, it is given up.
        """
        ...


class Leases(Protocol):
    """Sees to it that only one process of the pod does something. Calls wait for nobody and raise nothing."""

    def lease(self, key: bytes, seconds: float) -> Any | None:
        """Take the lease of `key`, or None while someone has it."""
        ...

    def release(self, lease: Any) -> None:
        """Give it back."""
        ...


@dataclass(frozen=True, slots=True)
class FleetLease:
    """Proof of holding a lease of the fleet: what `release` needs."""

    key: bytes
    token: bytes
    """Empty when it was granted without asking anybody."""


class FleetLeases(Protocol):
    """Sees to it that only one pod of the fleet does something. Raises nothing, and answers within a short deadline.

    Where there is no store that pods share, or it is away, a lease is granted at once: that costs the origin a request
    for each pod, and no client his answer.
    """

    async def acquire(self, key: bytes, seconds: float) -> FleetLease | None:
        """Take the lease of `key` for `seconds`, or None while another pod has it."""
        ...

    async def release(self, lease: FleetLease) -> None:
        """Give it back. One that has run out and was taken by another is left alone."""
        ...


Spawn = Callable[[Coroutine[Any, Any, None]], None]
"""Runs a coroutine in the background, and keeps it from being forgotten."""


class Meter(Protocol):
    """Where the engine reports what it did. Calls are cheap and never raise."""

    def request(self, decision: str, reason: str, tier: str, route: str, arm: str) -> None:
        """One request was decided."""
        ...

    def stored(self, outcome: str) -> None:
        """A response was stored (`stored`) or not (a `NoStoreReason`)."""
        ...

    def stage(self, stage: Stage, seconds: float) -> None:
        """One stage of a request took this long."""
        ...

    def refreshed(self, outcome: RefreshOutcome, cause: RefreshCause) -> None:
        """A background refresh ended, or could not begin."""
        ...

    def served(self, tier: TierName, size: int) -> None:
        """`size` body bytes went out from `tier`."""
        ...

    def missing_unit(self, experiment: str) -> None:
        """A request under `experiment` carried no unit."""
        ...


class Renderer(Protocol):
    """Makes the bytes of a reply that stay the same from hit to hit; kept beside the entry in process memory."""

    def __call__(self, stored: StoredResponse) -> bytes:
        """The serialised reply."""
        ...
