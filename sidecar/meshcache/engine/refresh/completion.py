"""A request for the whole while a part is held: the origin is asked for the rest only (RFC 9111 section 3.3).

The rest is fetched as a background refresh is, without the client's request, which has been forwarded to nobody yet.
Whatever goes wrong (the origin answers something else, or not soon enough), that request goes to the origin as if no
part were there. So no client ever gets an answer that was pieced together wrongly, or waits long for one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from meshcache.engine.judge import Use, judge, use
from meshcache.engine.lookup import Candidate
from meshcache.engine.ports import RefreshError
from meshcache.engine.ranges.parts import PARTIAL_CONTENT, combined, gap_of, is_part, strong_validator_of, total_of
from meshcache.engine.refresh.foreground import chosen_by, taken
from meshcache.engine.refresh.rules import CREDENTIALS, refresh_request
from meshcache.message import Headers
from meshcache.rfc.cache_control import EMPTY, request_cache_control
from meshcache.rfc.ranges import parse_content_range
from meshcache.rfc.validation import CONDITIONS

if TYPE_CHECKING:
    from meshcache.engine.cache import Cache
    from meshcache.engine.lookup import Lookup
    from meshcache.engine.ports import Leases
    from meshcache.engine.records import StoredResponse
    from meshcache.message import Field

MOST_AT_ONCE: Final = 16
"""Rests that one process fetches at one time; a request for the whole beyond them is forwarded."""
QUICK_SECONDS: Final = 0.1
"""A part whose head took the origin longer was made with effort: its rest would not come while the client waits."""
MOST_REST_BYTES: Final = 8 << 20
"""A longer rest is better streamed, with all the rest of the answer."""
WAIT_SECONDS: Final = 0.1
"""For how long the client's request is kept for the rest to come."""
LEASE_SECONDS: Final = 5.0
"""Longer than any wait. A process that dies in the middle holds its lease this long."""


class Completions:
    """The rests being fetched by one process, at most one for each answer in the pod."""

    def __init__(self, cache: Cache, leases: Leases) -> None:
        self._cache = cache
        self._leases = leases
        self._running = 0

    def worthwhile(self, lookup: Lookup) -> bool:
        """Whether the rest should be asked for: one run of bytes, soon there, of an answer for everybody."""
        part = lookup.part
        if part is None or lookup.wanted is not None or self._running >= MOST_AT_ONCE:
            return False
        asked, stored = lookup.target().request, part.stored
        if asked.headers.names & (CONDITIONS | CREDENTIALS) or request_cache_control(asked.headers) != EMPTY:
            return False
        return _rest_of(stored, part, lookup) is not None

    async def complete(self, lookup: Lookup, cluster: str) -> tuple[Candidate, int] | None:
        """The whole answer, stored, after asking for the rest through `cluster`, and with what status that came.

        None when it did not come about.
        """
        part = lookup.part
        fields = None if part is None else _rest_of(part.stored, part, lookup)
        if part is None or fields is None:
            return None
        lease = self._leases.lease(part.storage, LEASE_SECONDS)
        if lease is None:
            return None
        self._running += 1
        try:
            return await self._complete(lookup, part, fields, cluster)
        except RefreshError:
            return None
        finally:
            self._running -= 1
            self._leases.release(lease)

    async def _complete(
        self, lookup: Lookup, part: Candidate, fields: tuple[Field, ...], cluster: str
    ) -> tuple[Candidate, int] | None:
        cache, target = self._cache, lookup.target()
        asked = target.request.headers
        if cache.refresher is None:
            return None
        request = refresh_request(
            target.request, part.stored, target.policy.key, target.policy.freshness.targets, cluster
        )
        request = replace(request, headers=Headers((*request.headers, *fields)))
        target = target.asking(request.headers)
        limit = min(MOST_REST_BYTES, target.policy.tiers.largest())
        if target.account is not None:
            target.account.asked()
        response, body = await cache.refresher.fetch(request, limit, cache.copies, within=WAIT_SECONDS)
        if target.account is not None:
            target.account.received(len(body))
        now = cache.clock()
        said = None
        if response.status == PARTIAL_CONTENT:
            said = parse_content_range(response.headers.get("content-range"))
        record = await taken(cache, target, response, body, part, said)
        if record is None:
            return None
        if is_part(record):
            record = combined(part.stored, record)
        if is_part(record):
            # The two do not belong together, so the part is of no use for this and would be asked about again.
            cache.keeper.forget(part)
            return None
        cache.keeper.place(target, record, part)
        judgement = judge(record, target.policy.freshness)
        if use(judgement, asked, now) is not Use.FRESH or record.selecting != chosen_by(record, asked):
            return None
        return Candidate(record, target.key.storage, part.tier, judgement, None), response.status


def _rest_of(stored: StoredResponse, part: Candidate, lookup: Lookup) -> tuple[Field, ...] | None:
    """The fields that ask for all that is missing; None when that is not worth it.

    Without a strong validator the two could not be combined. The rest is asked for all the same where that costs
    little, because the origin may answer with the whole: some know no ranges but their own.
    """
    gap, total = gap_of(stored), total_of(stored)
    if gap is None or total is None or total > lookup.policy.tiers.largest() or gap.size > MOST_REST_BYTES:
        return None
    if stored.response_time - stored.request_time > QUICK_SECONDS:
        return None
    wanted = ("range", f"bytes={gap.first}-" if gap.last == total - 1 else f"bytes={gap.first}-{gap.last}")
    validator = strong_validator_of(stored)
    if validator is not None:
        return wanted, ("if-range", validator[1])
    fresh = use(part.judgement, Headers(), lookup.now) is Use.FRESH
    return (wanted,) if fresh and gap.last == total - 1 else None
