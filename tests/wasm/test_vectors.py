"""The filter chooses the arm and makes the key that the engine does, or hands the request on."""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest
from filter_rules import (
    ADDRESS,
    CLUSTER,
    HANDED_ON,
    LOOKED_UP,
    MTLS,
    NO_ROUTE,
    NOT_CACHED,
    Rule,
    Rules,
    header_list,
    needs_rules,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from random_policies import Maker

from meshcache.decisions import BypassReason
from meshcache.engine.admission import bypass_reason
from meshcache.engine.key import cache_key, chosen_key
from meshcache.engine.pools import pool_of
from meshcache.message import Request
from meshcache.policy.shares import capacity_shares
from meshcache.wasm.plan import PlanSettings, encode
from meshcache.wasm.tags import decode_experiment, decode_plain

if TYPE_CHECKING:
    from meshcache.engine.key import CacheKey
    from meshcache.policy.selection import Selection
    from meshcache.policy.snapshot import Snapshot

pytestmark = needs_rules

SETTINGS = PlanSettings(secret=bytes(32), lease=10.0, budget=1 << 24, largest=1 << 20)
PLANS = int(os.environ.get("VECTOR_PLANS") or 40)
REQUESTS = 100
"""For each plan."""

JUDGED = {"authorization", "cache-control", "pragma", "range", "if-range", "x-cache-status"}


@pytest.fixture(scope="module")
def rules() -> Rules:
    return Rules()


def asked(rules: Rules, request: Request, *, verified: bool = False) -> Rule:
    """What the filter does with `request`, told of the peer as Envoy tells."""
    peer = request.peer.address
    address = f"[{peer}]:4711" if ":" in peer else f"{peer}:4711"
    return rules.decide(
        header_list(request),
        address=address,
        cluster=request.cluster or None,
        mtls=request.peer.mtls,
        verified=verified,
    )


def keyed(snapshot: Snapshot, request: Request) -> tuple[CacheKey, Selection]:
    """The key that the engine makes, and the selection that comes of it."""
    selection = snapshot.select(request)
    policy = selection.policy
    assert policy is not None
    assert request.method in policy.key.methods
    border = snapshot.identities.border(request, policy.key)
    assert border is not None
    assert not border.parts
    as_sent = request.as_get(request.headers.without(policy.key.strip))
    revision = snapshot.revision(request)
    if selection.by_key is not None:
        return chosen_key(as_sent, policy.key, selection.by_key, revision=revision)
    return cache_key(as_sent, policy.key, namespace=selection.namespace, revision=revision), selection


def agrees(snapshot: Snapshot, request: Request, rule: Rule) -> None:
    """Fails where the filter does something that the engine would not."""
    if rule.what == HANDED_ON:
        return
    reason = bypass_reason(request)
    selection = snapshot.select(request)
    if rule.what in (NO_ROUTE, NOT_CACHED):
        assert reason in (None, BypassReason.PRECONDITION)
        assert selection.policy is None
        assert bool(selection.route) is (rule.what == NOT_CACHED)
        assert decode_plain(rule.tag) == (selection.route, "", "", "")
        return
    assert rule.what == LOOKED_UP
    assert reason is None
    assert request.headers.names.isdisjoint(JUDGED)
    assert "if-modified-since" not in request.headers.names or "if-none-match" in request.headers.names
    key, chosen = keyed(snapshot, request)
    policy = chosen.policy
    assert policy is not None
    assert rule.material == key.material
    assert (rule.arm, rule.policy) == (chosen.arm, policy.name)
    assert decode_plain(rule.tag) == (chosen.route, chosen.arm, policy.name, "".join(chosen.missing))
    assert rule.largest == min(policy.tiers.hot.max_object_bytes, SETTINGS.largest)
    assert policy.tiers.hot.ttl > 0
    assert not policy.freshness.ignore
    pools = [b"", *(share.pool for share in capacity_shares(snapshot).arms)]
    expected = pool_of(key.storage)
    assert pools[rule.pool] == (expected if expected in pools else b"")
    counts(snapshot, rule, chosen)


def counts(snapshot: Snapshot, rule: Rule, chosen: Selection) -> None:
    if rule.exposure is None:
        assert not chosen.exposures
        return
    tag, arm, unit = rule.exposure
    (exposure,) = chosen.exposures
    assert (exposure.arm, exposure.unit) == (arm, unit)
    said = decode_experiment(tag)
    assert said.counted == snapshot.counted[exposure.experiment]
    assert chosen.policy is not None
    assert said.cost_micros == round(chosen.policy.cost * 1e6)


def sparing(snapshot: Snapshot, request: Request, rule: Rule) -> None:
    """Fails where the host was asked for what makes no difference."""
    forces = {name for one in snapshot.experiments for arm in one.arms for name, _ in arm.force}
    if rule.asked & (ADDRESS | MTLS):
        assert not request.headers.names.isdisjoint(forces)
    if rule.asked & CLUSTER:
        assert snapshot.config.revision.kind == "envoyCluster"


@settings(max_examples=PLANS, deadline=None)
@given(seed=st.integers(0, 2**64 - 1))
def test_arm_and_key_are_the_engine_s(rules: Rules, seed: int) -> None:
    maker = Maker(Random(seed))
    snapshot = maker.snapshot()
    assert rules.load(encode(snapshot, SETTINGS))
    for _ in range(REQUESTS):
        request = maker.request()
        rule = asked(rules, request)
        agrees(snapshot, request, rule)
        sparing(snapshot, request, rule)
        assert rule.shown == snapshot.shown_to(request)


@settings(max_examples=max(PLANS // 4, 10), deadline=None)
@given(seed=st.integers(0, 2**64 - 1))
def test_what_a_plan_can_say_is_not_handed_on(rules: Rules, seed: int) -> None:
    maker = Maker(Random(seed), tame=True)
    snapshot = maker.snapshot()
    assert rules.load(encode(snapshot, SETTINGS))
    seen: Counter[int] = Counter()
    for _ in range(REQUESTS):
        request = maker.request()
        rule = asked(rules, request)
        agrees(snapshot, request, rule)
        seen[rule.what] += 1
    assert not seen[HANDED_ON]
