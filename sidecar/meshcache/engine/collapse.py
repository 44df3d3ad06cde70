"""Who asks the origin for a key, and who waits for the answer: request collapsing as a state machine.

All requests of one process that miss one key at one time are a *flight*. Its first member leads: it goes to the
origin. The others wait, each with a deadline, until one of these words reaches them, and exactly one does:

- `ANSWERED`: a member's answer is stored, and it is one that this waiter may be given;
- `TAKE_OVER`: the leader is gone or has failed, and this waiter is the one that goes on in its place;
- `RELEASED`: there will be no answer to share, or not in time: go on by yourself;
- `FAILED`: the leader has failed, and this waiter has something stale that may stand in for an error.

A release is never a herd. When the answer turns out not to be for sharing, at most `slots` of the flight are at the
origin at a time; the next goes when one of them has seen the head of its response, has failed or left, or after a
bound that lets all be on their way before the first has waited too long. When the leader is only slow, the waiters'
times are up one after the other, since a waiter's time ends a little before its deadline by its place in the queue.

Where another process leads the same key, the flight is `remote`: all its members wait until that one's lease is free.

Nothing here does I/O or knows of asyncio: time, timers and wake-ups come in as arguments.
"""

from __future__ import annotations

import heapq
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshcache.engine.lookup import Candidate
    from meshcache.engine.ports import Signal, Timer, Waits

SPACING: Final = 0.005
"""Seconds between two waiters whose time is up, when all came at once: 200 a second for one key."""
LONGEST_HOLD: Final = 1.0
"""Seconds after which a released member gives its slot back though nothing was heard of it."""
SHORTEST_HOLD: Final = 0.01
MOST_WAITING: Final = 8192
"""Waiters of one flight; more go on by themselves."""
FAILURES_IN_TURN: Final = 2
"""After so many failures of a flight its members no longer wait for each other's: each finds out by itself."""


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


class Flight:
    """The requests of this process for one key."""

    __slots__ = (
        "answered",
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
        self.closed = False
        """Nobody asks or waits: the next request for the key begins another flight."""
        self.timer: Timer | None = None
        self.timer_at = 0.0
        self.pod: Any = None
        """The lease of the key among the workers of the pod, while it is held. `Leadership` keeps it here."""
        self.fleet: Any = None
        """The same among pods."""


class Member:
    """One request in a flight. All methods may be called at any time and more than once."""

    __slots__ = (
        "_flights",
        "deadline",
        "due",
        "fits",
        "flight",
        "patience",
        "signal",
        "slot_until",
        "stands_in",
        "state",
    )

    def __init__(
        self,
        flights: Flights,
        flight: Flight,
        patience: float,
        deadline: float,
        fits: Callable[[Candidate], bool],
        stands_in: Callable[[], bool],
    ) -> None:
        self._flights = flights
        self.flight = flight
        self.patience = patience
        self.deadline = deadline
        self.due = deadline
        self.fits = fits
        """Whether an answer may be given to this request."""
        self.stands_in = stands_in
        """Whether this request has something that may stand in for an error."""
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
        return bool(self.flight.waiting)

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
        self._flights.head_came(self)

    def shared(self, candidate: Candidate) -> None:
        """This member's answer is stored."""
        self._flights.shared(self, candidate)

    def unshared(self) -> None:
        """This member's answer is not for others, and theirs will not be for each other either."""
        self._flights.unshared(self)

    def failed(self) -> None:
        """This member has got no answer that counts."""
        self._flights.failed(self)

    def leave(self) -> None:
        """This member is done with the flight, for a reason that says nothing of the answer."""
        self._flights.leave(self)


class Flights:
    """All flights of one process. Belongs to one event loop; none of its methods waits or raises."""

    def __init__(self, *, slots: int, waits: Waits, settle: Callable[[Flight], None]) -> None:
        """`slots`: how many members of a flight are at the origin at a time while it is released, 1 or more.

        `settle` is called when a flight has no leader any more: it is answered, is being released, or has ended. It
        may be called more than once for a flight.
        """
        self._slots = slots
        self._waits = waits
        self._settle = settle
        self._flights: dict[bytes, Flight] = {}
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._flights)

    def join(
        self,
        key: bytes,
        patience: float,
        fits: Callable[[Candidate], bool],
        stands_in: Callable[[], bool],
    ) -> Member | None:
        """Join the flight of `key` for at most `patience` seconds: as its leader when there is none.

        None when more wait already than may.
        """
        now = self._waits.now()
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = Flight(key)
            member = Member(self, flight, patience, now + patience, fits, stands_in)
            flight.asking[member] = None
            return member
        if len(flight.waiting) >= MOST_WAITING:
            return None
        member = Member(self, flight, patience, now + patience, fits, stands_in)
        self._let_wait(member)
        self._advance(flight)
        return member

    def follow(self, flight: Flight) -> None:
        """Another process leads: whoever would have, waits as well, as the first in the queue."""
        if flight.closed:
            return
        flight.remote = True
        others, flight.waiting = flight.waiting, {}
        asking, flight.asking = flight.asking, {}
        for member in asking:
            self._let_wait(member)
        flight.waiting.update(others)
        self._advance(flight)

    def lead(self, flight: Flight) -> None:
        """No other process leads any more: the first in the queue goes on."""
        flight.remote = False
        self._advance(flight)

    def open(self, flight: Flight) -> None:
        """There will be nothing to share: release the members."""
        self._open(flight)
        self._advance(flight)

    # -- what members report -----------------------------------------------------------------------------------

    def head_came(self, member: Member) -> None:
        """See `Member`. While a flight is released, the next one may go."""
        if member.state is State.ASKING and member.flight.open:
            self._hope(member)
            self._advance(member.flight)

    def shared(self, member: Member, candidate: Candidate) -> None:
        """See `Member`. Those for whom it is not are released."""
        if not self._done(member):
            return
        flight = member.flight
        flight.answered = True
        self._settle(flight)
        for waiting in [one for one in flight.waiting if one.fits(candidate)]:
            self._tell(waiting, State.GONE, Word(Verdict.ANSWERED, candidate))
        if flight.waiting:
            self._open(flight)
        self._advance(flight)

    def unshared(self, member: Member) -> None:
        """See `Member`."""
        if self._done(member):
            self.open(member.flight)

    def failed(self, member: Member) -> None:
        """See `Member`. One takes over; when that one fails, too, all are released."""
        if not self._done(member):
            return
        flight = member.flight
        flight.failures += 1
        for waiting in [one for one in flight.waiting if one.stands_in()]:
            self._tell(waiting, State.GONE, Word(Verdict.FAILED))
        if flight.failures >= FAILURES_IN_TURN:
            self._open(flight)
        self._advance(flight)

    def leave(self, member: Member) -> None:
        """See `Member`."""
        if self._done(member):
            self._advance(member.flight)

    # -- parts -------------------------------------------------------------------------------------------------

    def _let_wait(self, member: Member) -> None:
        flight = member.flight
        member.state = State.WAITING
        member.slot_until = float("inf")
        member.signal = self._waits.signal()
        flight.joined += 1
        # Of many that came together one after the other is due, and none later than its deadline.
        member.due = member.deadline - (flight.joined * SPACING) % (member.patience / 2)
        flight.waiting[member] = None
        self._numbers += 1
        heapq.heappush(flight.dues, (member.due, self._numbers, member))
        # No later than the first of a crowd that is still coming is due.
        self._wake_at(flight, member.deadline - member.patience / 2)

    def _done(self, member: Member) -> bool:
        """Take a member out; whether that matters to its flight."""
        flight = member.flight
        if member.state is State.GONE:
            return False
        member.state = State.GONE
        flight.asking.pop(member, None)
        flight.waiting.pop(member, None)
        return not flight.closed

    def _open(self, flight: Flight) -> None:
        if flight.open or flight.closed:
            return
        flight.open = True
        now = self._waits.now()
        for member in flight.asking:
            member.slot_until = now + LONGEST_HOLD
        self._settle(flight)

    def _hope(self, member: Member) -> None:
        member.state = State.HOPEFUL
        member.flight.asking.pop(member, None)

    def _tell(self, member: Member, state: State, word: Word) -> None:
        member.flight.waiting.pop(member, None)
        member.state = state
        if state is State.ASKING:
            member.flight.asking[member] = None
        if member.signal is not None:
            member.signal.set(word)

    def _advance(self, flight: Flight) -> None:
        """Let as many go as may; end the flight when nobody is left."""
        if flight.closed:
            return
        if flight.open:
            while flight.waiting and len(flight.asking) < self._slots:
                member = next(iter(flight.waiting))
                member.slot_until = self._waits.now() + self._hold(flight)
                self._tell(member, State.ASKING, Word(Verdict.RELEASED))
        elif flight.waiting and not flight.asking and not flight.remote:
            self._tell(next(iter(flight.waiting)), State.ASKING, Word(Verdict.TAKE_OVER))
        if not flight.waiting and not flight.asking:
            self._end(flight)
        elif flight.open and flight.waiting:
            self._wake_at(flight, min(member.slot_until for member in flight.asking))

    def _hold(self, flight: Flight) -> float:
        """For how long a released member keeps its slot, so that all have gone when the first one's time is up."""
        left = self._first_due(flight) - self._waits.now()
        return min(LONGEST_HOLD, max(SHORTEST_HOLD, left * self._slots / len(flight.waiting)))

    def _first_due(self, flight: Flight) -> float:
        dues = flight.dues
        while dues and not (dues[0][2].waits and dues[0][2].due == dues[0][0]):
            heapq.heappop(dues)
        return dues[0][0] if dues else float("inf")

    def _wake_at(self, flight: Flight, at: float) -> None:
        """See to it that the flight is looked at no later than `at`."""
        if at == float("inf") or (flight.timer is not None and flight.timer_at <= at):
            return
        if flight.timer is not None:
            flight.timer.cancel()
        flight.timer_at = at
        flight.timer = self._waits.later(max(0.0, at - self._waits.now()), lambda: self._on_time(flight))

    def _on_time(self, flight: Flight) -> None:
        flight.timer = None
        if flight.closed:
            return
        now = self._waits.now()
        while self._first_due(flight) <= now:
            self._tell(flight.dues[0][2], State.HOPEFUL, Word(Verdict.RELEASED))
        for member in [one for one in flight.asking if one.slot_until <= now]:
            self._hope(member)
        self._advance(flight)
        if not flight.closed:
            self._wake_at(flight, self._first_due(flight))

    def _end(self, flight: Flight) -> None:
        flight.closed = True
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
        if flight.timer is not None:
            flight.timer.cancel()
            flight.timer = None
        self._settle(flight)
