import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshcache.rfc.cache_control import CacheControl
from meshcache.rfc.request import accepts_stale, refuses


def refused(value: str, age: float, lifetime: float) -> bool:
    return refuses(CacheControl.parse(value), age=age, lifetime=lifetime)


@pytest.mark.parametrize(
    ("value", "age", "lifetime", "expected"),
    [
        ("", 10, 60, False),
        ("", 70, 60, False),  # staleness alone is not the client's objection
        ("no-cache", 0, 60, True),
        ("max-age=0", 0.5, 60, True),
        ("max-age=10", 10, 60, False),
        ("max-age=10", 11, 60, True),
        ("max-age=x", 1, 60, True),
        ("min-fresh=50", 10, 60, False),
        ("min-fresh=51", 10, 60, True),
        ("min-fresh=0", 70, 60, True),
        # A client that sets max-age does not want a stale response, unless it says max-stale.
        ("max-age=100", 70, 60, True),
        ("max-age=100, max-stale", 70, 60, False),
        ("max-age=65, max-stale", 70, 60, True),
        ("max-stale=10", 70, 60, False),
        ("max-stale=9", 70, 60, True),
        ("max-stale=9", 50, 60, False),
        ("only-if-cached", 70, 60, False),
        ("no-store", 10, 60, False),
    ],
)
def test_refuses(value: str, age: float, lifetime: float, expected: bool) -> None:
    assert refused(value, age, lifetime) is expected


@pytest.mark.parametrize(
    ("value", "age", "expected"),
    [
        ("", 70, False),
        ("max-stale", 70, True),
        ("max-stale", 1e9, True),
        ("max-stale=10", 70, True),
        ("max-stale=10", 71, False),
        ("max-stale, max-age=65", 70, False),
        ("max-stale, min-fresh=1", 70, False),
        ("max-stale, no-cache", 70, False),
    ],
)
def test_accepts_stale(value: str, age: float, expected: bool) -> None:
    assert accepts_stale(CacheControl.parse(value), age=age, lifetime=60) is expected


requests = st.builds(
    CacheControl,
    max_age=st.none() | st.integers(0, 100),
    min_fresh=st.none() | st.integers(0, 100),
    max_stale=st.none() | st.integers(0, 100),
    no_cache=st.booleans(),
)
seconds = st.floats(0, 200)


@given(requests, seconds, seconds, seconds)
def test_what_is_refused_stays_refused_as_it_ages(cc: CacheControl, age: float, more: float, lifetime: float) -> None:
    assume(refuses(cc, age=age, lifetime=lifetime))
    assert refuses(cc, age=age + more, lifetime=lifetime)


@given(requests, seconds, seconds)
def test_what_is_accepted_stale_is_not_refused(cc: CacheControl, age: float, lifetime: float) -> None:
    assert not (accepts_stale(cc, age=age, lifetime=lifetime) and refuses(cc, age=age, lifetime=lifetime))
