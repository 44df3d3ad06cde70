import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.rfc.cache_control import CacheControl
from meshcache.rfc.fields import format_http_date
from meshcache.rfc.freshness import explicit_lifetime

NOW = 1_700_000_000.0


def lifetime(cc: str | None = None, expires: str | None = None, date: str | None = None) -> float | None:
    return explicit_lifetime(CacheControl.parse(cc), expires=expires, date=date, response_time=NOW)


def at(offset: float) -> str:
    return format_http_date(NOW + offset)


@pytest.mark.parametrize(
    ("cc", "expires", "date", "expected"),
    [
        (None, None, None, None),
        ("public", None, at(0), None),
        ("max-age=60", None, None, 60),
        ("max-age=60, s-maxage=5", None, None, 5),
        ("max-age=0, s-maxage=60", at(-10), at(0), 60),
        ("s-maxage=0, max-age=60", None, None, 0),
        ("s-maxage=x, max-age=60", None, None, 0),
        ("max-age=60", at(-100), at(0), 60),
        ("max-age=60", "0", at(0), 60),
        ("max-age=0", at(100), at(0), 0),
        ("max-age=x", at(100), at(0), 0),
        (None, at(100), at(0), 100),
        (None, at(100), at(40), 60),
        (None, at(300), at(400), 0),
        (None, at(0), at(0), 0),
        (None, at(-100), at(0), 0),
        (None, at(100), None, 100),
        (None, at(100), "garbage", 100),
        (None, at(100), f"{at(0)}, {at(0)}", 100),
        (None, "0", at(0), 0),
        (None, "", at(0), 0),
        (None, f"{at(100)}, {at(200)}", at(0), 0),
        ("no-cache, foo", at(100), at(0), 100),
    ],
)
def test_explicit_lifetime(cc: str | None, expires: str | None, date: str | None, expected: float | None) -> None:
    assert lifetime(cc, expires, date) == expected


def test_years_of_two_digits_are_judged_by_the_time_of_the_response() -> None:
    assert explicit_lifetime(
        CacheControl(), expires="Saturday, 01-Jan-00 00:01:00 GMT", date=None, response_time=946_684_800.0
    ) == pytest.approx(60.0)


@given(st.none() | st.text(max_size=30), st.none() | st.text(max_size=30), st.none() | st.text(max_size=30))
def test_a_lifetime_is_never_negative(cc: str | None, expires: str | None, date: str | None) -> None:
    seconds = lifetime(cc, expires, date)
    assert seconds is None or seconds >= 0
