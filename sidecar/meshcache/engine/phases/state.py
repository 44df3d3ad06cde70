"""What the phases of one exchange share: the request, what was found for it, and what may be done with that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.decisions import Decision, MissReason
from meshcache.engine.account import account_of
from meshcache.engine.answers import answer
from meshcache.engine.chunks import WHOLE_BYTES
from meshcache.engine.collapse.place import ALONE, Place
from meshcache.engine.in_envoy import granted_hit
from meshcache.engine.judge import may_stand_in
from meshcache.engine.outcome import Forward
from meshcache.engine.refresh.rules import refresh_way

if TYPE_CHECKING:
    from meshcache.decisions import BypassReason
    from meshcache.engine.account import Account
    from meshcache.engine.cache import Cache
    from meshcache.engine.lookup import Candidate, Lookup
    from meshcache.engine.outcome import Answer
    from meshcache.engine.records import StoredResponse
    from meshcache.message import Request
    from meshcache.policy.compiled import CacheStatus
    from meshcache.policy.selection import Selection
    from meshcache.policy.snapshot import Snapshot


class State:
    """The state of one request. It keeps the policy snapshot with which it began."""

    __slots__ = (
        "_counted",
        "_reserved",
        "account",
        "cache",
        "candidate",
        "forwarded",
        "lookup",
        "now",
        "place",
        "post",
        "request",
        "snapshot",
        "stripped",
    )

    def __init__(self, cache: Cache, request: Request) -> None:
        self.cache = cache
        self.request = request
        """As the origin will see it, once the policy has been chosen."""
        self.snapshot = cache.snapshot
        self.now = cache.clock()
        """Unix seconds; put forward after each wait."""
        self.lookup: Lookup | None = None
        """None for what is not looked up."""
        self.candidate: Candidate | None = None
        """The best that is stored for the request so far."""
        self.forwarded: Forward | None = None
        """What was decided when the request went to the origin."""
        self.account: Account | None = None
        """What it shows of an experiment; None for a request that counts in none."""
        self.place: Place = ALONE
        self.post: Lookup | None = None
        """Where an answer to POST would be stored for GET."""
        self.stripped: tuple[str, ...] = ()
        """Fields of the request that the policy keeps from the origin."""
        self._counted = False
        self._reserved = 0

    @property
    def looked_up(self) -> Lookup:
        """The look-up of a request that has one."""
        assert self.lookup is not None  # noqa: S101 - what is not looked up is forwarded at once
        return self.lookup

    @property
    def shown(self) -> CacheStatus:
        """How much of `cache-status` the caller sees where nothing was looked up."""
        return "off" if self.snapshot is None else self.snapshot.shown_to(self.request)

    def open_account(self, snapshot: Snapshot, selection: Selection) -> None:
        """The request counts, where what counts the experiments is at hand."""
        policy = selection.policy
        cost = 0.0 if policy is None else policy.cost
        self.account = account_of(selection.exposures, snapshot.tallies, cost, self.cache.clock)

    def forward(self, decision: Decision, reason: MissReason) -> Forward:
        """Send the request to the origin, after a look-up."""
        forward = self.forwarded = Forward(decision, reason, remove_fields=list(self.stripped))
        return forward

    def bypass(self, reason: BypassReason, selection: Selection | None = None, *, watch: bool = False) -> Forward:
        """Send the request to the origin as it is; only with `watch` its answer is seen."""
        forward = self.forwarded = Forward(Decision.BYPASS, reason, watch=watch)
        if not watch:
            self.count(Decision.BYPASS, reason, selection=selection)
        return forward

    def answer(self, lookup: Lookup, decision: Decision, candidate: Candidate) -> Answer:
        """Answer with what is stored."""
        cache, entry = self.cache, candidate.entry
        if entry is not None and entry.rendered is None:
            cache.keeper.render(candidate.storage, entry, self.now)
        if lookup.waited and decision is Decision.HIT:
            decision = Decision.COLLAPSED
        made = answer(lookup, decision, candidate, self.request.headers, self.now)
        if self.request.asked is not None:
            made.grant = granted_hit(lookup, self.request, candidate, made, self.refresh_way(lookup, candidate.stored))
        forward = self.forwarded
        if lookup.waited and forward is not None and isinstance(forward.reason, MissReason):
            self.place.answers(made, candidate, self.now, forward.reason)
        self.count(decision, "", candidate.tier)
        cache.meter.served(candidate.tier, made.size)
        if self.account is not None:
            self.account.answered(decision, candidate, self.now)
        return made

    def may_stand_in(self, candidate: Candidate, *, unreachable: bool) -> bool:
        """Whether what is stored may be sent in place of an error of the origin, or of one for want of an origin."""
        return may_stand_in(
            candidate.judgement, self.request.headers, self.now, unreachable=unreachable
        ) and not self.cache.stack.purged(candidate.born, candidate.stored)

    def can_answer_late(self, candidate: Candidate) -> bool:
        """Whether an entry can answer once the origin has been asked: Envoy then takes it in one piece only.

        Room for that piece is reserved until the exchange is over.
        """
        stored = candidate.stored
        if not stored.chunks or self.request.method == "HEAD" or self._reserved:
            return True
        if stored.size > WHOLE_BYTES or not self.cache.copies.take(stored.size):
            return False
        self._reserved = stored.size
        return True

    def unreserve(self) -> None:
        """Give back what `can_answer_late` has reserved: the request does not go to the origin now."""
        self.cache.copies.give(self._reserved)
        self._reserved = 0

    def refresh_way(self, lookup: Lookup, stored: StoredResponse) -> str | None:
        """By which cluster an entry can be refreshed behind the client's back; None: he waits for its validation."""
        snapshot = self.snapshot
        if snapshot is None or self.cache.refresher is None:
            return None
        return refresh_way(stored, lookup.policy, snapshot.config, self.request)

    def count(self, decision: Decision, reason: str, tier: str = "", selection: Selection | None = None) -> None:
        """Count the request; once, however often it is decided upon."""
        if self._counted:
            return
        self._counted = True
        if self.lookup is not None:
            selection = self.lookup.selection
        route, arm = ("", "") if selection is None else (selection.route, selection.arm)
        self.cache.meter.request(decision, reason, tier, route, arm)

    def close(self) -> None:
        """Give back and tell what the exchange holds and owes. Safe to call more than once."""
        self.unreserve()
        self.place.leave()
        if self.forwarded is not None:
            self.count(self.forwarded.decision, self.forwarded.reason)
