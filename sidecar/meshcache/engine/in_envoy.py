"""Which answers the filter in Envoy may give by itself, and for how long: as long as this engine would from memory.

The filter asks with a request that is as plain as can be (`docs/wasm.md`). Whatever is not certain to be right for
every other plain request with the same key and the same selecting fields is not granted: that costs a hit, no answer.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from meshcache.decisions import Decision, TierName
from meshcache.engine.placement import earned_tiers
from meshcache.engine.ranges.parts import is_part

if TYPE_CHECKING:
    from meshcache.engine.judge import Judgement
    from meshcache.engine.lookup import Candidate, Lookup
    from meshcache.engine.outcome import Answer
    from meshcache.engine.records import StoredResponse
    from meshcache.engine.storing.fill import Fill
    from meshcache.message import Request

LARGEST: Final = 256 << 10
"""Bytes of the largest body that the filter keeps."""

_GIVEN: Final = frozenset({Decision.HIT, Decision.STALE_SWR})
_CODING: Final = "accept-encoding"


class Grant(NamedTuple):
    """What the filter may keep, and what it has to know of it. Times are Unix seconds."""

    birth: float
    """When its age was 0."""
    fresh_until: float
    stale_until: float
    """Until then it may be served while one request has it refreshed; `fresh_until` when it may not."""
    drop_at: float
    """From then on it is not to be used at all."""
    renew_at: float
    """From then on it is renewed, if it is popular; infinite when it is not renewed before it is stale."""
    for_cookies: bool
    """Whether it may answer requests with cookies that the key does not hold."""
    vary: tuple[str, ...]
    """The request fields whose values have to be equal."""
    resource: bytes
    """This, and all that follows, is what it may be purged or invalidated by."""
    route: str
    subject: bytes
    revision: str
    tags: tuple[str, ...]


def granted_hit(lookup: Lookup, request: Request, candidate: Candidate, made: Answer, way: str | None) -> Grant | None:
    """What is granted of an answer out of memory. `way` is how it could be refreshed; None: in no way."""
    entry, stored, policy = candidate.entry, candidate.stored, lookup.policy
    if (
        made.decision not in _GIVEN
        or entry is None
        or candidate.stale_since is not None
        or made.not_modified
        or made.excerpt is not None
        or made.cookies
        or len(stored.body) > LARGEST
    ):
        return None
    leaves = min(entry.stored_at + policy.tiers.hot.ttl, entry.expires_at)
    return _grant(lookup, request, stored, candidate.judgement, way, leaves)


def granted_pass(lookup: Lookup, request: Request, fill: Fill, way: str | None, now: float) -> Grant | None:
    """What is granted of an answer of the origin that is being stored as it goes by."""
    limits = lookup.policy.tiers.hot
    # Where nobody knows how long it will be, the filter's own bound is to be the narrower one.
    length = LARGEST if fill.declared is None else fill.declared
    if fill.part is not None or length > min(LARGEST, limits.max_object_bytes):
        return None
    if not _goes_by_as_stored(fill):
        return None
    head = fill.head()
    return _grant(lookup, request, head, fill.judged(head), way, now + limits.ttl)


def _grant(
    lookup: Lookup, request: Request, stored: StoredResponse, judgement: Judgement, way: str | None, leaves: float
) -> Grant | None:
    asked, policy = request.asked, lookup.policy
    if (
        asked is None
        or asked.digest != lookup.key.digest
        or request.method != "GET"
        or "authorization" in request.headers.names
        or lookup.wanted is not None
        or stored.personal
        or stored.chunks
        or is_part(stored)
        or judgement.always_validate
        or (stored.authorized and not judgement.for_authorized)
        or TierName.HOT not in earned_tiers(policy.placement, lookup.selection.score)
    ):
        return None
    birth = judgement.response_time - judgement.initial_age
    fresh_until = birth + judgement.lifetime
    stale_until = fresh_until if way is None else fresh_until + max(0.0, judgement.swr)
    vary = tuple(name for name, _ in stored.selecting)
    return Grant(
        birth=birth,
        fresh_until=fresh_until,
        stale_until=stale_until,
        drop_at=min(leaves, stale_until),
        renew_at=inf if way is None else judgement.renew_from,
        for_cookies=judgement.for_cookies,
        vary=(*vary, _CODING) if judgement.codings and _CODING not in vary else vary,
        resource=lookup.key.resource,
        route=stored.route,
        subject=stored.subject,
        revision=stored.revision,
        tags=stored.tags,
    )


def _goes_by_as_stored(fill: Fill) -> bool:
    """Whether the filter's copy of what goes by has the fields of what is stored.

    It leaves out what is never stored, and what this cache takes off; but it does not know which fields a qualified
    `private` or `no-cache` names.
    """
    names, control = fill.arrival.response.headers.names, fill.arrival.reading.control
    return names.isdisjoint(control.no_cache_fields) and names.isdisjoint(control.private_fields)
