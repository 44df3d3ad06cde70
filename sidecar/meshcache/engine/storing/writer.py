"""The writing of records: under which keys, to which tiers, and for how long; and what they must not displace."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from meshcache.decisions import NoStoreReason, TierName
from meshcache.engine.judge import judge
from meshcache.engine.key import part_key, variant_key
from meshcache.engine.lookup import Candidate
from meshcache.engine.placement import earned_tiers, with_tiers_of
from meshcache.engine.ranges.parts import (
    MOST_REWRITTEN,
    combined,
    completed,
    is_part,
)
from meshcache.engine.records import Entry, StoredResponse, VariantIndex
from meshcache.engine.storing.succession import SLOW_SECONDS, Successor, may_give_way
from meshcache.engine.variants import variant_keys, with_variant

if TYPE_CHECKING:
    from meshcache.engine.judge import Judgement
    from meshcache.engine.records import Record
    from meshcache.engine.target import Target
    from meshcache.policy.compiled import Policy
    from meshcache.tiers.stack import TierStack

LINGER_SECONDS = 300.0
"""For how long an entry is kept beyond its use: the policy may be edited so that it lasts longer, and a client may
take it stale (`max-stale`)."""

STORED = "stored"
"""The outcome of a write that succeeded; all others are `NoStoreReason`s."""


class Writer:
    """Writes to the tiers of one process."""

    def __init__(self, stack: TierStack, clock: Callable[[], float]) -> None:
        self._stack = stack
        self._clock = clock

    def write(
        self,
        target: Target,
        record: StoredResponse,
        judgement: Judgement,
        replacing: Candidate | None,
        *,
        undated: bool = False,
    ) -> str:
        """Write a whole answer, or a part with what is held of the same representation already: the outcome.

        `judgement` is how the policy sees `record`; for `undated` see `Successor`.
        """
        if is_part(record):
            return self._part(target, record, replacing)
        if replacing is not None and is_part(replacing.stored):
            # Of an older version, or no longer needed.
            self._stack.delete(replacing.storage, replacing.stored)
            replacing = None
        new = Successor(record, target.policy.freshness, undated)
        return self._whole(target, new, judgement, replacing)

    def _whole(self, target: Target, new: Successor, judgement: Judgement, replacing: Candidate | None) -> str:
        """Store under the primary key, or under a variant's with the list of variants beside it."""
        record = new.record
        held, known = (None, None) if replacing is None else (replacing.tier, replacing.stored)
        now = self._in_memory(target, target.key.storage, record)
        reason = self._overtaken(target, new, now, known)
        if reason is not None:
            return reason
        if not record.selecting:
            # It answers every request for the resource; older variants become unreachable with their list, which
            # it has to replace wherever that would be found first.
            tier = held if target.index is None else TierName.HOT
            return self._write(target, target.key.storage, new, judgement, tier)
        storage = variant_key(target.key.storage, record.selecting)
        reason = self._yields(new, self._in_memory(target, storage, record), known)
        if reason is not None:
            return reason
        outcome = self._write(target, storage, new, judgement, held)
        if outcome == STORED:
            self._list(target, record, now)
        return outcome

    def _in_memory(self, target: Target, storage: bytes, record: StoredResponse) -> Record | None:
        """What memory has under the key `storage` that is of the same key as `record`."""
        entry = self._stack.hot(storage, target.key.resource, target.policy.tiers, self._clock())
        return None if entry is None or entry.record.key != record.key else entry.record

    def _yields(self, new: Successor, held: Record | None, known: StoredResponse | None) -> NoStoreReason | None:
        """Why `new` must not take the place of the answer that is `held`, or stand beside it.

        What was `known` when the origin was asked gives way; anything else that is stored by now has come in meanwhile.
        """
        if held is known or not isinstance(held, StoredResponse):
            return None
        return new.yields(held, self._clock())

    def _overtaken(
        self, target: Target, new: Successor, now: Record | None, known: StoredResponse | None
    ) -> NoStoreReason | None:
        """The same for what is under the primary key `now`, be it the list of variants.

        Answers that vary and answers that do not may be under way together: the newer one counts, whichever it is.
        """
        record = new.record
        if record.selecting or not isinstance(now, VariantIndex):
            return self._yields(new, now, known)
        for storage, selecting in variant_keys(target.key, now, target.request.headers):
            variant = self._in_memory(target, storage, record)
            if isinstance(variant, StoredResponse) and variant.selecting == selecting:
                return self._yields(new, variant, known)
        # What has come in meanwhile is for others: which of the two is newer cannot be told.
        return None if now == target.index else NoStoreReason.OLDER

    def _part(self, target: Target, part: StoredResponse, replacing: Candidate | None) -> str:
        """Store a part under a key of its own, where a look-up for the whole would lead to; the whole when it is that.

        `replacing` is what was found before. What is in memory now may hold more: another request has been faster.
        """
        names = tuple(name for name, _ in part.selecting)
        if target.index is not None:
            findable = bool(names)
        else:
            findable = not names or replacing is None or is_part(replacing.stored)
        if not findable:
            # To be found, it would have to take the place of a whole answer or of the list of its variants.
            return NoStoreReason.PARTIAL
        storage = variant_key(target.key.storage, part.selecting) if names else target.key.storage
        place = part_key(storage)
        entry = self._stack.hot(place, target.key.resource, target.policy.tiers, part.response_time)
        base = replacing.stored if replacing is not None and is_part(replacing.stored) else None
        if entry is not None and isinstance(entry.record, StoredResponse):
            base = entry.record
        merged = completed(part)
        if base is not None and is_part(merged):
            merged = combined(base, part)
            if is_part(merged) and len(part.body) * MOST_REWRITTEN < len(merged.body):
                return NoStoreReason.PARTIAL
        judgement = judge(merged, target.policy.freshness)
        new = Successor(merged, target.policy.freshness)
        if not is_part(merged):
            if base is not None:
                self._stack.delete(place)
            return self._whole(target, new, judgement, None)
        reason = self._yields(new, self._in_memory(target, place, merged), base)
        if reason is not None:
            return reason
        held = None if replacing is None else replacing.tier
        outcome = self._write(target, place, new, judgement, held if entry is None else TierName.HOT)
        if outcome == STORED and names:
            self._list(target, merged, target.index)
        return outcome

    def _write(
        self, target: Target, storage: bytes, new: Successor, judgement: Judgement, held: TierName | None
    ) -> str:
        """Write to the tiers that the caller has earned, and to where the key is `held` so far."""
        record, policy = new.record, target.policy
        now = record.response_time
        tiers = tiers_of(target, held)
        entry = entry_of(target, storage, record, tiers, now, of_use(judgement, policy, now), judgement)
        if may_give_way(record.status) or self._clock() - record.request_time > SLOW_SECONDS:
            # Another process may have stored something in the meantime, which its memory alone knows so far.
            entry = msgspec.structs.replace(entry, yields_to=partial(self._stays, new))
        outcome = self._stack.store(entry)
        return outcome.refused or STORED

    def _stays(self, new: Successor, held: StoredResponse) -> bool:
        return new.yields(held, self._clock()) is not None

    def _list(self, target: Target, variant: StoredResponse, now: Record | None) -> None:
        """Have the list of the resource's variants say how to find `variant`, and what they can be purged by.

        `now` is what memory has under the primary key. Another variant may have been listed since the look-up.
        """
        known = now if isinstance(now, VariantIndex) else target.index
        index = with_variant(known, variant)
        if index is known:
            return
        tiers = tiers_of(target, TierName.HOT)
        expires_in = _longest_residence(target.policy)
        self._stack.store(entry_of(target, target.key.storage, index, tiers, self._clock(), expires_in))


def entry_of(
    target: Target,
    storage: bytes,
    record: Record,
    tiers: tuple[TierName, ...],
    now: float,
    expires_in: float,
    judgement: Judgement | None = None,
) -> Entry:
    """What the tiers are given of `record`, to be kept under the key `storage`."""
    return Entry(
        key=storage,
        resource=target.key.resource,
        record=record,
        tiers=tiers,
        limits=target.policy.tiers,
        epochs=target.epochs,
        now=now,
        expires_in=expires_in,
        eviction=target.policy.eviction,
        judgement=judgement,
    )


def tiers_of(target: Target, held: TierName | None) -> tuple[TierName, ...]:
    """The tiers that the caller has earned, and those where the key is `held` so far."""
    tiers = earned_tiers(target.policy.placement, target.selection.score)
    # An older copy in a faster tier would be found first: it is replaced, whoever asked.
    return tiers if held is None else with_tiers_of(tiers, held)


def of_use(judgement: Judgement, policy: Policy, now: float) -> float:
    """For how many seconds an entry is worth keeping: fresh, stale within a window, or to be validated."""
    if judgement.can_validate:
        return _longest_residence(policy)
    left = judgement.lifetime + max(judgement.swr, judgement.sie, judgement.disconnected) - judgement.age(now)
    if left > 0.0:
        return left + LINGER_SECONDS
    # Stale as it came: of use to those alone who take it so.
    return LINGER_SECONDS if judgement.lifetime > 0.0 and judgement.may_serve_stale else 0.0


def _longest_residence(policy: Policy) -> float:
    tiers = policy.tiers
    return max(tiers.hot.ttl, tiers.warm.ttl, tiers.cold.ttl)
