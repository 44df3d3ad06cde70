from __future__ import annotations

from meshcache.tiers.breaker import Breaker, BreakerState


class Harness:
    def __init__(self) -> None:
        self.now = 0.0
        self.changes: list[BreakerState] = []
        self.breaker = Breaker(
            threshold=3,
            first_pause=1.0,
            longest_pause=4.0,
            on_change=self.changes.append,
            clock=lambda: self.now,
            uniform=max,
        )

    def fail(self, times: int) -> None:
        for _ in range(times):
            assert self.breaker.allow()
            self.breaker.failed()


def test_opens_after_failures_in_a_row_only() -> None:
    h = Harness()
    h.fail(2)
    h.breaker.succeeded()
    h.fail(2)
    assert h.breaker.state is BreakerState.CLOSED
    h.fail(1)
    assert h.breaker.state is BreakerState.OPEN
    assert not h.breaker.allow()
    assert h.changes == [BreakerState.OPEN]


def test_one_probe_after_the_pause() -> None:
    h = Harness()
    h.fail(3)
    h.now = 1.0
    assert [h.breaker.allow() for _ in range(3)] == [True, False, False]
    h.breaker.succeeded()
    assert h.breaker.allow()
    assert h.changes == [BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED]


def test_pauses_grow_to_a_bound_and_start_anew_after_success() -> None:
    h = Harness()
    h.fail(3)
    for pause in (1.0, 2.0, 4.0, 4.0, 4.0):
        h.now += pause - 0.01
        assert not h.breaker.allow()
        h.now += 0.01
        h.fail(1)
    h.now += 4.0
    assert h.breaker.allow()
    h.breaker.succeeded()
    h.fail(3)
    h.now += 1.0
    assert h.breaker.allow()


def test_pauses_differ_between_processes() -> None:
    asked: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        asked.append((low, high))
        return low

    breaker = Breaker(threshold=1, first_pause=1.0, clock=lambda: 0.0, uniform=uniform)
    breaker.failed()
    assert asked == [(0.5, 1.0)]


def test_a_probe_given_up_is_tried_again() -> None:
    h = Harness()
    h.fail(3)
    h.now = 1.0
    assert h.breaker.allow()
    h.breaker.abandoned()
    assert h.breaker.allow()


def test_giving_up_teaches_nothing() -> None:
    h = Harness()
    h.fail(2)
    h.breaker.allow()
    h.breaker.abandoned()
    h.fail(1)
    assert h.breaker.state is BreakerState.OPEN


def test_a_late_failure_does_not_lengthen_the_pause() -> None:
    h = Harness()
    h.fail(3)
    h.breaker.failed()
    h.now = 1.0
    assert h.breaker.allow()
