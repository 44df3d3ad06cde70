"""The supervisor compiles without the installation's secret: it and its workers differ in who is in which arm alone."""

from __future__ import annotations

from meshcache.extproc.keeper import first_set
from meshcache.message import Headers, Peer, Request
from meshcache.policy.compile import Surroundings, compile_documents
from meshcache.policy.documents import Documents
from meshcache.policy.snapshot import Selection, Snapshot

POLICIES = """
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: a}
spec: {tiers: {warm: {deadline: 50ms}}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: b}
spec: {eviction: lru}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: all}
spec: {match: [{path: {prefix: /}}], policyRef: {name: a}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheExperiment
metadata: {name: half}
spec:
  routeRef: {name: all}
  unit: [{header: x-user}]
  arms:
    - {name: one, weight: 50, policyRef: {name: a}}
    - {name: other, weight: 50, policyRef: {name: b}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheConfig
metadata: {name: default}
spec: {budgets: {hot: 8Mi}, revision: {from: env, name: REVISION}}
"""
SURROUNDINGS = Surroundings(environ={"REVISION": "r7"})


class Folder:
    """A source that never changes."""

    def read(self) -> Documents:
        return Documents.of([("a.yaml", POLICIES)])

    async def changes(self):  # type: ignore[no-untyped-def]
        return
        yield


def request(user: str) -> Request:
    return Request("GET", "h", "/x", Headers([("x-user", user)] if user else []), "http", Peer(), "", True)


def said(selection: Selection) -> tuple[object, ...]:
    return selection.route, selection.policy and selection.policy.name, selection.experiment, selection.how


def test_supervisor_and_workers_agree_on_everything_but_arms() -> None:
    checked = first_set(Folder(), None, SURROUNDINGS).snapshot
    theirs: Snapshot = compile_documents(Folder().read(), generation=1, secret=b"k" * 32, surroundings=SURROUNDINGS)
    assert checked.digest == theirs.digest
    assert checked.generation == theirs.generation
    assert checked.config == theirs.config
    assert checked.policies == theirs.policies
    assert [route.name for route in checked.routes] == [route.name for route in theirs.routes]
    assert [item.name for item in checked.experiments] == [item.name for item in theirs.experiments]
    assert checked.lookup_budget() == theirs.lookup_budget()
    assert checked.revision(request("")) == theirs.revision(request("")) == "r7"
    assert said(checked.select(request(""))) == said(theirs.select(request("")))
    moved = 0
    for number in range(200):
        ours, workers = checked.select(request(f"u{number}")), theirs.select(request(f"u{number}"))
        if ours.arm == workers.arm:
            assert said(ours) == said(workers)
            assert ours.namespace == workers.namespace
        else:
            moved += 1
    assert 40 < moved < 160, "the secret decides who is in which arm"
