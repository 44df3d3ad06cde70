"""One request among those that want the same: whether it waits for another's answer, and what it tells the others.

A request is collapsed when its answer can be for others: a whole GET that leaves the cache its freedom. What its leader
brings is given to it only where the look-up would have given it the same answer from store. Requests with
`authorization` wait for each other only, since what they get is seldom for the rest (RFC 9111 section 3.5).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from meshcache.decisions import CollapseOutcome, Decision, MissReason, NoStoreReason, TierName
from meshcache.engine import report
from meshcache.engine.collapse.herd import Verdict
from meshcache.engine.collapse.leadership import SHUN_FAILED_SECONDS, SHUN_SECONDS
from meshcache.engine.judge import Use, judge, may_stand_in, use
from meshcache.engine.key import variant_key
from meshcache.engine.lookup import Candidate
from meshcache.rfc.cache_control import request_cache_control
from meshcache.rfc.request import refuses
from meshcache.rfc.stale import ERROR_STATUSES
from meshcache.rfc.validation import CONDITIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshcache.engine.collapse.herd import Member, Word
    from meshcache.engine.collapse.leadership import Leadership
    from meshcache.engine.judge import Judgement
    from meshcache.engine.lookup import Lookup
    from meshcache.engine.outcome import Answer
    from meshcache.engine.ports import Meter
    from meshcache.engine.records import StoredResponse
    from meshcache.engine.storing.fill import Fill
    from meshcache.message import Request, Response
    from meshcache.policy.compiled import Policy

_MOST_JOINED: Final = 3
"""Herds that one request joins one after the other: of the URL, then of its variant, perhaps of a newer one."""
_NOT_WORTH_WAITING: Final = 0.005
"""Seconds of patience below which a request does not wait any more."""

_AS_ACCURATE: Final = 0.02
"""Seconds by which it may be wrong how long ago something was: stores count milliseconds."""

_FAILED = frozenset(
    {NoStoreReason.LOCAL_REPLY, NoStoreReason.TRUNCATED, NoStoreReason.INVALIDATED, NoStoreReason.PURGED}
)
"""The answer was none, or is one that does not count any more: another may be."""
_OF_ONE_REQUEST = frozenset(
    {
        NoStoreReason.METHOD,
        NoStoreReason.REQUEST_NO_STORE,
        NoStoreReason.PARTIAL,
        NoStoreReason.NO_MEMORY,
    }
)
"""Says something of this request, or of this moment, and nothing of the next answer."""


def may_collapse(lookup: Lookup, request: Request, reason: MissReason, candidate: Candidate | None) -> bool:
    """Whether a request that has to go to the origin may wait for another's answer, and its own be waited for."""
    return (
        reason is not MissReason.REQUEST
        # What is never fresh has to be validated for each request anew.
        and (candidate is None or _is_shareable(candidate.judgement))
        and may_wait(request, lookup.policy)
    )


def may_wait(request: Request, policy: Policy) -> bool:
    """Whether a request is one of those that wait for each other, whatever is stored."""
    headers = request.headers
    if policy.collapse_wait <= 0.0 or request.method != "GET" or "range" in headers.names:
        return False
    if "cache-control" in headers.names:
        directives = request_cache_control(headers)
        if directives.no_store or refuses(directives, age=1.0, lifetime=float("inf")):
            return False
    return True


def _is_shareable(judgement: Judgement) -> bool:
    """Whether a response is ever given out without a validation."""
    return judgement.lifetime > judgement.initial_age and not judgement.always_validate


class Place:
    """One request's place in the herds of what it wants."""

    __slots__ = (
        "_apart",
        "_candidate",
        "_clock",
        "_deadline",
        "_joined",
        "_leadership",
        "_lookup",
        "_members",
        "_meter",
        "_request",
    )

    def __init__(
        self, leadership: Leadership, meter: Meter, lookup: Lookup, request: Request, clock: Callable[[], float]
    ) -> None:
        """`clock` gives Unix seconds."""
        self._leadership = leadership
        self._meter = meter
        self._lookup = lookup
        self._request = request
        self._clock = clock
        self._deadline = leadership.now() + lookup.policy.collapse_wait
        self._members: list[Member] = []
        self._joined = 0
        self._apart = b""
        """The key whose herd it was kept out of, as answers for it had not been for sharing."""
        self._candidate: Candidate | None = None
        """What is stored already and may stand in for an error."""

    @property
    def left(self) -> float:
        """Seconds for which the request may wait still."""
        return max(0.0, self._deadline - self._leadership.now())

    @property
    def asks_others(self) -> bool:
        """Whether `confirm` has anybody to ask."""
        return bool(self._members) and self._leadership.asks_others

    def goes(self, candidate: Candidate | None) -> bool:
        """Join those that want the same; whether this request goes to the origin now, else `word` is to be awaited.

        `candidate` is what it would validate.
        """
        self._candidate = candidate
        storage = self._lookup.newest_place() if candidate is None else candidate.storage
        key = storage + self._kind()
        if self._members and any(member.herd.key == key for member in self._members):
            # Its turn has come already.
            return True
        left = self.left
        if left < _NOT_WORTH_WAITING or self._joined >= _MOST_JOINED:
            return True
        whole = self._request.headers.names.isdisjoint(CONDITIONS)
        member = self._leadership.join(key, left, self.fits, self.stands_in, whole=whole)
        if member is None:
            self._apart = key
            return True
        self._joined += 1
        if member.waits:
            # The others need not wait for one that waits itself.
            self.leave()
        self._members.append(member)
        return not member.waits

    def _kind(self) -> bytes:
        """Who may get one answer: those with credentials, those with cookies that the key does not hold, strangers."""
        headers, policy = self._request.headers, self._lookup.policy.freshness
        if "authorization" in headers.names:
            return b"a"
        return b"k" if "cookie" in headers.names and not (policy.cookies_keyed or policy.person_keyed) else b"c"

    async def confirm(self) -> bool:
        """Ask other pods whether this one may go; False when `word` is to be awaited."""
        if not self._members:
            return True
        # The latest: those before it are of herds that are being released.
        latest = self._members[-1]
        await self._leadership.confirm(latest)
        if not latest.waits:
            return True
        for member in self._members[:-1]:
            member.leave()
        self._members = [latest]
        return False

    def looks_again(self) -> bool:
        """Whether another process has stored an answer since this request, which is to lead, was looked up.

        True once for each herd. It then counts as one that has waited for that answer.
        """
        if not self._members:
            return False
        herd = self._members[-1].herd
        ago, herd.answered_before = self._leadership.now() - herd.answered_before, -inf
        if ago > self._clock() - self._lookup.now + _AS_ACCURATE:
            return False
        self._lookup.waited = True
        return True

    async def word(self) -> Word:
        """What the herd says to one that waits."""
        self._lookup.waited = True
        (member,) = self._members
        word = await member.word()
        if word.verdict in (Verdict.ANSWERED, Verdict.FAILED):
            self._members.clear()
        return word

    def fits(self, candidate: Candidate) -> bool:
        """Whether an answer may be given to this request as it is."""
        lookup = self._lookup
        if not lookup.selects(candidate.stored):
            return False
        judgement = candidate.judgement
        if judgement.policy is not lookup.policy.freshness:
            judgement = judge(candidate.stored, lookup.policy.freshness)
        if not lookup.readable(judgement):
            return False
        return use(judgement, self._request.headers, self._clock()) in (Use.FRESH, Use.ACCEPTED_STALE)

    def stands_in(self) -> bool:
        """Whether what is stored, stale as it is, may be sent in place of an error."""
        candidate = self._candidate
        return (
            candidate is not None
            and may_stand_in(candidate.judgement, self._request.headers, self._clock())
            and self._lookup.alive(candidate)
        )

    def goes_on(self, verdict: Verdict, *, asks: bool) -> None:
        """After waiting this request was looked up once more: whether it asks the origin for what the others want."""
        if not asks:
            self.leave()
        elif verdict is Verdict.TAKE_OVER:
            self._meter.collapsed(CollapseOutcome.TAKEOVER)
        else:
            self._meter.collapsed(CollapseOutcome.RELEASED)

    def answers(self, made: Answer, candidate: Candidate, now: float, reason: MissReason) -> None:
        """Say of an answer that it was waited for, and give it to those that wait still.

        `reason` is why the request would have gone to the origin.
        """
        decision = made.decision
        if decision is Decision.COLLAPSED:
            self._meter.collapsed(CollapseOutcome.ANSWERED)
            self._share(candidate, (candidate.storage,))
        elif decision is Decision.STALE_IF_ERROR and not self._members:
            self._meter.collapsed(CollapseOutcome.STALE)
        else:
            return
        ttl = candidate.judgement.lifetime - candidate.judgement.age(now)
        made.cache_status = report.collapsed(self._lookup, decision, candidate.tier, reason, ttl)

    # -- what it tells -----------------------------------------------------------------------------------------

    def head_came(self, fill: Fill) -> None:
        """The origin answers with something that can be stored."""
        kind = fill.arrival.response.headers.get("content-type")
        if kind is not None and kind.lower().startswith("text/event-stream"):
            # It may go on for as long as it likes.
            self._refuse(SHUN_SECONDS)
        elif self._awaited and not _is_shareable(fill.judged()):
            self._refuse(SHUN_SECONDS)
        else:
            for member in self._members:
                member.head_came()

    def kept(self, outcome: StoredResponse | NoStoreReason, response: Response) -> None:
        """What became of the origin's answer: it is stored, or why it is not."""
        if not isinstance(outcome, NoStoreReason):
            self._stored(outcome)
        elif response.status in ERROR_STATUSES or outcome in _FAILED:
            self.failed()
        elif response.status == 304:
            for member in self._members:
                member.held()
            self._members.clear()
        elif outcome in _OF_ONE_REQUEST:
            self._refuse(0.0)
        else:
            self._refuse(SHUN_SECONDS)

    def failed(self) -> None:
        """The origin failed, or its answer does not count."""
        for member in self._members:
            member.failed()
            if member.herd.open:
                self._leadership.shun(member.herd.key, SHUN_FAILED_SECONDS)
        self._members.clear()

    def leave(self) -> None:
        """This request is over, for reasons of its own."""
        for member in self._members:
            member.leave()
        self._members.clear()

    @property
    def _awaited(self) -> bool:
        for member in self._members:  # noqa: SIM110 - a generator would cost more, and there is one as a rule
            if member.herd.waiting:
                return True
        return False

    def _stored(self, stored: StoredResponse) -> None:
        if not self._members and not self._apart:
            return
        lookup = self._lookup
        storage = variant_key(lookup.key.storage, stored.selecting) if stored.selecting else lookup.key.storage
        candidate = None
        if self._awaited:
            judgement = judge(stored, lookup.policy.freshness)
            candidate = Candidate(stored, storage, TierName.HOT, judgement, None, lookup.epochs.born)
        self._share(candidate, (storage, lookup.key.storage))

    def _share(self, candidate: Candidate | None, written: Sequence[bytes]) -> None:
        """An answer is in the store, or on its way there; it is named where someone waits for it."""
        shareable = candidate is None or _is_shareable(candidate.judgement)
        if self._apart and shareable:
            self._leadership.readmit(self._apart)
        for member in self._members:
            if shareable:
                self._leadership.readmit(member.herd.key)
            else:
                self._leadership.shun(member.herd.key, SHUN_SECONDS)
            member.shared(candidate, written)
        self._members.clear()

    def _refuse(self, shun: float) -> None:
        """An answer is not for sharing, nor will the next ones be for `shun` seconds."""
        for member in self._members:
            if shun:
                self._leadership.shun(member.herd.key, shun)
            member.unshared()
        self._members.clear()


class _Alone(Place):
    """That of a request which others have nothing to do with: it tells nobody anything."""

    def __init__(self) -> None:
        self._members = []
        self._apart = b""


ALONE: Final = _Alone()
