"""What this pod and others have counted of experiments: read, published, added up. Needs numpy; see `counting`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from meshcache.experiment.counted import split, units_of
from meshcache.experiment.ledger import about
from meshcache.experiment.totals import EpochTotals
from meshcache.extproc.book_files import id_of
from meshcache.extproc.locations import pod_id
from meshcache.extproc.pod_books import Shelf
from meshcache.extproc.shared_counts import SharedCounts
from meshcache.tiers.fleet_ledger import FleetRecords
from meshcache.tiers.redis import RedisTier
from meshcache.tiers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from meshcache.experiment.counted import Counted
    from meshcache.experiment.exposure import CountedExperiment
    from meshcache.extproc.book_files import About
    from meshcache.extproc.control import WorkerOptions
    from meshcache.observe.metrics import Metrics
    from meshcache.tiers.signing import Keyring

_TIDY_INTERVAL: Final = 60.0
_LINGER: Final = 60.0
"""Seconds for which an epoch that is counted no more is read and told still: requests and windows come to an end."""


class Counts:
    """Implements `experiment.totals.Ledger`; `tick` is to be called about once a second. At last `close`."""

    def __init__(
        self,
        options: WorkerOptions,
        current: Callable[[], Mapping[str, CountedExperiment]],
        keyring: Callable[[], Keyring],
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        """See `counting.Counting`. Belongs to the running event loop."""
        data = Path(options.data_dir)
        self._current = current
        self._meter = _Meter(metrics)
        self._shelf = Shelf(data)
        self._threads = Threads("ledger", 1)
        self._store = RedisTier(options.warm_url) if options.warm_url else None
        self._shared = None
        if self._store is not None:
            fleet = FleetRecords(self._store.send, pod_id(data))
            self._shared = SharedCounts(fleet, keyring, self._threads, metrics, log)
        self._followed: dict[bytes, float] = {}
        """The epochs that are read, and when each was last among those that are counted, in monotonic seconds."""
        self._tidied = time.monotonic()
        self._first = True

    async def close(self) -> None:
        """Release everything."""
        if self._store is not None:
            await self._store.close()
        await self._threads.close(1.0)

    async def totals(self, experiment: str, spec_hash: str, epoch: int, *, uid: str = "") -> EpochTotals:
        """See `Ledger`."""
        key = about(experiment, spec_hash, epoch, uid)
        own = await self._threads.run(self._shelf.read, key)
        parts = [] if own is None else [own[1]]
        updated_at = time.time()
        if self._shared is not None:
            others, updated_at = await self._shared.read(key)
            parts += others
        return await self._threads.run(_sum, parts, updated_at)

    async def tick(self, *, last: bool = False) -> None:
        """Read this pod's files once, and publish what has changed; with `last` the samples as well."""
        now = time.monotonic()
        counted = {id_of(one) for one in self._current().values()}
        if self._first:
            # What was counted before a restart, and may not have been told.
            self._followed = dict.fromkeys(await self._threads.run(self._shelf.keys), now)
        self._followed |= dict.fromkeys(counted, now)
        self._followed = {key: at for key, at in self._followed.items() if now - at < _LINGER}
        for key in list(self._followed):
            found = await self._threads.run(self._shelf.read, key)
            if found is None:
                continue
            self._meter.report(key, *found, running=key in counted, known=self._first)
            if self._shared is not None:
                await self._shared.publish(key, found[1], hurry=last)
        self._first = False
        self._meter.forget(self._followed)
        if now - self._tidied >= _TIDY_INTERVAL:
            self._tidied = now
            await self._tidy(counted)

    async def _tidy(self, counted: set[bytes]) -> None:
        gone = await self._threads.run(self._shelf.tidy, counted)
        await self._threads.run(self._shelf.close, tuple(self._followed))
        if self._shared is not None:
            self._shared.forget(self._followed)
            await self._shared.retire(gone)


class _Meter:
    """This pod's counts as metrics, which go on from one epoch of an experiment to the next."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._reported: dict[bytes, dict[tuple[str, str], int]] = {}

    def report(self, key: bytes, named: About, found: Counted, *, running: bool, known: bool) -> None:
        """Report what has been added; nothing of what was there, `known`, when this process began."""
        reported = self._reported.setdefault(key, {})
        units = units_of(found.sample, found.arms)
        arms = found.totals()
        for place, arm in enumerate(named.arms):
            totals, labels = arms[place], (named.experiment, arm)
            for metric, value in (
                ("experiment_requests_total", totals.requests),
                ("experiment_hits_total", totals.hits_hot + totals.hits_warm + totals.hits_cold),
                ("experiment_errors_total", totals.errors),
                ("experiment_origin_requests_total", totals.origin_requests),
            ):
                now = int(value.sum())
                before = reported.get((metric, arm), now if known else 0)
                if now > before:
                    self._metrics.inc(metric, labels, now - before)
                reported[metric, arm] = now
            if running:
                self._metrics.set("experiment_units", labels, units[place])

    def forget(self, kept: Mapping[bytes, float]) -> None:
        """Remember nothing of other epochs."""
        self._reported = {key: reported for key, reported in self._reported.items() if key in kept}


def _sum(parts: Sequence[Counted], updated_at: float) -> EpochTotals:
    """All parts together. Those of one epoch have the same arms."""
    if not parts:
        return EpochTotals((), (), updated_at)
    found = type(parts[0]).none(parts[0].arms)
    for part in parts:
        found.add(part)
    return EpochTotals(found.totals(), split(found.sample, found.arms), updated_at)
