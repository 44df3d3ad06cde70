"""Everything that changes what is stored: new answers, validated ones, moves between tiers, removals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from meshcache.decisions import NoStoreReason, TierName
from meshcache.engine.admission import effective_method
from meshcache.engine.chunks import owner_of
from meshcache.engine.judge import judge, judged, withheld
from meshcache.engine.key import key_parts, resource_ids, variant_key
from meshcache.engine.lookup import Candidate
from meshcache.engine.paths import as_handed_on
from meshcache.engine.pools import pool_of
from meshcache.engine.ranges.parts import (
    OF_ONE_CONTENT,
    is_part,
    strong_validator_of,
    total_of,
)
from meshcache.engine.records import StoredResponse
from meshcache.engine.storing.arrival import Arrival
from meshcache.engine.storing.fill import Fill
from meshcache.engine.storing.rules import NOT_REPLAYED, supersedes, unstorable
from meshcache.engine.storing.succession import is_older
from meshcache.engine.storing.writer import STORED, Writer, entry_of, of_use, tiers_of
from meshcache.message import Headers, Response
from meshcache.rfc.age import age_value
from meshcache.rfc.invalidation import invalidates, other_targets
from meshcache.rfc.ranges import parse_content_range, strong_validator
from meshcache.rfc.tags import response_tags
from meshcache.rfc.validation import freshened
from meshcache.rfc.vary import parse_vary, selecting_values

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshcache.engine.judge import Judgement
    from meshcache.engine.ports import Meter, Renderer, Spool
    from meshcache.engine.records import VariantIndex
    from meshcache.engine.storing.fill import CopyBudget
    from meshcache.engine.target import Target
    from meshcache.message import Request
    from meshcache.policy.compiled import KeySpec
    from meshcache.rfc.ranges import ContentRange
    from meshcache.tiers.memory import HotEntry
    from meshcache.tiers.stack import TierStack

_KEPT = frozenset(
    {
        NoStoreReason.METHOD,
        NoStoreReason.LOCAL_REPLY,
        NoStoreReason.REQUEST_NO_STORE,
        NoStoreReason.AUTHORIZATION,
        NoStoreReason.COOKIE,
        NoStoreReason.HOST_SPELLING,
        NoStoreReason.TYPE_MISMATCH,
        NoStoreReason.PARTIAL,
        NoStoreReason.NO_MEMORY,
        NoStoreReason.INVALIDATED,
        NoStoreReason.PURGED,
        NoStoreReason.NO_TIER,
        NoStoreReason.OLDER,
        NoStoreReason.BETTER_STORED,
    }
)
"""Reasons not to store a response that say nothing against the one that is stored already."""


Told = Callable[[StoredResponse | NoStoreReason], None]
"""Hears what is stored, or why nothing is."""


def _nobody(_: StoredResponse | NoStoreReason) -> None:
    pass


class Keeper:
    """What all exchanges and refreshes of one process write through. Belongs to one event loop."""

    def __init__(
        self,
        stack: TierStack,
        meter: Meter,
        render: Renderer,
        clock: Callable[[], float],
        copies: CopyBudget,
        on_gone: Callable[[frozenset[bytes]], None] = lambda _resources: None,
    ) -> None:
        """`on_gone` is told of resource ids of which something stored has had its day before its time."""
        self._on_gone = on_gone
        self.copies = copies
        """What all bodies that are being copied may take in memory."""
        self._stack = stack
        self._meter = meter
        self._render = render
        self._writer = Writer(stack, clock)

    def render(self, storage: bytes, entry: HotEntry, now: float) -> None:
        """Keep the serialised head of `entry` beside it, so that its next hit need not make it."""
        record = entry.record
        if isinstance(record, StoredResponse) and not is_part(record) and not record.chunks:
            self._stack.attach(storage, entry, self._render(record), now)

    def begin(self, arrival: Arrival, replacing: Candidate | None, part: ContentRange | None = None) -> Fill:
        """Begin to copy a response, to be stored in place of `replacing` where there is one.

        `part` is what a 206 says its content is.
        """
        return Fill(arrival, self.copies, part, partial(self._spool, arrival.target, replacing))

    def store(self, fill: Fill, replacing: Candidate | None, told: Told = _nobody) -> None:
        """Store a response that has come in whole, in place of `replacing` where there was one.

        One whose body went to a spool is stored in the background, when all of that is written. `told` is called with
        what is stored then, or why it is not.
        """
        if fill.spool is not None:
            self._stack.bodies.when_written(fill.spool, partial(self._store_spooled, fill, replacing, told))
        else:
            told(self._store(fill, fill.finish(), replacing))

    def _store_spooled(
        self, fill: Fill, replacing: Candidate | None, told: Told, digests: tuple[bytes, ...] | None
    ) -> None:
        if digests is None:
            reason = (fill.spool and fill.spool.refused) or NoStoreReason.NO_TIER
            self._meter.stored(reason)
            told(reason)
        else:
            told(self._store(fill, fill.finish_spooled(digests), replacing))

    def _store(
        self, fill: Fill, record: StoredResponse | None, replacing: Candidate | None
    ) -> StoredResponse | NoStoreReason:
        if record is None:
            reason = fill.refused or NoStoreReason.TRUNCATED
            self._meter.stored(reason)
            return reason
        return self.place(fill.arrival.target, record, replacing, fill.judged(record)) or record

    def place(
        self,
        target: Target,
        record: StoredResponse,
        replacing: Candidate | None,
        judgement: Judgement | None = None,
        *,
        undated: bool = False,
    ) -> NoStoreReason | None:
        """Store a whole answer, or a part with what is held of the same representation already.

        `judgement` is how the policy sees it, where that is known; for `undated` see `Successor`.
        Returns why it went nowhere, if so.
        """
        judgement = judgement or judge(record, target.policy.freshness)
        outcome = self._writer.write(target, record, judgement, replacing, undated=undated)
        self._meter.stored(outcome)
        return None if outcome == STORED else NoStoreReason(outcome)

    def is_overtaken(self, fill: Fill, replacing: Candidate | None) -> bool:
        """Whether memory holds another answer by now than the one that `fill` is to take the place of."""
        head, storage = fill.head(), fill.arrival.target.key.storage
        held = self._stack.memory.peek(variant_key(storage, head.selecting) if head.selecting else storage)
        known = None if replacing is None else replacing.stored
        return held is not None and isinstance(held.record, StoredResponse) and held.record is not known

    def _spool(self, target: Target, replacing: Candidate | None, head: StoredResponse, size: int) -> Spool | None:
        policy = target.policy
        return self._stack.spool(
            tiers_of(target, None if replacing is None else replacing.tier),
            policy.tiers,
            size=size,
            expires_in=of_use(judge(head, policy.freshness), policy, head.response_time),
            owner=owner_of(head),
            pool=pool_of(target.key.storage),
            budget=self.copies,
        )

    def freshen(
        self, target: Target, candidate: Candidate, response: Response, now: float
    ) -> tuple[Candidate, NoStoreReason | None]:
        """A 304 from the origin brings the stored response up to date (RFC 9111 section 4.3.4).

        Returns what this request is to be answered with, and why it must not be used again, if so: a 304 can forbid
        it as any response can.
        """
        old = candidate.stored
        # A 304 to HEAD says of the stored GET what one to GET does.
        target = target.asking(target.request.headers)
        updated = freshened(old.fields, response.headers, targets=target.policy.freshness.targets, response_time=now)
        fields = [item for item in updated if item[0] not in NOT_REPLAYED]
        arrival = Arrival(target, Response(old.status, Headers(fields)), now)
        reason = unstorable(arrival, part=is_part(old))
        tags = response_tags(response.headers)
        if tags is None:
            reason = reason or NoStoreReason.TAGS
        names = parse_vary(response.headers.get("vary"))
        selected_by = {name for name, _ in old.selecting}
        vary: str | None = None
        if names != "*" and selected_by - set(names):
            # A 304 often names less than the answer itself did: it narrows for whom that was, and never widens it.
            names = tuple(sorted(selected_by.union(names)))
            vary = ", ".join(names)
            fields = [*(item for item in fields if item[0] != "vary"), ("vary", vary)]
        record = msgspec.structs.replace(
            old,
            selecting=old.selecting if names == "*" else selecting_values(names, target.request.headers),
            fields=tuple(fields),
            request_time=target.request_time,
            response_time=now,
            initial_age=age_value(response.headers.get("age")),
            tags=tags or old.tags,
        )
        # What is stored now has been read already, unless its `vary` or its age are others.
        read = vary is None and record.initial_age == arrival.age
        judgement = judged(record, arrival.reading) if read else judge(record, target.policy.freshness)
        if reason is None:
            undated = "date" not in response.headers.names
            reason = self.place(target, record, candidate, judgement, undated=undated)
        else:
            self.not_stored(reason, target.request, candidate, old.status)
        born = target.epochs.born
        return Candidate(record, candidate.storage, candidate.tier, judgement, None, born), reason

    def seen_in_part(
        self, target: Target, candidate: Candidate, response: Response, now: float
    ) -> NoStoreReason | None:
        """A 206 has come from the origin though the whole is held: it says whether that is still right.

        With the same strong validator it brings the whole up to date (RFC 9111 section 3.4). With another one the whole
        has had its day, and goes. Returns why nothing of the 206 is kept, if so.
        """
        said = parse_content_range(response.headers.get("content-range"))
        seen = strong_validator(response.headers, response_time=now)
        held = strong_validator_of(candidate.stored)
        if said is not None and seen is not None and held is not None and response.from_origin:
            if seen == held and said.total in (None, total_of(candidate.stored)):
                told = Response(response.status, response.headers.without(OF_ONE_CONTENT), complete=True)
                return self.freshen(target, candidate, told, now)[1]
            self.forget(candidate)
        self._meter.stored(NoStoreReason.PARTIAL)
        return NoStoreReason.PARTIAL

    def promote(self, target: Target, candidate: Candidate, tiers: tuple[TierName, ...], now: float) -> None:
        """Move an entry up to the tiers that its reader has earned, unless memory holds a newer one by now."""
        if candidate.stale_since is not None:
            # The copy would be as if it had been asked for just now, and no longer stale.
            return
        held = self._stack.memory.peek(candidate.storage)
        if held is not None and isinstance(held.record, StoredResponse) and is_older(candidate.stored, held.record):
            return
        stored, judgement = candidate.stored, candidate.judgement
        expires_in = of_use(judgement, target.policy, now)
        self._stack.promote(entry_of(target, candidate.storage, stored, tiers, now, expires_in, judgement))

    def promote_index(self, target: Target, index: VariantIndex, now: float) -> None:
        """Keep a list of variants in memory, so that the next look-up finds its variant at once."""
        expires_in = target.policy.tiers.hot.ttl
        self._stack.promote(entry_of(target, target.key.storage, index, (TierName.HOT,), now, expires_in))

    def not_stored(self, reason: NoStoreReason, request: Request, candidate: Candidate | None, status: int) -> bool:
        """A response was not stored: when it shows that what is stored has had its day, that goes, too.

        Says whether it shows so of whatever came before.
        """
        self._meter.stored(reason)
        if reason in _KEPT or not supersedes(status):
            return False
        if candidate is not None:
            if withheld(candidate.judgement, request.headers):
                # What this caller gets says nothing of what the others may have.
                return False
            self.forget(candidate)
        return True

    def forget(self, candidate: Candidate) -> None:
        """Delete one entry from all tiers, in the background."""
        self._stack.delete(candidate.storage, candidate.stored)
        parts = key_parts(candidate.stored.key)
        if parts is not None:
            self._on_gone(frozenset({parts.resource}))

    async def invalidate(
        self, request: Request, response: Response, specs: Iterable[KeySpec], spared: bytes = b""
    ) -> frozenset[bytes]:
        """An unsafe request has succeeded: what is stored for its target is invalid (RFC 9111 section 4.4).

        `specs` are the ways in which policies key a URI, each of which may have stored it. `spared` is a resource that
        is left to the caller. Returns the ids of the others.
        """
        if not response.from_origin or not invalidates(effective_method(request), response.status):
            return frozenset()
        paths = other_targets(
            scheme=request.headers.get("x-forwarded-proto") or request.scheme,
            authority=request.authority,
            path=request.path,
            response_headers=response.headers,
        )
        # The origin writes a path as it likes; it is stored as Envoy hands it on.
        paths = (request.path, *paths, *map(as_handed_on, paths))
        resources = resource_ids(request.scheme, request.authority, paths, specs) - {spared}
        for resource in resources:
            await self._stack.invalidate(resource)
        return frozenset(resources)
