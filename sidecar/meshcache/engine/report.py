"""What `cache-status` says of a request (RFC 9211): the decision, the tier, the arm and the policy behind it.

How much of it a client sees is `telemetry.cacheStatus` for strangers, and everything for those whom `trust.cacheStatus`
names: `full` has the detail, which names policies and arms; `standard` what the RFC gives a meaning to; `minimal`
whether the origin was asked; `off` nothing, of caches nearer to the origin neither. Empty text stands for no field.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from meshcache.decisions import BypassReason, Decision, MissReason, TierName
from meshcache.rfc import cache_status

if TYPE_CHECKING:
    from meshcache.decisions import NoStoreReason
    from meshcache.engine.judge import Judgement
    from meshcache.engine.lookup import Lookup
    from meshcache.message import Headers
    from meshcache.policy.compiled import CacheStatus

_TERSE = frozenset({"minimal", "off"})


def hit(lookup: Lookup, decision: Decision, tier: TierName, judgement: Judgement, age: float) -> str:
    """For an answer out of the cache, for which the origin was not asked. `age` is its age in seconds."""
    if lookup.shown in _TERSE:
        return cache_status.hit() if lookup.shown == "minimal" else ""
    return _keyed(lookup, cache_status.hit(ttl=judgement.lifetime - age, detail=_detail(lookup, decision, tier)))


def collapsed(lookup: Lookup, decision: Decision, tier: TierName, reason: MissReason, ttl: float) -> str:
    """For an answer that another request has fetched; `reason` is why this one would have gone to the origin."""
    if lookup.shown in _TERSE:
        return _terse(lookup.shown)
    detail = _detail(lookup, decision, tier)
    return _keyed(lookup, cache_status.forwarded(reason, ttl=ttl, collapsed=True, detail=detail))


def asked(
    lookup: Lookup, decision: Decision, tier: TierName, *, by_request: bool, status: int, ttl: float | None = None
) -> str:
    """For an answer out of the cache for which the origin was asked, and said `status`.

    `by_request` tells that the client wanted it asked; `ttl` that what it said is kept, fresh for so many seconds.
    """
    if lookup.shown in _TERSE:
        return _terse(lookup.shown)
    reason = MissReason.REQUEST if by_request else MissReason.STALE
    detail, waited = _detail(lookup, decision, tier), _in_vain(lookup)
    member = cache_status.forwarded(
        reason, status=status, stored=ttl is not None, collapsed=waited, ttl=ttl, detail=detail
    )
    return _keyed(lookup, member)


def completed(lookup: Lookup, tier: TierName, status: int) -> str:
    """For a whole answer of which a part was stored in `tier`; asked for the rest, the origin said `status`."""
    if lookup.shown in _TERSE:
        return _terse(lookup.shown)
    detail = _detail(lookup, Decision.COMPLETED, tier)
    return _keyed(lookup, cache_status.forwarded(MissReason.PARTIAL, status=status, stored=True, detail=detail))


def refused(lookup: Lookup, decision: Decision) -> str:
    """For an answer that the cache has made by itself, asking nobody."""
    if lookup.shown == "off":
        return ""
    return _keyed(lookup, cache_status.refused(detail=_detail(lookup, decision, None)))


def passed(
    lookup: Lookup,
    decision: Decision,
    reason: BypassReason | MissReason,
    refused: NoStoreReason | None,
    upstream: Headers,
    ttl: float | None = None,
) -> str:
    """For the origin's answer, behind what caches nearer to the origin have said.

    `refused` is why it is not stored, `ttl` for how many seconds it is fresh if it is.
    """
    if lookup.shown in _TERSE:
        return _terse(lookup.shown)
    fwd: cache_status.Forward | MissReason = reason if isinstance(reason, MissReason) else "miss"
    detail, waited = _detail(lookup, decision, refused), _in_vain(lookup)
    member = cache_status.forwarded(fwd, stored=refused is None, collapsed=waited, ttl=ttl, detail=detail)
    return cache_status.append(upstream.get("cache-status"), _keyed(lookup, member))


def bypassed(reason: BypassReason | MissReason, upstream: Headers, shown: CacheStatus, *, stored: bool = False) -> str:
    """For the answer to a request that was not looked up; one to POST may be `stored` for others all the same."""
    fwd: cache_status.Forward = "method" if reason is BypassReason.METHOD else "bypass"
    if shown in _TERSE:
        return _terse(shown, fwd)
    member = cache_status.forwarded(fwd, stored=stored, detail=reason if shown == "full" else None)
    return cache_status.append(upstream.get("cache-status"), member)


def _keyed(lookup: Lookup, member: str) -> str:
    """`member` with the digest of the key for who may see everything and asks for it by `x-cache-status: key`."""
    if lookup.shown != "full" or not lookup.asks_for_key:
        return member
    return cache_status.with_key(member, lookup.key.digest.hex())


def _terse(shown: CacheStatus, fwd: cache_status.Forward = "miss") -> str:
    return cache_status.forwarded(fwd) if shown == "minimal" else ""


def _in_vain(lookup: Lookup) -> bool | None:
    """What `collapsed` says of a request that went to the origin: False for one that had waited for another."""
    return False if lookup.waited else None


def _detail(lookup: Lookup, decision: Decision, more: TierName | NoStoreReason | None) -> str | None:
    """The decision, unless `hit` says it, then tier or reason, arm and policy; None where it is not shown."""
    if lookup.shown != "full":
        return None
    return _words(decision, more, lookup.selection.arm, lookup.policy.name)


@lru_cache(maxsize=1024)
def _words(decision: Decision, more: TierName | NoStoreReason | None, arm: str, policy: str) -> str:
    where = f"arm={arm} " if arm else ""
    said = "" if decision is Decision.HIT else f"{decision} "
    what = "" if more is None else f"tier={more} " if isinstance(more, TierName) else f"{more} "
    return f"{said}{what}{where}policy={policy}"
