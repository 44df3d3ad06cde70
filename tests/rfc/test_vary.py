import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.message import Headers
from meshcache.rfc.vary import normalise, parse_vary, selecting_values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ()),
        ("", ()),
        (" , ", ()),
        ("Foo", ("foo",)),
        ("Foo, bar,FOO", ("bar", "foo")),
        ("b,,a", ("a", "b")),
        ("*", "*"),
        (", *", "*"),
        ("*, Foo", "*"),
        ("Foo, *", "*"),
        ("*, *", "*"),
        ("foo bar", "*"),
        ('"foo"', "*"),
        ("foo, b\xe4r", "*"),
    ],
)
def test_parse_vary(value: str | None, expected: object) -> None:
    assert parse_vary(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1", "1"),
        (" 1\t", "1"),
        ("1, 2", "1,2"),
        (" 1 ,\t2 ", "1,2"),
        ("a b", "a b"),
        ('"x, y" , z', '"x, y",z'),
        ("a,,b", "a,,b"),
    ],
)
def test_normalise(value: str, expected: str) -> None:
    assert normalise("foo", value) == expected


def test_a_comma_in_a_cookie_separates_nothing() -> None:
    assert normalise("cookie", " sid=a, b\t") == "sid=a, b"


@given(st.sampled_from(["foo", "accept", "accept-language", "cookie"]), st.text(max_size=40))
def test_normalising_twice_changes_nothing(name: str, value: str) -> None:
    assert normalise(name, normalise(name, value)) == normalise(name, value)


def test_the_order_of_preferences_does_not_count() -> None:
    assert normalise("accept-language", "en, DE") == normalise("accept-language", "de,en")
    assert normalise("foo", "en, de") != normalise("foo", "de, en")


def test_absent_and_empty_differ() -> None:
    absent, empty = Headers(), Headers([("foo", "")])
    assert selecting_values(("foo",), absent) == (("foo", None),)
    assert selecting_values(("foo",), empty) == (("foo", ""),)


def test_lines_are_joined_before_comparison() -> None:
    stored = selecting_values(("foo",), Headers([("foo", "1"), ("foo", "2")]))
    assert stored == selecting_values(("foo",), Headers([("foo", "1,2")]))
    assert stored != selecting_values(("foo",), Headers([("foo", "2,1")]))


def test_every_field_must_match_and_others_do_not_count() -> None:
    names = ("bar", "foo")
    stored = selecting_values(names, Headers([("foo", "1"), ("other", "x")]))
    assert stored == selecting_values(names, Headers([("foo", "1"), ("other", "y")]))
    assert stored != selecting_values(names, Headers([("foo", "1"), ("bar", "")]))
    assert stored != selecting_values(names, Headers([("foo", "2")]))
