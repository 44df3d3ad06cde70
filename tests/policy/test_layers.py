"""Several experiments on one route."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import sqrt
from typing import TYPE_CHECKING

import msgspec
import pytest

from meshcache.experiment.assignment import AssignedBy
from meshcache.experiment.overlay import Overlay, Phase
from meshcache.message import Headers, Request
from meshcache.policy.compile import compile_documents
from meshcache.policy.documents import Documents
from meshcache.policy.errors import PolicyErrors
from meshcache.policy.shares import capacity_shares, pool_id

if TYPE_CHECKING:
    from meshcache.policy.snapshot import Selection, Snapshot

HEAD = "---\napiVersion: meshcache.dev/v1alpha1\n"
CONFIG = HEAD + "kind: CacheConfig\nmetadata: {name: c}\nspec: {trust: {canaryHeader: {from: [any]}}}\n"
ROUTE = HEAD + "kind: CacheRoute\nmetadata: {name: r}\nspec: {match: [{path: {prefix: /}}], policyRef: {name: base}}\n"


def policy(name: str, spec: str) -> str:
    return HEAD + f"kind: CachePolicy\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"


def experiment(name: str, arms: str, more: str = "") -> str:
    return (
        HEAD
        + f"kind: CacheExperiment\nmetadata: {{name: {name}}}\nspec:\n  routeRef: {{name: r}}\n"
        + f"  unit: [{{header: x-user-id}}]\n  arms:\n{arms}{more}"
    )


def arms(*names: str, weight: int = 50) -> str:
    return "".join(
        f"    - {{name: {name}, policyRef: {{name: {of}}}, weight: {weight},"
        f" force: [{{header: x-canary, exact: {name}}}]}}\n"
        for name, _, of in (text.partition("=") for text in names)
    )


BASE = policy("base", "freshness: {defaultTtl: 60s, staleIfError: 5s}, key: {headers: [accept]}")
LONG = policy("long", "extends: {name: base}, freshness: {defaultTtl: 2m}")
KEYED = policy("keyed", "extends: {name: base}, key: {headers: []}, eviction: ttl")
TTL = experiment("ttl", arms("same=base", "long=long"))
KEY = experiment("key", arms("plain=base", "keyed=keyed"))
SET = CONFIG + ROUTE + BASE + LONG + KEYED


def compiled(text: str) -> Snapshot:
    return compile_documents(Documents.of([("a.yaml", text)]), generation=1, secret=b"s")


def ask(snapshot: Snapshot, user: str = "", canary: str = "") -> Selection:
    given = (("x-user-id", user), ("x-canary", canary))
    return snapshot.select(Request("GET", "h", "/", Headers([field for field in given if field[1]])))


def test_the_policy_has_what_the_arm_of_each_experiment_changes() -> None:
    snapshot = compiled(SET + TTL + KEY)
    found = {ask(snapshot, str(user)).arm: ask(snapshot, str(user)) for user in range(200)}
    assert set(found) == {"same+plain", "same+keyed", "long+plain", "long+keyed"}
    assert found["same+plain"].policy is snapshot.policies["base"]
    assert found["long+plain"].policy is snapshot.policies["long"]
    assert found["same+keyed"].policy is snapshot.policies["keyed"]
    both = found["long+keyed"].policy
    assert both is not None
    assert both.name == "long+keyed"
    assert (both.freshness.default_ttl, both.freshness.stale_if_error) == (120.0, 5.0)
    assert (both.key.headers, both.eviction) == ((), "ttl")
    # What invalidation has to reach.
    assert both in snapshot.in_use
    assert ask(snapshot, "1").experiment == "ttl+key"
    assert len({one.namespace for one in found.values()}) == 4


def test_each_experiment_has_a_hash_of_its_own() -> None:
    snapshot = compiled(SET + TTL + KEY)
    counts = Counter(ask(snapshot, str(user)).arm for user in range(4000))
    for arm in product(("same", "long"), ("plain", "keyed")):
        assert abs(counts["+".join(arm)] - 1000) < 5 * sqrt(4000 * 3 / 16)


def test_an_experiment_alone_gives_the_same_arms_as_beside_others() -> None:
    alone, together = compiled(SET + TTL), compiled(SET + TTL + KEY)
    for user in map(str, range(100)):
        assert ask(alone, user).arm == ask(together, user).arm.partition("+")[0]


def test_the_order_of_the_files_changes_no_place() -> None:
    one, other = compiled(SET + TTL + KEY), compiled(SET + KEY + TTL)
    assert all(ask(one, str(user)).namespace == ask(other, str(user)).namespace for user in range(20))


def test_a_request_without_unit_is_on_control_of_each_and_counted_for_each() -> None:
    selection = ask(compiled(SET + TTL + KEY))
    assert (selection.arm, selection.how, selection.missing) == ("same+plain", AssignedBy.NO_UNIT, ("ttl", "key"))


def test_one_arm_is_forced_and_the_others_are_hashed() -> None:
    snapshot = compiled(SET + TTL + KEY)
    forced = [ask(snapshot, str(user), "long") for user in range(50)]
    assert {one.arm for one in forced} == {"long+plain", "long+keyed"}
    assert {one.how for one in forced} == {AssignedBy.LAYERED}


def test_what_is_decided_about_one_leaves_the_others() -> None:
    snapshot = compiled(SET + TTL + KEY)
    hashes = {one.name: one.spec_hash for one in snapshot.experiments}
    won = Overlay("ttl", hashes["ttl"], Phase.PROMOTED, (1, 1), 2, False, "long")
    counting = Overlay("key", hashes["key"], Phase.RUNNING, (1, 1), 7, True)
    found = snapshot.with_overlays({"ttl": won, "key": counting})
    for user in map(str, range(50)):
        selection, before = ask(found, user), ask(snapshot, user)
        assert selection.arm == "long+" + before.arm.partition("+")[2]
        assert [(one.experiment, one.arm) for one in selection.exposures] == [("key", int("keyed" in selection.arm))]
        if before.arm.startswith("long"):
            assert selection.namespace == before.namespace
    adopted = found.adoption("ttl", "long")
    assert adopted is not None
    assert adopted.policy == snapshot.policies["long"].digest
    assert (
        adopted.namespace
        == next(one for one in (ask(snapshot, str(n)) for n in range(99)) if one.arm == "long+plain").namespace
    )


def test_a_baseline_is_an_arm_of_its_own() -> None:
    judged = experiment(
        "ttl", arms("same=base", weight=90) + arms("long=long", weight=10), "  compare: {candidate: long}\n"
    )
    snapshot = compiled(SET + judged + KEY)
    assert {ask(snapshot, str(user)).arm.partition("+")[0] for user in range(200)} == {"same", "long", "baseline"}


def test_a_list_or_a_field_within_another_is_merged_field_by_field() -> None:
    one = policy("one", "extends: {name: base}, key: {query: {sort: true}}")
    two = policy("two", "extends: {name: base}, key: {query: {exclude: [utm_source]}}, freshness: {staleIfError: 0s}")
    text = SET + one + two + experiment("a", arms("x=base", "y=one")) + experiment("b", arms("v=base", "w=two"))
    found = [ask(compiled(text), str(user)) for user in range(50)]
    both = next(one.policy for one in found if one.arm == "y+w")
    assert both is not None
    assert (both.key.query_sort, both.key.query_exclude, both.key.headers) == (True, ("utm_source",), ("accept",))
    assert both.freshness.stale_if_error == 0.0


def test_a_default_that_an_arm_goes_back_to_counts() -> None:
    bare = policy("bare", "freshness: {defaultTtl: 60s}, key: {headers: [accept]}")
    text = SET + bare + experiment("a", arms("x=base", "y=bare")) + KEY
    found = [ask(compiled(text), str(user)).policy for user in range(50)]
    assert {one.freshness.stale_if_error for one in found if one is not None} == {0.0, 5.0}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            SET
            + policy("short", "extends: {name: base}, freshness: {defaultTtl: 5s}")
            + TTL
            + experiment("late", arms("x=base", "y=short")),
            "a.yaml:49:{at}: spec.arms[1].policyRef.name: changes freshness.defaultTtl of the policy base, "
            "as the experiment ttl does (experiments on one route have to change different fields)",
        ),
        (
            SET.replace(", policyRef: {name: base}", "") + TTL + KEY,
            "spec.routeRef.name: several experiments change the policy of the route r, which has none",
        ),
        (
            SET
            + TTL
            + KEY.replace("header: x-user-id", "cacheKey: {}")
            .replace("keyed=keyed", "keyed=base")
            .replace("policyRef: {name: keyed}", "policyRef: {name: base}"),
            "spec.routeRef.name: where keys are assigned, there can be no other experiment on the route r",
        ),
        (
            SET + "".join(experiment(f"e{n}", arms(*(f"a{n}{m}=base" for m in range(5)))) for n in range(3)),
            "the arms on the route r make 125 combinations; the limit is 64 (let one experiment end first)",
        ),
        (
            SET
            + policy("max", "extends: {name: base}, freshness: {maxTtl: 90s}")
            + TTL
            + experiment("cap", arms("x=base", "y=max")),
            "long and max do not go together on the policy base: spec.freshness.defaultTtl: is longer than maxTtl",
        ),
    ],
)
def test_experiments_that_do_not_go_together_are_refused(text: str, told: str) -> None:
    with pytest.raises(PolicyErrors) as caught:
        compiled(text)
    (error,) = str(caught.value).splitlines()
    line = next((n for n, one in enumerate(text.splitlines(), 1) if "{name: short}, weight" in one), 0)
    column = text.splitlines()[line - 1].find("short") + 1
    assert told.replace("49:{at}", f"{line}:{column}") in error


def test_overlays_are_cheap_for_layers_too() -> None:
    snapshot = compiled(SET + TTL + KEY)
    overlay = Overlay("ttl", snapshot.experiments[0].spec_hash, Phase.RUNNING, (1, 1), 1, True)
    found = snapshot.with_overlays({"ttl": msgspec.structs.replace(overlay, weights=(0, 1))})
    assert found.policies is snapshot.policies
    assert {ask(found, str(user)).arm for user in range(50)} == {"long+plain", "long+keyed"}


def test_capacity_is_divided_by_the_places_that_are_in_use() -> None:
    snapshot = compiled(SET + TTL + KEY)
    shares = capacity_shares(snapshot)
    found = {ask(snapshot, str(user)).arm: ask(snapshot, str(user)).namespace for user in range(200)}
    assert {one.arm: one.pool for one in shares.arms} == {arm: pool_id(home) for arm, home in found.items()}
    assert [one.fraction for one in shares.arms] == [0.25] * 4
