"""What `cache-status` says of a request (RFC 9211): the decision, the tier, the arm and the policy behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.decisions import BypassReason, Decision, MissReason, TierName
from meshcache.rfc import cache_status

if TYPE_CHECKING:
    from meshcache.decisions import NoStoreReason
    from meshcache.engine.judge import Judgement
    from meshcache.engine.lookup import Lookup
    from meshcache.message import Headers


def hit(lookup: Lookup, decision: Decision, tier: TierName, judgement: Judgement, age: float) -> str:
    """For an answer out of the cache, for which the origin was not asked. `age` is its age in seconds."""
    return cache_status.hit(ttl=judgement.lifetime - age, detail=_detail(lookup, decision, tier))


def asked(
    lookup: Lookup, decision: Decision, tier: TierName, *, by_request: bool, status: int, stored: bool = False
) -> str:
    """For an answer out of the cache for which the origin was asked, and said `status`.

    `by_request` tells that the client wanted it asked, `stored` that what it said is kept.
    """
    reason = MissReason.REQUEST if by_request else MissReason.STALE
    return cache_status.forwarded(reason, status=status, stored=stored, detail=_detail(lookup, decision, tier))


def passed(
    lookup: Lookup | None,
    decision: Decision,
    reason: BypassReason | MissReason,
    refused: NoStoreReason | None,
    upstream: Headers,
) -> str:
    """For the origin's answer; `refused` is why it is not stored. Behind what caches nearer to the origin have said."""
    fwd: cache_status.Forward | MissReason = reason if isinstance(reason, MissReason) else "miss"
    member = cache_status.forwarded(fwd, stored=refused is None, detail=_detail(lookup, decision, refused))
    return cache_status.append(upstream.get("cache-status"), member)


def bypassed(reason: BypassReason | MissReason, upstream: Headers) -> str:
    """For the answer to a request that was not looked up."""
    fwd: cache_status.Forward = "method" if reason is BypassReason.METHOD else "bypass"
    return cache_status.append(upstream.get("cache-status"), cache_status.forwarded(fwd, detail=reason))


def _detail(lookup: Lookup | None, decision: Decision, more: TierName | NoStoreReason | None) -> str:
    """The decision, unless `hit` says it, then tier or reason, arm and policy."""
    if lookup is None:
        return decision
    arm = f"arm={lookup.selection.arm} " if lookup.selection.arm else ""
    said = "" if decision is Decision.HIT else f"{decision} "
    what = "" if more is None else f"tier={more} " if isinstance(more, TierName) else f"{more} "
    return f"{said}{what}{arm}policy={lookup.policy.name}"
