"""Pauses after failures: longer each time, bounded in length and in number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshcache.engine.refresh.backoff import Backoff

KEY, OTHER = b"k", b"o"


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(first=1.0, longest=5.0)
    now = 100.0
    pauses = []
    for _ in range(5):
        assert not backoff.rests(KEY, now)
        pauses.append(backoff.failed(KEY, now))
        assert backoff.rests(KEY, now + pauses[-1] - 0.1)
        now += pauses[-1]
    assert pauses == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert not backoff.rests(OTHER, now)


def test_failures_of_tries_that_began_together_count_once() -> None:
    backoff = Backoff(first=1.0, longest=60.0)
    assert [backoff.failed(KEY, 0.25 * number) for number in range(4)] == [1.0, 0.75, 0.5, 0.25]
    assert backoff.failed(KEY, 1.0) == 2.0


def test_success_begins_anew() -> None:
    backoff = Backoff(first=1.0, longest=5.0)
    backoff.failed(KEY, 0.0)
    backoff.failed(KEY, 1.0)
    backoff.succeeded(KEY)
    assert not backoff.rests(KEY, 1.0)
    assert backoff.failed(KEY, 1.0) == 1.0


def test_a_rest_is_no_failure() -> None:
    backoff = Backoff(first=1.0, longest=5.0)
    backoff.failed(KEY, 0.0)
    backoff.rest(KEY, 1.0, 0.5)
    assert backoff.rests(KEY, 1.4)
    assert not backoff.rests(KEY, 1.5)
    assert backoff.failed(KEY, 1.5) == 2.0


def test_a_clock_that_is_set_back_leaves_nothing_resting_for_long() -> None:
    backoff = Backoff(first=1.0, longest=5.0)
    backoff.failed(KEY, 1000.0)
    assert not backoff.rests(KEY, 10.0)


def test_the_number_of_keys_is_bounded() -> None:
    backoff = Backoff(first=1.0, longest=5.0, most=2)
    for now, key in ((0.0, b"1"), (0.0, b"2"), (1.0, b"1"), (1.0, b"3")):
        backoff.failed(key, now)
    assert len(backoff) == 2
    assert [backoff.rests(key, 1.5) for key in (b"1", b"2", b"3")] == [True, False, True]


@given(st.lists(st.sampled_from(["failed", "rest", "succeeded"]), max_size=60), st.integers(1, 100))
def test_no_pause_is_longer_than_the_longest(steps: list[str], longest: int) -> None:
    backoff = Backoff(first=1.0, longest=longest, most=3)
    now = 0.0
    for step in steps:
        if step == "failed":
            assert 0.0 < backoff.failed(KEY, now) <= longest
        elif step == "rest":
            backoff.rest(KEY, now, 1000.0)
        else:
            backoff.succeeded(KEY)
        assert not backoff.rests(KEY, now + longest)
        now += 0.7
