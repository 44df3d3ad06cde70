from __future__ import annotations

from math import isclose

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.experiment.overlay import Overlay, Phase
from meshcache.message import Headers, Request
from meshcache.policy.selection import namespace
from meshcache.policy.shares import LEAST, Claim, capacity_shares, divided, pool_id
from policy_texts import compiled, policies


def of(text: str) -> tuple[float, dict[str, float]]:
    shares = capacity_shares(compiled(text))
    return round(shares.common, 6), {arm.arm: round(arm.fraction, 6) for arm in shares.arms}


def experiment(*arms: str, name: str = "e", route: str = "all") -> str:
    listed = "\n".join(f"    - {arm}" for arm in arms)
    return f"""
kind: CacheExperiment
metadata: {{name: {name}}}
spec:
  routeRef: {{name: {route}}}
  unit: [{{header: x-user-id}}]
  arms:
{listed}"""


def arm(name: str, weight: int, more: str = "") -> str:
    return f"{{name: {name}, policyRef: {{name: p}}, weight: {weight}{more}}}"


FORCED = ", force: [{header: x-canary, exact: v2}]"
IMAGES = """
kind: CacheRoute
metadata: {name: images}
spec: {match: [{path: {prefix: /images}}], policyRef: {name: p}}"""


def test_without_an_experiment_everything_is_common() -> None:
    assert of(policies()) == (1.0, {})


def test_the_only_route_is_divided_by_weights() -> None:
    arms = experiment(arm("control", 80), arm("baseline", 10), arm("candidate", 10))
    assert of(policies(more=arms)) == (0.0, {"control": 0.8, "baseline": 0.1, "candidate": 0.1})


def test_routes_without_an_experiment_are_one_consumer_together() -> None:
    other = "\nkind: CacheRoute\nmetadata: {name: other}\nspec: {match: [{path: {prefix: /o}}], policyRef: {name: p}}"
    more = "\n---\n".join((IMAGES, other, experiment(arm("a", 1), arm("b", 3), route="images")))
    assert of(policies(more=more)) == (0.5, {"a": 0.125, "b": 0.375})


def test_a_route_that_is_not_cached_has_no_share() -> None:
    bare = "\nkind: CacheRoute\nmetadata: {name: bare}\nspec: {match: [{path: {prefix: /bare}}]}"
    more = "\n---\n".join((bare, experiment(arm("a", 1), arm("b", 1))))
    assert of(policies(more=more)) == (0.0, {"a": 0.5, "b": 0.5})


def test_experiments_on_two_routes_have_as_much_each() -> None:
    two = experiment(arm("c", 1), arm("d", 1), name="f", route="images")
    more = "\n---\n".join((IMAGES, experiment(arm("a", 9), arm("b", 1)), two))
    assert of(policies(more=more)) == (0.0, {"a": 0.45, "b": 0.05, "c": 0.25, "d": 0.25})


def test_an_arm_that_only_forced_requests_reach_has_the_least() -> None:
    common, arms = of(policies(more=experiment(arm("a", 1), arm("b", 0, FORCED), arm("c", 0))))
    assert common == 0.0
    assert arms == {"a": round(1 / (1 + LEAST), 6), "b": round(LEAST / (1 + LEAST), 6)}


def test_the_first_arm_has_a_share_for_requests_without_a_unit() -> None:
    _, arms = of(policies(more=experiment(arm("a", 0), arm("b", 1))))
    assert set(arms) == {"a", "b"}


def test_the_pool_of_a_share_is_the_one_that_requests_are_stored_in() -> None:
    shares = capacity_shares(compiled(policies(more=experiment(arm("a", 1), arm("b", 1)))))
    assert [share.pool for share in shares.arms] == [pool_id(namespace("all", "e", name)) for name in ("a", "b")]
    assert len({share.pool for share in shares.arms}) == 2


@given(
    st.lists(st.lists(st.integers(0, 1_000_000), min_size=1, max_size=8).filter(any), min_size=1, max_size=6),
    st.booleans(),
)
def test_laws(routes: list[list[int]], common: bool) -> None:
    claims = [
        Claim(namespace(f"r{at}", "e", f"a{place}"), f"r{at}", f"a{place}", weight)
        for at, weights in enumerate(routes)
        for place, weight in enumerate(weights)
    ]
    shares = divided(claims, common=common)
    assert isclose(shares.common + sum(share.fraction for share in shares.arms), 1.0)
    consumer = 1 / (len(routes) + common)
    assert shares.common == (pytest.approx(consumer) if common else 0.0)
    for at, weights in enumerate(routes):
        own = [share.fraction for share in shares.arms if share.route == f"r{at}"]
        assert isclose(sum(own), consumer)
        assert min(own) >= consumer * LEAST / (1 + LEAST * len(weights)) * 0.999
        if min(weights) >= LEAST * sum(weights):
            assert own == pytest.approx([consumer * weight / sum(weights) for weight in weights])


def under(overlay: Overlay | None, *arms: str) -> dict[str, float]:
    snapshot = compiled(policies(more=experiment(*arms)))
    if overlay is not None:
        decided = msgspec.structs.replace(overlay, spec_hash=snapshot.experiments[0].spec_hash)
        snapshot = snapshot.with_overlays({"e": decided})
    return {share.arm: round(share.fraction, 3) for share in capacity_shares(snapshot).arms}


@pytest.mark.parametrize(
    ("phase", "weights", "winner", "shares"),
    [
        (Phase.RUNNING, (50, 25, 25), "", {"control": 0.5, "baseline": 0.25, "candidate": 0.25}),
        (Phase.PAUSED, (50, 25, 25), "", {"control": 0.5, "baseline": 0.25, "candidate": 0.25}),
        # Those who force it still get the candidate, but not after a rollback.
        (Phase.STOPPED, (50, 25, 25), "", {"control": 0.99, "candidate": 0.01}),
        (Phase.ROLLED_BACK, (50, 25, 25), "", {"control": 1.0}),
        (Phase.PROMOTED, (50, 25, 25), "candidate", {"candidate": 1.0}),
    ],
)
def test_the_weights_in_force_count(
    phase: Phase, weights: tuple[int, ...], winner: str, shares: dict[str, float]
) -> None:
    overlay = Overlay("e", "", phase, weights, 1, counting=False, winner=winner)
    arms = (arm("control", 80), arm("baseline", 10), arm("candidate", 10, FORCED))
    assert under(None, *arms) == {"control": 0.8, "baseline": 0.1, "candidate": 0.1}
    assert under(overlay, *arms) == shares


def test_a_promoted_arm_whose_experiment_is_gone_joins_the_common_pool() -> None:
    before = compiled(policies(more=experiment(arm("a", 1), arm("b", 1))))
    adoption = before.adoption("e", "b")
    assert adoption is not None
    after = compiled(policies()).with_overlays({}, [adoption])
    shares = capacity_shares(after)
    assert (shares.common, shares.arms, shares.joined) == (1.0, (), {pool_id(adoption.namespace)})
    assert pool_id(adoption.namespace) == capacity_shares(before).arms[1].pool


LAYERED = "\n---\n".join(
    (
        "\nkind: CachePolicy\nmetadata: {name: q}\nspec:\n  extends: {name: p}\n  freshness: {defaultTtl: 90s}",
        "\nkind: CachePolicy\nmetadata: {name: r}\nspec:\n  extends: {name: p}\n  eviction: ttl",
        experiment(arm("a", 3), "{name: b, policyRef: {name: q}, weight: 1}"),
        experiment(arm("c", 4), "{name: d, policyRef: {name: r}, weight: 1}", name="f"),
    )
)


def test_several_experiments_on_a_route_share_its_part_by_the_product_of_their_arms() -> None:
    more = "\n---\n".join((IMAGES, LAYERED))
    assert of(policies(more=more)) == (0.5, {"a+c": 0.3, "a+d": 0.075, "b+c": 0.1, "b+d": 0.025})


@pytest.mark.parametrize("more", [LAYERED, experiment(arm("a", 3), arm("b", 1, FORCED))], ids=["layers", "one"])
def test_whatever_a_request_gets_has_a_share(more: str) -> None:
    snapshot = compiled(policies(config="trust: {canaryHeader: {from: [any]}}", more=more))
    pools = {share.pool: share.arm for share in capacity_shares(snapshot).arms}
    met = set()
    for number in range(200):
        fields = {"x-user-id": f"u{number}"} if number else {}
        if number % 20 == 1:
            fields["x-canary"] = "v2"
        selection = snapshot.select(Request("GET", "example.com", "/a", Headers(fields.items()), "http"))
        assert pools[pool_id(selection.namespace)] == selection.arm
        met.add(selection.arm)
    assert met == set(pools.values())
