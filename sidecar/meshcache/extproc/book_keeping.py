"""A worker's books, opened beside its event loop: no request and no decision about an experiment waits for a disk.

With a policy set, and so at a start, they are open before it is in force; when something has been decided, as a new
epoch has, that is in force at once, and counted a moment later.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from meshcache.extproc.book_files import BookFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from meshcache.experiment.ledger import Book
    from meshcache.observe.metrics import Metrics
    from meshcache.policy.snapshot import Snapshot

_OPEN_AGAIN: Final = 10.0
"""Seconds after which books that could not be opened are tried again."""


class BookKeeping:
    """Gives each snapshot what counts its experiments. Until that is open, requests are answered and not counted."""

    def __init__(
        self,
        data: Path,
        slot: int,
        current: Callable[[], Snapshot | None],
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        """`slot` is the worker's number; `current` is the snapshot in force. Belongs to the running event loop."""
        self._files = BookFiles(data, slot)
        self._current = current
        self._metrics = metrics
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._opening: asyncio.Task[None] | None = None
        self._tried = 0.0
        self._failing: set[str] = set()
        """Experiments of which it has been said that they cannot be counted."""

    def expect(self, snapshot: Snapshot) -> None:
        """Give a snapshot that is put in force next what is open already. From any thread; never waits."""
        snapshot.tallies = self._files.held(snapshot.counted)

    def prepare(self, snapshot: Snapshot) -> Mapping[str, Book]:
        """Open what a snapshot needs that is put in force soon; it stays open while this is held. Blocks."""
        return self._files.open(snapshot.counted)[0]

    def follow(self, snapshot: Snapshot) -> None:
        """`snapshot` is in force now: open what it lacks. From any thread; never waits."""
        if len(snapshot.tallies) < len(snapshot.counted):
            self._loop.call_soon_threadsafe(self._open)

    def look_after(self) -> None:
        """Try once more, now and then, what could not be opened. To be called about once a second."""
        snapshot = self._current()
        if snapshot is None or len(snapshot.tallies) == len(snapshot.counted):
            self._failing.clear()
        elif self._loop.time() - self._tried >= _OPEN_AGAIN:
            self._open()

    async def close(self) -> None:
        """Open nothing more. Requests still under way are counted."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)

    def _open(self) -> None:
        if self._opening is None or self._opening.done():
            self._tried = self._loop.time()
            self._opening = self._loop.create_task(self._open_all())

    async def _open_all(self) -> None:
        snapshot = self._current()
        while snapshot is not None:
            snapshot.tallies, failures = await asyncio.to_thread(self._files.open, snapshot.counted)
            for experiment, error in failures.items():
                self._metrics.inc("experiment_book_errors_total", (experiment,))
                if experiment not in self._failing:
                    self._failing.add(experiment)
                    self._log.error("requests of an experiment cannot be counted", experiment=experiment, error=error)
            latest = self._current()
            if latest is snapshot:
                return
            snapshot = latest
