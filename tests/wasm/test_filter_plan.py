"""Plans: deterministic, named by what they say, and readable by the filter."""

from __future__ import annotations

import pytest
from filter_rules import HANDED_ON, LOOKED_UP, Rules, header_list, needs_rules

from meshcache.engine.key import cache_key
from meshcache.message import Headers, Request
from meshcache.policy.compiled import Config, Match, Route
from meshcache.policy.snapshot import Snapshot
from meshcache.wasm.plan import MOST_PLAN_BYTES, PlanSettings, encode, plan_id
from policy_texts import SECRET, compiled, experiment, policies

SETTINGS = PlanSettings(secret=bytes(range(32)), lease=10.0, budget=1 << 24, largest=1 << 16)


def test_the_same_policies_make_the_same_plan() -> None:
    text = policies(more=experiment())
    assert encode(compiled(text), SETTINGS) == encode(compiled(text, generation=2), SETTINGS)


def test_a_plan_is_named_by_what_it_says_but_for_its_secret() -> None:
    snapshot = compiled(policies())
    plan = encode(snapshot, SETTINGS)
    other = encode(snapshot, PlanSettings(bytes(32), 10.0, 1 << 24, 1 << 16))
    assert plan != other
    assert plan_id(plan) == plan_id(other)
    assert plan_id(encode(snapshot, PlanSettings(bytes(32), 9.0, 1 << 24, 1 << 16))) != plan_id(plan)
    assert plan_id(encode(compiled(policies(key="host: false")), SETTINGS)) != plan_id(plan)


@pytest.mark.parametrize("settings", [(b"short", 10.0, 0, 0), (bytes(32), 0.0, 0, 0), (bytes(32), 1.0, -1, 0)])
def test_settings_that_make_no_sense(settings: tuple[bytes, float, int, int]) -> None:
    with pytest.raises(ValueError, match=r"secret|lease"):
        encode(compiled(policies()), PlanSettings(*settings))


@needs_rules
def test_the_filter_reads_it() -> None:
    snapshot = compiled(policies(more=experiment()))
    rules = Rules()
    assert rules.load(encode(snapshot, SETTINGS))
    request = Request("GET", "Example.com:80", "/a?b=1", Headers([("accept", "x")]))
    rule = rules.decide(header_list(request))
    selection = snapshot.select(request)
    assert selection.policy is not None
    key = cache_key(request, selection.policy.key, namespace=selection.namespace, revision="")
    assert (rule.what, rule.material, rule.arm, rule.policy) == (LOOKED_UP, key.material, "one", "p")


@needs_rules
def test_of_too_many_policies_it_says_nothing() -> None:
    path = "/" + "x" * 1000
    matches = tuple(Match(exact=f"{path}{number}") for number in range(MOST_PLAN_BYTES // 1000))
    snapshot = Snapshot(
        generation=0,
        digest="",
        config=Config(),
        policies={},
        routes=(Route("r", matches, None),),
        experiments=(),
        secret=SECRET,
    )
    plan = encode(snapshot, SETTINGS)
    assert len(plan) < 500
    rules = Rules()
    assert rules.load(plan)
    assert rules.decide(header_list(Request("GET", "h", "/other"))).what == HANDED_ON
