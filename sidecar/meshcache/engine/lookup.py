"""The look-up of one request: which stored response may answer it, in process memory and below.

Nothing is decided here but whether a stored response is the one that was asked for; how it may be used is for
`judge` and `exchange`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from meshcache.decisions import MissReason, TierName
from meshcache.engine.epochs import UNKNOWN, Epochs
from meshcache.engine.judge import Judgement, judge
from meshcache.engine.key import part_key
from meshcache.engine.purge_state import UNBORN
from meshcache.engine.ranges.excerpts import answers_ranges, wanted_ranges
from meshcache.engine.ranges.parts import is_part
from meshcache.engine.records import StoredResponse, VariantIndex
from meshcache.engine.target import Target
from meshcache.engine.variants import variant_keys
from meshcache.rfc.negotiation import accepts_codings
from meshcache.rfc.vary import selecting_values

if TYPE_CHECKING:
    from meshcache.engine.account import Account
    from meshcache.engine.key import CacheKey
    from meshcache.engine.purge_state import Born
    from meshcache.message import Request
    from meshcache.policy.compiled import CacheStatus, Policy
    from meshcache.policy.snapshot import Selection
    from meshcache.rfc.vary import Selecting
    from meshcache.tiers.memory import HotEntry
    from meshcache.tiers.stack import Found, TierStack


class Candidate(msgspec.Struct, frozen=True):
    """A stored response that may answer, and how the policy sees it."""

    stored: StoredResponse
    storage: bytes
    tier: TierName
    judgement: Judgement
    entry: HotEntry | None
    """Its place in process memory, when it has one."""
    born: Born = UNBORN
    """The purge rules that it is known to have outlived."""
    stale_since: float | None = None
    """Unix seconds at which a soft purge made it stale."""


class Lookup:
    """What a request is looked up by, and what the look-up has learned so far."""

    __slots__ = (
        "_has_parts",
        "_parts_at",
        "_request",
        "_stack",
        "account",
        "epochs",
        "index",
        "key",
        "now",
        "part",
        "policy",
        "revision",
        "selection",
        "shown",
        "subject",
        "waited",
        "wanted",
    )

    def __init__(
        self,
        stack: TierStack,
        request: Request,
        selection: Selection,
        policy: Policy,
        key: CacheKey,
        revision: str,
        now: float,
        subject: bytes = b"",
        shown: CacheStatus = "standard",
        account: Account | None = None,
    ) -> None:
        """`subject` is the keyed hash of the person whom the key holds, `shown` how much the client is told.

        `account` is what the request shows of an experiment, if it counts in one.
        """
        self._stack = stack
        self._request = request
        self.selection = selection
        self.policy = policy
        self.key = key
        self.revision = revision
        self.now = now
        self.subject = subject
        self.shown = shown
        self.account = account
        self.index: VariantIndex | None = None
        """The resource's variants, when there are any."""
        self.wanted = wanted_ranges(request)
        """The ranges that are asked for; None for the whole."""
        self.part: Candidate | None = None
        """What is held of an answer that is not held whole, whether or not it is enough for this request."""
        self.waited = False
        """Whether the request was kept for another one's answer: to wait for it, or to look for it once more."""
        self._has_parts = request.method == "GET"
        self._parts_at: tuple[VariantIndex | None, list[tuple[bytes, Selecting]]] | None = None
        self.epochs: Epochs = UNKNOWN
        """Read before the origin is asked, for whoever fills this miss; unknown until `absent` or `below` has run."""

    @property
    def asks_for_key(self) -> bool:
        """Whether the client wants to be told the key."""
        return self._request.headers.get("x-cache-status") == "key"

    def in_memory(self) -> Candidate | None:
        """The best candidate in process memory."""
        whole = self._whole_in_memory()
        if whole is not None or not self._has_parts:
            return whole
        best: Candidate | None = None
        for storage, selecting in self._part_places():
            entry = self._stack.hot(storage, self.key.resource, self.policy.tiers, self.now)
            if entry is not None:
                best = newer(best, self._held_part(self._held(storage, entry, selecting, part=True)))
        return best

    def _whole_in_memory(self) -> Candidate | None:
        stack, key, limits = self._stack, self.key, self.policy.tiers
        entry = stack.hot(key.storage, key.resource, limits, self.now)
        if entry is None:
            return None
        record = entry.record
        if not isinstance(record, VariantIndex):
            return self._held(key.storage, entry, ())
        if record.key != key.material:
            return None
        self.index = record
        best: Candidate | None = None
        for storage, selecting in variant_keys(key, record, self._request.headers):
            variant = stack.hot(storage, key.resource, limits, self.now)
            if variant is not None:
                best = newer(best, self._held(storage, variant, selecting))
        return best

    def absent(self) -> bool:
        """Whether no lower tier can hold anything for this request; settled without waiting, else False."""
        places = [*self._places(), *self._part_places()] if self._has_parts else self._places()
        epochs = self._stack.nowhere([storage for storage, _ in places], self.key.resource)
        if epochs is None:
            return False
        self.epochs = epochs
        return True

    async def below(self, best: Candidate | None) -> Candidate | None:
        """The best candidate of `best` and the lower tiers."""
        best = await self._whole_below(best)
        if best is not None or not self._has_parts:
            return best
        for storage, selecting in self._part_places():
            if self.wanted is None and not self._stack.near(storage):
                # For the whole, a part is a chance to ask for less: no reason to ask a store across the network.
                continue
            found = await self._stack.find(storage, self.key.resource, self.policy.tiers, self.now)
            best = newer(best, self._held_part(self._found(storage, found, selecting, part=True)))
        return best

    async def _whole_below(self, best: Candidate | None) -> Candidate | None:
        key, limits = self.key, self.policy.tiers
        if self.index is None:
            found = await self._stack.find(key.storage, key.resource, limits, self.now)
            self.epochs = found.epochs
            record = found.record
            if isinstance(record, StoredResponse):
                return newer(best, self._found(key.storage, found, ()))
            if not isinstance(record, VariantIndex) or record.key != key.material:
                return best
            self.index = record
        for storage, selecting in self._places():
            found = await self._stack.find(storage, key.resource, limits, self.now)
            if self.epochs is UNKNOWN:
                self.epochs = found.epochs
            best = newer(best, self._found(storage, found, selecting))
        return best

    @property
    def miss_reason(self) -> MissReason:
        """Why the request goes to the origin when there is no candidate."""
        if self.part is not None:
            return MissReason.PARTIAL
        return MissReason.URI_MISS if self.index is None else MissReason.VARY_MISS

    def renew(self, now: float) -> None:
        """Forget what was learned: the request is looked up once more, and goes to the origin `now` if at all."""
        self.now = now
        self.index = None
        self.part = None
        self.epochs = UNKNOWN

    def newest_place(self) -> bytes:
        """The storage key under which the resource's next answer to this request is expected."""
        return self._places()[0][0]

    def selects(self, stored: StoredResponse) -> bool:
        """Whether `stored`, which another request has brought, is what this one asks for."""
        names = tuple(name for name, _ in stored.selecting)
        return self._is_it(stored, selecting_values(names, self._request.headers) if names else (), part=False)

    def alive(self, candidate: Candidate) -> bool:
        """Whether that has been neither purged nor, since this request was looked up, invalidated."""
        stack = self._stack
        now = stack.nowhere((), self.key.resource)
        known = now is not None and now.board == self.epochs.board
        return known and not stack.purged(candidate.born, candidate.stored)

    def target(self) -> Target:
        """Where an answer to this request is stored."""
        return Target(
            request=self._request,
            request_time=self.now,
            selection=self.selection,
            policy=self.policy,
            key=self.key,
            revision=self.revision,
            epochs=self.epochs,
            index=self.index,
            subject=self.subject,
            account=self.account,
        )

    def _places(self) -> list[tuple[bytes, Selecting]]:
        if self.index is None:
            return [(self.key.storage, ())]
        return variant_keys(self.key, self.index, self._request.headers)

    def _part_places(self) -> list[tuple[bytes, Selecting]]:
        known = self._parts_at
        if known is None or known[0] is not self.index:
            places = [(part_key(storage), selecting) for storage, selecting in self._places()]
            known = self._parts_at = (self.index, places)
        return known[1]

    def _held_part(self, found: Candidate | None) -> Candidate | None:
        """Remember a part; it is a candidate when it holds all that is asked for."""
        self.part = newer(self.part, found)
        if found is None or self.wanted is None:
            return None
        return found if answers_ranges(found.stored, self.wanted, self._request.headers.get("if-range")) else None

    def _held(self, storage: bytes, entry: HotEntry, selecting: Selecting, *, part: bool = False) -> Candidate | None:
        stored = entry.record
        if not isinstance(stored, StoredResponse) or not self._is_it(stored, selecting, part):
            return None
        judgement: Judgement | None = entry.memo
        if judgement is None or judgement.policy is not self.policy.freshness:
            judgement = judge(stored, self.policy.freshness)
            if entry.stale_since is not None:
                judgement = judgement.cut(entry.stale_since, self.now)
            entry.memo = judgement
        if not self.readable(judgement):
            return None
        return Candidate(stored, storage, TierName.HOT, judgement, entry, self._stack.born, entry.stale_since)

    def _found(self, storage: bytes, found: Found, selecting: Selecting, *, part: bool = False) -> Candidate | None:
        stored, tier = found.record, found.tier
        if tier is None or not isinstance(stored, StoredResponse) or not self._is_it(stored, selecting, part):
            return None
        judgement = judge(stored, self.policy.freshness)
        if not self.readable(judgement):
            return None
        if found.stale_since is not None:
            judgement = judgement.cut(found.stale_since, self.now)
        return Candidate(stored, storage, tier, judgement, None, found.epochs.born, found.stale_since)

    def readable(self, judgement: Judgement) -> bool:
        """Whether the client takes content coded like this, whatever the origin has said of what it varies on."""
        return not judgement.codings or accepts_codings(self._request.headers.get("accept-encoding"), judgement.codings)

    def _is_it(self, stored: StoredResponse, selecting: Selecting, part: bool) -> bool:
        """Whether it really is what is kept there for this request: an equal digest alone proves nothing."""
        return stored.key == self.key.material and stored.selecting == selecting and is_part(stored) is part


def newer(one: Candidate | None, other: Candidate | None) -> Candidate | None:
    """The more recent response of two (RFC 9111 section 4.1); the one at hand in case of a tie."""
    if one is None or other is None:
        return one or other
    return other if other.stored.response_time > one.stored.response_time else one
