"""What of a request tells stored answers apart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.engine.key import _remembered_key, cache_key, is_unusual, resource_ids, variant_key
from meshcache.engine.query import normalised_query
from meshcache.message import Headers, Peer, Request
from meshcache.policy.compiled import KeySpec
from policy_texts import compiled, experiment, policies

if TYPE_CHECKING:
    from meshcache.engine.key import CacheKey


def spec(yaml: str = "{}") -> KeySpec:
    return compiled(policies(key=yaml)).policies["p"].key


PLAIN = spec()
PLAIN_QUERY = spec("{query: {exclude: [utm_source, 'x_*'], sort: true}}")


def request(path: str = "/a", headers: tuple[tuple[str, str], ...] = (), **parts: str) -> Request:
    values = {"method": "GET", "authority": "example.com", "scheme": "http"} | parts
    return Request(path=path, headers=Headers(headers), **values)  # type: ignore[arg-type]


def key(
    path: str = "/a",
    headers: tuple[tuple[str, str], ...] = (),
    *,
    by: KeySpec = PLAIN,
    namespace: bytes = b"n",
    revision: str = "",
    **parts: str,
) -> CacheKey:
    return cache_key(request(path, headers, **parts), by, namespace=namespace, revision=revision)


# Few characters, among them those of the key's own layout, so that unlike requests come close to each other.
few = st.text("a:0+-,", max_size=4)
values = st.one_of(st.none(), few)


@given(st.lists(st.tuples(few, few, few, few, values, values), min_size=2, max_size=2))
def test_different_requests_have_different_keys(pair: list[tuple[str, str, str, str, str | None, str | None]]) -> None:
    by = spec_with_headers

    def parts(row: tuple[str, str, str, str, str | None, str | None]) -> tuple[CacheKey, object]:
        namespace, revision, path, query, one, two = row
        fields = tuple((name, value) for name, value in (("x-one", one), ("x-two", two)) if value is not None)
        made = key(f"/{path}?{query}", fields, by=by, namespace=namespace.encode(), revision=revision)
        return made, row

    (first, a), (second, b) = map(parts, pair)
    same = a == b
    assert (first.material == second.material) == same
    assert (first.storage == second.storage) == same


spec_with_headers = spec("{partition: [{header: x-one}, {header: x-two}]}")


@given(st.lists(st.lists(st.tuples(st.sampled_from(["sid", "lang", "sidx"]), few), max_size=3), min_size=2, max_size=2))
def test_cookies_are_told_apart_by_name_value_and_number(jars: list[list[tuple[str, str]]]) -> None:
    by = spec_with_cookies

    def seen(jar: list[tuple[str, str]]) -> dict[str, list[str]]:
        return {name: [value for other, value in jar if other == name] for name in ("sid", "lang")}

    one, other = (key(headers=(("cookie", "; ".join(f"{n}={v}" for n, v in jar)),), by=by) for jar in jars)
    assert (one.material == other.material) == (seen(jars[0]) == seen(jars[1]))


spec_with_cookies = spec("{cookies: [sid, lang]}")


@pytest.mark.parametrize("by", [PLAIN, spec("{host: false}"), spec("{partition: [{header: x-one}]}")])
@pytest.mark.parametrize(
    "field",
    [
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-proto", "https"),
        ("x-original-url", "/admin"),
        ("x-rewrite-url", "/admin"),
        ("forwarded", "for=192.0.2.1;host=evil.example"),
        ("forwarded", "By=x; Proto=https"),
        ("forwarded", 'for="x,host=evil.example'),
        ("forwarded", "for=192.0.2.1, host=evil.example"),
    ],
)
def test_what_many_applications_take_for_the_target_tells_answers_apart(by: KeySpec, field: tuple[str, str]) -> None:
    assert key(headers=(field,), by=by).material != key(by=by).material
    name, value = field
    assert key(headers=(field,), by=by).material != key(headers=((name, value + "x"),), by=by).material
    assert key(headers=(field,), by=by).resource == key(by=by).resource, "a change of the target reaches them all"


@pytest.mark.parametrize(
    "field", [("x-forwarded-proto", "http"), ("forwarded", "for=192.0.2.1;by=x"), ("x-other", "a")]
)
def test_what_says_nothing_new_of_the_target_does_not(field: tuple[str, str]) -> None:
    assert key(headers=(field,)) == key()


@pytest.mark.parametrize("written", ["sid=a\xa0", "sid=a ", "sid= a", "sid =a", "sid=a\x1f"])
def test_white_space_that_an_origin_may_take_for_part_of_a_cookie_makes_another_key(written: str) -> None:
    plain = key(headers=(("cookie", "x=1; sid=a"),), by=spec_with_cookies)
    assert key(headers=(("cookie", f"x=1;  {written}"),), by=spec_with_cookies) != plain
    assert key(headers=(("cookie", "x=1;\tsid=a"),), by=spec_with_cookies) == plain


def test_a_cookie_that_repeats_is_not_one_cookie_of_both_values() -> None:
    twice = key(headers=(("cookie", "sid=a; sid=b"),), by=spec_with_cookies)
    assert twice != key(headers=(("cookie", "sid=a\0b"),), by=spec_with_cookies)
    assert twice == key(headers=(("cookie", "sid=a"), ("cookie", "sid=b")), by=spec_with_cookies)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "utm_source", "x_1", "%61", "utm%5fsource"]), few), max_size=5))
def test_only_excluded_parameters_and_order_of_names_are_left_out(pairs: list[tuple[str, str]]) -> None:
    query = normalised_query("&".join(f"{name}={value}" for name, value in pairs), PLAIN_QUERY)
    kept = [(name, value) for name, value in pairs if name not in ("utm_source", "x_1")]
    left = [tuple(pair.split("=", 1)) for pair in query.split("&")] if query else []
    for name in {name for name, _ in pairs}:
        assert [value for other, value in left if other == name] == [value for other, value in kept if other == name]
    names = [name for name, _ in kept]
    # `%61` is `a`: which of them comes first can be which of them counts.
    assert [name for name, _ in left] == (names if {"a", "%61"} <= set(names) else sorted(names))


@pytest.mark.parametrize("alike", ["%61", "A", "a[]", "a[0]", "a%5B%5D", "+a", "a%00x"])
def test_the_order_of_parameters_that_may_be_one_to_an_origin_is_in_the_key(alike: str) -> None:
    by = spec("{query: {sort: true}}")
    one, other = f"/x?b=2&a=1&{alike}=2", f"/x?b=2&{alike}=2&a=1"
    assert key(one, by=by) != key(other, by=by)
    assert key(one, by=by).resource != key(other, by=by).resource
    assert key("/x?b=2&a=1", by=by) == key("/x?a=1&b=2", by=by)


@pytest.mark.parametrize(("one", "other"), [("a.b", "a_b"), ("a[b", "a_b"), ("a%20b", "a.b"), ("a[x]", "a[y]")])
def test_parameters_that_may_be_one_to_an_origin_are_told_apart(one: str, other: str) -> None:
    by = spec("{query: {sort: true}}")
    assert key(f"/x?{one}=1&{other}=2", by=by) != key(f"/x?{other}=2&{one}=1", by=by)


def test_a_separator_that_some_origins_know_keeps_the_order_of_all() -> None:
    by = spec("{query: {sort: true}}")
    assert key("/x?b=9&a=1;b=2", by=by) != key("/x?a=1;b=2&b=9", by=by)


@pytest.mark.parametrize("alike", ["Q", "q[]", "q[x]", "page.size", "page[size", "%71", "SORT.by", "Filter[a]"])
def test_a_parameter_that_looks_like_one_in_the_key_is_in_it(alike: str) -> None:
    by = spec("{query: {include: [q, page_size, 'sort_*', 'filter[*']}}")
    assert key(f"/x?q=1&{alike}=evil", by=by) != key("/x?q=1", by=by)
    assert key("/x?q=1&other=2&qq=1&page=3", by=by) == key("/x?q=1", by=by)


def test_a_parameter_that_is_left_out_by_name_may_look_like_any_other() -> None:
    by = spec("{query: {include: [q], exclude: [Q]}}")
    assert key("/x?q=1&Q=2", by=by) == key("/x?q=1", by=by)


@pytest.mark.parametrize("alike", ["Lang", "lang[]", "lang[x]", "lang ", "la%6eg", "\xa0lang", "s.id", "s[id"])
def test_a_cookie_that_looks_like_one_in_the_key_is_in_it(alike: str) -> None:
    by = spec("{cookies: [lang, s_id]}")

    def sent(*cookies: str) -> CacheKey:
        return key(headers=(("cookie", "; ".join(cookies)),), by=by)

    assert sent("x=1", f"{alike}=evil") != sent("x=1")
    assert sent(f"{alike}=evil", "lang=en") != sent(f"{alike}=other", "lang=en")
    assert sent("language=1", "s-id=2", "lang=en") == sent("lang=en")


@pytest.mark.parametrize(
    ("sent", "plain"),
    [
        ('x="; lang=en; y="', "lang=en"),
        ('x="\\"; lang=en; y="', "lang=en"),
        ("x=1, lang=evil", "x=1"),
        ("x=1,Lang[]=evil", "x=1"),
        ("x=1 lang = evil", "x=1"),
        ('lang="en; z=1', "lang=en"),
        ("x,lang=evil", "x=1"),
    ],
)
def test_cookies_that_some_origins_read_in_another_way_are_in_the_key(sent: str, plain: str) -> None:
    by = spec("{cookies: [s_id, lang]}")
    assert key(headers=(("cookie", sent),), by=by) != key(headers=(("cookie", plain),), by=by)
    assert key(headers=(("cookie", sent),), by=by) != key(headers=(("cookie", f"{sent}; z=2"),), by=by)


def test_cookies_with_odd_values_that_hide_nothing_are_in_no_key() -> None:
    by = spec("{cookies: [s_id, lang]}")
    plain = key(headers=(("cookie", "lang=en"),), by=by)
    for other in ('x={"a": 1, "b": 2}', "x=a b, c", 'x="language"'):
        assert key(headers=(("cookie", f"{other}; lang=en"),), by=by) == plain


@pytest.mark.parametrize(
    ("authority", "unusual"),
    [
        *(("example.com", False), ("example.com:8080", False), ("Example.com", True), ("example.com:80", True)),
        *(("example.com:", True), ("[::1]", False), ("[::1]:", True), ("[::1]:80", True)),
    ],
)
def test_a_host_that_no_browser_would_write_so_is_unusual(authority: str, unusual: bool) -> None:
    assert is_unusual(authority, "http") is unusual


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/a?b=1&utm_source=x", "/a?b=1"),
        ("/a?utm_source=x", "/a"),
        ("/a?utm_source", "/a"),
        ("/a?x_anything=1", "/a"),
        ("/a?b=1&a=2", "/a?a=2&b=1"),
        ("/a?b=1&a=2&b=3", "/a?a=2&b=1&b=3"),
    ],
)
def test_queries_that_are_the_same(one: str, other: str) -> None:
    assert key(one, by=PLAIN_QUERY) == key(other, by=PLAIN_QUERY)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/a?b=1&b=2", "/a?b=2&b=1"),
        ("/a?utm%5Fsource=x", "/a"),  # an origin that decodes the name sees a parameter
        ("/a?utm_source=1;b=2", "/a"),  # an origin that splits at `;` sees b
        ("/a?b=1;utm_source=2", "/a?b=1"),
        ("/a?+utm_source=1", "/a"),
        ("/a?b=1", "/a?b=%31"),
        ("/a?b=", "/a?b"),
        ("/a?", "/a"),
        ("/a/", "/a"),
        ("/A", "/a"),
        ("/a?b=1?c", "/a?b=1"),
    ],
)
def test_queries_that_differ(one: str, other: str) -> None:
    assert key(one, by=PLAIN_QUERY) != key(other, by=PLAIN_QUERY)
    assert key(one, by=PLAIN_QUERY).resource != key(other, by=PLAIN_QUERY).resource


def test_only_included_parameters_count() -> None:
    by = spec("{query: {include: [id, 'f_*']}}")
    assert key("/a?id=1&z=2&f_x=3", by=by) == key("/a?id=1&f_x=3&y=9", by=by)
    assert key("/a?id=1", by=by) != key("/a?id=2", by=by)


def test_case_of_the_host_and_the_default_port_do_not_count() -> None:
    plain = key()
    assert plain == key(authority="EXAMPLE.com") == key(authority="example.com:80")
    assert plain != key(authority="example.com:443")
    assert key(scheme="https") == key(scheme="https", authority="example.com:443")
    assert key(scheme="https") != key(scheme="https", authority="example.com:80")


def test_the_dot_of_a_full_name_is_the_same_resource_and_has_its_own_answers() -> None:
    for authority in ("example.com.", "Example.com.:80"):
        assert key(authority=authority).storage != key().storage
        assert key(authority=authority).resource == key().resource
    assert key(authority="example.com.") == key(authority="EXAMPLE.com.:80")


def test_schemes_have_separate_answers_but_are_one_resource() -> None:
    http, https = key(), key(scheme="https")
    assert http.storage != https.storage
    assert http.resource == https.resource


def test_hosts_share_answers_where_the_policy_says_so() -> None:
    by = spec("{host: false}")
    assert key(by=by) == key(by=by, authority="other.example", scheme="https")


def test_a_field_that_is_absent_is_not_an_empty_one() -> None:
    by = spec("{headers: [accept-language]}")
    absent, empty = key(by=by), key(headers=(("accept-language", ""),), by=by)
    assert absent.storage != empty.storage
    assert absent.resource == empty.resource


def test_the_form_of_a_list_does_not_count_in_headers_but_does_in_partitions() -> None:
    loose, strict = spec("{headers: [x-a]}"), spec("{partition: [{header: x-a}]}")
    one, other = (("x-a", "a, b"),), (("x-a", "a"), ("x-a", "b"))
    assert key(headers=one, by=loose) == key(headers=other, by=loose) == key(headers=(("x-a", "a,b"),), by=loose)
    assert key(headers=one, by=strict) != key(headers=(("x-a", "a,b"),), by=strict)


def test_head_shares_the_key_of_get() -> None:
    assert key() == key(method="HEAD")


def test_namespace_revision_and_key_specification_are_borders() -> None:
    keys = [
        key(),
        key(namespace=b"m"),
        key(revision="v2"),
        key(by=spec("{query: {sort: true}}")),
        key(by=spec("{headers: [x-a]}")),
        key(by=spec("{partition: [{header: x-a}]}")),
    ]
    assert len({made.storage for made in keys}) == len(keys)
    assert len({made.resource for made in keys}) == 1, "an unsafe request reaches them all"


def test_the_methods_that_are_cached_are_no_part_of_the_key() -> None:
    assert key(by=spec("{methods: [GET]}")) == key()


def test_any_octet_and_any_revision_makes_a_key() -> None:
    octets = "".join(map(chr, range(256)))
    assert key(f"/{octets}", (("x-a", octets),), by=spec("{headers: [x-a]}"), revision="v\udcff\N{SNOWMAN}")


OTHER_ROUTE = """
---
kind: CacheRoute
metadata: {name: other}
spec: {match: [{path: {prefix: /other}}], policyRef: {name: p}}
"""


def test_arms_and_routes_under_one_policy_do_not_share() -> None:
    snapshot = compiled(policies(more=experiment() + OTHER_ROUTE, config="trust: {canaryHeader: {from: [any]}}"))
    asked = replace(request(), peer=Peer("10.0.0.1"))
    namespaces = {
        snapshot.select(asked).namespace,
        snapshot.select(replace(asked, headers=Headers([("x-canary", "v2")]))).namespace,
        snapshot.select(replace(asked, path="/other")).namespace,
    }
    assert len(namespaces) == 3
    assert len({key(namespace=namespace).storage for namespace in namespaces}) == 3


def test_an_unsafe_request_names_the_resource_as_every_policy_keys_it() -> None:
    specs = [PLAIN, PLAIN_QUERY, spec("{host: false}")]
    path = "/a?utm_source=1&b=2"
    named = resource_ids("https", "Example.com:443", [path, "/c"], specs)
    for by in specs:
        assert key(path, by=by, scheme="http").resource in named
        assert key("/c", by=by, scheme="https").resource in named
    assert key("/d").resource not in named


@given(st.lists(st.lists(st.tuples(few.filter(bool), values), max_size=3), min_size=2, max_size=2))
def test_different_selecting_values_have_different_variant_keys(pair: list[list[tuple[str, str | None]]]) -> None:
    one, other = (variant_key(b"p" * 32, selecting) for selecting in pair)
    assert (one == other) == (pair[0] == pair[1])


def test_variants_of_different_keys_differ() -> None:
    assert variant_key(b"p" * 32, [("a", "b")]) != variant_key(b"q" * 32, [("a", "b")])
    assert len({variant_key(b"p" * 32, []), b"p" * 32}) == 2


def test_what_is_long_is_not_remembered() -> None:
    before = _remembered_key.cache_info().currsize
    for size in (600, 80_000):
        for asked in (request(authority="a" * size), request(path="/" + "a" * size)):
            cache_key(asked, KeySpec(), namespace=b"", revision="")
        asked = request(headers=(("x-a", "a" * size),))
        cache_key(asked, KeySpec(headers=("x-a",)), namespace=b"", revision="")
    assert _remembered_key.cache_info().currsize == before
