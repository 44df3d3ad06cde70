"""What an edit changes: fields by their meaning, what they reach, and what that does."""

from __future__ import annotations

import pytest

from meshcache.policy.compile import compile_set
from meshcache.policy.diff import Difference, DocumentChange, Effect, Happened, difference
from meshcache.policy.documents import Documents

HEAD = "apiVersion: meshcache.dev/v1alpha1\nkind: "
BASE = f"""{HEAD}CachePolicy
metadata: {{name: base}}
spec:
  freshness: {{defaultTtl: 60s, maxTtl: 1h}}
"""
CHILD = f"""{HEAD}CachePolicy
metadata: {{name: child}}
spec:
  extends: {{name: base}}
  freshness: {{staleWhileRevalidate: 30s}}
"""
IMAGES = f"""{HEAD}CacheRoute
metadata: {{name: images}}
spec:
  match: [{{path: {{prefix: /v1/images}}}}]
  policyRef: {{name: base}}
"""
REST = f"""{HEAD}CacheRoute
metadata: {{name: rest}}
spec:
  match: [{{path: {{prefix: /}}}}]
"""
TEST = f"""{HEAD}CacheExperiment
metadata: {{name: test}}
spec:
  routeRef: {{name: images}}
  unit: [{{header: x-user-id}}]
  arms:
    - {{name: control, policyRef: {{name: base}}, weight: 90}}
    - {{name: candidate, policyRef: {{name: child}}, weight: 10}}
"""
ALL = (BASE, CHILD, IMAGES, REST, TEST)


def compared(old: tuple[str, ...], new: tuple[str, ...]) -> Difference:
    sets = [
        compile_set(Documents.of((f"{place}.yaml", text) for place, text in enumerate(texts))) for texts in (old, new)
    ]
    return difference(*sets)


def edited(*edits: tuple[str, str], of: tuple[str, ...] = ALL) -> Difference:
    """The difference that replacing texts makes; each has to be there."""
    whole = "---\n".join(of)
    for old, new in edits:
        assert old in whole
        whole = whole.replace(old, new)
    return compared(of, tuple(whole.split("---\n")))


def change(found: Difference, name: str) -> DocumentChange:
    return next(one for one in found.changes if one.name == name)


def effects(one: DocumentChange) -> list[Effect]:
    return [consequence.effect for consequence in one.consequences]


def test_the_same_written_otherwise_is_the_same() -> None:
    assert edited().same
    assert edited(("60s", "1m"), ("{prefix: /}", "{prefix: '/'}"), ("defaultTtl", "heuristic: 10%, defaultTtl")).same
    assert compared(ALL, (TEST, REST, IMAGES, CHILD, "# only a comment\n", BASE)).same
    # What a policy inherits may as well stand in it.
    whole = CHILD.replace("  extends: {name: base}\n", "").replace("{stale", "{defaultTtl: 60s, maxTtl: 1h, stale")
    assert compared(ALL, (BASE, whole, IMAGES, REST, TEST)).same


def test_addresses_are_told_without_their_secrets() -> None:
    head = "apiVersion: meshcache.dev/v1alpha1\nkind: CacheConfig\nmetadata: {name: c}\nspec:\n"
    new = (
        "  stores: {warm: {url: 'redis://u:hunter2@cache:6379/0'}, cold: {url: 'file:///c'}}\n"
        "  notify: {webhook: {url: 'https://u:hunter2@hooks.example.com/T0/S3CR3T?t=hunter2'}}\n"
    )
    found = change(compared((head + "  budgets: {hot: 1Mi}\n",), (head + new,)), "c")
    told = {one.field: one.new for one in found.fields}
    assert told["notify.webhook.url"] == "https://hooks.example.com/***"
    assert told["stores.warm.url"] == "redis://***@cache:6379/0"
    assert told["stores.cold.url"] == "file:///c"


def test_a_shorter_lifetime_of_a_base_reaches_all_that_extend_it() -> None:
    found = edited(("maxTtl: 1h", "maxTtl: 30m"))
    assert not found.same
    base, child, experiment = (change(found, name) for name in ("base", "child", "test"))
    (field,) = base.fields
    assert (field.field, field.old, field.new, field.file, field.line, field.inherited) == (
        "freshness.maxTtl",
        "1h",
        "30m",
        "0.yaml",
        5,
        False,
    )
    assert base.used_by == ("route images", "arm control of test on route images")
    assert effects(base) == [Effect.SHORTER]
    assert child.fields[0].inherited
    assert child.fields[0].file == "0.yaml"
    assert child.used_by == ("arm candidate of test on route images",)
    assert (experiment.happened, experiment.fields) == (Happened.REACHED, ())
    assert effects(experiment) == [Effect.STARTS_ANEW]
    assert not found.traffic


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("maxTtl: 1h", "maxTtl: 2h", [Effect.LONGER]),
        (", maxTtl: 1h", "", [Effect.LONGER]),
        ("defaultTtl: 60s, ", "", [Effect.SHORTER]),
        ("defaultTtl: 60s, ", "defaultTtl: 1s, staleIfError: 9m, ", [Effect.SHORTER, Effect.LONGER]),
        ("defaultTtl: 60s", "mode: override, defaultTtl: 60s", [Effect.JUDGED_ANEW]),
        ("maxTtl: 1h}", "maxTtl: 1h}\n  key: {headers: [a]}", [Effect.COLD]),
        ("maxTtl: 1h}", "maxTtl: 1h}\n  key: {methods: [GET]}", [Effect.AT_ONCE]),
        ("maxTtl: 1h}", "maxTtl: 1h}\n  eviction: ttl", [Effect.AT_ONCE]),
        ("maxTtl: 1h}", "maxTtl: 1h}\n  tiers: {hot: {ttl: 1s}}", [Effect.SHORTER]),
        ("maxTtl: 1h}", "maxTtl: 1h}\n  tiers: {hot: {maxObjectBytes: 1k}}", [Effect.NEWLY_STORED]),
        ("maxTtl: 1h}", "maxTtl: 1h}\n  collapse: {enabled: false}", [Effect.AT_ONCE]),
    ],
)
def test_what_an_edit_of_a_policy_does(old: str, new: str, expected: list[Effect]) -> None:
    found = edited((old, new))
    assert effects(change(found, "base")) == expected
    arms = [Effect.STARTS_ANEW, *([Effect.COLD, Effect.COLD] if Effect.COLD in expected else [])]
    assert effects(change(found, "test")) == arms


def test_weights() -> None:
    found = change(edited(("weight: 90", "weight: 80"), ("weight: 10}", "weight: 20}")), "test")
    assert [(one.field, one.old, one.new) for one in found.fields] == [
        ("arms[control].weight", "90", "80"),
        ("arms[candidate].weight", "10", "20"),
    ]
    assert [one.text for one in found.consequences if one.effect is Effect.UNITS_MOVE] == [
        "10.0% of the units change their arm: control 90%, candidate 10%, then control 80%, candidate 20%"
    ]
    assert effects(change(edited(("x-user-id", "x-account")), "test")) == [Effect.STARTS_ANEW, Effect.UNITS_MOVE]


def test_an_arm_more_and_an_experiment_less() -> None:
    more = ("weight: 10}\n", "weight: 10}\n    - {name: third, policyRef: {name: base}, weight: 0}\n")
    found = change(edited(more), "test")
    assert effects(found) == [Effect.STARTS_ANEW, Effect.COLD]
    assert found.consequences[1].text == "third begins empty"
    gone = change(compared(ALL, ALL[:-1]), "test")
    assert (gone.happened, effects(gone)) == (Happened.REMOVED, [Effect.COLD, Effect.UNITS_MOVE])
    there = change(compared(ALL[:-1], ALL), "test")
    assert (there.happened, effects(there)) == (Happened.ADDED, [Effect.UNITS_MOVE, Effect.COLD])
    assert there.consequences[0].text == "divides route images: control 90%, candidate 10%"


def test_routes_and_where_traffic_goes() -> None:
    thumbs = IMAGES.replace("name: images", "name: thumbs").replace("/v1/images", "/v1/images/thumbs")
    thumbs = thumbs.replace("base", "child")
    found = compared(ALL, (*ALL, thumbs))
    assert effects(change(found, "thumbs")) == [Effect.COLD]
    (one,) = found.traffic
    assert (one.method, one.url) == ("GET", "any.example/v1/images/thumbs/...")
    assert (one.old_route, one.old_policy, one.new_route, one.new_policy) == ("images", "base", "thumbs", "child")

    found = compared(ALL, (BASE, CHILD, REST))
    assert effects(change(found, "images")) == [Effect.COLD]
    assert [(one.old_route, one.new_route, one.new_policy) for one in found.traffic] == [("images", "rest", "")]


@pytest.mark.parametrize(
    ("match", "url", "headers"),
    [
        ("{hosts: ['*.x.com', y.com], path: {exact: /a}, methods: [PUT]}", "any.x.com/a", ()),
        ("{path: {regex: '/n/[0-9]+'}, query: [{name: q, exact: '1'}]}", "any.example/n/0?q=1", ()),
        ("{headers: [{name: a, regex: 'x+'}, {name: b, exact: c}]}", "any.example/...", ("a: x", "b: c")),
    ],
)
def test_examples_of_traffic(match: str, url: str, headers: tuple[str, ...]) -> None:
    found = compared(
        ALL, (*ALL, IMAGES.replace("name: images", "name: new").replace("{path: {prefix: /v1/images}}", match))
    )
    assert (found.traffic[0].url, found.traffic[0].headers, found.traffic[0].new_route) == (url, headers, "new")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("policyRef: {name: base}\n", "policyRef: {name: child}\n", [Effect.JUDGED_ANEW]),
        ("  policyRef: {name: base}\n", "", [Effect.NOT_CACHED]),
    ],
)
def test_another_policy_for_a_route(old: str, new: str, expected: list[Effect]) -> None:
    assert effects(change(edited((old, new), of=(BASE, CHILD, IMAGES)), "images")) == expected
    back = compared((BASE, CHILD, IMAGES.replace(old, new)), (BASE, CHILD, IMAGES))
    assert effects(change(back, "images")) == [Effect.CACHED if not new else Effect.JUDGED_ANEW]


def test_a_policy_with_other_keys_for_a_route() -> None:
    other = CHILD.replace("spec:", "spec:\n  key: {headers: [a]}")
    found = compared((BASE, other, IMAGES), (BASE, other, IMAGES.replace("name: base", "name: child")))
    assert effects(change(found, "images")) == [Effect.COLD]
    assert found.traffic[0].new_policy == "child"


def test_what_is_not_reached_any_more_is_warned_about_once() -> None:
    hidden = REST.replace("name: rest", "name: numbers").replace("{prefix: /}", "{regex: '/v1/images/[0-9]+'}")
    before = (BASE, REST, hidden)
    found = compared(before, (*before, IMAGES))
    assert [(one.file, one.field) for one in found.warnings] == [("2.yaml", "spec.match[0]")]
    assert not compared((*before, IMAGES), (*before, IMAGES.replace("base", "base", 1))).warnings
    assert ("numbers", "images") in [(one.old_route, one.new_route) for one in found.traffic]


def test_a_budget_that_leaves_no_room_is_warned_about_by_the_edit_that_makes_it_so() -> None:
    config = HEAD + "CacheConfig\nmetadata: {name: default}\nspec: {budgets: {filter: 32Mi}}\n"
    small = config.replace("32Mi", "32")
    found = compared((BASE, config), (BASE, small))
    assert [(one.file, one.field) for one in found.warnings] == [("1.yaml", "spec.budgets.filter")]
    assert not compared((BASE, small), (BASE.replace("60s", "30s"), small)).warnings


def test_configuration() -> None:
    config = f"{HEAD}CacheConfig\nmetadata: {{name: default}}\nspec: {{%s}}\n"
    tenants = BASE.replace("spec:", "spec:\n  key: {partition: [tenant]}")
    old = (tenants, config % "identity: {tenant: {jwtClaim: org}}, budgets: {hot: 64Mi}")
    new = "identity: {tenant: {jwtClaim: team}}, budgets: {hot: 32Mi}, trust: {scoreHeader: {from: [mesh]}}, "
    found = change(compared(old, (tenants, config % f"{new}revision: {{from: env, name: V}}")), "default")
    assert effects(found) == [Effect.AFTER_RESTART, Effect.COLD, Effect.COLD, Effect.AT_ONCE]
    assert [one.field for one in found.fields if one.old is None or "default" in one.old] == [
        "trust.scoreHeader.from",
        "revision.from",
        "revision.name",
    ]
    assert found.consequences[2].text == "who a tenant is, is read from elsewhere: base begin empty"


def test_a_configuration_that_comes_or_goes_changes_what_it_says() -> None:
    config = f"{HEAD}CacheConfig\nmetadata: {{name: default}}\nspec: {{%s}}\n"
    full = config % "budgets: {hot: 64Mi}, revision: {from: env, name: V}"
    come, gone = change(compared((BASE,), (BASE, full)), "default"), change(compared((BASE, full), (BASE,)), "default")
    assert (come.happened, gone.happened) == (Happened.ADDED, Happened.REMOVED)
    assert effects(come) == effects(gone) == [Effect.AFTER_RESTART, Effect.COLD]
    assert [one.field for one in come.fields] == ["budgets.hot", "revision.from", "revision.name"]
    assert [(one.new, two.old) for one, two in zip(come.fields, gone.fields, strict=True)] == [
        ("64Mi", "64Mi"),
        ("env", "env"),
        ("V", "V"),
    ]
    assert compared((BASE,), (BASE, config % "")).same
    assert compared((BASE, full), (BASE, full.replace("name: default", "name: other"))).same


def test_a_policy_that_nothing_uses() -> None:
    found = change(compared(ALL, (*ALL, CHILD.replace("name: child", "name: idle"))), "idle")
    assert (found.happened, effects(found)) == (Happened.ADDED, [Effect.UNUSED])


def test_an_experiment_that_comes_to_another_one_makes_its_arms_begin_empty() -> None:
    second = TEST.replace("name: test", "name: other").replace("{name: child}", "{name: keyed}")
    keyed = CHILD.replace("name: child", "name: keyed").replace(
        "freshness: {staleWhileRevalidate: 30s}", "eviction: ttl"
    )
    found = change(compared((*ALL, keyed), (*ALL, keyed, second)), "test")
    assert (found.happened, effects(found)) == (Happened.REACHED, [Effect.COLD])
    assert found.consequences[0].text == ("its arms begin empty, as it stands beside other on route images from now on")
    found = change(compared((*ALL, keyed, second), (*ALL, keyed)), "test")
    assert "beside no other experiment on route images" in found.consequences[0].text
