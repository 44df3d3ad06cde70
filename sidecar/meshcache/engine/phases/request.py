"""The request phase: look-up and decision, before the origin is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.decisions import AskedFor, BypassReason, Decision, MissReason, RefreshCause
from meshcache.engine import report
from meshcache.engine.admission import bypass_reason, effective_method
from meshcache.engine.answers import nothing_cached
from meshcache.engine.collapse.herd import Verdict
from meshcache.engine.collapse.place import ALONE, Place, may_collapse
from meshcache.engine.epochs import UNKNOWN
from meshcache.engine.judge import Use, use
from meshcache.engine.key import cache_key, chosen_key
from meshcache.engine.lookup import Lookup, newer
from meshcache.engine.outcome import Forward, Wait
from meshcache.engine.placement import promoted_tiers
from meshcache.engine.posting import post_lookup
from meshcache.engine.refresh.rules import POPULAR
from meshcache.policy.identity import OPEN
from meshcache.rfc.cache_control import request_cache_control
from meshcache.rfc.invalidation import is_unsafe
from meshcache.rfc.spelling import among
from meshcache.rfc.targeted import capability
from meshcache.rfc.validation import add_validators

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshcache.engine.lookup import Candidate
    from meshcache.engine.outcome import Answer
    from meshcache.engine.phases.state import State

_ASKS_FIRST = (Use.VALIDATE, Use.VALIDATE_BY_REQUEST)
_NO_ANSWERS = frozenset(
    {BypassReason.UPGRADE, BypassReason.GRPC, BypassReason.BAD_REQUEST, BypassReason.AMBIGUOUS_PATH}
)
"""Connections and calls rather than requests with an answer, and what the origin may take for another route's: no
experiment counts them."""


def start(state: State) -> Answer | Forward | Wait | None:
    """Decide without waiting; None when the lower tiers have to be asked."""
    lookup = _open(state)
    if isinstance(lookup, Forward):
        return lookup
    candidate = state.candidate = lookup.in_memory()
    if candidate is not None and use(candidate.judgement, state.request.headers, state.now) is Use.FRESH:
        entry = candidate.entry
        if entry is not None:
            entry.hits += 1
            if state.now > candidate.judgement.renew_from and (entry.hits >= POPULAR or _is_popular(state)):
                _refresh(state, lookup, candidate, RefreshCause.AHEAD)
        return state.answer(lookup, Decision.HIT, candidate)
    # What is stale in memory may be fresher below, written by another worker or pod: that is looked for, unless
    # the client can be answered at once, when the refresh does it.
    if lookup.absent() or (candidate is not None and _may_serve_while_refreshing(state, lookup, candidate)):
        if candidate is None and state.cache.completions.worthwhile(lookup):
            return None
        outcome = _decide(state, lookup, candidate)
        if not isinstance(outcome, Forward):
            return outcome
        if state.place.looks_again():
            _look_again(state, lookup)
        elif state.place.asks_others:
            # Other pods are asked before the origin is, and that takes a round trip.
            state.unreserve()
        else:
            return outcome
    return None


async def search(state: State) -> Answer | Forward | Wait:
    """Decide with the lower tiers."""
    lookup = state.looked_up
    known = lookup.index
    candidate = await lookup.below(state.candidate)
    if candidate is None or use(candidate.judgement, state.request.headers, state.now) is not Use.FRESH:
        # Another request for the same may have been answered while the tiers below were asked.
        candidate = newer(lookup.in_memory(), candidate)
    state.candidate = candidate
    if lookup.index is not None and lookup.index is not known:
        # Tiny and asked for by every request for the resource: kept in memory whatever its reader has earned.
        state.cache.keeper.promote_index(lookup.target(), lookup.index, state.now)
    if candidate is None and state.cache.completions.worthwhile(lookup):
        completed = await _complete(state, lookup)
        if completed is not None:
            return completed
    outcome = _decide(state, lookup, candidate)
    if isinstance(outcome, Forward) and not await state.place.confirm():
        state.unreserve()
        return Wait(state.place.left)
    if isinstance(outcome, Forward) and state.place.looks_again():
        _look_again(state, lookup)
        return await search(state)
    return outcome


def _look_again(state: State, lookup: Lookup) -> None:
    """An answer was stored since the look-up: another one is to find it, before the origin is asked."""
    state.unreserve()
    state.now = state.cache.clock()
    lookup.renew(state.now)
    state.candidate = lookup.in_memory()


async def wait(state: State) -> Answer | Forward:
    """Decide once the request that is ahead has been answered, has failed, or has been waited for long enough."""
    lookup, place = state.looked_up, state.place
    while True:
        word = await place.word()
        state.now = state.cache.clock()
        if word.verdict is Verdict.FAILED and state.candidate is not None and place.stands_in():
            return state.answer(lookup, Decision.STALE_IF_ERROR, state.candidate)
        handed = word.candidate if word.candidate is not None and lookup.alive(word.candidate) else None
        lookup.renew(state.now)
        candidate = state.candidate = newer(lookup.in_memory(), handed)
        # Else the answer may have been stored by another process, and what is to be stored needs epochs of now.
        if (candidate is not None and place.fits(candidate)) or lookup.absent():
            outcome = _decide(state, lookup, candidate)
        else:
            outcome = await search(state)
        if not isinstance(outcome, Wait):
            place.goes_on(word.verdict, asks=isinstance(outcome, Forward) and outcome.watch)
            return outcome


def forward_unseen(state: State) -> Forward:
    """Give the look-up up: the request goes to the origin and its answer is not stored (no epoch is known)."""
    state.place.leave()
    if state.lookup is not None:
        state.lookup.epochs = UNKNOWN
    return state.forward(Decision.MISS, MissReason.URI_MISS if state.candidate is None else MissReason.STALE)


def without_body(state: State) -> Forward:
    """The body of the answer that was decided upon cannot be read: the request goes to the origin."""
    state.candidate = None
    return state.forward(Decision.MISS, MissReason.URI_MISS)


def _open(state: State) -> Lookup | Forward:
    """What the request is looked up by, under the policy that its route and arm have; else it is let go."""
    request, snapshot = state.request, state.snapshot
    reason = bypass_reason(request)
    feared = request.asked is not None and request.asked.why is AskedFor.UNSAFE
    if feared and reason is None:
        # The filter in Envoy has not seen all of it, and drops everything if it is not told what it has changed.
        reason = BypassReason.METHOD
    if reason is not None:
        # An unsafe request is watched, whatever else it is: its success makes stored answers invalid.
        unsafe = feared or (reason is not BypassReason.BAD_REQUEST and is_unsafe(effective_method(request)))
        if reason is BypassReason.METHOD and request.method == "POST":
            state.post = post_lookup(state.cache.stack, snapshot, request, state.now)
        if snapshot is not None and snapshot.tallies and reason not in _NO_ANSWERS:
            state.open_account(snapshot, snapshot.select(request))
        return state.bypass(reason, watch=unsafe)
    if snapshot is None:
        return state.bypass(BypassReason.NO_POLICY)
    selection = snapshot.select(request)
    policy = selection.policy
    if selection.exposures:
        state.open_account(snapshot, selection)
    if policy is None:
        return state.bypass(BypassReason.ROUTE_NOT_CACHED if selection.route else BypassReason.NO_ROUTE, selection)
    for experiment in selection.missing:
        state.cache.meter.missing_unit(experiment)
    if request.method not in policy.key.methods:
        return state.bypass(BypassReason.METHOD, selection)
    border = snapshot.identities.border(request, policy.key) if policy.key.partitioned else OPEN
    if border is None:
        return state.bypass(BypassReason.NO_IDENTITY, selection)
    if policy.key.strip:
        _strip(state, policy.key.strip)
    revision = snapshot.revision(request)
    if selection.by_key is None:
        key = cache_key(request, policy.key, namespace=selection.namespace, revision=revision, border=border.parts)
    else:
        key, chosen = chosen_key(request, policy.key, selection.by_key, revision=revision, border=border.parts)
        selection = chosen if selection.score is None else chosen._replace(score=selection.score)
        policy = selection.policy or policy
        if selection.exposures:
            state.open_account(snapshot, selection)
    lookup = state.lookup = Lookup(
        state.cache.stack,
        request,
        selection,
        policy,
        key,
        revision,
        state.now,
        border.subject,
        snapshot.shown_to(request),
        state.account,
    )
    return lookup


def _strip(state: State, names: frozenset[str]) -> None:
    """From here on see the request as the origin will: without the fields that the policy keeps from it."""
    request = state.request
    state.stripped = tuple(sorted(among(request.headers.names, names)))
    if state.stripped:
        request.headers = request.headers.without(frozenset(state.stripped))


def _decide(state: State, lookup: Lookup, candidate: Candidate | None) -> Answer | Forward | Wait:
    """What is done with the best that there is."""
    if candidate is None:
        return _ask(state, lookup, None, lookup.miss_reason)
    verdict = use(candidate.judgement, state.request.headers, state.now)
    if candidate.stored.chunks and verdict not in _ASKS_FIRST and _is_crowded(state, lookup, candidate):
        return state.bypass(BypassReason.CROWDED)
    if verdict is Use.FRESH:
        _promote(state, lookup, candidate)
        return state.answer(lookup, Decision.HIT, candidate)
    if verdict is Use.STALE_WHILE_REVALIDATE and _refresh(state, lookup, candidate, RefreshCause.STALE):
        _promote(state, lookup, candidate)
        return state.answer(lookup, Decision.STALE_SWR, candidate)
    if verdict is Use.ACCEPTED_STALE:
        return state.answer(lookup, Decision.HIT, candidate)
    if verdict is Use.VALIDATE and _has_just_stood_in(state, candidate):
        return state.answer(lookup, Decision.STALE_IF_ERROR, candidate)
    by_request = verdict is Use.VALIDATE_BY_REQUEST
    return _ask(state, lookup, candidate, MissReason.REQUEST if by_request else MissReason.STALE)


def _ask(state: State, lookup: Lookup, candidate: Candidate | None, reason: MissReason) -> Answer | Forward | Wait:
    """Nothing stored may be used as it is: the origin is asked, unless the client wants nothing fetched.

    Where another request for the same has gone ahead, this one waits.
    """
    headers = state.request.headers
    if request_cache_control(headers).only_if_cached:
        state.count(Decision.ONLY_IF_CACHED, reason)
        return nothing_cached(lookup)
    forward = state.forward(Decision.MISS, reason)
    if state.place is not ALONE or may_collapse(lookup, state.request, reason, candidate):
        if state.place is ALONE:
            cache = state.cache
            state.place = Place(cache.leadership, cache.meter, lookup, state.request, cache.clock)
        if not state.place.goes(candidate):
            return Wait(state.place.left)
    # Not before it is settled that the origin is asked: who waits may be answered, and reserves nothing.
    changes: Mapping[str, str | None] = {}
    if candidate is not None and state.can_answer_late(candidate):
        changes = add_validators(headers, candidate.stored.status, candidate.stored.fields, now=state.now)
    offered = capability(headers, lookup.policy.freshness.targets)
    fields = [(name, value) for name, value in changes.items() if value is not None]
    if offered is not None:
        fields.append(offered)
    if fields and not state.request.has_room(fields):
        # As it came, it is no request too large for Envoy.
        return forward
    if changes:
        forward.decision = Decision.REVALIDATE
        forward.remove_fields += [name for name, value in changes.items() if value is None]
    forward.set_fields += fields
    return forward


def _is_popular(state: State) -> bool:
    """Whether the filter in Envoy says so, which has answered meanwhile."""
    asked = state.request.asked
    return asked is not None and asked.why is AskedFor.RENEW


def _is_crowded(state: State, lookup: Lookup, candidate: Candidate) -> bool:
    """Whether a body in chunks may not be sent now. Parts of one are mostly short."""
    whole = state.request.method != "HEAD" and lookup.wanted is None
    return whole and not state.cache.flights.room(candidate.stored.size)


async def _complete(state: State, lookup: Lookup) -> Answer | None:
    """The whole, of which a part was held, after the origin was asked for the rest of it."""
    part = lookup.part
    cluster = None if part is None else state.refresh_way(lookup, part.stored)
    done = None if cluster is None else await state.cache.completions.complete(lookup, cluster)
    if done is None:
        return None
    whole, status = done
    state.now = state.cache.clock()
    made = state.answer(lookup, Decision.COMPLETED, whole)
    made.cache_status = report.completed(lookup, whole.tier, status)
    return made


def _may_serve_while_refreshing(state: State, lookup: Lookup, candidate: Candidate) -> bool:
    verdict = use(candidate.judgement, state.request.headers, state.now)
    return verdict is Use.STALE_WHILE_REVALIDATE and state.refresh_way(lookup, candidate.stored) is not None


def _has_just_stood_in(state: State, candidate: Candidate) -> bool:
    """Whether the origin has failed this entry a moment ago, so that the next clients need not wait for that."""
    return any(
        state.cache.has_just_failed(candidate.storage, state.now, unreachable=unreachable)
        and state.may_stand_in(candidate, unreachable=unreachable)
        for unreachable in (False, True)
    )


def _refresh(state: State, lookup: Lookup, candidate: Candidate, cause: RefreshCause) -> bool:
    """Have an entry refreshed in the background; False when that must not be."""
    cluster = state.refresh_way(lookup, candidate.stored)
    if cluster is None:
        return False
    state.cache.refresh(lookup.target(), candidate, cluster, cause)
    return True


def _promote(state: State, lookup: Lookup, candidate: Candidate) -> None:
    tiers = promoted_tiers(lookup.policy.placement, lookup.selection.score, candidate.tier)
    if tiers:
        state.cache.keeper.promote(lookup.target(), candidate, tiers, state.now)
