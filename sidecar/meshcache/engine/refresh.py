"""Background refresh: who may be refreshed, what is asked for, and one refresh per entry at a time.

A refresh sends the parts that the key was made of, and nothing of the client's secrets.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from meshcache.decisions import NoStoreReason, TierName
from meshcache.engine.fill import Fill, supersedes, unstorable
from meshcache.engine.judge import Use, judge, use
from meshcache.engine.key import RETARGETING
from meshcache.engine.ports import RefreshError, RefreshRequest
from meshcache.engine.records import StoredResponse
from meshcache.message import Headers
from meshcache.rfc.stale import ERROR_STATUSES
from meshcache.rfc.validation import add_validators, validates

if TYPE_CHECKING:
    from meshcache.engine.cache import Cache
    from meshcache.engine.fill import Target
    from meshcache.engine.lookup import Candidate
    from meshcache.engine.ports import Leases, Spawn
    from meshcache.message import Request
    from meshcache.policy.compiled import KeySpec

CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})

_NEGOTIATION = frozenset({"accept", "accept-encoding", "accept-language", "user-agent"})
"""Sent besides what the response is known to vary on: they describe the client, never who he is."""


def may_refresh(stored: StoredResponse, spec: KeySpec) -> bool:
    """Whether the origin can be asked for this again without the client's credentials.

    What was given to an authorized request, or is chosen by a cookie, would come back different or refused;
    such an answer is revalidated with the next client's own request instead.
    """
    if stored.authorized or spec.cookies:
        return False
    selected_by = {name for name, _ in stored.selecting}.union(spec.headers, spec.partition_headers)
    return not selected_by & CREDENTIALS


def refresh_request(request: Request, stored: StoredResponse, spec: KeySpec) -> RefreshRequest:
    """The request that refreshes `stored`, made from the client's `request` that found it stale.

    Conditional fields are not in it: the caller adds the stored validators.
    """
    wanted = _NEGOTIATION.union(
        RETARGETING, spec.headers, spec.partition_headers, (name for name, _ in stored.selecting)
    )
    fields = [item for item in request.headers.fields if item[0] in wanted and item[0] not in CREDENTIALS]
    return RefreshRequest(request.scheme, request.authority, request.path, Headers(fields))


LEASE_SECONDS: Final = 60.0
"""How long a refresh may keep others from trying. A process that dies in the middle holds its leases this long."""
RETRY_SECONDS: Final = 1.0
"""How long a refresh that failed keeps the next one from being tried."""
WRITE_SECONDS: Final = 1.0
"""How long a lease is held after a refresh for its result to reach the tier that other processes read."""


class Refreshes:
    """The refreshes of one process under way, for each policy at most its `refresh.maxConcurrent` at once."""

    def __init__(self, cache: Cache, leases: Leases, spawn: Spawn) -> None:
        self._cache = cache
        self._leases = leases
        self._spawn = spawn
        self._running: Counter[str] = Counter()

    def begin(self, target: Target, candidate: Candidate) -> None:
        """Refresh `candidate` in the background unless that is being done already."""
        policy = target.policy
        if self._running[policy.name] >= policy.refresh_max_concurrent:
            self._cache.meter.refreshed("saturated")
            return
        lease = self._leases.lease(candidate.storage, LEASE_SECONDS)
        if lease is None:
            return
        self._running[policy.name] += 1
        self._spawn(self._run(target, candidate, lease))

    async def _run(self, target: Target, candidate: Candidate, lease: object) -> None:
        outcome = "error"
        try:
            outcome = await self._refresh(target, candidate)
        except RefreshError:
            pass
        finally:
            self._running[target.policy.name] -= 1
            self._cache.meter.refreshed(outcome)
            if outcome == "error":
                self._leases.release(lease)
                self._leases.lease(candidate.storage, RETRY_SECONDS)
            else:
                await self._cache.stack.drain(WRITE_SECONDS)
                self._leases.release(lease)

    async def _refresh(self, target: Target, candidate: Candidate) -> str:
        cache, refresher = self._cache, self._cache.refresher
        if refresher is None:
            return "error"
        found = await cache.stack.find(candidate.storage, target.key.resource, target.policy.tiers, cache.clock())
        target = target.at(found.epochs, cache.clock())
        fresher = found.record
        if (
            isinstance(fresher, StoredResponse)
            and fresher.response_time > candidate.stored.response_time
            and fresher.key == candidate.stored.key
            and fresher.selecting == candidate.stored.selecting
        ):
            judgement = judge(fresher, target.policy.freshness)
            if use(judgement, _NOTHING_ASKED, target.request_time) is Use.FRESH:
                # Another process has been faster.
                fresh = candidate._replace(stored=fresher, judgement=judgement)
                cache.keeper.promote(target, fresh, (TierName.HOT,), target.request_time)
                return "found"
        request = refresh_request(target.request, candidate.stored, target.policy.key)
        validators = add_validators(
            _NOTHING_ASKED, candidate.stored.status, candidate.stored.fields, now=target.request_time
        )
        conditional = [(name, value) for name, value in validators.items() if value is not None]
        limits = target.policy.tiers
        response, body = await refresher.fetch(
            replace(request, headers=Headers((*request.headers, *conditional))), limits.largest(), cache.copies
        )
        now = cache.clock()
        # The response answers what the refresh asked, which is the client's request without his conditions.
        target = target.asking(request.headers)
        if response.status == 304 and conditional:
            if not validates(candidate.stored.fields, response.headers, now=now):
                cache.keeper.forget(candidate)
                return "mismatch"
            _, refused = cache.keeper.freshen(target, candidate, response, now)
            return "not-modified" if refused is None else "not-stored"
        if response.status in ERROR_STATUSES:
            return "error"
        reason = unstorable(target, response)
        if reason is None:
            fill = Fill(target, response, now, cache.copies)
            if fill.fits() and fill.add(body):
                cache.keeper.store(fill, replacing=candidate)
                return "stored"
            fill.release()
            reason = fill.refused or NoStoreReason.TOO_LARGE
        cache.keeper.not_stored(reason, target.request, candidate, response.status)
        return "not-stored" if supersedes(response.status) else "error"


_NOTHING_ASKED: Final = Headers()
