"""What filters have to drop: labels in order, each step with a generation, of which the last thousand are kept.

A generation is a number of 64 bits: which log it is of (drawn at its start) and the step. A filter says how far it has
come, and gets what came since; one that names another log, or a step that is not kept any more, drops everything.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from meshcache.wasm.feed import MOST_LABELS

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT: Final = 1000
"""Steps that are kept."""
INCARNATION_BITS: Final = 31
STEP_BITS: Final = 32
_MOST_STEPS: Final = (1 << STEP_BITS) - 1
_MOST_AT_ONCE: Final = 256
"""Labels of one step: for more, everything is dropped."""


class Behind(NamedTuple):
    """What a filter has not dropped yet."""

    labels: tuple[int, ...] | None
    """None for everything."""
    known: bool
    """Whether what it has named is of this log."""


class DropLog:
    """Belongs to one event loop."""

    def __init__(self, incarnation: int) -> None:
        """`incarnation` is a random number of `INCARNATION_BITS` bits; no two logs should have the same."""
        self._incarnation = incarnation | 1 << INCARNATION_BITS
        self._step = 1
        self._steps: deque[tuple[int, ...] | None] = deque(maxlen=KEPT)

    @property
    def step(self) -> int:
        """The number of the newest step."""
        return self._step

    @property
    def generation(self) -> int:
        """Of the newest step."""
        return self._incarnation << STEP_BITS | self._step

    def add(self, labels: Sequence[int] | None) -> int:
        """These are to be dropped, None for everything; the generation of that."""
        if labels is not None and len(labels) > _MOST_AT_ONCE:
            labels = None
        if self._step == _MOST_STEPS:  # pragma: no cover - after decades
            self._incarnation ^= 1
            self._step = 0
            self._steps.clear()
            labels = None
        self._step += 1
        self._steps.append(None if labels is None else tuple(labels))
        return self.generation

    def step_of(self, generation: int) -> int:
        """How far a filter that names `generation` has come; 0 when that is not of this log."""
        step = generation & _MOST_STEPS
        return step if generation >> STEP_BITS == self._incarnation and step <= self._step else 0

    def since(self, generation: int) -> Behind:
        """What a filter that names `generation` has not dropped yet."""
        step = self.step_of(generation)
        if not step:
            return Behind(None, known=False)
        behind = self._step - step
        if behind > len(self._steps):
            return Behind(None, known=True)
        labels: dict[int, None] = {}
        for some in islice(self._steps, len(self._steps) - behind, None):
            if some is None:
                return Behind(None, known=True)
            labels.update(dict.fromkeys(some))
        return Behind(tuple(labels) if len(labels) <= MOST_LABELS else None, known=True)
