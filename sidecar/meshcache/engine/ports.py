"""What the engine needs from outside, as protocols: it imports no I/O itself."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from meshcache.decisions import CollapseOutcome, NoStoreReason, RefreshCause, RefreshOutcome, Stage, TierName
    from meshcache.engine.records import StoredResponse
    from meshcache.engine.storing.fill import CopyBudget
    from meshcache.message import Headers, Response


T = TypeVar("T")


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


TakeBody = Callable[[bytes], Awaitable[bool]]
"""Takes a part of a body; False when no more of it is wanted."""


class Refresher(Protocol):
    """Asks the origin in the background."""

    async def receive(self, request: RefreshRequest, take: Callable[[Response], TakeBody]) -> Response:
        """The response, when all of its body has come that is wanted. Raises `RefreshError`.

        `take` is given the response's head as soon as that has come, and says what takes the parts of its body.
        """
        ...

    async def fetch(
        self, request: RefreshRequest, limit: int, budget: CopyBudget, *, within: float | None = None
    ) -> tuple[Response, bytes]:
        """The response and its whole body of at most `limit` bytes, `within` so many seconds. Raises `RefreshError`.

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


class PodLease(Protocol):
    """A lease among the processes of a pod."""

    @property
    def answered(self) -> float:
        """Seconds since the one before was given back with an answer stored; infinite where that is not known."""
        ...


class PodLeases(Leases, Protocol):
    """`Leases`, and what the processes of the pod tell each other of keys. Nothing here waits.

    The lease of a process that has died, or does not get on, is free within a second or two.
    """

    def lease(self, key: bytes, seconds: float) -> PodLease | None:
        """See `Leases`."""
        ...

    def release(self, lease: Any, *, answered: bool = False) -> None:
        """Give it back; with `answered`, whoever takes it next within some seconds is told that an answer is stored."""
        ...

    def leased(self, key: bytes) -> bool:
        """Whether someone has the lease of `key` now."""
        ...

    def has_room(self, key: bytes) -> bool:
        """Whether there is a place for a lease of `key`: one that could not be had may then be had a moment later."""
        ...

    def shun(self, key: bytes, seconds: float) -> None:
        """Remember for `seconds` that answers for `key` are not for sharing. May be forgotten sooner."""
        ...

    def shunned(self, key: bytes) -> bool:
        """Whether that is remembered of `key`."""
        ...

    def readmit(self, key: bytes) -> None:
        """Forget it."""
        ...


@dataclass(frozen=True, slots=True)
class FleetLease:
    """A lease among pods, to be given back with `FleetLeases.release`."""

    key: bytes
    token: bytes
    """Proof of holding it."""
    shunned: bool = False
    """Nothing is held: the pods know that answers for the key are not for sharing, and nobody need wait."""
    answered: float = math.inf
    """Seconds since the one before was given back with an answer stored; infinite where that is not known."""


class FleetLeases(Protocol):
    """Leases that the pods of a fleet share. Nothing is raised but cancellation.

    When the store that pods share is away, slow, or not there, leases are granted at once: that costs requests to
    the origin, never answers.
    """

    async def acquire(self, key: bytes, seconds: float) -> FleetLease | None:
        """Take the lease of `key` for at most `seconds`; None while another pod has it.

        That of a pod that has died is free within a few seconds.
        """
        ...

    async def release(self, lease: FleetLease, *, shun: float = 0.0, answered: bool = False) -> None:
        """Give a lease back; one that others have taken since is left alone.

        With `shun`, the pods are told for so many seconds that answers for the key are not for sharing. With
        `answered`, whoever takes it next within some seconds is told that an answer is stored.
        """
        ...


class Signal(Protocol[T]):
    """Carries one value to one coroutine that waits for it."""

    def set(self, value: T) -> None:
        """Give the value. Only the first one counts."""
        ...

    async def wait(self) -> T:
        """The value, as soon as it is there."""
        ...


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """See to it that it does not come."""
        ...


class Waits(Protocol):
    """Time and waiting, as the event loop has them. Seconds of a clock that never goes back."""

    def now(self) -> float:
        """The time."""
        ...

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Call `call` after so many seconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait so many seconds."""
        ...

    def signal(self) -> Signal[Any]:
        """A new signal."""
        ...


class Spool(Protocol):
    """Takes the body of one response while it streams, and stores it in chunks. `written` or `drop` must follow."""

    refused: NoStoreReason | None
    """Why the body is not stored, once `add` has returned False or `written` None."""

    def add(self, data: bytes) -> bool:
        """Take a part of the body; False when the stores cannot follow. Never waits."""
        ...

    @property
    def behind(self) -> bool:
        """Whether the stores have fallen so far behind that who can wait should, before more is taken."""
        ...

    async def has_room(self) -> None:
        """Return when they are not `behind` any more."""
        ...

    async def written(self) -> tuple[bytes, ...] | None:
        """The body is complete: the digests of its chunks, once all of them are stored; None when they are not."""
        ...

    def drop(self) -> None:
        """The body is not to be stored. What was written of it ends by its expiry."""
        ...


OpenSpool = Callable[["StoredResponse", int], "Spool | None"]
"""Opens a spool for a response (without its body), of whose body at least so many bytes come; None when no tier takes
as much."""

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

    def collapsed(self, outcome: CollapseOutcome) -> None:
        """A request was to wait for another one's answer."""
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
