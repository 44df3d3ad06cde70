"""One process's cache: what all exchanges share, and everything that changes what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.engine.decisions import NoStoreReason, TierName
from meshcache.engine.exchange import Candidate, Exchange
from meshcache.engine.fill import CopyBudget
from meshcache.engine.judge import judge
from meshcache.engine.key import resource_ids, variant_key
from meshcache.engine.placement import earned_tiers, with_tiers_of
from meshcache.engine.records import StoredResponse
from meshcache.engine.refresh import Refreshes
from meshcache.engine.variants import with_field_set
from meshcache.rfc.age import age_value
from meshcache.rfc.invalidation import invalidates, other_targets
from meshcache.rfc.validation import freshened

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshcache.engine.fill import Fill, Target
    from meshcache.engine.judge import Judgement
    from meshcache.engine.ports import Leases, Meter, Refresher, Renderer, Spawn
    from meshcache.engine.records import VariantIndex
    from meshcache.message import Request, Response
    from meshcache.policy.compiled import Policy
    from meshcache.policy.snapshot import Snapshot
    from meshcache.tiers.memory import HotEntry
    from meshcache.tiers.stack import TierStack

_KEPT = frozenset(
    {
        NoStoreReason.METHOD,
        NoStoreReason.LOCAL_REPLY,
        NoStoreReason.REQUEST_NO_STORE,
        NoStoreReason.AUTHORIZATION,
        NoStoreReason.PARTIAL,
        NoStoreReason.NO_MEMORY,
        NoStoreReason.INVALIDATED,
    }
)
"""Reasons not to store a response that say nothing against the one that is stored already."""

_FIRST_SERVER_ERROR = 500


class Cache:
    """The cache behind one ext_proc server. Belongs to one event loop; `snapshot` is swapped between requests."""

    def __init__(
        self,
        *,
        stack: TierStack,
        leases: Leases,
        refresher: Refresher | None,
        meter: Meter,
        clock: Callable[[], float],
        spawn: Spawn,
        render: Renderer,
        copy_bytes: int,
    ) -> None:
        """`clock` gives Unix seconds; `copy_bytes` bounds the bodies that are being copied at one time."""
        self.snapshot: Snapshot | None = None
        self.stack = stack
        self.refresher = refresher
        self.meter = meter
        self.clock = clock
        self._render = render
        self._spawn = spawn
        self.copies = CopyBudget(copy_bytes)
        self._refreshes = Refreshes(self, leases, spawn)

    def open(self, request: Request) -> Exchange:
        """Begin with a request, under the policies now in force."""
        return Exchange(self, request)

    def render(self, storage: bytes, entry: HotEntry, now: float) -> None:
        """Keep the serialised head of `entry` beside it, so that its next hit need not make it."""
        if isinstance(entry.record, StoredResponse):
            self.stack.attach(storage, entry, self._render(entry.record), now)

    def refresh(self, target: Target, candidate: Candidate) -> None:
        """Bring a stale entry up to date in the background, once for all that ask for it meanwhile."""
        self._refreshes.begin(target, candidate)

    def store(self, fill: Fill, replacing: Candidate | None) -> None:
        """Store a response that has come in whole, in place of `replacing` where there was one."""
        record = fill.finish()
        if record is None:
            self.meter.stored(fill.refused or NoStoreReason.TRUNCATED)
            return
        self.meter.stored(self._place(fill.target, record, replacing))

    def freshen(self, target: Target, candidate: Candidate, response: Response, now: float) -> Candidate:
        """A 304 from the origin brings the stored response up to date (RFC 9111 section 4.3.4)."""
        old = candidate.stored
        record = StoredResponse(
            key=old.key,
            selecting=old.selecting,
            status=old.status,
            fields=freshened(old.fields, response.headers, response_time=now),
            request_time=target.request_time,
            response_time=now,
            initial_age=age_value(response.headers.get("age")),
            authorized=old.authorized,
            body=old.body,
        )
        self.meter.stored(self._write(target, candidate.storage, record, candidate))
        return Candidate(record, candidate.storage, candidate.tier, judge(record, target.policy.freshness), None)

    def promote(self, target: Target, candidate: Candidate, tiers: tuple[TierName, ...], now: float) -> None:
        """Move an entry up to the tiers that its reader has earned."""
        self.stack.promote(
            candidate.storage,
            target.key.resource,
            candidate.stored,
            tiers=tiers,
            limits=target.policy.tiers,
            epochs=target.epochs,
            now=now,
            expires_in=self._of_use(candidate.judgement, target.policy, now),
            eviction=target.policy.eviction,
            rendered=self._render(candidate.stored) if TierName.HOT in tiers else None,
        )

    def promote_index(self, target: Target, index: VariantIndex, now: float) -> None:
        """Keep a list of variants in memory, so that the next look-up finds its variant at once."""
        limits = target.policy.tiers
        self.stack.promote(
            target.key.storage,
            target.key.resource,
            index,
            tiers=(TierName.HOT,),
            limits=limits,
            epochs=target.epochs,
            now=now,
            expires_in=limits.hot.ttl,
            eviction=target.policy.eviction,
        )

    def not_stored(self, reason: NoStoreReason, stale: Candidate | None, status: int) -> None:
        """A response was not stored: when it shows that what is stored has had its day, that goes, too."""
        self.meter.stored(reason)
        if stale is not None and reason not in _KEPT and status < _FIRST_SERVER_ERROR:
            self.forget(stale)

    def forget(self, candidate: Candidate) -> None:
        """Delete one entry from all tiers, in the background."""
        self._spawn(self.stack.delete(candidate.storage))

    async def invalidate(self, request: Request, snapshot: Snapshot | None, response: Response) -> None:
        """An unsafe request has succeeded: what is stored for its target is invalid (RFC 9111 section 4.4)."""
        if snapshot is None or not response.from_origin or not invalidates(request.method, response.status):
            return
        specs = {policy.key.fingerprint: policy.key for policy in snapshot.policies.values()}.values()
        paths = other_targets(
            scheme=request.scheme,
            authority=request.authority,
            path=request.path,
            response_headers=response.headers,
        )
        for resource in resource_ids(request.scheme, request.authority, (request.path, *paths), specs):
            await self.stack.invalidate(resource)

    def _place(self, target: Target, record: StoredResponse, replacing: Candidate | None) -> str:
        """Store under the primary key, or under a variant's with the list of variants beside it."""
        if not record.selecting:
            # It answers every request for the resource; older variants become unreachable with their list.
            return self._write(target, target.key.storage, record, replacing)
        names = tuple(name for name, _ in record.selecting)
        outcome = self._write(target, variant_key(target.key.storage, record.selecting), record, replacing)
        if outcome == STORED and (target.index is None or target.index.field_sets[0] != names):
            self._write_index(target, with_field_set(target.key, target.index, names))
        return outcome

    def _write(self, target: Target, storage: bytes, record: StoredResponse, replacing: Candidate | None) -> str:
        policy = target.policy
        now = record.response_time
        tiers = earned_tiers(policy.placement, target.selection.score)
        if replacing is not None:
            # An older copy in a faster tier would be found first: it is replaced, whoever asked.
            tiers = with_tiers_of(tiers, replacing.tier)
        placed = self.stack.store(
            storage,
            target.key.resource,
            record,
            tiers=tiers,
            limits=policy.tiers,
            epochs=target.epochs,
            now=now,
            expires_in=self._of_use(judge(record, policy.freshness), policy, now),
            eviction=policy.eviction,
            rendered=self._render(record) if TierName.HOT in tiers else None,
        )
        return STORED if placed else NoStoreReason.NO_TIER

    def _write_index(self, target: Target, index: VariantIndex) -> None:
        policy = target.policy
        earned = earned_tiers(policy.placement, target.selection.score)
        self.stack.store(
            target.key.storage,
            target.key.resource,
            index,
            tiers=with_tiers_of(earned, TierName.HOT),
            limits=policy.tiers,
            epochs=target.epochs,
            now=self.clock(),
            expires_in=_longest_residence(policy),
            eviction=policy.eviction,
        )

    @staticmethod
    def _of_use(judgement: Judgement, policy: Policy, now: float) -> float:
        """For how many seconds an entry can be of any use: fresh, stale within a window, or to be validated."""
        if judgement.can_validate:
            return _longest_residence(policy)
        return judgement.lifetime + max(judgement.swr, judgement.sie) - judgement.age(now)


def _longest_residence(policy: Policy) -> float:
    tiers = policy.tiers
    return max(tiers.hot.ttl, tiers.warm.ttl, tiers.cold.ttl)


STORED = "stored"
"""The outcome of a store that succeeded; all others are `NoStoreReason`s."""
