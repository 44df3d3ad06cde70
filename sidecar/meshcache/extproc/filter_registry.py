"""The filters in Envoy's workers, as their polls show them: which there are, and how far each has come.

One that has stopped asking may serve from its memory until its lease is over, and is waited for until then. Its lease
begins when it sends a poll, so it is surely over that long after its last one was received.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from meshcache.extproc.status import FilterStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MOST: Final = 256
"""Workers of Envoy that are served; more are turned away, and answer nothing by themselves."""
_KEPT_FOR: Final = 60.0
"""Seconds for which one that has gone is shown."""


@dataclass(slots=True)
class FilterWorker:
    """One worker of Envoy."""

    id: str
    """16 hexadecimal digits that it has drawn at its start."""
    polled_at: float
    """When its last poll came (seconds of the registry's clock)."""
    version: str = ""
    step: int = 0
    """How much of the drop log it has said to have applied."""
    plan: str = ""
    """Id of the plan it has said to work by; empty for none."""
    planned: bool = False
    """Whether it has been sent a plan since: it may answer by that before it says so."""
    entries: int = 0
    bytes: int = 0
    _counted: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """For people."""
        return f"envoy-{self.id}"

    def more(self, fills: int, evictions: int) -> tuple[int, int]:
        """How many more of both it tells of than it did last.

        What it had counted before this process first heard of it is in the metrics of the one before.
        """
        before, self._counted = self._counted or (fills, evictions), (fills, evictions)
        return max(0, fills - before[0]), max(0, evictions - before[1])


class FilterRegistry:
    """Belongs to one event loop."""

    def __init__(self, lease: float, clock: Callable[[], float]) -> None:
        """`lease` in seconds; `clock` never goes back."""
        self._lease = lease
        self._clock = clock
        self._workers: dict[str, FilterWorker] = {}

    def restore(self, ago: Mapping[str, float]) -> None:
        """Filters that had asked before this process began, by id, and how many seconds ago."""
        now = self._clock()
        for name, seconds in list(ago.items())[:MOST]:
            self._workers[name] = FilterWorker(name, now - seconds)

    @property
    def ago(self) -> dict[str, float]:
        """By id of those that may answer by themselves, how many seconds ago they asked."""
        now = self._clock()
        return {worker.id: now - worker.polled_at for worker in self.living()}

    def __len__(self) -> int:
        return len(self._workers)

    def seen(self, worker: str) -> FilterWorker | None:
        """The worker of that id, which has just asked; None when there are too many."""
        now = self._clock()
        found = self._workers.get(worker)
        if found is None:
            self._forget(now)
            if len(self._workers) >= MOST:
                return None
            found = self._workers[worker] = FilterWorker(worker, now)
        found.polled_at = now
        return found

    def living(self) -> Iterator[FilterWorker]:
        """Those that may answer by themselves."""
        now = self._clock()
        return (worker for worker in self._workers.values() if now < worker.polled_at + self._lease)

    def standing(self, step: int | None) -> tuple[list[str], list[str]]:
        """The names of those that have dropped what `step` of the log says (None: not there yet), and of the others."""
        acknowledged: list[str] = []
        pending: list[str] = []
        for worker in self.living():
            done = step is not None and worker.step >= step
            (acknowledged if done else pending).append(worker.name)
        return acknowledged, pending

    def status(self, generation: Callable[[FilterWorker], int], *, keeps: bool = True) -> tuple[FilterStatus, ...]:
        """All that have been seen lately. `generation` tells the policy set that one goes by; `keeps` is for all."""
        now = self._clock()
        self._forget(now)
        return tuple(
            FilterStatus(
                name=worker.name,
                version=worker.version,
                living=now < worker.polled_at + self._lease,
                plan=worker.plan,
                generation=generation(worker),
                silent=max(0.0, now - worker.polled_at),
                entries=worker.entries,
                bytes=worker.bytes,
                keeps=keeps,
            )
            for worker in self._workers.values()
        )

    def _forget(self, now: float) -> None:
        limit = _KEPT_FOR if len(self._workers) < MOST else self._lease
        for worker in list(self._workers.values()):
            if now >= worker.polled_at + max(limit, self._lease):
                del self._workers[worker.id]
