import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.rfc.cache_control import CacheControl
from meshcache.rfc.stale import (
    ERROR_STATUSES,
    may_serve_stale,
    stale_if_error_window,
    stale_while_revalidate_window,
    within,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, True),
        ("max-age=2", True),
        ('no-cache="x"', True),  # the fields that it names are not stored
        ("max-age=2, must-revalidate", False),
        ("max-age=2, proxy-revalidate", False),
        ("max-age=2, s-maxage=2", False),
        ("no-cache", False),
        ("s-maxage=2", False),
    ],
)
def test_what_forbids_serving_stale(value: str | None, expected: bool) -> None:
    cc = CacheControl.parse(value)
    assert may_serve_stale(cc) is expected
    if not expected:
        assert stale_while_revalidate_window(cc, 30.0) == 0
        assert stale_if_error_window(cc, 30.0) == 0


@pytest.mark.parametrize(
    ("value", "while_revalidate", "if_error"),
    [
        ("max-age=2", 30, 300),
        ("stale-while-revalidate=5", 5, 300),
        ("stale-if-error=7", 30, 7),
        ("stale-while-revalidate=0, stale-if-error=x", 0, 0),
    ],
)
def test_the_windows_of_the_response_go_before_those_of_the_policy(
    value: str, while_revalidate: float, if_error: float
) -> None:
    cc = CacheControl.parse(value)
    assert stale_while_revalidate_window(cc, 30.0) == while_revalidate
    assert stale_if_error_window(cc, 300.0) == if_error


def test_the_window_ends_with_its_last_second() -> None:
    assert within(30, lifetime=60, age=90)
    assert not within(30, lifetime=60, age=90.1)
    assert not within(0, lifetime=60, age=60)


spans = st.floats(0, 1e9)


@given(spans, spans, spans, spans)
def test_more_age_never_comes_back_into_the_window(window: float, lifetime: float, age: float, more: float) -> None:
    assert within(window, lifetime=lifetime, age=age) or not within(window, lifetime=lifetime, age=age + more)


def test_errors() -> None:
    assert {500, 502, 503, 504} == ERROR_STATUSES


def test_a_window_beside_s_maxage_is_the_origins_own_word() -> None:
    cc = CacheControl.parse("s-maxage=2, stale-while-revalidate=60, stale-if-error=90")
    assert stale_while_revalidate_window(cc, 30.0) == 60
    assert stale_if_error_window(cc, 30.0) == 90
    assert not may_serve_stale(cc)


def test_the_policys_window_does_not_loosen_s_maxage() -> None:
    cc = CacheControl.parse("s-maxage=2")
    assert stale_while_revalidate_window(cc, 30.0) == 0
    assert stale_if_error_window(cc, 30.0) == 0
