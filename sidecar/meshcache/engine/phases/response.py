"""The response phase: what the client gets for the origin's (or Envoy's own) answer, and what is stored of that."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshcache.decisions import BypassReason, Decision, MissReason, NoStoreReason
from meshcache.engine import report
from meshcache.engine.answers import no_answer
from meshcache.engine.collapse.place import ALONE
from meshcache.engine.epochs import UNKNOWN
from meshcache.engine.in_envoy import granted_pass
from meshcache.engine.judge import withheld
from meshcache.engine.outcome import Pass, Wait
from meshcache.engine.posting import answers_for_get
from meshcache.engine.ranges.parts import PARTIAL_CONTENT, is_part
from meshcache.engine.refresh.foreground import PATIENCE_SECONDS, refetch
from meshcache.engine.storing.begin import begin_fill
from meshcache.engine.storing.succession import is_error
from meshcache.message import Headers
from meshcache.rfc.cache_control import request_cache_control
from meshcache.rfc.hop_by_hop import HOP_BY_HOP, hop_by_hop_names
from meshcache.rfc.request import insists
from meshcache.rfc.tags import TAG_FIELDS
from meshcache.rfc.validation import confirmed_by_head, contradicts, holds, validates

if TYPE_CHECKING:
    from meshcache.engine.in_envoy import Grant
    from meshcache.engine.lookup import Candidate, Lookup
    from meshcache.engine.outcome import Answer, Forward
    from meshcache.engine.phases.state import State
    from meshcache.engine.ports import Spool
    from meshcache.engine.records import StoredResponse
    from meshcache.engine.storing.fill import Fill
    from meshcache.message import Response


class ResponsePhase:
    """One response to a request that was forwarded, from its head to the end of its body."""

    __slots__ = ("_forward", "_grant", "_state", "fill")

    def __init__(self, state: State, forward: Forward) -> None:
        self._state = state
        self._forward = forward
        self._grant: Grant | None = None
        """What the filter in Envoy may keep of the answer that goes by."""
        self.fill: Fill | None = None
        """The copy of the body, while it is being made."""

    async def on_head(self, response: Response) -> Answer | Pass | Wait:
        """Decide what the client gets, and whether the body is copied."""
        state, forward = self._state, self._forward
        if forward.decision is Decision.BYPASS:
            return await self._bypassed(response)
        state.now = state.cache.clock()
        if state.lookup is not None and state.candidate is not None:
            instead = self._instead(state.lookup, state.candidate, response)
            if instead is not None:
                return instead
        state.count(forward.decision, forward.reason)
        return self._pass(response)

    def on_body(self, chunk: bytes) -> None:
        """Copy one chunk of the body."""
        fill = self.fill
        if fill is None or fill.add(chunk):
            return
        self.fill = None
        if fill.refused is not None:
            self._state.cache.meter.stored(fill.refused)
            fill.release()
            self._state.place.kept(fill.refused, fill.arrival.response)

    @property
    def behind(self) -> Spool | None:
        """The spool of the body that is copied, while its stores do not follow."""
        spool = None if self.fill is None else self.fill.spool
        return spool if spool is not None and spool.behind else None

    def on_end(self) -> None:
        """The body is complete: store the response."""
        fill, self.fill = self.fill, None
        if fill is not None:
            # What those that wait are told may come later, when the exchange is over.
            place, self._state.place = self._state.place, ALONE
            self._state.cache.keeper.store(fill, self._known, partial(place.kept, response=fill.arrival.response))
            if fill.part is None:
                self._displaced(fill)

    def close(self) -> None:
        """Drop what was copied of a body that has not come to its end."""
        if self.fill is not None:
            self._state.cache.meter.stored(NoStoreReason.TRUNCATED)
            self.fill.release()
            self.fill = None

    async def ask_anew(self) -> Answer:
        """Have the origin give its whole answer. To be called when `on_head` returned `Wait`."""
        state, (lookup, candidate) = self._state, self._validated
        cluster = state.refresh_way(lookup, candidate.stored)
        found = None if cluster is None else await refetch(state.cache, lookup, candidate, cluster)
        if found is None:
            return self.unanswered()
        state.now = state.cache.clock()
        return self._asked(lookup, Decision.REFETCHED, *found, stored=True)

    def unanswered(self) -> Answer:
        """502: nobody has the right answer, or not in time."""
        lookup, candidate = self._validated
        self._state.count(Decision.MISMATCH, self._forward.reason)
        return no_answer(lookup, candidate.tier, by_request=self._by_request, status=304)

    # -- an answer out of the cache instead of the origin's ----------------------------------------------------

    def _instead(self, lookup: Lookup, candidate: Candidate, response: Response) -> Answer | Wait | None:
        """What is stored, where it may or must take the place of the origin's answer; None where that stands."""
        state, unreachable = self._state, not response.from_origin
        if not is_error(response.status):
            state.cache.succeeded(candidate.storage)
            if self._forward.decision is Decision.REVALIDATE and response.status == 304 and response.from_origin:
                return self._not_modified(lookup, candidate, response)
        elif state.may_stand_in(candidate, unreachable=unreachable) and state.can_answer_late(candidate):
            state.cache.failed(candidate.storage, state.now, unreachable=unreachable)
            state.place.failed()
            return self._asked(lookup, Decision.STALE_IF_ERROR, candidate, response.status)
        if response.status == 200 and state.request.method == "HEAD" and response.from_origin:
            return self._by_head(lookup, candidate, response)
        return None

    def _not_modified(self, lookup: Lookup, candidate: Candidate, response: Response) -> Answer | Wait | None:
        """A 304 to the stored validators: as a rule it says that what is stored is still right."""
        state, stored = self._state, candidate.stored
        if validates(stored.fields, response.headers, now=state.now):
            return self._confirmed(lookup, candidate, response)
        # A 304 that names no validator of what is stored: at best good for this answer, not for later ones.
        state.cache.keeper.forget(candidate)
        state.place.leave()
        if not contradicts(stored.fields, response.headers):
            return self._revalidated(lookup, candidate, response, kept=False)
        # The origin has confirmed something that is not stored: that is an answer only to a client who holds it.
        if holds(state.request.headers, response.headers):
            return None
        if state.refresh_way(lookup, candidate.stored) is None:
            return self.unanswered()
        return Wait(PATIENCE_SECONDS)

    def _by_head(self, lookup: Lookup, candidate: Candidate, response: Response) -> Answer | None:
        """A 200 to HEAD tells whether the stored answer to GET is still right (RFC 9111 section 4.3.5).

        If it is, that is brought up to date, and what it is now answers; if not, it goes, and the client gets what the
        origin has sent (None).
        """
        state, stored = self._state, candidate.stored
        if lookup.epochs is UNKNOWN or withheld(candidate.judgement, state.request.headers):
            return None
        # Asked with the stored validator, the origin would have sent 304 for what is stored; a server that does not
        # look at conditions names it.
        held = Headers(stored.fields)
        validator = "etag" if "etag" in held.names else "last-modified"
        asked = self._forward.decision is Decision.REVALIDATE or holds(state.request.headers, held)
        denied = asked and validator not in response.headers.names
        if (
            denied
            or stored.status != response.status
            or not confirmed_by_head(stored.fields, stored.length, response.headers, now=state.now)
        ):
            state.cache.keeper.forget(candidate)
            return None
        return self._confirmed(lookup, candidate, response)

    def _confirmed(self, lookup: Lookup, candidate: Candidate, response: Response) -> Answer:
        """What is stored, brought up to date by a response that speaks of it, becomes the answer."""
        state = self._state
        candidate, refused = state.cache.keeper.freshen(lookup.target(), candidate, response, state.now)
        state.place.kept(refused or candidate.stored, response)
        self._displaced()
        return self._revalidated(lookup, candidate, response, kept=refused is None)

    def _displaced(self, fill: Fill | None = None) -> None:
        """Something that was stored, and may be in the filter in Envoy, has been replaced before its time.

        Where the filter has asked, and may keep what came instead for the same requests, it brings its own copy up to
        date. Those of its other workers are as right as they were, and so are they in the memory of other processes.
        """
        state, known = self._state, self._known
        if state.lookup is None:
            return
        if known is None:
            # Forgotten here, it may be remembered in Envoy: who insists on a newer one is to get that later, too.
            gone = state.request.asked is None and insists(request_cache_control(state.request.headers))
        elif fill is None or state.request.asked is None:
            gone = self._by_request and state.request.asked is None
        else:
            gone = self._grant is None or _names(known.stored) != _names(fill.head())
        if gone:
            state.cache.on_invalid(frozenset({state.lookup.key.resource}))

    def _revalidated(self, lookup: Lookup, candidate: Candidate, response: Response, *, kept: bool) -> Answer:
        made = self._asked(lookup, Decision.REVALIDATED, candidate, response.status, stored=kept)
        # They are for this client alone, and so not among the stored fields.
        made.cookies = tuple(response.headers.get_all("set-cookie"))
        return made

    def _asked(
        self, lookup: Lookup, decision: Decision, candidate: Candidate, status: int, *, stored: bool = False
    ) -> Answer:
        """Answer with what is stored after the origin was asked, and said `status`."""
        state = self._state
        made = state.answer(lookup, decision, candidate)
        ttl = candidate.judgement.lifetime - candidate.judgement.age(state.now) if stored else None
        made.cache_status = report.asked(
            lookup, decision, candidate.tier, by_request=self._by_request, status=status, ttl=ttl
        )
        return made

    # -- the origin's answer -----------------------------------------------------------------------------------

    def _pass(self, response: Response) -> Pass:
        """The client gets it; a copy is begun where it may be stored."""
        state, forward = self._state, self._forward
        lookup, candidate, now, keeper = state.lookup, state.candidate, state.now, state.cache.keeper
        hidden = _not_for_client(response)
        if response.status == PARTIAL_CONTENT and lookup and candidate and not is_part(candidate.stored):
            refused = keeper.seen_in_part(lookup.target(), candidate, response, now)
            status = report.passed(lookup, forward.decision, forward.reason, refused, response.headers)
            return Pass(status, remove=hidden)
        fill = begin_fill(keeper, lookup, candidate, state.request.headers, response, now)
        if isinstance(fill, NoStoreReason):
            refused, ttl = fill, None
            if keeper.not_stored(fill, state.request, self._known, response.status):
                self._displaced()
            state.place.kept(fill, response)
        else:
            refused, ttl = None, fill.arrival.fresh_for
            if state.request.asked is not None:
                self._grant = self._granted(fill)
            self.fill = fill
            if response.complete:
                self.on_end()
            else:
                state.place.head_came(fill)
        status = ""
        if lookup is not None:
            status = report.passed(lookup, forward.decision, forward.reason, refused, response.headers, ttl)
        return Pass(status, copy=self.fill is not None, remove=hidden, grant=self._grant)

    def _granted(self, fill: Fill) -> Grant | None:
        """What the filter in Envoy may keep of the answer that goes by, unless something newer is stored by now."""
        state, lookup = self._state, self._state.lookup
        if lookup is None or state.cache.keeper.is_overtaken(fill, self._known):
            return None
        way = state.refresh_way(lookup, fill.head())
        return granted_pass(lookup, state.request, fill, way, state.now)

    async def _bypassed(self, response: Response) -> Pass:
        """What was not looked up goes to the client; an unsafe request may have made what is stored invalid."""
        state, reason = self._state, self._forward.reason
        cache, post = state.cache, state.post
        if reason is BypassReason.BAD_REQUEST:
            # Seen only because the filter has asked: it names nothing that could be stored.
            invalid: frozenset[bytes] = frozenset()
        elif post is None or not answers_for_get(post, state.request, response):
            invalid = await cache.keeper.invalidate(state.request, response, cache.key_specs)
        else:
            resource = post.key.resource
            invalid = await cache.keeper.invalidate(state.request, response, cache.key_specs, spared=resource)
            invalid |= {resource}
            post.epochs = cache.stack.succeed(resource, post.epochs) or UNKNOWN
            fill = begin_fill(cache.keeper, post, None, state.request.headers, response, cache.clock())
            if isinstance(fill, NoStoreReason):
                cache.meter.stored(fill)
            else:
                self.fill = fill
        state.count(Decision.BYPASS, reason)
        status = report.bypassed(reason, response.headers, state.shown, stored=self.fill is not None)
        if response.complete:
            self.on_end()
        if invalid:
            # Also where the filter is told with the answer: its client may leave before that has come to it.
            cache.on_invalid(invalid)
        return Pass(status, copy=self.fill is not None, invalid=None if state.request.asked is None else invalid)

    # -- what was known before ---------------------------------------------------------------------------------

    @property
    def _validated(self) -> tuple[Lookup, Candidate]:
        """What the request was to validate."""
        lookup, candidate = self._state.lookup, self._state.candidate
        assert lookup is not None  # noqa: S101 - asked for only after a 304 to the stored validators
        assert candidate is not None  # noqa: S101
        return lookup, candidate

    @property
    def _known(self) -> Candidate | None:
        """What is stored for this request, whether or not it could answer it."""
        lookup = self._state.lookup
        return self._state.candidate or (None if lookup is None else lookup.part)

    @property
    def _by_request(self) -> bool:
        """Whether the client wanted the origin asked."""
        return self._forward.reason is MissReason.REQUEST


def _not_for_client(response: Response) -> tuple[str, ...]:
    """The fields of a response that are for caches, or that its `connection` names: those are for one hop only.

    Envoy takes away what it knows to be so, and hands the others on (RFC 9110 section 7.6.1).
    """
    names = response.headers.names
    hidden = names & TAG_FIELDS
    if "connection" in names:
        hidden |= names & (hop_by_hop_names(response.headers) - HOP_BY_HOP)
    return tuple(sorted(hidden)) if hidden else ()


def _names(stored: StoredResponse) -> list[str]:
    """What a stored response was selected by."""
    return [name for name, _ in stored.selecting]
