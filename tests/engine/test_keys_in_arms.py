"""Keys assigned to arms: each key has one arm, and the arms share nothing."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING

from cache_harness import Rig
from meshcache.engine.key import cache_key, chosen_key, key_parts
from meshcache.message import Headers, Request
from meshcache.policy.compile import compile_documents
from meshcache.policy.documents import Documents
from policy_texts import SECRET, TIERS

if TYPE_CHECKING:
    from pathlib import Path

    from meshcache.policy.snapshot import Snapshot

SET = """\
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: old}
spec:
  freshness: {defaultTtl: 60s}
  tiers: %s
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: new}
spec:
  freshness: {defaultTtl: 10s}
  tiers: %s
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: r}
spec: {match: [{}], policyRef: {name: old}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheExperiment
metadata: {name: e}
spec:
  routeRef: {name: r}
  unit: [{cacheKey: {}}]
  arms:
    - {name: control, policyRef: {name: old}, weight: %d}
    - {name: candidate, policyRef: {name: new}, weight: %d}
"""


def text(*weights: int) -> str:
    # Long deadlines: a slow machine must not change what is decided.
    tiers = indent(TIERS, "    ")
    return SET % (tiers, tiers, *weights)


def snapshot(*weights: int) -> Snapshot:
    return compile_documents(Documents.of([("a.yaml", text(*weights))]), generation=1, secret=SECRET)


def asked(path: str) -> Request:
    return Request("GET", "example.com", path, Headers())


async def test_a_key_has_the_policy_of_its_arm(tmp_path: Path) -> None:
    async with Rig(tmp_path, text(50, 50)) as rig:
        hits = {}
        for number in range(24):
            path = f"/{number}"
            rig.origin.says(path, body=b"one")
            assert (await rig.get(path)).decision == "miss"
            assert (await rig.get(path)).decision == "hit"
        rig.clock.pass_by(20)
        for number in range(24):
            hits[number] = (await rig.get(f"/{number}")).decision
        # Those of the candidate have outlived their ten seconds.
        assert set(hits.values()) == {"hit", "miss"}


def test_the_key_is_the_one_that_its_arm_would_make() -> None:
    found = snapshot(50, 50)
    spec = found.policies["old"].key
    arms = set()
    for number in range(40):
        request = asked(f"/{number}?a=1")
        by_key = found.select(request).by_key
        assert by_key is not None
        key, selection = chosen_key(request, spec, by_key, revision="v1", border=(b"tenant",))
        again, same = chosen_key(request, spec, by_key, revision="v1", border=(b"tenant",))
        assert key == again
        assert selection.arm == same.arm
        assert key == cache_key(request, spec, namespace=selection.namespace, revision="v1", border=(b"tenant",))
        assert key_parts(key.material) is not None
        arms.add(selection.arm)
    assert arms == {"control", "candidate"}


def test_a_longer_url_than_is_remembered_is_assigned_alike() -> None:
    found = snapshot(1, 0)
    request = asked("/" + "x" * 2000)
    by_key = found.select(request).by_key
    assert by_key is not None
    key, selection = chosen_key(request, found.policies["old"].key, by_key, revision="")
    assert selection.arm == "control"
    assert key == cache_key(request, found.policies["old"].key, namespace=selection.namespace, revision="")


def test_when_weights_change_few_keys_move() -> None:
    before, after = snapshot(90, 10), snapshot(70, 30)
    moved = 0
    for number in range(2000):
        request = asked(f"/{number}")
        arms = []
        for found in (before, after):
            by_key = found.select(request).by_key
            assert by_key is not None
            arms.append(chosen_key(request, found.policies["old"].key, by_key, revision="")[1].arm)
        assert arms in (["control", "control"], ["control", "candidate"], ["candidate", "candidate"])
        moved += arms[0] != arms[1]
    assert 300 < moved < 500
