"""One request from its headers to the end of its response: look-up, answer or forward, then store.

The order of calls is `start`, `search` when `start` could not decide from memory, `wait` when another request for the
same is ahead, `on_response` when the outcome is to be watched, `on_body` for each chunk and `on_end` when the body is
complete. `close` ends it early: what was copied so far is dropped, so that a response cut off is never stored.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshcache.decisions import BypassReason, Decision, MissReason, NoStoreReason, RefreshCause
from meshcache.engine import report
from meshcache.engine.admission import bypass_reason, effective_method
from meshcache.engine.answers import answer, no_answer, nothing_cached
from meshcache.engine.chunks import WHOLE_BYTES
from meshcache.engine.epochs import UNKNOWN
from meshcache.engine.fill import fresh_for
from meshcache.engine.filling import begin_fill
from meshcache.engine.following import ALONE, Place, may_collapse
from meshcache.engine.herd import Verdict
from meshcache.engine.judge import Use, may_stand_in, use, withheld
from meshcache.engine.key import cache_key
from meshcache.engine.lookup import Candidate, Lookup, newer
from meshcache.engine.outcome import Answer, Forward, Pass, Wait
from meshcache.engine.parts import PARTIAL_CONTENT, is_part
from meshcache.engine.placement import promoted_tiers
from meshcache.engine.posting import answers_for_get, post_lookup
from meshcache.engine.refetch import PATIENCE_SECONDS, refetch
from meshcache.engine.refresh import POPULAR, refresh_way
from meshcache.engine.succession import is_error
from meshcache.experiment.assignment import AssignedBy
from meshcache.policy.identity import OPEN
from meshcache.rfc.cache_control import request_cache_control
from meshcache.rfc.invalidation import is_unsafe
from meshcache.rfc.tags import TAG_FIELDS
from meshcache.rfc.targeted import capability
from meshcache.rfc.validation import add_validators, confirmed_by_head, contradicts, holds, validates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshcache.engine.cache import Cache
    from meshcache.engine.fill import Fill
    from meshcache.message import Request, Response
    from meshcache.policy.compiled import CacheStatus
    from meshcache.policy.snapshot import Selection


class Exchange:
    """The state of one request. It keeps the policy snapshot with which it began."""

    __slots__ = (
        "_cache",
        "_candidate",
        "_counted",
        "_fill",
        "_forwarded",
        "_lookup",
        "_place",
        "_post",
        "_reserved",
        "_stripped",
        "now",
        "request",
        "snapshot",
    )

    def __init__(self, cache: Cache, request: Request) -> None:
        self._cache = cache
        self.request = request
        self.snapshot = cache.snapshot
        self.now = cache.clock()
        self._lookup: Lookup | None = None
        self._candidate: Candidate | None = None
        self._forwarded: Forward | None = None
        self._fill: Fill | None = None
        self._place: Place = ALONE
        self._post: Lookup | None = None
        self._stripped: tuple[str, ...] = ()
        self._counted = False
        self._reserved = 0

    # -- the request -------------------------------------------------------------------------------------------

    def start(self) -> Answer | Forward | Wait | None:
        """Decide without waiting; None when the lower tiers have to be asked."""
        request = self.request
        reason = bypass_reason(request)
        if reason is not None:
            # An unsafe request is watched, whatever else it is: its success makes stored answers invalid.
            unsafe = is_unsafe(effective_method(request)) and reason is not BypassReason.BAD_REQUEST
            if reason is BypassReason.METHOD and request.method == "POST":
                self._post = post_lookup(self._cache.stack, self.snapshot, request, self.now)
            return self._bypass(reason, watch=unsafe)
        snapshot = self.snapshot
        if snapshot is None:
            return self._bypass(BypassReason.NO_POLICY)
        selection = snapshot.select(request)
        policy = selection.policy
        if policy is None:
            return self._bypass(BypassReason.ROUTE_NOT_CACHED if selection.route else BypassReason.NO_ROUTE, selection)
        if selection.how is AssignedBy.NO_UNIT:
            self._cache.meter.missing_unit(selection.experiment)
        if request.method not in policy.key.methods:
            return self._bypass(BypassReason.METHOD, selection)
        border = snapshot.identities.border(request, policy.key) if policy.key.partitioned else OPEN
        if border is None:
            return self._bypass(BypassReason.NO_IDENTITY, selection)
        if policy.key.strip:
            self._strip(policy.key.strip)
        revision = snapshot.revision(request)
        key = cache_key(request, policy.key, namespace=selection.namespace, revision=revision, border=border.parts)
        lookup = self._lookup = Lookup(
            self._cache.stack,
            request,
            selection,
            policy,
            key,
            revision,
            self.now,
            border.subject,
            snapshot.shown_to(request),
        )
        candidate = self._candidate = lookup.in_memory()
        if candidate is not None and use(candidate.judgement, request.headers, self.now) is Use.FRESH:
            entry = candidate.entry
            if entry is not None:
                entry.hits += 1
                if self.now > candidate.judgement.renew_from and entry.hits >= POPULAR:
                    self._refresh(lookup, candidate, RefreshCause.AHEAD)
            return self._answer(lookup, Decision.HIT, candidate)
        # What is stale in memory may be fresher below, written by another worker or pod: that is looked for, unless
        # the client can be answered at once, when the refresh does it.
        if lookup.absent() or (candidate is not None and self._may_serve_while_refreshing(lookup, candidate)):
            if candidate is None and self._cache.completions.worthwhile(lookup):
                return None
            outcome = self._decide(lookup, candidate)
            # Other pods are asked before the origin is, and that takes a round trip.
            return None if isinstance(outcome, Forward) and self._place.asks_others else outcome
        return None

    async def search(self) -> Answer | Forward | Wait:
        """Decide with the lower tiers. To be called when `start` returned None."""
        lookup = self._lookup
        assert lookup is not None  # noqa: S101 - start() has set it before it returns None
        known = lookup.index
        candidate = self._candidate = await lookup.below(self._candidate)
        if lookup.index is not None and lookup.index is not known:
            # Tiny and asked for by every request for the resource: kept in memory whatever its reader has earned.
            self._cache.keeper.promote_index(lookup.target(), lookup.index, self.now)
        if candidate is None and self._cache.completions.worthwhile(lookup):
            completed = await self._complete(lookup)
            if completed is not None:
                return completed
        outcome = self._decide(lookup, candidate)
        if isinstance(outcome, Forward) and not await self._place.confirm():
            return Wait(self._place.left)
        return outcome

    async def wait(self) -> Answer | Forward:
        """Decide once the request that is ahead has been answered, has failed, or has been waited for long enough."""
        lookup, place = self._lookup, self._place
        assert lookup is not None  # noqa: S101 - a request that waits has been looked up
        while True:
            word = await place.word()
            self.now = self._cache.clock()
            if word.verdict is Verdict.FAILED and self._candidate is not None and place.stands_in():
                return self._answer(lookup, Decision.STALE_IF_ERROR, self._candidate)
            handed = word.candidate if word.candidate is not None and lookup.alive(word.candidate) else None
            lookup.renew(self.now)
            candidate = self._candidate = newer(lookup.in_memory(), handed)
            # Else the answer may have been stored by another process, and what is to be stored needs epochs of now.
            if (candidate is not None and place.fits(candidate)) or lookup.absent():
                outcome = self._decide(lookup, candidate)
            else:
                outcome = await self.search()
            if not isinstance(outcome, Wait):
                place.goes_on(word.verdict, asks=isinstance(outcome, Forward) and outcome.watch)
                return outcome

    def forward_unseen(self) -> Forward:
        """Give the look-up up: the request goes to the origin and its answer is not stored (no epoch is known)."""
        self._place.leave()
        if self._lookup is not None:
            self._lookup.epochs = UNKNOWN
        return self._forward(Decision.MISS, MissReason.URI_MISS if self._candidate is None else MissReason.STALE)

    def without_body(self) -> Forward:
        """The body of the answer that was decided upon cannot be read: the request goes to the origin."""
        self._candidate = None
        return self._forward(Decision.MISS, MissReason.URI_MISS)

    # -- the response ------------------------------------------------------------------------------------------

    async def on_response(self, response: Response) -> Answer | Pass | Wait:
        """Decide what the client gets for the origin's (or Envoy's own) answer, and whether it is copied."""
        forward = self._forwarded
        assert forward is not None  # noqa: S101 - only forwarded requests have responses
        if self._fill is not None:
            # A second head: the body before it belongs to no whole response.
            self.close()
        if forward.decision is Decision.BYPASS:
            return await self._bypassed(forward, response)
        now = self._cache.clock()
        candidate, lookup = self._candidate, self._lookup
        if candidate is not None and lookup is not None:
            unreachable = not response.from_origin
            if not is_error(response.status):
                self._cache.succeeded(candidate.storage)
                if forward.decision is Decision.REVALIDATE and response.status == 304 and response.from_origin:
                    return self._revalidated(lookup, candidate, response, now)
            elif self._may_stand_in(candidate, now, unreachable=unreachable) and self._can_answer_late(candidate):
                self._cache.failed(candidate.storage, now, unreachable=unreachable)
                self.now = now
                self._place.failed()
                return self._asked(lookup, Decision.STALE_IF_ERROR, candidate, response.status)
            if response.status == 200 and self.request.method == "HEAD" and response.from_origin:
                made = self._by_head(lookup, candidate, response, now)
                if made is not None:
                    return made
        self._count(forward.decision, forward.reason)
        return self._pass(forward, response, now)

    def on_body(self, chunk: bytes) -> None:
        """Copy one chunk of the response's body."""
        if self._fill is not None and not self._fill.add(chunk):
            self._drop_fill()

    def on_end(self) -> None:
        """The body is complete: store the response."""
        fill, self._fill = self._fill, None
        if fill is not None:
            # What those that wait are told may come later, when the exchange is over.
            place, self._place = self._place, ALONE
            self._cache.keeper.store(fill, self._known, partial(place.kept, response=fill.response))

    def close(self) -> None:
        """The exchange is over, whether or not it was complete. Safe to call more than once."""
        if self._fill is not None:
            self._cache.meter.stored(NoStoreReason.TRUNCATED)
            self._fill.release()
            self._fill = None
        self._cache.copies.give(self._reserved)
        self._reserved = 0
        self._place.leave()
        if not self._counted and self._forwarded is not None:
            self._count(self._forwarded.decision, self._forwarded.reason)

    async def _bypassed(self, forward: Forward, response: Response) -> Pass:
        """What was not looked up goes to the client; an unsafe request may have made what is stored invalid."""
        keeper, post = self._cache.keeper, self._post
        if post is None or not answers_for_get(post, self.request, response):
            await keeper.invalidate(self.request, response, self._cache.key_specs)
        else:
            resource = post.key.resource
            await keeper.invalidate(self.request, response, self._cache.key_specs, spared=resource)
            post.epochs = self._cache.stack.succeed(resource, post.epochs) or UNKNOWN
            fill = begin_fill(keeper, post, None, self.request.headers, response, self._cache.clock())
            if isinstance(fill, NoStoreReason):
                self._cache.meter.stored(fill)
            else:
                self._fill = fill
        self._count(Decision.BYPASS, forward.reason)
        status = report.bypassed(forward.reason, response.headers, self._shown(), stored=self._fill is not None)
        if self._fill is not None and response.complete:
            self.on_end()
        return Pass(status, copy=self._fill is not None)

    # -- parts -------------------------------------------------------------------------------------------------

    def _decide(self, lookup: Lookup, candidate: Candidate | None) -> Answer | Forward | Wait:
        """What is done with the best that there is."""
        if candidate is None:
            return self._ask(lookup, None, lookup.miss_reason)
        verdict = use(candidate.judgement, self.request.headers, self.now)
        if candidate.stored.chunks and verdict not in _ASKS_FIRST and self._is_crowded(lookup, candidate):
            return self._bypass(BypassReason.CROWDED)
        if verdict is Use.FRESH:
            self._promote(lookup, candidate)
            return self._answer(lookup, Decision.HIT, candidate)
        if verdict is Use.STALE_WHILE_REVALIDATE and self._refresh(lookup, candidate, RefreshCause.STALE):
            self._promote(lookup, candidate)
            return self._answer(lookup, Decision.STALE_SWR, candidate)
        if verdict is Use.ACCEPTED_STALE:
            return self._answer(lookup, Decision.HIT, candidate)
        if verdict is Use.VALIDATE and self._has_just_stood_in(candidate):
            return self._answer(lookup, Decision.STALE_IF_ERROR, candidate)
        by_request = verdict is Use.VALIDATE_BY_REQUEST
        return self._ask(lookup, candidate, MissReason.REQUEST if by_request else MissReason.STALE)

    def _ask(self, lookup: Lookup, candidate: Candidate | None, reason: MissReason) -> Answer | Forward | Wait:
        """Nothing stored may be used as it is: the origin is asked, unless the client wants nothing fetched.

        Where another request for the same has gone ahead, this one waits.
        """
        headers = self.request.headers
        if request_cache_control(headers).only_if_cached:
            self._count(Decision.ONLY_IF_CACHED, reason)
            return nothing_cached(lookup)
        changes: Mapping[str, str | None] = {}
        if candidate is not None and self._can_answer_late(candidate):
            changes = add_validators(headers, candidate.stored.status, candidate.stored.fields, now=self.now)
        forward = self._forward(Decision.REVALIDATE if changes else Decision.MISS, reason)
        for name, value in changes.items():
            if value is None:
                forward.remove_fields.append(name)
            else:
                forward.set_fields.append((name, value))
        offered = capability(headers, lookup.policy.freshness.targets)
        if offered is not None:
            forward.set_fields.append(offered)
        if self._place is ALONE:
            if not may_collapse(lookup, self.request, reason, candidate):
                return forward
            self._place = Place(self._cache.leadership, self._cache.meter, lookup, self.request, self._cache.clock)
        return forward if self._place.goes(candidate) else Wait(self._place.left)

    def _is_crowded(self, lookup: Lookup, candidate: Candidate) -> bool:
        """Whether a body in chunks may not be sent now. Parts of one are mostly short."""
        whole = self.request.method != "HEAD" and lookup.wanted is None
        return whole and not self._cache.flights.room(candidate.stored.size)

    def _can_answer_late(self, candidate: Candidate) -> bool:
        """Whether an entry can answer once the origin has been asked: Envoy then takes it in one piece only.

        Room for that piece is reserved until the exchange is over.
        """
        stored = candidate.stored
        if not stored.chunks or self.request.method == "HEAD" or self._reserved:
            return True
        if stored.size > WHOLE_BYTES or not self._cache.copies.take(stored.size):
            return False
        self._reserved = stored.size
        return True

    async def _complete(self, lookup: Lookup) -> Answer | None:
        """The whole, of which a part was held, after the origin was asked for the rest of it."""
        part = lookup.part
        cluster = None if part is None else self._refresh_way(lookup, part)
        done = None if cluster is None else await self._cache.completions.complete(lookup, cluster)
        if done is None:
            return None
        whole, status = done
        self.now = self._cache.clock()
        made = self._answer(lookup, Decision.COMPLETED, whole)
        made.cache_status = report.completed(lookup, whole.tier, status)
        return made

    def _may_serve_while_refreshing(self, lookup: Lookup, candidate: Candidate) -> bool:
        verdict = use(candidate.judgement, self.request.headers, self.now)
        return verdict is Use.STALE_WHILE_REVALIDATE and self._refresh_way(lookup, candidate) is not None

    def _has_just_stood_in(self, candidate: Candidate) -> bool:
        """Whether the origin has failed this entry a moment ago, so that the next clients need not wait for that."""
        cache, storage = self._cache, candidate.storage
        return any(
            cache.has_just_failed(storage, self.now, unreachable=unreachable)
            and self._may_stand_in(candidate, self.now, unreachable=unreachable)
            for unreachable in (False, True)
        )

    def _may_stand_in(self, candidate: Candidate, now: float, *, unreachable: bool) -> bool:
        """Whether what is stored may be sent in place of an error of the origin, or of one for want of an origin."""
        return may_stand_in(
            candidate.judgement, self.request.headers, now, unreachable=unreachable
        ) and not self._cache.stack.purged(candidate.born, candidate.stored)

    def _refresh_way(self, lookup: Lookup, candidate: Candidate) -> str | None:
        """By which cluster an entry can be refreshed behind the client's back; None: he waits for its validation."""
        snapshot = self.snapshot
        if snapshot is None or self._cache.refresher is None:
            return None
        return refresh_way(candidate.stored, lookup.policy, snapshot.config, self.request)

    def _refresh(self, lookup: Lookup, candidate: Candidate, cause: RefreshCause) -> bool:
        """Have an entry refreshed in the background; False when that must not be."""
        cluster = self._refresh_way(lookup, candidate)
        if cluster is None:
            return False
        self._cache.refresh(lookup.target(), candidate, cluster, cause)
        return True

    def _promote(self, lookup: Lookup, candidate: Candidate) -> None:
        tiers = promoted_tiers(lookup.policy.placement, lookup.selection.score, candidate.tier)
        if tiers:
            self._cache.keeper.promote(lookup.target(), candidate, tiers, self.now)

    def _bypass(self, reason: BypassReason, selection: Selection | None = None, *, watch: bool = False) -> Forward:
        forward = self._forwarded = Forward(Decision.BYPASS, reason, watch=watch)
        if not watch:
            self._count(Decision.BYPASS, reason, selection=selection)
        return forward

    def _forward(self, decision: Decision, reason: MissReason) -> Forward:
        forward = self._forwarded = Forward(decision, reason, remove_fields=list(self._stripped))
        return forward

    def _shown(self) -> CacheStatus:
        """How much of `cache-status` the caller sees where nothing was looked up."""
        return "off" if self.snapshot is None else self.snapshot.shown_to(self.request)

    def _strip(self, names: frozenset[str]) -> None:
        """From here on see the request as the origin will: without the fields that the policy keeps from it."""
        request = self.request
        self._stripped = tuple(sorted(request.headers.names & names))
        if self._stripped:
            request.headers = request.headers.without(names)

    def _answer(self, lookup: Lookup, decision: Decision, candidate: Candidate) -> Answer:
        entry = candidate.entry
        if entry is not None and entry.rendered is None:
            self._cache.keeper.render(candidate.storage, entry, self.now)
        if lookup.waited and decision is Decision.HIT:
            decision = Decision.COLLAPSED
        made = answer(lookup, decision, candidate, self.request.headers, self.now)
        forward = self._forwarded
        if lookup.waited and forward is not None and isinstance(forward.reason, MissReason):
            self._place.answers(made, candidate, self.now, forward.reason)
        self._count(decision, "", candidate.tier)
        self._cache.meter.served(candidate.tier, made.size)
        return made

    def _revalidated(
        self, lookup: Lookup, candidate: Candidate, response: Response, now: float
    ) -> Answer | Pass | Wait:
        """The origin says that what is stored is still right: it becomes the answer, brought up to date."""
        if validates(candidate.stored.fields, response.headers, now=now):
            return self._confirmed(lookup, candidate, response, now)
        # A 304 that names no validator of what is stored: at best good for this answer, not for later ones.
        self._cache.keeper.forget(candidate)
        self._place.leave()
        if contradicts(candidate.stored.fields, response.headers):
            return self._contradicted(lookup, candidate, response, now)
        return self._after_asking(lookup, candidate, response, now, kept=False)

    def _confirmed(self, lookup: Lookup, candidate: Candidate, response: Response, now: float) -> Answer:
        """What is stored, brought up to date by a response that speaks of it, becomes the answer."""
        candidate, refused = self._cache.keeper.freshen(lookup.target(), candidate, response, now)
        self._place.kept(refused or candidate.stored, response)
        return self._after_asking(lookup, candidate, response, now, kept=refused is None)

    def _after_asking(
        self, lookup: Lookup, candidate: Candidate, response: Response, now: float, *, kept: bool
    ) -> Answer:
        self.now = now
        made = self._asked(lookup, Decision.REVALIDATED, candidate, response.status, stored=kept)
        # They are for this client alone, and so not among the stored fields.
        made.cookies = tuple(response.headers.get_all("set-cookie"))
        return made

    def _by_head(self, lookup: Lookup, candidate: Candidate, response: Response, now: float) -> Answer | None:
        """A 200 to HEAD tells whether the stored answer to GET is still right (RFC 9111 section 4.3.5).

        If it is, that is brought up to date, and what it is now answers; if not, it goes, and the client gets what the
        origin has sent (None).
        """
        if lookup.epochs is UNKNOWN or withheld(candidate.judgement, self.request.headers):
            return None
        stored = candidate.stored
        if stored.status != response.status or not confirmed_by_head(
            stored.fields, stored.length, response.headers, now=now
        ):
            self._cache.keeper.forget(candidate)
            return None
        return self._confirmed(lookup, candidate, response, now)

    def _contradicted(
        self, lookup: Lookup, candidate: Candidate, response: Response, now: float
    ) -> Answer | Pass | Wait:
        """The origin has confirmed something that is not stored: that is an answer only to a client who holds it."""
        forward = self._forwarded
        assert forward is not None  # noqa: S101 - a 304 is the answer to a request that was forwarded
        if holds(self.request.headers, response.headers):
            self._count(forward.decision, forward.reason)
            return self._pass(forward, response, now)
        if self._refresh_way(lookup, candidate) is None:
            return self.unanswered()
        return Wait(PATIENCE_SECONDS)

    async def ask_anew(self) -> Answer:
        """Have the origin give its whole answer. To be called when `on_response` returned `Wait`."""
        lookup, candidate = self._lookup, self._candidate
        assert lookup is not None  # noqa: S101 - something stored was to be validated
        assert candidate is not None  # noqa: S101
        cluster = self._refresh_way(lookup, candidate)
        found = None if cluster is None else await refetch(self._cache, lookup, candidate, cluster)
        if found is None:
            return self.unanswered()
        self.now = self._cache.clock()
        return self._asked(lookup, Decision.REFETCHED, found[0], found[1], stored=True)

    def unanswered(self) -> Answer:
        """502: nobody has the right answer, or not in time."""
        lookup, candidate, forward = self._lookup, self._candidate, self._forwarded
        assert lookup is not None  # noqa: S101 - something stored was to be validated
        assert candidate is not None  # noqa: S101
        assert forward is not None  # noqa: S101
        self._count(Decision.MISMATCH, forward.reason)
        return no_answer(lookup, candidate.tier, by_request=forward.reason is MissReason.REQUEST, status=304)

    def _asked(
        self, lookup: Lookup, decision: Decision, candidate: Candidate, status: int, *, stored: bool = False
    ) -> Answer:
        """Answer with what is stored after the origin was asked, and said `status`."""
        by_request = self._forwarded is not None and self._forwarded.reason is MissReason.REQUEST
        made = self._answer(lookup, decision, candidate)
        ttl = candidate.judgement.lifetime - candidate.judgement.age(self.now) if stored else None
        made.cache_status = report.asked(
            lookup, decision, candidate.tier, by_request=by_request, status=status, ttl=ttl
        )
        return made

    def _pass(self, forward: Forward, response: Response, now: float) -> Pass:
        lookup, candidate = self._lookup, self._candidate
        if response.status == PARTIAL_CONTENT and lookup and candidate and not is_part(candidate.stored):
            refused = self._cache.keeper.seen_in_part(lookup.target(), candidate, response, now)
            status = report.passed(lookup, forward.decision, forward.reason, refused, response.headers)
            return Pass(status, remove=_for_caches(response))
        fill = begin_fill(self._cache.keeper, lookup, candidate, self.request.headers, response, now)
        refused = fill if isinstance(fill, NoStoreReason) else None
        if isinstance(fill, NoStoreReason):
            self._cache.keeper.not_stored(fill, self.request, self._known, response.status)
            self._place.kept(fill, response)
        else:
            self._fill = fill
            if response.complete:
                self.on_end()
            else:
                self._place.head_came(fill)
        if lookup is None:
            return Pass("", copy=self._fill is not None, remove=_for_caches(response))
        ttl = None if refused is not None else fresh_for(lookup.target(), response, now)
        status = report.passed(lookup, forward.decision, forward.reason, refused, response.headers, ttl)
        return Pass(status, copy=self._fill is not None, remove=_for_caches(response))

    @property
    def _known(self) -> Candidate | None:
        """What is stored for this request, whether or not it could answer it."""
        part = None if self._lookup is None else self._lookup.part
        return self._candidate or part

    def _drop_fill(self) -> None:
        fill, self._fill = self._fill, None
        if fill is not None and fill.refused is not None:
            self._cache.meter.stored(fill.refused)
            fill.release()
            self._place.kept(fill.refused, fill.response)

    def _count(self, decision: Decision, reason: str, tier: str = "", selection: Selection | None = None) -> None:
        if self._counted:
            return
        self._counted = True
        if self._lookup is not None:
            selection = self._lookup.selection
        route, arm = ("", "") if selection is None else (selection.route, selection.arm)
        self._cache.meter.request(decision, reason, tier, route, arm)


_ASKS_FIRST = (Use.VALIDATE, Use.VALIDATE_BY_REQUEST)


def _for_caches(response: Response) -> tuple[str, ...]:
    """The fields of a response that the client is not to see."""
    return tuple(sorted(TAG_FIELDS & response.headers.names))
