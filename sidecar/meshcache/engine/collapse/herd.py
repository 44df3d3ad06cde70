"""What `Herds` works on: the requests of one process that want one key at one time, and what each is told."""

from __future__ import annotations

from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshcache.engine.collapse.herds import Herds
    from meshcache.engine.lookup import Candidate
    from meshcache.engine.ports import Signal, Timer


class Verdict(Enum):
    """What a waiter is told."""

    ANSWERED = auto()
    TAKE_OVER = auto()
    RELEASED = auto()
    FAILED = auto()


class Word(NamedTuple):
    """A verdict, with the answer for `ANSWERED`."""

    verdict: Verdict
    candidate: Candidate | None = None


class State(Enum):
    """Where a member stands."""

    WAITING = auto()
    ASKING = auto()
    """At the origin, and one of those that are counted: nobody else goes until it is done."""
    HOPEFUL = auto()
    """At the origin, and others may go meanwhile; its answer is still welcome to those that wait."""
    GONE = auto()


class Herd:
    """The requests of this process for one key."""

    __slots__ = (
        "answered",
        "answered_before",
        "asking",
        "closed",
        "dues",
        "failures",
        "fleet",
        "joined",
        "key",
        "open",
        "pod",
        "remote",
        "timer",
        "timer_at",
        "waiting",
        "written",
    )

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.asking: dict[Member, None] = {}
        self.waiting: dict[Member, None] = {}
        """In the order in which they came."""
        self.dues: list[tuple[float, int, Member]] = []
        """A heap of when the waiters' times are up; members that wait no more are left in it."""
        self.joined = 0
        self.failures = 0
        self.open = False
        """There is nothing to wait for any more: the members are being released."""
        self.remote = False
        """Another process leads."""
        self.answered = False
        """A member's answer was stored."""
        self.answered_before = -inf
        """When, as far as is known, another process stored an answer for this key, whose lease this one now has.

        Known until one member has looked for it.
        """
        self.written: Sequence[bytes] = ()
        """Under these storage keys."""
        self.closed = False
        """Nobody asks or waits: the next request for the key begins another herd."""
        self.timer: Timer | None = None
        self.timer_at = 0.0
        self.pod: Any = None
        """The lease of the key among the workers of the pod, while it is held. `Leadership` keeps it here."""
        self.fleet: Any = None
        """The same among pods."""


class Member:
    """One request in a herd. All methods may be called at any time and more than once."""

    __slots__ = (
        "_herds",
        "deadline",
        "due",
        "fits",
        "herd",
        "patience",
        "signal",
        "slot_until",
        "stands_in",
        "state",
        "whole",
    )

    def __init__(
        self,
        herds: Herds,
        herd: Herd,
        patience: float,
        deadline: float,
        fits: Callable[[Candidate], bool],
        stands_in: Callable[[], bool],
        whole: bool,
    ) -> None:
        self._herds = herds
        self.herd = herd
        self.patience = patience
        self.deadline = deadline
        self.due = deadline
        self.fits = fits
        """Whether an answer may be given to this request."""
        self.stands_in = stands_in
        """Whether this request has something that may stand in for an error."""
        self.whole = whole
        """Whether this request asks for the whole answer, whatever its client holds already."""
        self.state = State.ASKING
        self.slot_until = float("inf")
        self.signal: Signal[Word] | None = None
        """Carries the word to a member that waits."""

    @property
    def waits(self) -> bool:
        """Whether a word is still to come."""
        return self.state is State.WAITING

    @property
    def awaited(self) -> bool:
        """Whether others wait for what this one brings."""
        return bool(self.herd.waiting)

    async def word(self) -> Word:
        """Wait for the word. Only for a member that waits, or that has waited."""
        signal = self.signal
        assert signal is not None  # noqa: S101 - a member that waits has one
        word = await signal.wait()
        if self.signal is signal:
            self.signal = None
        return word

    def head_came(self) -> None:
        """The origin has begun to answer this member, with what may be shared once it is whole."""
        self._herds.head_came(self)

    def shared(self, candidate: Candidate | None, written: Sequence[bytes] = ()) -> None:
        """This member's answer is stored, or on its way into the tiers under these storage keys.

        It need not be named when nobody waits for it.
        """
        self._herds.shared(self, candidate, written)

    def unshared(self) -> None:
        """This member's answer is not for others, and theirs will not be for each other either."""
        self._herds.unshared(self)

    def held(self) -> None:
        """This member's client holds the answer, which is all that has come."""
        self._herds.held(self)

    def failed(self) -> None:
        """This member has got no answer that counts."""
        self._herds.failed(self)

    def leave(self) -> None:
        """This member is done with the herd, for a reason that says nothing of the answer."""
        self._herds.leave(self)
