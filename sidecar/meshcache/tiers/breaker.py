"""A circuit breaker: a tier that keeps failing is left alone for a while, lest every request pay its deadline."""

from __future__ import annotations

import random
import time
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class BreakerState(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"
    """Everything passes."""
    OPEN = "open"
    """Nothing passes until the pause is over."""
    HALF_OPEN = "half-open"
    """The pause is over: one call passes as a probe, the others wait for what becomes of it."""


class Breaker:
    """Opens after `threshold` failures in a row, for a pause that doubles from `first_pause` up to `longest_pause`.

    Pauses are seconds, each shortened at random by up to half so that many processes do not come back at once.
    Every call that `allow` lets through must end in exactly one of `succeeded`, `failed` and `abandoned`.
    """

    __slots__ = (
        "_clock",
        "_failures",
        "_first_pause",
        "_longest_pause",
        "_on_change",
        "_openings",
        "_random",
        "_resume_at",
        "_threshold",
        "state",
    )

    def __init__(
        self,
        *,
        threshold: int = 5,
        first_pause: float = 0.5,
        longest_pause: float = 15.0,
        on_change: Callable[[BreakerState], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._threshold = threshold
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._on_change = on_change
        self._clock = clock
        self._random = uniform
        self._failures = 0
        self._openings = 0
        self._resume_at = 0.0
        self.state = BreakerState.CLOSED

    def allow(self) -> bool:
        """Whether the tier may be asked now; True makes the caller owe an outcome."""
        if self.state is BreakerState.CLOSED:
            return True
        if self.state is BreakerState.OPEN and self._clock() >= self._resume_at:
            # The probe: until its outcome is known, the state keeps everyone else out.
            self._enter(BreakerState.HALF_OPEN)
            return True
        return False

    def succeeded(self) -> None:
        """The tier answered. A call begun before the breaker opened closes it too: an answer is an answer."""
        self._failures = 0
        self._openings = 0
        self._enter(BreakerState.CLOSED)

    def failed(self) -> None:
        """The tier failed or was too slow."""
        self._failures += 1
        if self.state is BreakerState.HALF_OPEN or (
            self.state is BreakerState.CLOSED and self._failures >= self._threshold
        ):
            pause = min(self._longest_pause, self._first_pause * 2.0**self._openings)
            self._openings = min(self._openings + 1, 32)
            self._resume_at = self._clock() + self._random(pause / 2, pause)
            self._enter(BreakerState.OPEN)

    def abandoned(self) -> None:
        """The caller gave up for reasons of its own: nothing was learned, and a probe may be tried again."""
        if self.state is BreakerState.HALF_OPEN:
            self._resume_at = self._clock()
            self._enter(BreakerState.OPEN)

    def _enter(self, state: BreakerState) -> None:
        if state is not self.state:
            self.state = state
            self._on_change(state)
