"""Asking for a whole answer anew, while the client waits, where the origin has confirmed something that is not stored.

A 304 whose entity tag is neither the stored one nor the client's is no answer to anybody (RFC 9111 section 4.3.4). The
client's own request has had its response, so another one goes out, as a background refresh does: to a fixed cluster,
without his credentials, and without conditions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from meshcache.engine.judge import judge
from meshcache.engine.lookup import Candidate
from meshcache.engine.ports import RefreshError
from meshcache.engine.refresh.rules import refresh_request
from meshcache.engine.storing.arrival import Arrival
from meshcache.engine.storing.rules import unstorable
from meshcache.rfc.vary import selecting_values

if TYPE_CHECKING:
    from meshcache.engine.cache import Cache
    from meshcache.engine.lookup import Lookup
    from meshcache.engine.records import StoredResponse
    from meshcache.engine.target import Target
    from meshcache.message import Headers, Response
    from meshcache.rfc.ranges import ContentRange
    from meshcache.rfc.vary import Selecting

PATIENCE_SECONDS: Final = 10.0
"""How long the client is kept waiting for it."""


async def refetch(cache: Cache, lookup: Lookup, candidate: Candidate, cluster: str) -> tuple[Candidate, int] | None:
    """The origin's whole answer, stored in place of `candidate`, and its status; None when there is none to be shared.

    `cluster` is where the origin is asked, as `refresh_way` has it.
    """
    if cache.refresher is None:
        return None
    target = lookup.target()
    policy, asked = target.policy, target.request.headers
    request = refresh_request(target.request, candidate.stored, policy.key, policy.freshness.targets, cluster)
    target = target.at(target.epochs, cache.clock()).asking(request.headers)
    if target.account is not None:
        target.account.asked()
    try:
        response, body = await cache.refresher.fetch(
            request, policy.tiers.largest(), cache.copies, within=PATIENCE_SECONDS
        )
    except RefreshError:
        return None
    if target.account is not None:
        target.account.received(len(body))
    record = await taken(cache, target, response, body, candidate)
    if record is None or record.selecting != chosen_by(record, asked):
        return None
    cache.keeper.place(target, record, candidate)
    found = Candidate(record, target.key.storage, candidate.tier, judge(record, policy.freshness), None)
    return found, response.status


async def taken(
    cache: Cache,
    target: Target,
    response: Response,
    body: bytes,
    replacing: Candidate,
    part: ContentRange | None = None,
) -> StoredResponse | None:
    """What was fetched in the foreground, as it can be stored; None, counted, when it may not be, or not be sent now.

    `part` says which bytes a 206 holds.
    """
    arrival = Arrival(target, response, cache.clock())
    reason = unstorable(arrival, part=part is not None)
    if reason is not None:
        cache.keeper.not_stored(reason, target.request, replacing, response.status)
        return None
    fill = cache.keeper.begin(arrival, replacing, part)
    if not fill.fits() or not await fill.add_all(body):
        fill.release()
        return None
    if fill.spool is not None:
        # Too large to be sent before it is written.
        cache.keeper.store(fill, replacing)
        return None
    return fill.finish()


def chosen_by(stored: StoredResponse, request: Headers) -> Selecting:
    """What the response would vary on if the client had asked for it himself, with all his fields."""
    return selecting_values((name for name, _ in stored.selecting), request)
