"""What the ledger has counted, judged beside the event loop. Numpy and scipy are loaded when the first one is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from meshcache.experiment.stages import weights_of

if TYPE_CHECKING:
    from meshcache.experiment.findings import ArmNumbers, Findings
    from meshcache.experiment.state import Record
    from meshcache.experiment.totals import EpochTotals, Ledger
    from meshcache.policy.compiled import Experiment


class LedgerFinder:
    """Implements `extproc.deciding.NumbersFinder`."""

    def __init__(self, ledger: Ledger | None) -> None:
        """None: nothing is counted here."""
        self._ledger = ledger

    async def findings(self, experiment: Experiment, record: Record) -> Findings | None:
        """See `Finder`."""
        return (await self.all(experiment, record))[0]

    async def all(self, experiment: Experiment, record: Record) -> tuple[Findings | None, tuple[ArmNumbers, ...]]:
        """The same, and what each arm has shown."""
        if self._ledger is None:
            return None, ()
        totals = await self._ledger.totals(record.name, record.spec_hash, record.epoch, uid=record.uid)
        return await asyncio.to_thread(_judged, experiment, record, totals)


def _judged(
    experiment: Experiment, record: Record, totals: EpochTotals
) -> tuple[Findings | None, tuple[ArmNumbers, ...]]:
    from meshcache.experiment.judging import judge, numbers

    weights = _counted_weights(experiment, record)
    return judge(experiment, record.epoch, weights, totals, record.smallest_p), numbers(totals)


def _counted_weights(experiment: Experiment, record: Record) -> tuple[int, ...]:
    """The shares by which the units of the record's epoch were spread: those before a verdict, where there was one."""
    return record.weights if record.counting else weights_of(experiment, record.stage)
