"""The background refreshes of one process: one for each entry in the fleet, so many at once, and pauses after failures.

Nothing waits in a queue. A refresh that cannot begin now is left out, and the next request for the entry tries again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from meshcache.decisions import NoStoreReason, RefreshOutcome, TierName
from meshcache.engine.judge import Use, judge, use
from meshcache.engine.ports import RefreshError
from meshcache.engine.records import StoredResponse
from meshcache.engine.refresh.backoff import Backoff
from meshcache.engine.refresh.rules import refresh_request
from meshcache.engine.storing.arrival import Arrival
from meshcache.engine.storing.rules import supersedes, unstorable
from meshcache.message import Headers
from meshcache.rfc.stale import ERROR_STATUSES
from meshcache.rfc.validation import add_validators, validates

if TYPE_CHECKING:
    from meshcache.decisions import RefreshCause
    from meshcache.engine.account import Account
    from meshcache.engine.cache import Cache
    from meshcache.engine.lookup import Candidate
    from meshcache.engine.ports import FleetLease, FleetLeases, Leases, RefreshRequest, Spawn, TakeBody
    from meshcache.engine.storing.fill import Fill
    from meshcache.engine.target import Target
    from meshcache.message import Field, Response

MOST_AT_ONCE: Final = 64
"""Refreshes of one process at one time, whatever its policies allow each."""
LEASE_SECONDS: Final = 60.0
"""How long a refresh may keep others from trying. A process that dies in the middle holds its leases this long."""
RETRY_SECONDS: Final = 1.0
"""How long a refresh that failed keeps the next one from being tried; twice as long after each further failure."""
LONGEST_RETRY_SECONDS: Final = 30.0
"""The longest of these pauses: an origin that is well again is asked no later than this."""
ELSEWHERE_SECONDS: Final = 0.1
"""How long an entry that another process refreshes is left alone: then its result may be there to be taken."""
WRITE_SECONDS: Final = 1.0
"""How long a lease is held after a refresh for its result to reach the tier that other processes read."""


@dataclass(frozen=True, slots=True)
class _Refresh:
    target: Target
    candidate: Candidate
    cluster: str
    cause: RefreshCause

    @property
    def key(self) -> bytes:
        """What is leased: one refresh for each stored variant."""
        return lease_key(self.candidate)


def lease_key(candidate: Candidate) -> bytes:
    """The key under which a refresh of `candidate` is leased.

    Not that of the entry: who collapses requests for it shall not wait for a refresh, let alone for the pause after it.
    """
    return b"refresh:" + candidate.storage


class Refreshes:
    """The refreshes under way, for each policy at most its `refresh.maxConcurrent` at once."""

    def __init__(self, cache: Cache, leases: Leases, fleet: FleetLeases, spawn: Spawn) -> None:
        self._cache = cache
        self._leases = leases
        self._fleet = fleet
        self._spawn = spawn
        self._running: Counter[str] = Counter()
        self._busy: set[bytes] = set()
        self._pauses = Backoff(first=RETRY_SECONDS, longest=LONGEST_RETRY_SECONDS)
        self._closed = False

    def close(self) -> None:
        """Begin no more; those under way go on."""
        self._closed = True

    def begin(self, target: Target, candidate: Candidate, cluster: str, cause: RefreshCause) -> None:
        """Refresh `candidate` through `cluster` in the background, unless that is being done or was tried just now."""
        key = lease_key(candidate)
        now = self._cache.clock()
        # A popular entry comes here with every hit while it is being refreshed: what this process knows is asked first.
        if self._closed or key in self._busy or self._pauses.rests(key, now):
            return
        policy = target.policy
        if len(self._busy) >= MOST_AT_ONCE or self._running[policy.name] >= policy.refresh_max_concurrent:
            self._cache.meter.refreshed(RefreshOutcome.SATURATED, cause)
            return
        lease = self._leases.lease(key, LEASE_SECONDS)
        if lease is None:
            self._pauses.rest(key, now, ELSEWHERE_SECONDS)
            return
        self._busy.add(key)
        self._running[policy.name] += 1
        self._spawn(self._run(_Refresh(target, candidate, cluster, cause), lease))

    async def _run(self, refresh: _Refresh, lease: Any) -> None:
        cache, key = self._cache, refresh.key
        outcome: RefreshOutcome | None = None
        fleet: FleetLease | None = None
        try:
            fleet = await self._fleet.acquire(key, LEASE_SECONDS)
            outcome = RefreshOutcome.ELSEWHERE if fleet is None else await self._refresh(refresh)
        except RefreshError:
            outcome = RefreshOutcome.ERROR
        except Exception:
            outcome = RefreshOutcome.ERROR
            raise
        finally:
            self._busy.discard(key)
            self._running[refresh.target.policy.name] -= 1
            pause = 0.0
            # Without an outcome it was broken off from outside, which says nothing of the origin.
            if outcome is not None:
                cache.meter.refreshed(outcome, refresh.cause)
                pause = self._judge(key, outcome)
                if outcome in _WRITTEN:
                    await cache.stack.drain(WRITE_SECONDS)
            self._leases.release(lease)
            if fleet is not None:
                await self._fleet.release(fleet)
            if pause:
                # The others shall not try what has just failed here.
                self._leases.lease(key, pause)
                if fleet is not None:
                    await self._fleet.acquire(key, pause)

    def _judge(self, key: bytes, outcome: RefreshOutcome) -> float:
        """For how long nobody should try again, in seconds."""
        now = self._cache.clock()
        if outcome is RefreshOutcome.ERROR:
            return self._pauses.failed(key, now)
        if outcome is RefreshOutcome.ELSEWHERE:
            self._pauses.rest(key, now, ELSEWHERE_SECONDS)
        else:
            self._pauses.succeeded(key)
        return 0.0

    async def _refresh(self, refresh: _Refresh) -> RefreshOutcome:
        cache, candidate = self._cache, refresh.candidate
        policy = refresh.target.policy
        found = await cache.stack.find(candidate.storage, refresh.target.key.resource, policy.tiers, cache.clock())
        target = refresh.target.at(found.epochs, cache.clock())
        fresher = found.record
        if (
            isinstance(fresher, StoredResponse)
            and found.stale_since is None
            and fresher.response_time > candidate.stored.response_time
            and fresher.key == candidate.stored.key
            and fresher.selecting == candidate.stored.selecting
        ):
            judgement = judge(fresher, policy.freshness)
            if use(judgement, _NOTHING_ASKED, target.request_time) is Use.FRESH:
                fresh = msgspec.structs.replace(
                    candidate, stored=fresher, judgement=judgement, born=found.epochs.born, stale_since=None
                )
                cache.keeper.promote(target, fresh, (TierName.HOT,), target.request_time)
                return RefreshOutcome.FOUND
        request = refresh_request(
            target.request, candidate.stored, policy.key, policy.freshness.targets, refresh.cluster
        )
        # The response answers what the refresh asks, which is the client's request without his conditions.
        target = target.asking(request.headers)
        conditional: list[Field] = []
        # What has been purged since it was chosen is not brought back by the origin's word that it is as it was.
        if not cache.stack.purged(candidate.born, candidate.stored):
            conditions = add_validators(
                _NOTHING_ASKED, candidate.stored.status, candidate.stored.fields, now=target.request_time
            )
            conditional = [(name, value) for name, value in conditions.items() if value is not None]
        conditions_too = replace(request, headers=Headers((*request.headers, *conditional)))
        response, fill = await self._fetch(conditions_too, target, candidate)
        now = cache.clock()
        if response.status == 304 and conditional:
            if validates(candidate.stored.fields, response.headers, now=now):
                _, refused = cache.keeper.freshen(target, candidate, response, now)
                return RefreshOutcome.NOT_MODIFIED if refused is None else RefreshOutcome.NOT_STORED
            # It speaks of something that is not stored (RFC 9111 section 4.3.4): the whole answer is asked for.
            cache.keeper.forget(candidate)
            target = target.at(target.epochs, now)
            response, fill = await self._fetch(request, target, candidate)
            if response.status == 304:
                return RefreshOutcome.MISMATCH
        return self._take(target, candidate, response, fill)

    async def _fetch(
        self, request: RefreshRequest, target: Target, candidate: Candidate
    ) -> tuple[Response, Fill | None]:
        """The answer to a refresh, and the copy of it that was made while it came; None of what is not to be kept."""
        cache = self._cache
        if cache.refresher is None:
            raise RefreshError("there is no way to the origin")
        fills: list[Fill] = []
        account = target.account
        if account is not None:
            account.caused(1, 0)

        def receive(response: Response) -> TakeBody:
            arrival = Arrival(target, response, cache.clock())
            if response.status == 304 or response.status in ERROR_STATUSES or unstorable(arrival) is not None:
                return _no_body
            fill = cache.keeper.begin(arrival, candidate)
            fills.append(fill)
            if not fill.fits():
                return _no_body
            return fill.add_all if account is None else partial(_told, account, fill.add_all)

        try:
            response = await cache.refresher.receive(request, receive)
        except BaseException:
            for fill in fills:
                fill.release()
            raise
        return response, fills[0] if fills else None

    def _take(self, target: Target, candidate: Candidate, response: Response, fill: Fill | None) -> RefreshOutcome:
        """Keep a whole answer, in place of what was refreshed."""
        cache = self._cache
        if response.status in ERROR_STATUSES:
            return RefreshOutcome.ERROR
        if fill is None:
            reason = unstorable(Arrival(target, response, cache.clock()))
        else:
            if fill.refused is None and fill.fits():
                cache.keeper.store(fill, replacing=candidate)
                return RefreshOutcome.STORED
            fill.release()
            reason = fill.refused or NoStoreReason.TOO_LARGE
            if reason in _OURS:
                cache.meter.stored(reason)
                return RefreshOutcome.ERROR
        # What could be stored had a copy.
        cache.keeper.not_stored(reason or NoStoreReason.UNDELIMITED, target.request, candidate, response.status)
        return RefreshOutcome.NOT_STORED if supersedes(response.status) else RefreshOutcome.ERROR


async def _no_body(_part: bytes) -> bool:
    return False


async def _told(account: Account, take: TakeBody, part: bytes) -> bool:
    account.caused(0, len(part))
    return await take(part)


_NOTHING_ASKED: Final = Headers()
_OURS: Final = frozenset({NoStoreReason.NO_MEMORY, NoStoreReason.NO_TIER})
"""Why a copy was given up that says nothing of the answer: it is tried again, after a pause."""
_WRITTEN: Final = frozenset({RefreshOutcome.STORED, RefreshOutcome.NOT_MODIFIED, RefreshOutcome.FOUND})
