"""Who or what is assigned: a verified caller, a header, a cookie, or what is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from meshcache.experiment.assignment import AssignedBy
from meshcache.message import Headers, Peer, Request, Token
from meshcache.policy.compile import compile_documents
from meshcache.policy.documents import Documents
from meshcache.policy.errors import PolicyErrors

if TYPE_CHECKING:
    from meshcache.policy.snapshot import Selection, Snapshot

SET = """\
apiVersion: meshcache.dev/v1alpha1
kind: CacheConfig
metadata: {name: c}
spec: {identity: {subject: %s}, trust: {canaryHeader: {from: [any]}}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: old}
spec: {key: {query: {sort: true}}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: new}
spec: {freshness: {defaultTtl: 2m}, key: %s}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: r}
spec: {match: [{path: {prefix: /}}], policyRef: {name: old}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheExperiment
metadata: {name: e}
spec:
  routeRef: {name: r}
  unit: %s
  arms:
    - {name: control, policyRef: {name: old}, weight: 70}
    - {name: candidate, policyRef: {name: new}, weight: 30, force: [{header: x-canary, exact: v2}]}
%s"""


class Memory:
    """`Links` in a dictionary."""

    def __init__(self) -> None:
        self.known: dict[bytes, tuple[bytes, bool]] = {}

    def find(self, unit: bytes) -> tuple[bytes, bool] | None:
        return self.known.get(unit)

    def put(self, unit: bytes, used: bytes, *, taken: bool) -> None:
        self.known[unit] = (used, taken)


def compiled(
    unit: str,
    more: str = "",
    subject: str = "{jwtClaim: sub}",
    key: str = "{query: {sort: true}}",
    links: Memory | None = None,
) -> Snapshot:
    documents = Documents.of([("a.yaml", SET % (subject, key, unit, more))])
    return compile_documents(documents, generation=1, secret=b"s", links=links)


def token(sub: str, issuer: str = "i") -> tuple[Token, ...]:
    return (Token(issuer, {"sub": sub}, b""),)


def ask(
    snapshot: Snapshot, *fields: tuple[str, str], sub: str = "", issuer: str = "i", peer: Peer | None = None
) -> Selection:
    tokens = token(sub, issuer) if sub else ()
    return snapshot.select(Request("GET", "h", "/", Headers(fields), peer=peer or Peer(), tokens=tokens))


def test_a_verified_caller_is_a_unit() -> None:
    snapshot = compiled("[{subject: {}}]")
    assert {ask(snapshot, sub=str(n)).arm for n in range(50)} == {"control", "candidate"}
    assert len({ask(snapshot, sub="7").arm for _ in range(3)}) == 1
    # The same name under another issuer is somebody else.
    assert any(ask(snapshot, sub=str(n)).arm != ask(snapshot, sub=str(n), issuer="j").arm for n in range(50))
    # What a header says is nobody's name.
    assert ask(snapshot, ("sub", "7"), ("authorization", "Bearer 7")).how is AssignedBy.NO_UNIT
    assert ask(snapshot).missing == ("e",)


def test_a_certificate_names_a_caller_too() -> None:
    snapshot = compiled("[{subject: {}}]", subject="{mtlsPeer: uri}")
    peers = [Peer("10.0.0.1", mtls=True, uri=f"spiffe://a/{n}") for n in range(50)]
    assert {ask(snapshot, peer=peer).arm for peer in peers} == {"control", "candidate"}
    assert ask(snapshot, peer=Peer("10.0.0.1", uri="spiffe://a/1")).how is AssignedBy.NO_UNIT


KINDS = "[{subject: {}}, {header: x-user-id}, {cookie: sid}]"


def test_without_a_memory_the_first_kind_that_is_there_counts() -> None:
    snapshot, subjects = compiled(KINDS), compiled("[{subject: {}}]")
    for n in map(str, range(50)):
        assert ask(snapshot, ("cookie", "sid=1"), ("x-user-id", "2"), sub=n).arm == ask(subjects, sub=n).arm


@pytest.mark.parametrize("order", ["login", "logout"])
def test_nobody_changes_arm_at_a_login_or_after_it(order: str) -> None:
    snapshot = compiled(KINDS, links=Memory())
    for n in map(str, range(60)):
        cookie, steps = ("cookie", f"sid=c{n}"), []
        steps = [ask(snapshot, cookie), ask(snapshot, cookie, sub=n), ask(snapshot, sub=n), ask(snapshot, cookie)]
        assert len({one.arm for one in (steps if order == "login" else reversed(steps))}) == 1
        both = [
            ask(snapshot, sub=f"o{n}"),
            ask(snapshot, ("cookie", f"sid=d{n}"), sub=f"o{n}"),
            ask(snapshot, ("cookie", f"sid=d{n}")),
        ]
        assert len({one.arm for one in both}) == 1


def test_an_experiment_with_one_kind_remembers_nothing() -> None:
    memory = Memory()
    ask(compiled("[{cookie: sid}]", links=memory), ("cookie", "sid=1"))
    ask(compiled("[{cacheKey: {}}]", links=memory), ("cookie", "sid=1"))
    assert memory.known == {}
    snapshot = compiled(KINDS, links=memory)
    ask(snapshot, ("x-canary", "v2"), ("cookie", "sid=1"))
    assert memory.known == {}
    ask(snapshot, ("cookie", "sid=1"))
    assert [len(unit) for unit in memory.known] == [16]


def test_keys_are_compared_with_control_whatever_the_sizes() -> None:
    judged = compiled("[{cacheKey: {}}]", "  compare: {candidate: candidate}\n  ramp: [{weight: 5, for: 1h}]\n")
    (found,) = judged.experiments
    assert [arm.name for arm in found.arms] == ["control", "candidate"]
    assert found.compare is not None
    assert (found.compare.candidate, found.compare.against) == (1, 0)
    assert judged.weights["e"] == (950_000, 50_000)


def test_where_keys_are_assigned_the_arm_waits_for_the_key() -> None:
    snapshot = compiled("[{cacheKey: {}}]")
    selection = ask(snapshot)
    assert (selection.arm, selection.namespace, selection.missing) == ("", b"", ())
    assert selection.by_key is not None
    chosen = [selection.by_key.choose(b"%d" % n) for n in range(100)]
    assert {one.arm for one in chosen} == {"control", "candidate"}
    assert all(one.by_key is None for one in chosen)
    assert ask(snapshot, ("x-canary", "v2")).arm == "candidate"


def test_where_keys_are_assigned_all_arms_make_the_same_keys() -> None:
    with pytest.raises(PolicyErrors) as caught:
        compiled("[{cacheKey: {}}]", key="{host: false}")
    (error,) = str(caught.value).splitlines()
    assert error == (
        "a.yaml:29:43: spec.arms[1].policyRef.name: new makes other keys than old "
        "(where keys are assigned, all arms need the same spec.key)"
    )
