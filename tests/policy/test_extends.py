"""`extends`: what is inherited, where errors are told, and what is refused."""

from __future__ import annotations

import itertools

import pytest

from meshcache.policy.compile import compile_documents
from meshcache.policy.documents import Documents, parse_file
from meshcache.policy.errors import PolicyErrors
from meshcache.policy.extends import origins
from meshcache.policy.snapshot import Snapshot

HEAD = "apiVersion: meshcache.dev/v1alpha1\nkind: CachePolicy\nmetadata: {name: %s}\nspec:\n"
BASE = """\
  eviction: ttl
  freshness:
    defaultTtl: 60s
    maxTtl: 1h
    negative: [{status: 404, ttl: 10s}, {status: 410, ttl: 1m}]
  key: {headers: [accept-language], query: {exclude: [utm_source], sort: true}}
  tiers: {hot: {ttl: 10s, deadline: 3ms}}
"""


def policy(name: str, spec: str) -> tuple[str, str]:
    return (f"{name}.yaml", HEAD % name + spec)


def compiled(*files: tuple[str, str]) -> Snapshot:
    return compile_documents(Documents.of(files), generation=1, secret=b"")


def errors(*files: tuple[str, str]) -> list[str]:
    with pytest.raises(PolicyErrors) as caught:
        compiled(*files)
    return str(caught.value).splitlines()


def test_what_a_policy_does_not_say_its_base_says() -> None:
    child = """\
  extends: {name: base}
  freshness: {defaultTtl: 5s, negative: [{status: 404, ttl: 1s}]}
  key: {query: {sort: false}}
  tiers: {hot: {ttl: 1s}, warm: {ttl: 2s}}
"""
    found = compiled(policy("base", BASE), policy("child", child)).policies["child"]
    assert found.eviction == "ttl"
    assert (found.freshness.default_ttl, found.freshness.max_ttl) == (5, 3600)
    assert dict(found.freshness.negative) == {404: 1}
    assert (found.key.headers, found.key.query_exclude, found.key.query_sort) == (
        ("accept-language",),
        ("utm_source",),
        False,
    )
    assert (found.tiers.hot.ttl, found.tiers.hot.deadline, found.tiers.warm.ttl) == (1, 0.003, 2)
    assert found.name == "child"


def test_a_chain_and_the_order_of_files_does_not_matter() -> None:
    texts = {
        "first": "  eviction: ttl\n  freshness: {maxTtl: 1h, defaultTtl: 1m}\n",
        "second": "  extends: {name: first}\n  freshness: {defaultTtl: 2m}\n",
        "third": "  extends: {name: second}\n  collapse: {maxWait: 1s}\n",
        "fourth": "  extends: {name: first}\n",
    }
    for names in itertools.permutations(texts):
        files = [(f"{place}.yaml", HEAD % name + texts[name]) for place, name in enumerate(names)]
        policies = compiled(*files).policies
        assert list(policies) == list(names)
        third, fourth = policies["third"], policies["fourth"]
        assert (third.eviction, third.freshness.max_ttl, third.freshness.default_ttl) == ("ttl", 3600, 120)
        assert (third.collapse_wait, policies["second"].collapse_wait) == (1, 10)
        assert fourth.freshness == policies["first"].freshness


def test_a_policy_may_be_whole_only_with_its_base() -> None:
    child = "  extends: {name: base}\n  freshness: {mode: override}\n"
    assert compiled(policy("base", BASE), policy("child", child)).policies["child"].freshness.mode == "override"
    alone = errors(policy("base", "  eviction: ttl\n"), policy("child", child))
    assert alone == ["child.yaml:6:14: spec.freshness.defaultTtl: is required with `mode: override`, for example 60s"]


def test_mistakes_are_told_where_they_stand_and_once() -> None:
    base = "  freshness: {defaultTtl: 60}\n  evictoin: ttl\n"
    files = [policy("base", base), policy("a", "  extends: {name: base}\n"), policy("z", "  extends: {name: a}\n")]
    assert [line.partition(" (")[0] for line in errors(*files)] == [
        "base.yaml:5:27: spec.freshness.defaultTtl: a duration needs a unit: h, m, s or ms, for example 60s",
        "base.yaml:6:3: spec.evictoin: unknown field",
    ]


def test_what_is_wrong_only_together_names_the_policy() -> None:
    files = [policy("base", BASE), policy("child", "  extends: {name: base}\n  freshness: {maxTtl: 30s}\n")]
    assert errors(*files) == [
        "base.yaml:7:17: spec.freshness.defaultTtl: is longer than maxTtl, in child, which inherits it"
    ]
    one_file = [("all.yaml", f"{files[1][1]}---\n{files[0][1]}")]
    assert errors(*one_file) == [
        "all.yaml:14:17: spec.freshness.defaultTtl: is longer than maxTtl, in child, which inherits it"
    ]


def test_references_in_what_is_inherited_are_told_where_they_stand() -> None:
    files = [policy("base", "  key: {partition: [tenant]}\n"), policy("child", "  extends: {name: base}\n")]
    told = errors(*files)
    assert all(line.startswith("base.yaml:5:21: spec.key.partition[0]: the CacheConfig does not say") for line in told)


@pytest.mark.parametrize(
    ("extends", "told"),
    [
        ({"a": "a"}, ["a.yaml:5:19: spec.extends.name: extends itself: a -> a (take one of these extends out)"]),
        ({"a": "c", "b": "a", "c": "b"}, ["a.yaml:5:19: spec.extends.name: extends itself: a -> c -> b -> a"]),
        ({"a": "b", "b": "c", "c": "b"}, ["b.yaml:5:19: spec.extends.name: extends itself: b -> c -> b"]),
        ({"a": "bb", "b": ""}, ["a.yaml:5:19: spec.extends.name: there is no CachePolicy named bb (did you mean b?)"]),
        (
            {"a": "c", "b": "a", "c": "missing"},
            ["c.yaml:5:19: spec.extends.name: there is no CachePolicy named missing"],
        ),
        ({"a": "b", "b": "a", "c": "d", "d": "c"}, ["a.yaml:5:19: spec.extends", "c.yaml:5:19: spec.extends"]),
    ],
)
def test_cycles_and_unknown_bases(extends: dict[str, str], told: list[str]) -> None:
    files = [
        policy(n, f"  extends: {{name: {base}}}\n" if base else "  eviction: ttl\n") for n, base in extends.items()
    ]
    found = errors(*files)
    assert len(found) == len(told)
    assert all(line.startswith(start) for line, start in zip(found, told, strict=True))


def test_a_chain_and_what_is_inherited_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = [policy("p00", "  eviction: ttl\n")]
    chain += [policy(f"p{n:02}", f"  extends: {{name: p{n - 1:02}}}\n") for n in range(1, 16)]
    top = HEAD % "top" + "  extends: {name: p15}\n"
    backwards = [(f"{99 - place}.yaml", text) for place, (_, text) in enumerate(chain)]
    for files in (chain, backwards):
        compiled(*files)
        (error,) = errors(
            *files, ("a.yaml", top), ("b.yaml", top.replace("p15", "top").replace("name: top}\nspec", "name: x}\nspec"))
        )
        assert error.startswith("a.yaml:5:19: spec.extends.name: more than 16 policies in a row")

    monkeypatch.setattr("meshcache.policy.extends.MAX_INHERITED", 30)
    (error,) = errors(policy("base", BASE), *(policy(f"c{n}", "  extends: {name: base}\n") for n in range(4)))
    assert error.startswith(
        "c1.yaml:5:19: spec.extends.name: with this policy more than 30 values are inherited in all"
    )


def test_the_base_of_an_arm_counts_in_what_an_experiment_compares() -> None:
    text = """apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: r}
spec: {match: [{}]}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheExperiment
metadata: {name: e}
spec:
  routeRef: {name: r}
  unit: [{header: u}]
  arms: [{name: a, policyRef: {name: base}, weight: 1}, {name: b, policyRef: {name: child}, weight: 1}]
"""

    def spec_hash(base: str, child: str) -> str:
        (one,) = compiled(policy("base", base), policy("child", child), ("e.yaml", text)).experiments
        return one.spec_hash

    child = "  extends: {name: base}\n  eviction: lru\n"
    assert spec_hash(BASE, child) == spec_hash(BASE, child)
    assert spec_hash(BASE, child) != spec_hash(BASE.replace("1h", "2h"), child)
    # Who says it does not matter.
    assert spec_hash(BASE, child) == spec_hash(BASE, BASE.replace("eviction: ttl", "eviction: lru"))


def test_where_values_come_from() -> None:
    child = "  extends: {name: base}\n  freshness: {maxTtl: 2h}\n"
    parsed = [parse_file(name, text)[0][0] for name, text in (policy("base", BASE), policy("child", child))]
    found = {one.field: one[1:] for one in origins(parsed, "child")}
    assert found["freshness.maxTtl"] == ("2h", "child.yaml", 6)
    assert found["freshness.defaultTtl"] == ("60s", "base.yaml", 7)
    assert found["key.query.sort"] == (True, "base.yaml", 10)
    assert found["key.headers"] == (["accept-language"], "base.yaml", 10)
    assert "extends.name" not in found
    assert {one.file for one in origins(parsed, "base")} == {"base.yaml"}
