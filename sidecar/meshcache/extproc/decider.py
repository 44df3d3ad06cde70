"""Who decides about experiments: one look, by one process of a fleet at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from meshcache.experiment.overlay import Phase
from meshcache.experiment.plan import ABSENCE, begin, leave, step
from meshcache.tiers.decision_store import RETENTION

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshcache.experiment.findings import Findings
    from meshcache.experiment.overlay import Adoption
    from meshcache.experiment.state import Decision, Record
    from meshcache.policy.compiled import Experiment
    from meshcache.tiers.decision_store import DecisionStore, Stored

EVERY: Final = 1.0
"""Seconds between two looks."""
LEASE: Final = 3.0
"""Seconds after which another process leads when the leader says nothing more."""
SETTLING: Final = 2.0
"""Seconds that pods have to give a store that has lost its data what they know, before anything is decided."""


class Finder(Protocol):
    """Says what has been counted; `extproc.evidence` has one over the ledger."""

    async def findings(self, experiment: Experiment, record: Record) -> Findings | None:
        """What the record's epoch shows; None when nobody knows."""
        ...


class Snapshot(Protocol):
    """The policies in force; `policy.snapshot.Snapshot` is one."""

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """All of them."""
        ...

    def adoption(self, experiment: str, arm: str) -> Adoption | None:
        """Where the entries of an arm are, for the time after the experiment."""
        ...


class Decider:
    """Belongs to one event loop."""

    def __init__(
        self,
        store: DecisionStore,
        finder: Finder,
        *,
        decided: Callable[[Record, tuple[Decision, ...]], None],
        found: Callable[[Experiment, Findings | None], None] = lambda _experiment, _findings: None,
        failed: Callable[[str, Exception], None],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        settling: float = SETTLING,
        beginning: float | None = None,
    ) -> None:
        """`decided` is told of what has been written, `found` of what was seen, `failed` of an experiment that could
        not be judged. `settling` is `SETTLING` for who is in a hurry; `beginning` the same for the store as it is found
        at first.
        """
        self._store = store
        self._finder = finder
        self._decided = decided
        self._found = found
        self._failed = failed
        self._clock = clock
        self._monotonic = monotonic
        self._settling = settling
        self._beginning = settling if beginning is None else beginning
        self._incarnation: str | None = None
        self._settled_at = 0.0
        self._missing: dict[str, float] = {}
        self.leads = False
        """Whether this process led at its last look."""

    async def look(self, snapshot: Snapshot) -> bool:
        """Decide what is to be decided now, if it is for this process to do so. Whether anything was written.

        Raises `StoreError`; then nobody decides here.
        """
        try:
            token = await self._store.lead(LEASE)
        except BaseException:
            self.leads = False
            raise
        self.leads = token is not None
        if token is None:
            self._missing.clear()
            return False
        stored = await self._store.read()
        if not self._settled(stored):
            return False
        written = False
        for experiment in snapshot.experiments:
            try:
                after, decisions = await self._course(experiment, stored.records.get(experiment.name))
            except Exception as error:
                # One that cannot be judged does not keep the others from their verdicts.
                self._failed(experiment.name, error)
                continue
            if after is None:
                continue
            if after.phase is Phase.PROMOTED and decisions:
                after = msgspec.structs.replace(after, adoption=snapshot.adoption(after.name, after.winner))
            if await self._store.write(after, token):
                written = True
                self._decided(after, decisions)
        return await self._leave(snapshot, stored, token) or written

    async def step_down(self) -> None:
        """Let another process lead. Raises `StoreError`."""
        if self.leads:
            self.leads = False
            await self._store.step_down()

    async def _course(
        self, experiment: Experiment, record: Record | None
    ) -> tuple[Record | None, tuple[Decision, ...]]:
        """The record that is to follow `record`; None for none."""
        after, decisions = begin(experiment, record, self._clock())
        if after is not record:
            return after, decisions
        findings = None
        if after.phase is Phase.RUNNING:
            findings = await self._finder.findings(experiment, after)
            self._found(experiment, findings)
        after, decisions = step(experiment, after, findings, self._clock())
        return (None if after is record else after), decisions

    def _settled(self, stored: Stored) -> bool:
        if stored.incarnation != self._incarnation:
            pause = self._beginning if self._incarnation is None else self._settling
            self._incarnation = stored.incarnation
            self._settled_at = self._monotonic() + pause
        return self._monotonic() >= self._settled_at

    async def _leave(self, snapshot: Snapshot, stored: Stored, token: str) -> bool:
        """Note which experiments are in no file any more, and forget those that have not been for long."""
        there = {experiment.name for experiment in snapshot.experiments}
        now, written = self._monotonic(), False
        for name, record in stored.records.items():
            if name in there:
                self._missing.pop(name, None)
            elif record.absent:
                if self._clock() - record.absent > RETENTION:
                    written = await self._store.forget(record, token) or written
            elif now - self._missing.setdefault(name, now) >= ABSENCE:
                # Files that differ between pods for a moment, as during a roll-out, are no absence.
                written = await self._store.write(leave(record, self._clock()), token) or written
        return written
