"""Why a request is treated as it is: the route and those passed over, the arm, whose headers counted, the key.

The answer itself comes from `Snapshot.select`; this module only finds the reasons, one match at a time, so that it
can also serve the tests as a second and plainer account of the same rules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from meshcache.decisions import BypassReason
from meshcache.engine.admission import bypass_reason
from meshcache.engine.collapse.place import may_wait
from meshcache.engine.key import cache_key, chosen_key, retargeting
from meshcache.engine.placement import earned_tiers
from meshcache.engine.query import normalised_query
from meshcache.engine.refresh.rules import needs_its_caller
from meshcache.experiment.assignment import cookie_value
from meshcache.policy.arm_reasons import ArmReason, arm_reasons, peer_of, untrusted
from meshcache.policy.identity import named
from meshcache.policy.reasons import PassedOver, route_reasons
from meshcache.policy.snapshot import SCORE_HEADER, parse_score
from meshcache.rfc.spelling import among

if TYPE_CHECKING:
    from meshcache.engine.key import CacheKey
    from meshcache.message import Request
    from meshcache.policy.compiled import KeySpec, Policy
    from meshcache.policy.snapshot import Selection, Snapshot


@dataclass(frozen=True)
class Explanation:
    """What is decided about a request before anything is looked up, with reasons. Empty text means none."""

    route: str
    route_why: str
    passed_over: tuple[PassedOver, ...]
    """Each other route, in document order."""
    experiment: str
    """The names of several are joined by `+`, and so are their arms."""
    arm: str
    arm_why: str
    experiments: tuple[ArmReason, ...]
    """Each experiment on the route."""
    policy: str
    score: float | None
    score_why: str
    tier: str
    tier_why: str
    bypass: str
    """A `BypassReason` when the request is not looked up at all."""
    collapse: str
    """Whether it would wait for another request that fetches the same."""
    refresh: str
    """How a stale answer to it would be renewed."""
    shown: str
    """How much of `cache-status` its client sees, and why."""
    key: dict[str, str]
    """The parts of the cache key by name, and its `digest`."""


def explain(snapshot: Snapshot, request: Request) -> Explanation:
    """The whole account of `request` under `snapshot`."""
    selection, key = _chosen(snapshot, request)
    arms = arm_reasons(snapshot, request, selection)
    why, passed_over = route_reasons(snapshot.routes, request, selection.route)
    policy = selection.policy
    bypass = bypass_reason(request)
    if not selection.route:
        reason = "no-route"
    elif policy is None:
        reason = "route-not-cached"
    elif bypass is None and request.method not in policy.key.methods:
        reason = "method"
    elif bypass is None and snapshot.identities.border(request, policy.key) is None:
        reason = str(BypassReason.NO_IDENTITY)
    else:
        reason = "" if bypass is None else str(bypass)
    tier, tier_why = _tier(policy, selection.score)
    return Explanation(
        route=selection.route,
        route_why=why,
        passed_over=passed_over,
        experiment=selection.experiment,
        arm=selection.arm,
        arm_why=" | ".join(one.why for one in arms),
        experiments=arms,
        policy=policy.name if policy is not None else "",
        score=selection.score,
        score_why=_score(snapshot, request),
        tier=tier,
        tier_why=tier_why,
        bypass=reason,
        collapse=_collapse(policy, request) if policy is not None else "",
        refresh=_refresh(policy, request) if policy is not None else "",
        shown=_shown(snapshot, request),
        key=_key(snapshot, policy, request, key) if policy is not None else {},
    )


def _chosen(snapshot: Snapshot, request: Request) -> tuple[Selection, CacheKey | None]:
    """What is selected for `request`, and its key; None where it has none."""
    selection = snapshot.select(request)
    if selection.policy is None:
        return selection, None
    spec, revision = selection.policy.key, snapshot.revision(request)
    border = snapshot.identities.border(request, spec)
    if border is None:
        return selection, None
    asked = replace(request, headers=request.headers.without(among(request.headers.names, spec.strip)))
    if selection.by_key is None:
        key = cache_key(asked, spec, namespace=selection.namespace, revision=revision, border=border.parts)
        return selection, key
    key, chosen = chosen_key(asked, spec, selection.by_key, revision=revision, border=border.parts)
    return chosen._replace(score=selection.score), key


def _score(snapshot: Snapshot, request: Request) -> str:
    text = request.headers.get(SCORE_HEADER)
    if text is None:
        return f"no {SCORE_HEADER}"
    rule = snapshot.config.trust.score
    if not rule.trusts(request.peer):
        return f"{SCORE_HEADER} is {untrusted(rule, 'scoreHeader', request.peer)}"
    if parse_score(text) is None:
        return f"{SCORE_HEADER} is ignored: {text[:40]!r} is not one number"
    return f"{SCORE_HEADER}, trusted from {peer_of(request.peer)}"


def _tier(policy: Policy | None, score: float | None) -> tuple[str, str]:
    if policy is None:
        return "", ""
    placement = policy.placement
    bounds = f"hotAt {placement.hot_at * 100:g}, warmAt {placement.warm_at * 100:g}"
    earned = earned_tiers(placement, score)
    why = "there is no score to place it by" if score is None else f"the score is {score * 100:g} percent"
    return str(earned[0]), f"{why} ({bounds}); the answer is written to {' and '.join(earned)}"


def _collapse(policy: Policy, request: Request) -> str:
    if may_wait(request, policy):
        return f"waits for another request that fetches the same, {policy.collapse_wait:g} s at most"
    if policy.collapse_wait <= 0.0:
        return "goes by itself: collapse is not enabled in the policy"
    if request.method != "GET":
        return f"goes by itself: {request.method}"
    if "range" in request.headers:
        return "goes by itself: it asks for a range"
    return "goes by itself: its cache-control asks for an answer of its own"


def _refresh(policy: Policy, request: Request) -> str:
    if needs_its_caller(policy.key):
        return "by the next request of the same caller: the key holds what only he may send"
    if request.tokens or "authorization" in request.headers:
        return "by the next request: an answer to one with authorization is not asked for without it"
    freshness = policy.freshness
    own = freshness.stale_while_revalidate > 0.0 or freshness.refresh_ahead > 0.0
    unless = "" if own else ", where the origin says stale-while-revalidate"
    return f"in the background, through {policy.refresh_via or 'envoy'}{unless}"


def _shown(snapshot: Snapshot, request: Request) -> str:
    rule, level = snapshot.config.trust.cache_status, snapshot.shown_to(request)
    if level == "full":
        return f"full: trust.cacheStatus names {rule}"
    if rule.nobody:
        return f"{level}: trust.cacheStatus names nobody (`meshcache up` then takes this machine)"
    return f"{level}: {untrusted(rule, 'cacheStatus', request.peer)}"


def _key(snapshot: Snapshot, policy: Policy, request: Request, key: CacheKey | None) -> dict[str, str]:
    spec, revision = policy.key, snapshot.revision(request)
    parts = {"revision": revision or "(none)"} | _border(snapshot, spec, request)
    stripped = among(request.headers.names, spec.strip)
    request = replace(request, headers=request.headers.without(stripped))
    path, _, query = request.path.partition("?")
    if spec.host:
        parts |= {"scheme": request.scheme, "host": request.authority.lower()}
    parts |= {"path": path, "query": normalised_query(query, spec)}
    for name in (*spec.partition_headers, *spec.headers):
        parts[f"header {name}"] = request.headers.get(name) or "(absent)"
    parts |= {f"header {name}": value for name, value in retargeting(request.headers, request.scheme)}
    parts |= {f"stripped {name}": "kept from the origin" for name in sorted(stripped)}
    for name in spec.cookies:
        parts[f"cookie {name}"] = cookie_value(request.headers, name) or "(absent)"
    return parts if key is None else parts | {"digest": key.digest.hex()}


def _border(snapshot: Snapshot, spec: KeySpec, request: Request) -> dict[str, str]:
    rules = snapshot.identities.rules
    asked = (
        ("tenant", spec.partition_tenant, rules.tenant),
        ("subject", spec.partition_subject, rules.subject),
        ("session", spec.partition_session, rules.session),
    )
    parts = {}
    for word, wanted, source in asked:
        if wanted:
            found = named(source, request)
            by = f", by {found.issuer}" if found is not None and found.issuer else ""
            parts[word] = "(unknown)" if found is None else f"{found.value}{by}"
    return parts
