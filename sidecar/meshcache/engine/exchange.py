"""One request from its headers to the end of its response: look-up, answer or forward, then store.

The order of calls is `start`, `search` when `start` could not decide from memory, `on_response` when the outcome
is to be watched, `on_body` for each chunk and `on_end` when the body is complete. `close` ends it early: what was
copied so far is dropped, so that a response cut off is never stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from meshcache.engine.admission import bypass_reason
from meshcache.engine.decisions import BypassReason, Decision, MissReason, NoStoreReason, TierName
from meshcache.engine.fill import Fill, Target, unstorable
from meshcache.engine.judge import Judgement, Use, judge, may_stand_in, use
from meshcache.engine.key import CacheKey, cache_key
from meshcache.engine.outcome import Answer, Forward, Pass
from meshcache.engine.placement import promoted_tiers
from meshcache.engine.records import StoredResponse, VariantIndex
from meshcache.engine.refresh import may_refresh
from meshcache.engine.variants import variant_keys
from meshcache.experiment.assignment import AssignedBy
from meshcache.rfc import cache_status
from meshcache.rfc.invalidation import is_unsafe
from meshcache.rfc.stale import ERROR_STATUSES
from meshcache.rfc.validation import add_validators, not_modified, validates
from meshcache.tiers.epochs import UNKNOWN, Epochs

if TYPE_CHECKING:
    from meshcache.engine.cache import Cache
    from meshcache.message import Request, Response
    from meshcache.policy.compiled import Policy
    from meshcache.policy.snapshot import Selection
    from meshcache.tiers.memory import HotEntry


_WATCHED = (BypassReason.METHOD, BypassReason.UPGRADE)
"""A gRPC call is not watched: its target is never asked for by GET, and calls are many."""


class Candidate(NamedTuple):
    """A stored response that may answer, and how the policy sees it."""

    stored: StoredResponse
    storage: bytes
    tier: TierName
    judgement: Judgement
    entry: HotEntry | None
    """Its place in process memory, when it has one."""


class Exchange:
    """The state of one request. It keeps the policy snapshot with which it began."""

    __slots__ = (
        "_cache",
        "_candidate",
        "_counted",
        "_epochs",
        "_fill",
        "_forwarded",
        "_index",
        "_policy",
        "key",
        "now",
        "request",
        "selection",
        "snapshot",
    )

    def __init__(self, cache: Cache, request: Request) -> None:
        self._cache = cache
        self.request = request
        self.snapshot = cache.snapshot
        self.now = cache.clock()
        self.selection: Selection | None = None
        self.key: CacheKey | None = None
        self._policy: Policy | None = None
        self._candidate: Candidate | None = None
        self._index: VariantIndex | None = None
        self._epochs: Epochs = UNKNOWN
        self._forwarded: Forward | None = None
        self._fill: Fill | None = None
        self._counted = False

    # -- the request -------------------------------------------------------------------------------------------

    def start(self) -> Answer | Forward | None:
        """Decide from the request and from process memory alone; None when the lower tiers have to be asked."""
        request = self.request
        reason = bypass_reason(request)
        if reason is not None:
            # An unsafe request is watched: if it succeeds, what is stored for its target is invalid.
            return self._bypass(reason, watch=reason in _WATCHED and is_unsafe(request.method))
        snapshot = self.snapshot
        if snapshot is None:
            return self._bypass(BypassReason.NO_POLICY)
        selection = self.selection = snapshot.select(request)
        policy = self._policy = selection.policy
        if policy is None:
            return self._bypass(BypassReason.ROUTE_NOT_CACHED if selection.route else BypassReason.NO_ROUTE)
        if selection.how is AssignedBy.NO_UNIT:
            self._cache.meter.missing_unit(selection.experiment)
        if request.method not in policy.key.methods:
            return self._bypass(BypassReason.METHOD)
        key = self.key = cache_key(
            request, policy.key, namespace=selection.namespace, revision=snapshot.revision(request)
        )
        candidate = self._in_memory(policy, key)
        if candidate is None:
            return None
        self._candidate = candidate
        match use(candidate.judgement, request.headers, self.now):
            case Use.FRESH:
                return self._answer(Decision.HIT, candidate)
            case Use.STALE_WHILE_REVALIDATE if self._can_refresh(policy, candidate):
                self._cache.refresh(self._target(), candidate)
                return self._answer(Decision.STALE_SWR, candidate)
            case _:
                # A lower tier may hold a fresher copy, written by another worker or pod.
                return None

    async def search(self) -> Answer | Forward:
        """Decide with the lower tiers. To be called when `start` returned None."""
        policy, key = self._policy, self.key
        assert policy is not None  # noqa: S101 - start() has set both before it returns None
        assert key is not None  # noqa: S101
        candidate = await self._find(policy, key)
        if candidate is None:
            reason = MissReason.URI_MISS if self._index is None else MissReason.VARY_MISS
            return self._forward(Decision.MISS, reason)
        self._candidate = candidate
        verdict = use(candidate.judgement, self.request.headers, self.now)
        match verdict:
            case Use.FRESH:
                self._promote(policy, candidate)
                return self._answer(Decision.HIT, candidate)
            case Use.STALE_WHILE_REVALIDATE if self._can_refresh(policy, candidate):
                self._promote(policy, candidate)
                self._cache.refresh(self._target(), candidate)
                return self._answer(Decision.STALE_SWR, candidate)
            case Use.ACCEPTED_STALE:
                return self._answer(Decision.HIT, candidate)
        reason = MissReason.REQUEST if verdict is Use.VALIDATE_BY_REQUEST else MissReason.STALE
        changes = add_validators(self.request.headers, candidate.stored.fields)
        if not changes:
            return self._forward(Decision.MISS, reason)
        forward = self._forward(Decision.REVALIDATE, reason)
        for name, value in changes.items():
            if value is None:
                forward.remove_fields.append(name)
            else:
                forward.set_fields.append((name, value))
        return forward

    def forward_unseen(self) -> Forward:
        """Give the look-up up: the request goes to the origin and its answer is not stored (no epoch is known)."""
        return self._forward(Decision.MISS, MissReason.URI_MISS)

    # -- the response ------------------------------------------------------------------------------------------

    async def on_response(self, response: Response) -> Answer | Pass:
        """Decide what the client gets for the origin's (or Envoy's own) answer, and whether it is copied."""
        forward = self._forwarded
        assert forward is not None  # noqa: S101 - only forwarded requests have responses
        if self._fill is not None:
            # A second head: the body before it belongs to no whole response.
            self.close()
        if forward.decision is Decision.BYPASS:
            await self._cache.invalidate(self.request, self.snapshot, response)
            self._count(Decision.BYPASS, forward.reason)
            status = cache_status.forwarded("method", detail=forward.reason)
            return Pass(cache_status.append(response.headers.get("cache-status"), status))
        now = self._cache.clock()
        candidate = self._candidate
        if candidate is not None:
            if forward.decision is Decision.REVALIDATE and response.status == 304 and response.from_origin:
                return self._revalidated(candidate, response, now)
            if response.status in ERROR_STATUSES and may_stand_in(candidate.judgement, self.request.headers, now):
                self.now = now
                return self._answer(Decision.STALE_IF_ERROR, candidate)
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
            self._cache.store(fill, self._candidate)

    def close(self) -> None:
        """The exchange is over, whether or not it was complete. Safe to call more than once."""
        if self._fill is not None:
            self._cache.meter.stored(NoStoreReason.TRUNCATED)
            self._fill.release()
            self._fill = None
        if not self._counted and self._forwarded is not None:
            self._count(self._forwarded.decision, self._forwarded.reason)

    # -- parts -------------------------------------------------------------------------------------------------

    def _in_memory(self, policy: Policy, key: CacheKey) -> Candidate | None:
        entry = self._cache.stack.hot(key.storage, key.resource, policy.tiers, self.now)
        if entry is None:
            return None
        if isinstance(entry.record, VariantIndex):
            if entry.record.key != key.material:
                return None
            self._index = entry.record
            best: Candidate | None = None
            for storage, selecting in variant_keys(key, entry.record, self.request.headers):
                variant = self._cache.stack.hot(storage, key.resource, policy.tiers, self.now)
                if variant is not None:
                    best = _newer(best, self._judged(policy, key, storage, TierName.HOT, variant, selecting))
            return best
        return self._judged(policy, key, key.storage, TierName.HOT, entry, ())

    def _judged(
        self,
        policy: Policy,
        key: CacheKey,
        storage: bytes,
        tier: TierName,
        entry: HotEntry,
        selecting: tuple[tuple[str, str | None], ...],
    ) -> Candidate | None:
        """`entry` if it really is what was asked for (a digest alone proves nothing), with its judgement."""
        stored = entry.record
        if not isinstance(stored, StoredResponse) or stored.key != key.material or stored.selecting != selecting:
            return None
        judgement: Judgement | None = entry.memo
        if judgement is None or judgement.policy is not policy.freshness:
            judgement = entry.memo = judge(stored, policy.freshness)
        return Candidate(stored, storage, tier, judgement, entry)

    async def _find(self, policy: Policy, key: CacheKey) -> Candidate | None:
        """The best candidate of memory and the lower tiers; sets the epochs for whoever fills this miss."""
        best = self._candidate
        if self._index is None:
            found = await self._cache.stack.find(key.storage, key.resource, policy.tiers, self.now)
            self._epochs = found.epochs
            record = found.record
            if isinstance(record, StoredResponse) and found.tier is not None:
                return _newer(best, self._from_tier(policy, key, key.storage, found.tier, record, ()))
            if not isinstance(record, VariantIndex) or record.key != key.material:
                return best
            self._index = record
            # Tiny and asked for by every request for the resource: kept in memory whatever its reader has earned.
            self._cache.promote_index(self._target(), record, self.now)
        for storage, selecting in variant_keys(key, self._index, self.request.headers):
            found = await self._cache.stack.find(storage, key.resource, policy.tiers, self.now)
            if self._epochs is UNKNOWN:
                self._epochs = found.epochs
            if isinstance(found.record, StoredResponse) and found.tier is not None:
                best = _newer(best, self._from_tier(policy, key, storage, found.tier, found.record, selecting))
        return best

    def _from_tier(
        self,
        policy: Policy,
        key: CacheKey,
        storage: bytes,
        tier: TierName,
        stored: StoredResponse,
        selecting: tuple[tuple[str, str | None], ...],
    ) -> Candidate | None:
        if stored.key != key.material or stored.selecting != selecting:
            return None
        return Candidate(stored, storage, tier, judge(stored, policy.freshness), None)

    def _can_refresh(self, policy: Policy, candidate: Candidate) -> bool:
        """Whether a stale entry can be refreshed behind the client's back; else he waits for its validation.

        Where the revision is the cluster that Envoy chose, a refresh cannot be sure to reach the same one: what
        chose it (a header, a weight) is Envoy's affair.
        """
        return (
            self._cache.refresher is not None
            and self.snapshot is not None
            and self.snapshot.config.revision.kind != "envoyCluster"
            and may_refresh(candidate.stored, policy.key)
        )

    def _promote(self, policy: Policy, candidate: Candidate) -> None:
        assert self.selection is not None  # noqa: S101 - set in start()
        tiers = promoted_tiers(policy.placement, self.selection.score, candidate.tier)
        if tiers:
            self._cache.promote(self._target(), candidate, tiers, self.now)

    def _bypass(self, reason: BypassReason, *, watch: bool = False) -> Forward:
        forward = self._forwarded = Forward(Decision.BYPASS, reason, watch=watch)
        if not watch:
            self._count(Decision.BYPASS, reason)
        return forward

    def _forward(self, decision: Decision, reason: MissReason) -> Forward:
        forward = self._forwarded = Forward(decision, reason)
        return forward

    def _answer(self, decision: Decision, candidate: Candidate) -> Answer:
        stored, judgement = candidate.stored, candidate.judgement
        age = judgement.age(self.now)
        request = self.request.headers
        unmodified = ("if-none-match" in request or "if-modified-since" in request) and not_modified(
            request, stored.fields, stored.status, response_time=stored.response_time
        )
        entry = candidate.entry
        if entry is not None and entry.rendered is None:
            self._cache.render(candidate.storage, entry, self.now)
        self._count(decision, "", candidate.tier)
        self._cache.meter.served(candidate.tier, 0 if unmodified else len(stored.body))
        return Answer(
            decision=decision,
            stored=stored,
            tier=candidate.tier,
            age=int(age),
            cache_status=cache_status.hit(ttl=judgement.lifetime - age, detail=self._detail(decision, candidate.tier)),
            not_modified=unmodified,
            rendered=None if entry is None else entry.rendered,
        )

    def _revalidated(self, candidate: Candidate, response: Response, now: float) -> Answer:
        """The origin says that what is stored is still right: it becomes the answer, brought up to date."""
        if validates(candidate.stored.fields, response.headers):
            candidate, refused = self._cache.freshen(self._target(), candidate, response, now)
            kept = refused is None
        else:
            # A 304 for something else than what was asked about: good for this answer, not for later ones.
            self._cache.forget(candidate)
            kept = False
        self.now = now
        answer = self._answer(Decision.REVALIDATED, candidate)
        forward = self._forwarded
        answer.cache_status = cache_status.forwarded(
            "request" if forward is not None and forward.reason is MissReason.REQUEST else "stale",
            status=304,
            stored=kept,
            detail=self._detail(Decision.REVALIDATED, candidate.tier),
        )
        return answer

    def _pass(self, forward: Forward, response: Response, now: float) -> Pass:
        refused = self._begin_fill(response, now)
        if refused is not None:
            self._cache.not_stored(refused, self.request, self._candidate, response.status)
        elif response.complete:
            self.on_end()
        status = cache_status.forwarded(
            forward.reason.value if isinstance(forward.reason, MissReason) else "miss",
            stored=refused is None,
            detail=self._detail(forward.decision, refused),
        )
        upstream = response.headers.get("cache-status")
        return Pass(cache_status.append(upstream, status), copy=self._fill is not None)

    def _begin_fill(self, response: Response, now: float) -> NoStoreReason | None:
        """Begin to copy the response; or why it is not to be stored."""
        if self._epochs is UNKNOWN:
            # The look-up did not come to an end: nothing tells an invalidation that happens from now on.
            return NoStoreReason.NO_TIER
        target = self._target()
        reason = unstorable(target, response)
        if reason is not None:
            return reason
        fill = Fill(target, response, now, self._cache.copies)
        if not fill.fits():
            return NoStoreReason.TOO_LARGE
        self._fill = fill
        return None

    def _target(self) -> Target:
        assert self.selection is not None  # noqa: S101 - set in start(), before anything is looked up
        assert self._policy is not None  # noqa: S101
        assert self.key is not None  # noqa: S101
        return Target(self.request, self.now, self.selection, self._policy, self.key, self._epochs, self._index)

    def _drop_fill(self) -> None:
        fill, self._fill = self._fill, None
        if fill is not None and fill.refused is not None:
            self._cache.meter.stored(fill.refused)
            fill.release()

    def _detail(self, decision: Decision, more: object) -> str:
        """The `detail` of cache-status: tier or reason, then route, arm and policy, each `name=value`."""
        selection = self.selection
        if selection is None or selection.policy is None:
            return decision
        arm = f" arm={selection.arm}" if selection.arm else ""
        what = f"tier={more}" if isinstance(more, TierName) else f"{more}" if more is not None else decision
        return f"{what}{arm} policy={selection.policy.name}"

    def _count(self, decision: Decision, reason: str, tier: str = "") -> None:
        if self._counted:
            return
        self._counted = True
        selection = self.selection
        route, arm = ("", "") if selection is None else (selection.route, selection.arm)
        self._cache.meter.request(decision, reason, tier, route, arm)


def _newer(one: Candidate | None, other: Candidate | None) -> Candidate | None:
    """The more recent response of two (RFC 9111 section 4.1); the one at hand in case of a tie."""
    if one is None or other is None:
        return one or other
    return other if other.stored.response_time > one.stored.response_time else one
