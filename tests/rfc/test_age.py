import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.rfc.age import age_value, apparent_age, corrected_initial_age, current_age


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (None, 0),
        ("0", 0),
        ("120", 120),
        ("99999999999999999999", 2**31),
        ("", 0),
        ("abc", 0),
        ("-5", 0),
        ("12.5", 0),
        ("12;foo=bar", 12),
        ("12 ; foo=1, 5", 12),
        ("7200, 0", 7200),
        ("0, 7200", 0),
        ("x, 30", 0),
        (", 30", 0),
        ("30, x", 30),
    ],
)
def test_age_value(field: str | None, expected: float) -> None:
    assert age_value(field) == expected


@given(st.text(max_size=40))
def test_age_value_is_total_and_bounded(field: str) -> None:
    assert 0 <= age_value(field) <= 2**31


def test_apparent_age() -> None:
    assert apparent_age(None, 1000) == 0
    assert apparent_age(900, 1000) == 100
    assert apparent_age(1100, 1000) == 0  # an origin whose clock is ahead


def test_corrected_initial_age_takes_the_more_cautious_estimate() -> None:
    # By the clock 50 s, by the age field 30 s and 4 s on the way.
    assert corrected_initial_age(age=30, date=950, request_time=996, response_time=1000) == 50
    assert corrected_initial_age(age=60, date=950, request_time=996, response_time=1000) == 64
    assert corrected_initial_age(age=0, date=None, request_time=996, response_time=1000) == 4


def test_current_age_adds_the_time_in_storage() -> None:
    assert current_age(initial_age=5, response_time=1000, now=1010) == 15
    assert current_age(initial_age=5, response_time=1000, now=900) == 5  # a clock that was set back


moments = st.floats(-1e11, 1e11)
spans = st.floats(0, 1e10)


@given(st.floats(-1e10, 1e10), st.none() | moments, moments, moments, moments)
def test_age_is_never_negative(age: float, date: float | None, sent: float, came: float, now: float) -> None:
    initial = corrected_initial_age(age=age, date=date, request_time=sent, response_time=came)
    assert initial >= max(0.0, age)
    assert current_age(initial_age=initial, response_time=came, now=now) >= initial


@given(spans, moments, moments, spans)
def test_age_never_falls_as_time_goes_on(initial: float, came: float, now: float, later: float) -> None:
    before = current_age(initial_age=initial, response_time=came, now=now)
    assert current_age(initial_age=initial, response_time=came, now=now + later) >= before


@given(spans, spans, st.none() | moments, moments, moments)
def test_a_greater_age_field_never_makes_a_response_younger(
    age: float, more: float, date: float | None, sent: float, came: float
) -> None:
    younger = corrected_initial_age(age=age, date=date, request_time=sent, response_time=came)
    assert corrected_initial_age(age=age + more, date=date, request_time=sent, response_time=came) >= younger
