"""Policies as they are compiled: from the checked model to the plain values by which the request path works."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from meshcache.policy import compiled as c
from meshcache.policy.experiments import written

if TYPE_CHECKING:
    from meshcache.policy import models as m

VIA_ENVOY: Final = "envoy"
"""`refresh.via` of policies whose refreshes go where the refresh address leads."""


def compile_policy(manifest: m.CachePolicy) -> c.Policy:
    """One policy as the request path uses it."""
    spec = manifest.spec
    freshness, tiers, placement = spec.freshness, spec.tiers, spec.placement
    key = _key(spec.key)
    return c.Policy(
        name=manifest.metadata.name,
        eviction=spec.eviction,
        freshness=c.Freshness(
            mode=freshness.mode,
            default_ttl=freshness.default_ttl,
            max_ttl=freshness.max_ttl,
            stale_while_revalidate=freshness.stale_while_revalidate,
            stale_if_error=freshness.stale_if_error,
            stale_if_unreachable=freshness.stale_if_unreachable,
            heuristic=freshness.heuristic,
            targets=tuple(dict.fromkeys(freshness.targets)),
            refresh_ahead=freshness.refresh_ahead,
            negative=MappingProxyType({entry.status: entry.ttl for entry in freshness.negative}),
            ignore=frozenset(name.replace("-", "_") for name in freshness.ignore),
            person_keyed=key.partition_subject or key.partition_session,
            cookies_keyed=bool(key.cookies) or "cookie" in {*key.headers, *key.partition_headers, *key.strip},
            refuse_disguised=freshness.type_mismatch == "refuse",
        ),
        tiers=c.Tiers(hot=_limits(tiers.hot), warm=_limits(tiers.warm), cold=_limits(tiers.cold)),
        placement=c.Placement(placement.hot_at, placement.warm_at, placement.promotion == "onHit"),
        key=key,
        collapse_wait=spec.collapse.max_wait if spec.collapse.enabled else 0.0,
        refresh_max_concurrent=spec.refresh.max_concurrent,
        refresh_via="" if spec.refresh.via == VIA_ENVOY else spec.refresh.via,
        cost=0.0 if spec.cost is None else spec.cost.per_origin_request,
        currency="" if spec.cost is None else spec.cost.currency,
        digest=hashlib.sha256(written(spec).encode()).hexdigest()[:32],
    )


def _limits(tier: m.HotTier | m.WarmTier | m.ColdTier) -> c.TierLimits:
    return c.TierLimits(ttl=tier.ttl, max_object_bytes=tier.max_object_bytes, deadline=tier.deadline)


def _key(spec: m.KeyModel) -> c.KeySpec:
    borders = {part.word for part in spec.partition}
    key = c.KeySpec(
        methods=frozenset(spec.methods),
        host=spec.host,
        query_include=tuple(spec.query.include),
        query_exclude=tuple(spec.query.exclude),
        query_sort=spec.query.sort,
        headers=tuple(dict.fromkeys(spec.headers)),
        cookies=tuple(dict.fromkeys(spec.cookies)),
        strip=frozenset(spec.strip),
        partition_headers=tuple(dict.fromkeys(part.header for part in spec.partition if part.header)),
        partition_tenant="tenant" in borders,
        partition_subject="subject" in borders,
        partition_session="session" in borders,
    )
    # The methods are left out: they say what is looked up, and GET and HEAD share entries.
    parts = (key.host, key.query_include, key.query_exclude, key.query_sort, key.headers, key.cookies)
    material = repr((*parts, key.partition_headers, *sorted(borders - {"revision", ""}), *sorted(key.strip))).encode()
    return replace(key, fingerprint=hashlib.blake2b(material, digest_size=8).digest())
