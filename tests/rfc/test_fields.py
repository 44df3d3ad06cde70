import math
from datetime import UTC, datetime
from time import thread_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from meshcache.rfc.fields import (
    MAX_DELTA_SECONDS,
    delta_seconds,
    format_http_date,
    http_date,
    is_field_value,
    is_token,
    split_commas,
    split_list,
    unquote,
)

TCHARS = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
EXAMPLE = 784111777.0  # the moment of RFC 9110's examples
NOW = datetime(2026, 6, 15, 12, tzinfo=UTC).timestamp()


def unix(*fields: int) -> float:
    return datetime(*fields, tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc]


tokens = st.text(TCHARS, min_size=1, max_size=8)
quoted_strings = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=12).map(
    lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
)
members = st.one_of(tokens, st.tuples(tokens, st.one_of(tokens, quoted_strings)).map("=".join))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", []),
        (" , ,\t", []),
        ("a", ["a"]),
        ("a,b ,\tc", ["a", "b", "c"]),
        ("a,,b,", ["a", "b"]),
        ('a="x, y", b', ['a="x, y"', "b"]),
        (r'a="x\", y", b', [r'a="x\", y"', "b"]),
        (r'a="x\\", b', [r'a="x\\"', "b"]),
        (r"a\, b", ["a\\", "b"]),
        # A quote that is never closed hides nothing.
        ('a, b="x, no-store', ["a", 'b="x', "no-store"]),
        (r'a="x\", no-store', [r'a="x\"', "no-store"]),
        ('a="1,2"b, c="3, d', ['a="1,2"b', 'c="3', "d"]),
    ],
)
def test_split_list(value: str, expected: list[str]) -> None:
    assert split_list(value) == expected


def test_split_without_escapes_ends_a_string_at_its_next_quote() -> None:
    assert split_list(r'"a\", "b,c"', escapes=False) == [r'"a\"', '"b,c"']


def test_split_commas_keeps_empty_parts() -> None:
    assert split_commas('a,, "b,c" ,') == ["a", "", '"b,c"', ""]


@given(st.lists(members, max_size=6), st.sampled_from([",", ", ", " ,\t", ",,  ,"]))
def test_split_list_is_the_inverse_of_joining(items: list[str], comma: str) -> None:
    assert split_list(comma.join(items)) == items


@given(st.text(max_size=60), st.booleans())
@example('",', True)
@example("\\", True)
def test_splitting_loses_nothing_but_blanks_and_commas(value: str, escapes: bool) -> None:
    parts = split_commas(value, escapes=escapes)
    assert all(part == part.strip(" \t") for part in parts)
    drop = str.maketrans("", "", ", \t")
    assert "".join(parts).translate(drop) == value.translate(drop)


@pytest.mark.parametrize("unit", ['"', ",", '",', '\\"', '"\\', 'a="b",', '"a,'])
def test_splitting_takes_linear_time(unit: str) -> None:
    value = unit * (1_000_000 // len(unit))
    begun = thread_time()
    split_list(value)
    assert thread_time() - begun < 2.0  # a quadratic scan of a megabyte takes minutes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('""', ""),
        ('"a b"', "a b"),
        (r'"a\"b\\"', 'a"b\\'),
        ("a", None),
        ('"', None),
        ('"a', None),
        ('"a"b"', None),
        (r'"a\"', None),
        ('"a" ', None),
    ],
)
def test_unquote(text: str, expected: str | None) -> None:
    assert unquote(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("60", 60),
        ("003600", 3600),
        ("0" * 5000 + "7", 7),
        ("0" * 50, 0),
        ("2147483648", MAX_DELTA_SECONDS),
        ("2147483649", MAX_DELTA_SECONDS),
        ("9" * 5000, MAX_DELTA_SECONDS),
        ("", None),
        ("-1", None),
        ("+1", None),
        ("1.0", None),
        ("1e3", None),
        ("1_0", None),
        (" 1", None),
        ("1 ", None),
        ("60s", None),
        ("'60'", None),
        ("²", None),
        ("٣", None),
    ],
)
def test_delta_seconds(text: str, expected: int | None) -> None:
    assert delta_seconds(text) == expected


@given(st.text(max_size=30))
def test_delta_seconds_is_total_and_bounded(text: str) -> None:
    seconds = delta_seconds(text)
    assert seconds is None or 0 <= seconds <= MAX_DELTA_SECONDS


@pytest.mark.parametrize(
    "text",
    [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "sun, 06 NOV 1994 08:49:37 gmt",
        "Mon, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "Sun Nov 06 08:49:37 1994",
    ],
)
def test_the_forms_of_http_date(text: str) -> None:
    assert http_date(text, NOW) == EXAMPLE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-1",
        "784111777",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 EST",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 94 08:49:37 GMT",
        "Sun 06 Nov 1994 08:49:37 GMT",
        "Sun, 06  Nov 1994 08:49:37 GMT",
        "Sun, 06-Nov-1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 8:49:37 GMT",
        "Sun, 06 Nov 1994 08.49.37 GMT",
        "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 06 Nov 1994 08:60:37 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT",
        "Sun, 31 Feb 1994 08:49:37 GMT",
        "Sun, 00 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 0000 08:49:37 GMT",
        "Sun, 06 Foo 1994 08:49:37 GMT",
        "Foo, 06 Nov 1994 08:49:37 GMT",
        "Sun, +6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT ",
        "Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06-Nov-94 08:49:37 GMT",
        "Sunday, 06-Nov-xx 08:49:37 GMT",
        "Sunday, 29-Feb-95 08:49:37 GMT",
        "Sun Nov   6 08:49:37 1994",
        "Sun Nov  6 08:49:37 94  ",
        "Sun Nov  6 08:49:37 ١٩٩٤",
    ],
)
def test_what_is_no_http_date(text: str) -> None:
    assert http_date(text, NOW) is None


def test_a_leap_second_is_not_later_than_it_says() -> None:
    assert http_date("Sat, 31 Dec 2016 23:59:60 GMT", NOW) == unix(2016, 12, 31, 23, 59, 59)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Thursday, 18-Aug-50 02:01:18 GMT", unix(2050, 8, 18, 2, 1, 18)),
        ("Monday, 15-Jun-76 12:00:00 GMT", unix(2076, 6, 15, 12)),  # 50 years ahead to the second, not more
        ("Monday, 15-Jun-76 12:00:01 GMT", unix(1976, 6, 15, 12, 0, 1)),
        ("Saturday, 01-Jan-77 00:00:00 GMT", unix(1977, 1, 1)),
        ("Thursday, 01-Jan-26 00:00:00 GMT", unix(2026, 1, 1)),
    ],
)
def test_two_digit_years_lie_at_most_fifty_years_ahead(text: str, expected: float) -> None:
    assert http_date(text, NOW) == expected


@given(st.text(max_size=40), st.floats(allow_nan=False))
def test_http_date_is_total(text: str, now: float) -> None:
    result = http_date(text, now)
    assert result is None or math.isfinite(result)


@given(st.from_regex(r"\A[A-Z][a-z]{2}, [0-9]{2} (Jan|Feb|Dec|Foo) [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT\Z"))
def test_http_date_is_total_close_to_the_grammar(text: str) -> None:
    http_date(text, NOW)


@given(st.integers(-62_135_596_800, 253_402_300_799))
def test_dates_survive_a_round_trip(seconds: int) -> None:
    text = format_http_date(seconds)
    assert len(text) == 29
    assert http_date(text, NOW) == seconds


@given(st.floats())
def test_formatting_is_total(seconds: float) -> None:
    assert http_date(format_http_date(seconds), NOW) is not None


def test_format_http_date() -> None:
    assert format_http_date(EXAMPLE) == "Sun, 06 Nov 1994 08:49:37 GMT"
    assert format_http_date(EXAMPLE + 0.999) == "Sun, 06 Nov 1994 08:49:37 GMT"
    assert format_http_date(-0.5) == "Wed, 31 Dec 1969 23:59:59 GMT"


def test_tokens_and_field_values() -> None:
    assert is_token(TCHARS)
    for text in ("", "a b", "a:", "a\n", "ä", '"a"'):
        assert not is_token(text)
    assert is_field_value("")
    assert is_field_value("a\tb \xff")
    for text in ("a\r", "a\nb", "\x00", "€"):
        assert not is_field_value(text)
