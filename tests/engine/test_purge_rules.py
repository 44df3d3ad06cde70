"""Which entries a purge rule concerns."""

from __future__ import annotations

import pytest
from purge_helpers import response

from meshcache.engine.key import cache_key
from meshcache.engine.purges import Keying, Mark, PurgeKind, Rule, RuleTable, Verdict, labels_of, parse_value, values_of
from meshcache.message import Headers, Request
from meshcache.policy.compiled import KeySpec

PLAIN = KeySpec(fingerprint=b"plain")
SORTED = KeySpec(query_exclude=("utm_*",), query_sort=True, fingerprint=b"sorted")
HOSTLESS = KeySpec(host=False, fingerprint=b"hostless")


def rule(kind: PurgeKind, value: str = "", *, soft: bool = False, at: float = 0.0) -> Rule:
    return Rule(kind, parse_value(kind, value), soft, at, "")


def labels(url: str = "https://example.com/a", spec: KeySpec = PLAIN, **more: object):
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    request = Request("GET", authority, slash + path, Headers(), scheme)
    key = cache_key(request, spec, namespace=b"n", revision="r1")
    values = {"key": key.material, "route": "images", "revision": "r1", "subject": b"\x01\x02"} | more
    found = labels_of(response(**values))
    assert found.resource == key.resource
    return found


def concerns(purge: Rule, entry, specs=(PLAIN, SORTED, HOSTLESS)) -> bool:
    table = RuleTable(Keying(specs))
    table.add(purge, 2)
    before, after = table.newest(entry).verdict(1), table.newest(entry).verdict(2)
    assert after == Verdict()
    return before.dead


@pytest.mark.parametrize(
    ("url", "entry", "spec"),
    [
        ("https://example.com/a", "https://example.com/a", PLAIN),
        ("https://example.com/a", "http://example.com/a", PLAIN),
        ("http://EXAMPLE.com.:80/a", "https://example.com:443/a", PLAIN),
        ("https://example.com", "https://example.com/", PLAIN),
        ("https://example.com/a?x=1", "https://example.com/a?x=1", PLAIN),
        ("https://example.com/a?y=2&x=1&utm_source=m", "https://example.com/a?x=1&utm_medium=q&y=2", SORTED),
        ("https://other.example/a", "https://example.com/a", HOSTLESS),
        ("https://example.com/\u00e9 b", "https://example.com/%C3%A9%20b", PLAIN),
        ("https://[::1]:8443/a", "http://[::1]:8443/a", PLAIN),
    ],
)
def test_a_url_means_what_the_policy_keys_alike(url, entry, spec):
    assert concerns(rule(PurgeKind.URL, url), labels(entry, spec))


@pytest.mark.parametrize(
    ("url", "entry", "spec"),
    [
        ("https://example.com/a", "https://example.com/a/", PLAIN),
        ("https://example.com/a", "https://example.com/ab", PLAIN),
        ("https://example.com/a", "https://example.com/A", PLAIN),
        ("https://example.com/a", "https://example.com:8443/a", PLAIN),
        ("https://example.com/a", "https://example.com/a?x=1", PLAIN),
        ("https://example.com/a?x=1&y=2", "https://example.com/a?y=2&x=1", PLAIN),
        # For SORTED the URL of the rule is /a, for PLAIN it is not.
        ("https://example.com/a?utm_source=m", "https://example.com/a", PLAIN),
        ("https://example.com/a", "https://example.org/a", SORTED),
    ],
)
def test_a_url_means_nothing_else(url, entry, spec):
    assert not concerns(rule(PurgeKind.URL, url), labels(entry, spec))


@pytest.mark.parametrize(
    ("prefix", "entry", "expected"),
    [
        ("https://example.com/im", "http://example.com/images/1?x=1", True),
        ("https://example.com/images/", "https://example.com/images", False),
        ("https://example.com", "https://example.com/images", True),
        ("https://example.com", "https://example.com.evil/images", False),
        ("https://example.com/", "https://example.com:8443/", False),
        ("https://Example.com:443/images?x", "https://example.com/images?x=1", True),
        ("/images/", "https://example.com/images/1", True),
        ("/images/", "https://example.org:8443/images/1", True),
        ("/images/", "https://example.org/x/images/1", False),
        ("https://other.example/images", "https://example.com/images", False),
    ],
)
def test_a_prefix_counts_characters(prefix, entry, expected):
    assert concerns(rule(PurgeKind.PREFIX, prefix), labels(entry)) is expected


def test_what_is_kept_for_every_host_is_each_hosts():
    assert concerns(rule(PurgeKind.PREFIX, "https://any.example/im"), labels("https://example.com/im/1", HOSTLESS))
    assert not concerns(rule(PurgeKind.PREFIX, "https://any.example/in"), labels("https://example.com/im/1", HOSTLESS))


def test_tags_are_exact():
    entry = labels(tags=("product-1", "Sale", "\xc3\xa9"))
    for tag in ("product-1", "Sale", "\u00e9"):
        assert concerns(rule(PurgeKind.TAG, tag), entry)
    for tag in ("product-11", "product-", "sale", "images", "e"):
        assert not concerns(rule(PurgeKind.TAG, tag), entry)


@pytest.mark.parametrize(
    ("kind", "hit", "miss"),
    [
        (PurgeKind.ROUTE, "images", "image"),
        (PurgeKind.REVISION, "r1", "r"),
        (PurgeKind.SUBJECT, "0102", "010203"),
    ],
)
def test_names_are_exact(kind, hit, miss):
    assert concerns(rule(kind, hit), labels())
    assert not concerns(rule(kind, miss), labels())
    assert concerns(rule(PurgeKind.ALL), labels())


def test_what_belongs_to_nobody_is_no_subjects():
    assert not concerns(rule(PurgeKind.SUBJECT, "0102"), labels(subject=b""))


def test_the_newest_rule_counts():
    table = RuleTable(Keying([PLAIN]))
    table.add(rule(PurgeKind.TAG, "t", soft=True, at=5.0), 3)
    table.add(rule(PurgeKind.TAG, "t"), 2)
    table.add(rule(PurgeKind.ALL, soft=True, at=6.0), 4)
    found = table.newest(labels(tags=("t",)))
    assert found == Mark(hard=2, soft=4, soft_at=6.0)
    assert [found.verdict(born) for born in (1, 2, 4)] == [Verdict(dead=True), Verdict(stale_since=6.0), Verdict()]
    assert len(table) == 2


def test_a_way_of_keying_that_comes_later_is_worked_out():
    keying = Keying([PLAIN])
    table = RuleTable(keying)
    table.add(rule(PurgeKind.URL, "https://example.com/a?utm_x=1"), 2)
    entry = labels("https://example.com/a", SORTED)
    assert not table.newest(entry).verdict(1).dead
    keying.install([SORTED])
    assert table.newest(entry).verdict(1).dead
    table.add(rule(PurgeKind.URL, "https://example.com/b"), 3)
    assert table.newest(labels("https://example.com/b", SORTED)).verdict(2).dead


def test_a_key_of_unknown_form_has_no_place():
    found = labels_of(response(key=b"GET https://example.com/a", tags=("t",)))
    assert (found.host, found.path, found.resource) == ("", "", b"")
    assert concerns(rule(PurgeKind.TAG, "t"), found)
    assert not concerns(rule(PurgeKind.PREFIX, "/"), found)


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        (PurgeKind.URL, "example.com/a", "expected http"),
        (PurgeKind.URL, "https:///a", "a host"),
        (PurgeKind.URL, "https://example.com/a#b", "no fragment"),
        (PurgeKind.URL, "https://m\xfcnchen.example/", "xn--"),
        (PurgeKind.URL, "https://exa mple.com/", "as clients send it"),
        (PurgeKind.URL, "https://example.com\0/", "no control characters"),
        (PurgeKind.URL, "https://example.com/a\r", "no control characters"),
        (PurgeKind.URL, "https://example.com/a ", "no blanks around it"),
        (PurgeKind.PREFIX, "/a\tb", "no control characters"),
        (PurgeKind.URL, "https://[::1/", "in brackets"),
        (PurgeKind.URL, "https://example.com:65536/", "at most 65535"),
        (PurgeKind.URL, f"https://example.com:{'9' * 5000}/", "at most 65535"),
        (PurgeKind.URL, "https://example.com:x/", "as clients send it"),
        (PurgeKind.PREFIX, "https://\u2603/a", "as clients send it"),
        (PurgeKind.PREFIX, "example.com/", "/PATH for every host"),
        (PurgeKind.PREFIX, "https:///a", "a host after the scheme"),
        (PurgeKind.TAG, "a,b", "without commas"),
        (PurgeKind.TAG, "", "1 to 8192"),
        (PurgeKind.SUBJECT, "someone", "hexadecimal"),
        (PurgeKind.ROUTE, "x" * 8193, "1 to 8192"),
    ],
)
def test_values_that_make_no_sense_are_refused(kind, text, says):
    with pytest.raises(ValueError, match=says):
        parse_value(kind, text)


@pytest.mark.parametrize(
    ("kind", "text", "values"),
    [
        (PurgeKind.URL, "http://a.b/c?d=%7e", {"a.b/c?d=%7e"}),
        (PurgeKind.URL, "http://a.b/%7ec/../%7Ed%2f?d", {"a.b/%7ec/../%7Ed%2f?d", "a.b/~d%2f?d"}),
        (PurgeKind.PREFIX, "http://a.b/%7ec/.", {"a.b/%7ec/.", "a.b/~c/."}),
        (PurgeKind.PREFIX, "/c/..", {"/c/.."}),
        (PurgeKind.TAG, "/%7e", {"/%7e"}),
    ],
)
def test_a_path_is_meant_as_it_stands_and_as_envoy_has_it(kind, text, values):
    assert set(values_of(kind, text)) == values
