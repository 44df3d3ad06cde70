"""What the filter in Envoy has counted, taken into metrics and into the books of experiments.

Each batch (`wasm.numbers`) is taken once, however often it comes, also when this process is killed in between
(`filter_state`): a filter sends its batches one after the other, numbered, and repeats one until it hears that it was
taken. Counts of an experiment go into the book of the epoch that their tag names, beside those of the workers; a batch
may come when that epoch is over.

The metrics that come from here go on where they were after a restart, unlike those of this process's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final, TypeVar

from meshcache.decisions import TIER_IN_ENVOY, BypassReason, Decision
from meshcache.extproc.book_files import id_of
from meshcache.extproc.filter_books import FilterBooks
from meshcache.extproc.filter_state import Plain
from meshcache.tiers.base import TierError
from meshcache.tiers.threads import Threads
from meshcache.wasm.numbers import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from meshcache.experiment.exposure import CountedExperiment
    from meshcache.observe.metrics import Metrics

T = TypeVar("T")

_LONGEST_QUEUE: Final = 64
"""Batches that wait to be taken; a filter whose batch does not find room sends it again."""
_LAST_WORD: Final = 2.0
"""Seconds for which the end waits for what is being taken."""


class FilterNumbers:
    """Belongs to the supervisor's event loop; files are for a thread of its own. First `start`, at last `stop`."""

    def __init__(
        self,
        data: Path,
        current: Callable[[], Mapping[str, CountedExperiment]],
        metrics: Metrics,
        log: FilteringBoundLogger,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`data` is the data folder, `current` are the experiments that are counted now; `clock` gives Unix seconds."""
        self._current = current
        self._metrics = metrics
        self._log = log
        self._books = FilterBooks(data, clock)
        self._threads = Threads("filter numbers", 1, longest_queue=_LONGEST_QUEUE)
        self._beginning: asyncio.Task[None] | None = None
        self._reported: dict[tuple[str, str, str], Plain] = {}
        self._unbooked: dict[str, int] = {}
        self._failing = False
        self._stopped = False

    def start(self) -> None:
        """Begin to bring metrics and books to what was taken before this process began."""
        self._beginning = asyncio.create_task(self._begin())

    async def stop(self) -> None:
        """Take what waits and nothing more, and let go of all files. Safe to call twice."""
        self._stopped = True
        if self._beginning is not None:
            await asyncio.gather(self._beginning, return_exceptions=True)
            self._beginning = None
        with contextlib.suppress(TierError, TimeoutError):
            async with asyncio.timeout(_LAST_WORD):
                await self._threads.run(self._books.close)
        await self._threads.close(_LAST_WORD)

    async def take(self, body: bytes) -> bool:
        """Take a batch in: True when it is counted, now or before; False when it has to be sent again.

        Raises `ValueError` for what is no batch.
        """
        if self._stopped:
            return False
        counted = {id_of(one): one for one in self._current().values()}
        try:
            new = await self._run(self._take, body, counted)
        except ValueError:
            self._metrics.inc("filter_batches_total", ("refused",))
            raise
        self._metrics.inc("filter_batches_total", ("failed" if new is None else "taken" if new else "again",))
        return new is not None

    def _take(self, body: bytes, counted: Mapping[bytes, CountedExperiment]) -> bool:
        # In the thread: a full batch takes a while to be read.
        return self._books.take(decode(body), counted)

    async def _begin(self) -> None:
        await self._run(self._books.begin)
        if self._books.damaged:
            self._log.warning("what was known of the filter's batches is damaged; begun anew")

    async def _run(self, call: Callable[..., T], *arguments: object) -> T | None:
        """What `call` returns; None when the disk, or what waits already, does not let it."""
        try:
            found = await self._threads.run(call, *arguments)
        except (OSError, TierError) as error:
            if not self._failing:
                self._failing = True
                self._log.error("what the filter has counted cannot be kept; it is sent again", error=str(error))
            return None
        finally:
            # Also what a caller who has gone did not see.
            self._report()
        if self._failing:
            self._failing = False
            self._log.info("what the filter has counted is kept again")
        return found

    def _report(self) -> None:
        """Bring the metrics to the totals."""
        for now in self._books.totals:
            labels = now.route, now.arm
            before = self._reported.get((*labels, now.missing)) or Plain(*labels)
            if before is now:
                continue
            self._reported[*labels, now.missing] = now
            hits = now.fresh - before.fresh + now.stale - before.stale
            if now.missing and hits:
                self._metrics.inc("missing_units_total", (now.missing,), hits)
            for metric, named, count in (
                ("requests_total", (Decision.HIT, "", TIER_IN_ENVOY, *labels), now.fresh - before.fresh),
                ("requests_total", (Decision.STALE_SWR, "", TIER_IN_ENVOY, *labels), now.stale - before.stale),
                ("requests_total", (Decision.BYPASS, _why(now), "", *labels), now.passed - before.passed),
                ("bytes_total", ("out", TIER_IN_ENVOY), now.body_bytes - before.body_bytes),
                ("filter_not_modified_total", (), now.not_modified - before.not_modified),
                ("filter_age_seconds_total", (), (now.age_ms - before.age_ms) / 1000),
            ):
                if count:
                    self._metrics.inc(metric, named, count)
        for experiment, hits in self._books.unbooked.items():
            told = self._unbooked.get(experiment, 0)
            if hits > told:
                self._metrics.inc("filter_unbooked_total", (experiment,), hits - told)
                if not told:
                    self._log.warning("hits in Envoy are of an epoch that is not known here", experiment=experiment)
        self._unbooked = self._books.unbooked


def _why(of: Plain) -> BypassReason:
    """Why its requests are sent past the sidecar."""
    return BypassReason.ROUTE_NOT_CACHED if of.route else BypassReason.NO_ROUTE
