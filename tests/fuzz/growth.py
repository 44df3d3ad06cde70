"""Whether a parser takes time that grows with the length of what it reads, and not with its square."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Input = TypeVar("Input", str, bytes)

SHORT = 4 << 10
"""Characters of the shortest input; the longest is 16 times as long: what Envoy takes as headers at most."""
STEPS = (1, 4, 16)
CHEAP_SECONDS = 0.003
"""The longest input read within this time: nothing to worry about, whatever the curve."""
MOST_GROWTH = 64.0
"""Times as long for 16 times the input: 16 is linear, 256 is its square, and this lies in the middle."""
TRIES = 4


@dataclass(frozen=True)
class Pattern(Generic[Input]):
    """An input of any length: `unit` again and again between a beginning and an end."""

    before: Input
    unit: Input
    after: Input

    def of(self, length: int) -> Input:
        """About `length` characters."""
        return self.before + self.unit * max(1, length // len(self.unit)) + self.after


def superlinear(read: Callable[[Input], object], pattern: Pattern[Input]) -> str | None:
    """What `read` took for `pattern` at three lengths, if that grew faster than the lengths; else None.

    Counted is the time of this thread, not that of the machine, and the best of several runs; what looks bad is
    measured again, as only a real fault looks bad each time.
    """
    if _seconds(read, pattern.of(SHORT * STEPS[-1])) < CHEAP_SECONDS:
        return None
    best = [float("inf")] * len(STEPS)
    for _ in range(TRIES):
        for at, step in enumerate(STEPS):
            best[at] = min(best[at], _seconds(read, pattern.of(SHORT * step)))
        if best[-1] < CHEAP_SECONDS or best[-1] < MOST_GROWTH * best[0]:
            return None
    took = ", ".join(
        f"{SHORT * step >> 10} KiB {seconds * 1e3:.2f} ms" for step, seconds in zip(STEPS, best, strict=True)
    )
    return f"{pattern!r}: {took}"


def _seconds(read: Callable[[Input], object], text: Input) -> float:
    return thread_seconds(lambda: read(text))


def thread_seconds(work: Callable[[], object]) -> float:
    """What this thread takes for it, without the garbage collector."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        began = time.thread_time()
        work()
        return time.thread_time() - began
    finally:
        if enabled:
            gc.enable()
