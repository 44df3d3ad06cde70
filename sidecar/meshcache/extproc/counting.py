"""The supervisor's side of the ledger.

About once a second the files of the pod's workers are read. Where pods share a store, the pod's sums go there, in the
place of those before; and whoever asks for totals gets the sum over all pods. As long as no experiment is counted,
nothing is read, and what would read it (`counts`, with numpy) is not loaded.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from meshcache.extproc.book_files import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from structlog.typing import FilteringBoundLogger

    from meshcache.experiment.exposure import CountedExperiment
    from meshcache.experiment.totals import EpochTotals
    from meshcache.extproc.control import WorkerOptions
    from meshcache.extproc.counts import Counts
    from meshcache.observe.metrics import Metrics
    from meshcache.tiers.signing import Keyring

INTERVAL: Final = 1.0
"""Seconds between two readings of the pod's files."""
_LAST_WORD: Final = 2.0
"""Seconds that telling the last counts may take at the end."""


class Counting:
    """Implements `experiment.totals.Ledger`. Belongs to the supervisor's event loop; first `start`, at last `stop`."""

    def __init__(
        self,
        options: WorkerOptions,
        current: Callable[[], Mapping[str, CountedExperiment]],
        keyring: Callable[[], Keyring],
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        """`options` are the workers', with stores filled in; `current` are the experiments that are counted now.

        `keyring` gives the keys that records are signed with.
        """
        self._options = options
        self._current = current
        self._keyring = keyring
        self._metrics = metrics
        self._log = log
        self._counts: Counts | None = None
        self._loading = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read and publish."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Tell once more what has been counted to the end; the workers have ended. Safe to call twice."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        counts, self._counts = self._counts, None
        if counts is None:
            return
        try:
            async with asyncio.timeout(_LAST_WORD):
                await counts.tick(last=True)
        except TimeoutError:
            pass
        except Exception as error:
            self._log.error("the last counts could not be told", error=error, exc_info=True)
        await counts.close()

    async def totals(self, experiment: str, spec_hash: str, epoch: int, *, uid: str = "") -> EpochTotals:
        """See `Ledger`."""
        counts = await self._loaded()
        return await counts.totals(experiment, spec_hash, epoch, uid=uid)

    async def tick(self) -> None:
        """Read this pod's files once, and publish what has changed."""
        folder = Path(self._options.data_dir) / FOLDER
        if self._counts is not None or self._current() or folder.is_dir():
            await (await self._loaded()).tick()

    async def _loaded(self) -> Counts:
        async with self._loading:
            if self._counts is None:
                # In a thread: numpy takes a while.
                made = await asyncio.to_thread(_counts)
                self._counts = made(self._options, self._current, self._keyring, self._metrics, self._log)
            return self._counts

    async def _run(self) -> None:
        while True:
            try:
                await self.tick()
            except Exception as error:
                # Whatever it is, who counts no more would let an experiment go on unseen.
                self._log.error("reading the ledger failed; beginning again", error=error, exc_info=True)
            await asyncio.sleep(INTERVAL)


def _counts() -> type[Counts]:
    from meshcache.extproc.counts import Counts

    return Counts
