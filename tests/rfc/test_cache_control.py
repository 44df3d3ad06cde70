import math
from time import thread_time
from timeit import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.message import Headers
from meshcache.rfc.cache_control import EMPTY, CacheControl, request_cache_control

parse = CacheControl.parse

NAMES = [
    "max-age",
    "s-maxage",
    "stale-while-revalidate",
    "stale-if-error",
    "min-fresh",
    "max-stale",
    "no-cache",
    "no-store",
    "private",
    "public",
    "must-revalidate",
    "x",
]
ARGUMENTS = ["", "=", "=0", "=60", '="60"', "=x", '="a, b"', " =5", "= 5"]
directives = st.tuples(st.sampled_from(NAMES), st.sampled_from(ARGUMENTS)).map("".join)


def test_absence_says_nothing() -> None:
    assert parse(None) is EMPTY
    assert parse("") == EMPTY
    assert EMPTY.max_age is None
    assert not EMPTY.no_cache


def test_every_response_directive() -> None:
    parsed = parse(
        "max-age=1, s-maxage=2, stale-while-revalidate=3, stale-if-error=4, no-cache, no-store, private, public,"
        " must-revalidate, proxy-revalidate, must-understand, immutable, no-transform"
    )
    assert parsed == CacheControl(
        max_age=1,
        s_maxage=2,
        stale_while_revalidate=3,
        stale_if_error=4,
        no_cache=True,
        no_store=True,
        private=True,
        public=True,
        must_revalidate=True,
        proxy_revalidate=True,
        must_understand=True,
        immutable=True,
    )


def test_every_request_directive() -> None:
    parsed = parse("max-age=1, max-stale=2, min-fresh=3, no-cache, no-store, no-transform, only-if-cached")
    assert parsed == CacheControl(
        max_age=1, max_stale=2, min_fresh=3, no_cache=True, no_store=True, only_if_cached=True
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("MaX-aGe=60", 60),
        ('max-age="60"', 60),
        ("max-age=0060", 60),
        (",, max-age=60 ,", 60),
        ("foo, max-age=60, bar=baz", 60),
        ("max-age=99999999999", 2**31),
        ('extension="max-age=3600", max-age=1', 1),
        ('max-age=1, extension="max-age=3600"', 1),
        ('extension="max-age=3600"', None),
        ('broken="x, max-age=60', 60),
        ("xmax-age=60", None),
        ("max_age=60", None),
    ],
)
def test_max_age(value: str, expected: int | None) -> None:
    parsed = parse(value)
    assert parsed.max_age == expected
    assert not parsed.invalid_lifetime


@pytest.mark.parametrize(
    "argument",
    ["", "=", "=x", "=-1", "=1.5", "='60'", "=60s", "= 60", " =60", "\t= 60", '="', '="60', '="6\\"0"', "=²"],
)
@pytest.mark.parametrize("name", ["max-age", "s-maxage"])
def test_a_lifetime_that_is_no_number_is_zero(name: str, argument: str) -> None:
    parsed = parse(f"public, {name}{argument}")
    assert (parsed.max_age if name == "max-age" else parsed.s_maxage) == 0
    assert parsed.invalid_lifetime
    assert parsed.public


def test_an_invalid_stale_window_is_empty() -> None:
    parsed = parse("max-age=1, stale-while-revalidate=x, stale-if-error")
    assert (parsed.stale_while_revalidate, parsed.stale_if_error) == (0, 0)
    assert not parsed.invalid_lifetime


@pytest.mark.parametrize(
    ("value", "expected", "invalid"),
    [
        ("max-age=60, max-age=10", 60, False),
        ("max-age=10, max-age=60", 10, False),
        ("max-age=0,max-age=10,max-age=30", 0, False),
        ("max-age=60, max-age=x", 60, False),
        ("max-age=x, max-age=60", 0, True),
    ],
)
def test_the_first_of_several_lifetimes_counts(value: str, expected: int, invalid: bool) -> None:
    parsed = parse(value)
    assert (parsed.max_age, parsed.invalid_lifetime) == (expected, invalid)


def test_the_strictest_of_several_request_limits_counts() -> None:
    parsed = parse("min-fresh=1, min-fresh=9, max-stale, max-stale=5, max-stale=7")
    assert (parsed.min_fresh, parsed.max_stale) == (9, 5)


@pytest.mark.parametrize(
    ("value", "expected"), [("max-stale", math.inf), ("max-stale=7", 7), ("max-stale=x", None), ("max-stale=", None)]
)
def test_max_stale(value: str, expected: float | None) -> None:
    assert parse(value).max_stale == expected


def test_an_invalid_min_fresh_is_ignored() -> None:
    assert parse("min-fresh=x, no-store") == CacheControl(no_store=True)


@pytest.mark.parametrize("directive", ["no-cache", "private"])
@pytest.mark.parametrize(
    ("argument", "unqualified", "fields"),
    [
        ("", True, ()),
        ("=", True, ()),
        ('=""', True, ()),
        ('=" , "', True, ()),
        ('="Set-Cookie"', False, ("set-cookie",)),
        ('="a, B"', False, ("a", "b")),
        ("=a", False, ("a",)),
        ('="a b"', True, ()),
        ('="a, b c"', True, ()),
        ('="a', True, ()),
        ('="a, vary"', True, ()),
        ('="Location"', True, ()),
        ('="Cache-Control"', True, ()),
    ],
)
def test_qualified_directives(directive: str, argument: str, unqualified: bool, fields: tuple[str, ...]) -> None:
    parsed = parse(f"max-age=5, {directive}{argument}")
    assert parsed.max_age == 5
    got = (parsed.no_cache, parsed.no_cache_fields)
    if directive == "private":
        got = (parsed.private, parsed.private_fields)
    assert got == (unqualified, fields)


@pytest.mark.parametrize("value", ['no-cache, no-cache="a"', 'no-cache="a", no-cache'])
def test_the_unqualified_form_prevails(value: str) -> None:
    assert parse(value) == CacheControl(no_cache=True)


def test_qualified_forms_add_up() -> None:
    assert parse('private="a", private="b"').private_fields == ("a", "b")


def test_restrictions_hold_with_an_unexpected_argument_and_freedoms_do_not() -> None:
    assert parse("no-store=1, must-revalidate=x, proxy-revalidate =x") == CacheControl(
        no_store=True, must_revalidate=True, proxy_revalidate=True
    )
    assert parse("public=1, must-understand=x") == EMPTY


@pytest.mark.parametrize(
    "value",
    [
        "no-store; max-age=60",
        "no-store;max-age=60",
        "no-store;",
        "max-age=60; no-store",
        "max-age=60;no-store",
        "public; no-store, max-age=60",
        "no-cache no-store must-revalidate",
        "max-age=60\tno-store",
        "max-age=60 no-store",
        "no-cache; no-store; private",
        '"no-store"',
        "'no-store'",
        "no-store:",
        "Cache-Control: No-Store",
        "ext=1; no-store",
        'ext="1" no-store',
    ],
)
def test_a_restriction_holds_whatever_stands_between_directives(value: str) -> None:
    parsed = parse(value)
    assert parsed.no_store
    assert not parsed.max_age or value.endswith(", max-age=60")


def test_each_restriction_among_wrong_separators_holds() -> None:
    assert parse("private; no-cache; must-revalidate; proxy-revalidate; public; max-age=60") == CacheControl(
        private=True, no_cache=True, must_revalidate=True, proxy_revalidate=True, max_age=0, invalid_lifetime=True
    )
    assert parse('no-cache="set-cookie"; private="x"').no_cache
    assert parse('private="x"; no-cache').private


@pytest.mark.parametrize("value", ["public; max-age=60", "max-age=60; public", "max-age:60", "public max-age=60"])
def test_a_lifetime_among_wrong_separators_is_none(value: str) -> None:
    parsed = parse(value)
    assert (parsed.max_age, parsed.invalid_lifetime, parsed.public) == (0, True, False)
    # What has been read before counts, as ever.
    assert parse(f"max-age=5, {value}").max_age == 5


@pytest.mark.parametrize(
    "value", ['ext="a; no-store"', 'ext="private, no-store"', "ext=no-store", "x-no-store", "no-store-x y"]
)
def test_a_word_within_an_extension_is_no_restriction(value: str) -> None:
    assert parse(value) == EMPTY


def test_an_open_quote_does_not_hide_what_follows() -> None:
    assert parse('x="abc, no-store').no_store


@given(st.text(max_size=80))
def test_parsing_is_total(value: str) -> None:
    parse(value)


@given(st.lists(directives, max_size=8), directives)
def test_more_directives_never_lengthen_a_lifetime_or_lift_a_restriction(present: list[str], more: str) -> None:
    before, after = parse(",".join(present)), parse(",".join([*present, more]))
    for name in ("max_age", "s_maxage", "stale_while_revalidate", "stale_if_error", "max_stale"):
        old, new = getattr(before, name), getattr(after, name)
        assert old is None or new <= old  # the first of its kind, so in fact the same
    for name in ("no_cache", "no_store", "private", "must_revalidate"):
        assert getattr(after, name) >= getattr(before, name)


@given(
    st.lists(directives, max_size=6, unique_by=lambda text: text.partition("=")[0].strip()).flatmap(
        lambda items: st.tuples(st.just(items), st.permutations(items))
    )
)
def test_the_order_of_different_directives_does_not_matter(orders: tuple[list[str], list[str]]) -> None:
    first, second = (parse(", ".join(items)) for items in orders)
    assert first == second


def test_long_values_are_parsed_but_not_remembered() -> None:
    value = "max-age=60, " + "x" * 10_000
    assert parse(value) == CacheControl(max_age=60)
    assert parse(value) is not parse(value)


def test_parsing_is_fast_enough_for_the_request_path() -> None:
    from meshcache.rfc.cache_control import _parse

    value = "public, max-age=60, stale-while-revalidate=30"
    # 50 us: ten times what it takes.
    assert min(repeat(lambda: _parse(value), timer=thread_time, number=1000, repeat=5)) < 0.05


@pytest.mark.parametrize(
    ("fields", "no_cache"),
    [
        ([("pragma", "no-cache")], False),
        ([("pragma", "no-cache"), ("cache-control", "max-age=5")], False),
        ([("cache-control", "max-age=5"), ("cache-control", "no-cache")], True),
        ([], False),
    ],
)
def test_pragma_of_a_request_says_nothing(fields: list[tuple[str, str]], no_cache: bool) -> None:
    assert request_cache_control(Headers(fields)).no_cache is no_cache
