"""Labels: whatever a purge rule concerns by the engine's own table, its labels drop."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshcache.engine.key import cache_key
from meshcache.engine.purges import Keying, PurgeKind, Rule, RuleTable, labels_of, parse_value
from meshcache.engine.records import StoredResponse
from meshcache.message import Request
from meshcache.policy.compiled import KeySpec
from meshcache.wasm import labels as wasm

SPECS = (
    KeySpec(fingerprint=b"all"),
    KeySpec(host=False, fingerprint=b"nohost"),
    KeySpec(query_exclude=("utm_*",), query_sort=True, fingerprint=b"query"),
)

hosts = st.sampled_from(["example.com", "EXAMPLE.com:80", "a.example", "example.com:8080"])
paths = st.sampled_from(["/", "/a", "/a?b=1", "/a?utm_x=2&b=1", "/a?b=1&a=2", "/%C3%A4"])
words = st.sampled_from(["", "one", "two", "zwei\xe4"])
people = st.sampled_from([b"", b"\x01" * 16, b"\x02" * 16])
tags = st.lists(st.sampled_from(["red", "blue", "gr\xfcn"]), unique=True).map(tuple)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    kind = draw(st.sampled_from([kind for kind in PurgeKind if kind is not PurgeKind.LOST]))
    match kind:
        case PurgeKind.URL:
            text = "http://" + draw(hosts) + draw(paths)
        case PurgeKind.PREFIX:
            text = "/"
        case PurgeKind.SUBJECT:
            text = draw(people.filter(bool)).hex()
        case PurgeKind.TAG:
            text = draw(
                st.sampled_from(["red", "blue", "gr\xfcn".encode("latin-1").decode("utf-8", "surrogateescape")])
            )
        case _:
            text = draw(words.filter(bool))
    return Rule(kind, parse_value(kind, text), draw(st.booleans()), 0.0, "uid")


@given(st.sampled_from(SPECS), hosts, paths, words, words, people, tags, rules())
def test_what_a_rule_kills_its_labels_drop(
    spec: KeySpec,
    host: str,
    path: str,
    route: str,
    revision: str,
    subject: bytes,
    marked: tuple[str, ...],
    rule: Rule,
) -> None:
    key = cache_key(Request("GET", host, path), spec, namespace=b"n", revision=revision)
    stored = StoredResponse(key.material, (), 200, (), 0.0, 0.0, 0.0, False, b"", "", route, subject, revision, marked)
    table = RuleTable(Keying(SPECS))
    table.add(rule, 2)
    mark = table.newest(labels_of(stored))
    dropped = wasm.labels_of_rule(rule, SPECS)
    held = wasm.labels_of(resource=key.resource, route=route, revision=revision, subject=subject, tags=marked)
    assert len(held) == len(set(held))
    if max(mark.hard, mark.soft):
        assert dropped is None or set(dropped) & set(held)
    elif dropped is not None:
        assert not set(dropped) & set(held)


def test_kinds_do_not_mix() -> None:
    values = {wasm.label(kind, b"same") for kind in wasm.Kind}
    assert len(values) == len(wasm.Kind)


def test_the_number_is_the_one_that_is_documented() -> None:
    assert f"{wasm.label(wasm.Kind.ROUTE, b'shop'):016x}" == "3dd584db0a91dec0"
