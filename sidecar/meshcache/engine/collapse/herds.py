"""Who asks the origin for a key, and who waits for the answer: request collapsing as a state machine.

All requests of one process that miss one key at one time are a *herd*. Its first member leads: it goes to the
origin. The others wait, each with a deadline, until one of these words reaches them, and exactly one does:

- `ANSWERED`: a member's answer is stored, and it is one that this waiter may be given;
- `TAKE_OVER`: the leader is gone or has failed, and this waiter is the one that goes on in its place;
- `RELEASED`: there will be no answer to share, or not in time: go on by yourself;
- `FAILED`: the leader has failed, and this waiter has something stale that may stand in for an error.

A release is never a rush. When the answer turns out not to be for sharing, at most `slots` of the herd are at the
origin at a time; the next goes when one of them has seen the head of its response, has failed or left, or after a
bound that lets all be on their way before the first has waited too long. When the leader is only slow, the waiters'
times are up one after the other, since a waiter's time ends a little before its deadline by its place in the queue.

Where another process leads the same key, the herd is `remote`: all its members wait until that one's lease is free.

Nothing here does I/O or knows of asyncio: time, timers and wake-ups come in as arguments.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from meshcache.engine.collapse.herd import Herd, Member, State, Verdict, Word

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshcache.engine.lookup import Candidate
    from meshcache.engine.ports import Waits

SPACING: Final = 0.005
"""Seconds between two waiters whose time is up, when all came at once: 200 a second for one key."""
LONGEST_HOLD: Final = 1.0
"""Seconds after which a released member gives its slot back though nothing was heard of it."""
SHORTEST_HOLD: Final = 0.01
MOST_WAITING: Final = 8192
"""Waiters of one herd; more go on by themselves."""
FAILURES_IN_TURN: Final = 2
"""After so many failures of a herd its members no longer wait for each other's: each finds out by itself."""


class Herds:
    """All herds of one process. Belongs to one event loop; none of its methods waits or raises."""

    def __init__(self, *, slots: int, waits: Waits, settle: Callable[[Herd], None]) -> None:
        """`slots`: how many members of a herd are at the origin at a time while it is released, 1 or more.

        `settle` is called when a herd has no leader any more: it is answered, is being released, or has ended. It
        may be called more than once for a herd.
        """
        self._slots = slots
        self._waits = waits
        self._settle = settle
        self._herds: dict[bytes, Herd] = {}
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._herds)

    def join(
        self,
        key: bytes,
        patience: float,
        fits: Callable[[Candidate], bool],
        stands_in: Callable[[], bool],
        *,
        whole: bool = True,
    ) -> Member | None:
        """Join the herd of `key` for at most `patience` seconds: as its leader when there is none.

        `fits`, `stands_in` and `whole` are as in `Member`. None when more wait already than may.
        """
        now = self._waits.now()
        herd = self._herds.get(key)
        if herd is None:
            herd = self._herds[key] = Herd(key)
            member = Member(self, herd, patience, now + patience, fits, stands_in, whole)
            herd.asking[member] = None
            return member
        if len(herd.waiting) >= MOST_WAITING:
            return None
        member = Member(self, herd, patience, now + patience, fits, stands_in, whole)
        self._let_wait(member)
        self._advance(herd)
        return member

    def follow(self, herd: Herd) -> None:
        """Another process leads: whoever would have, waits as well, as the first in the queue."""
        if herd.closed:
            return
        herd.remote = True
        others, herd.waiting = herd.waiting, {}
        asking, herd.asking = herd.asking, {}
        for member in asking:
            self._let_wait(member)
        herd.waiting.update(others)
        self._advance(herd)

    def lead(self, herd: Herd) -> None:
        """No other process leads any more: the first in the queue goes on."""
        herd.remote = False
        self._advance(herd)

    def open(self, herd: Herd) -> None:
        """There will be nothing to share: release the members."""
        self._open(herd)
        self._advance(herd)

    # -- what members report -----------------------------------------------------------------------------------

    def head_came(self, member: Member) -> None:
        """See `Member`. While a herd is released, the next one may go."""
        if member.state is State.ASKING and member.herd.open:
            self._hope(member)
            self._advance(member.herd)

    def shared(self, member: Member, candidate: Candidate | None, written: Sequence[bytes]) -> None:
        """See `Member`. Those for whom it is not are released."""
        if not self._done(member):
            return
        herd = member.herd
        herd.answered = True
        herd.written = written
        self._settle(herd)
        for waiting in [one for one in herd.waiting if candidate is not None and one.fits(candidate)]:
            self._tell(waiting, State.GONE, Word(Verdict.ANSWERED, candidate))
        if herd.waiting:
            self._open(herd)
        self._advance(herd)

    def unshared(self, member: Member) -> None:
        """See `Member`."""
        if self._done(member):
            self.open(member.herd)

    def held(self, member: Member) -> None:
        """See `Member`. One that asks for the whole answer takes over; without one, all are released."""
        if not self._done(member):
            return
        herd = member.herd
        first = next((one for one in herd.waiting if one.whole), None)
        if first is None:
            self._open(herd)
        else:
            herd.waiting = {first: None, **herd.waiting}
        self._advance(herd)

    def failed(self, member: Member) -> None:
        """See `Member`. One takes over; when that one fails, too, all are released."""
        if not self._done(member):
            return
        herd = member.herd
        herd.failures += 1
        for waiting in [one for one in herd.waiting if one.stands_in()]:
            self._tell(waiting, State.GONE, Word(Verdict.FAILED))
        if herd.failures >= FAILURES_IN_TURN:
            self._open(herd)
        self._advance(herd)

    def leave(self, member: Member) -> None:
        """See `Member`."""
        if self._done(member):
            self._advance(member.herd)

    # -- parts -------------------------------------------------------------------------------------------------

    def _let_wait(self, member: Member) -> None:
        herd = member.herd
        member.state = State.WAITING
        member.slot_until = float("inf")
        member.signal = self._waits.signal()
        herd.joined += 1
        # Of many that came together one after the other is due, and none later than its deadline.
        member.due = member.deadline - (herd.joined * SPACING) % (member.patience / 2)
        herd.waiting[member] = None
        self._numbers += 1
        heapq.heappush(herd.dues, (member.due, self._numbers, member))
        # No later than the first of a crowd that is still coming is due.
        self._wake_at(herd, member.deadline - member.patience / 2)

    def _done(self, member: Member) -> bool:
        """Take a member out; whether that matters to its herd."""
        herd = member.herd
        if member.state is State.GONE:
            return False
        member.state = State.GONE
        herd.asking.pop(member, None)
        herd.waiting.pop(member, None)
        return not herd.closed

    def _open(self, herd: Herd) -> None:
        if herd.open or herd.closed:
            return
        herd.open = True
        now = self._waits.now()
        for member in herd.asking:
            member.slot_until = now + LONGEST_HOLD
        self._settle(herd)

    def _hope(self, member: Member) -> None:
        member.state = State.HOPEFUL
        member.herd.asking.pop(member, None)

    def _tell(self, member: Member, state: State, word: Word) -> None:
        member.herd.waiting.pop(member, None)
        member.state = state
        if state is State.ASKING:
            member.herd.asking[member] = None
        if member.signal is not None:
            member.signal.set(word)

    def _advance(self, herd: Herd) -> None:
        """Let as many go as may; end the herd when nobody is left."""
        if herd.closed:
            return
        if herd.open:
            while herd.waiting and len(herd.asking) < self._slots:
                member = next(iter(herd.waiting))
                member.slot_until = self._waits.now() + self._hold(herd)
                self._tell(member, State.ASKING, Word(Verdict.RELEASED))
        elif herd.waiting and not herd.asking and not herd.remote:
            self._tell(next(iter(herd.waiting)), State.ASKING, Word(Verdict.TAKE_OVER))
        if not herd.waiting and not herd.asking:
            self._end(herd)
        elif herd.open and herd.waiting:
            self._wake_at(herd, min(member.slot_until for member in herd.asking))

    def _hold(self, herd: Herd) -> float:
        """For how long a released member keeps its slot, so that all have gone when the first one's time is up."""
        left = self._first_due(herd) - self._waits.now()
        return min(LONGEST_HOLD, max(SHORTEST_HOLD, left * self._slots / len(herd.waiting)))

    def _first_due(self, herd: Herd) -> float:
        dues = herd.dues
        while dues and not (dues[0][2].waits and dues[0][2].due == dues[0][0]):
            heapq.heappop(dues)
        return dues[0][0] if dues else float("inf")

    def _wake_at(self, herd: Herd, at: float) -> None:
        """See to it that the herd is looked at no later than `at`."""
        if at == float("inf") or (herd.timer is not None and herd.timer_at <= at):
            return
        if herd.timer is not None:
            herd.timer.cancel()
        herd.timer_at = at
        herd.timer = self._waits.later(max(0.0, at - self._waits.now()), lambda: self._on_time(herd))

    def _on_time(self, herd: Herd) -> None:
        herd.timer = None
        if herd.closed:
            return
        now = self._waits.now()
        while self._first_due(herd) <= now:
            self._tell(herd.dues[0][2], State.HOPEFUL, Word(Verdict.RELEASED))
        for member in [one for one in herd.asking if one.slot_until <= now]:
            self._hope(member)
        self._advance(herd)
        if not herd.closed:
            self._wake_at(herd, self._first_due(herd))

    def _end(self, herd: Herd) -> None:
        herd.closed = True
        # Members know their herd: without this, only the garbage collector would get rid of them.
        herd.dues.clear()
        if self._herds.get(herd.key) is herd:
            del self._herds[herd.key]
        if herd.timer is not None:
            herd.timer.cancel()
            herd.timer = None
        self._settle(herd)
