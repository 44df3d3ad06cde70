"""Everything about deciding that the supervisor holds, put together: the store, the decider, the orders of persons.

Every supervisor follows the store, and hands what is in force to its workers; one of them decides. What was decided
last is kept on disk as well: with it a pod starts beside a store that is away, and with it a store that has lost its
data is mended.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from meshcache.experiment.orders import Order, carry_out
from meshcache.experiment.plan import begin
from meshcache.experiment.state import overlay_of
from meshcache.extproc.decider import EVERY, SETTLING, Decider, Finder
from meshcache.extproc.decision_news import DecisionNews
from meshcache.extproc.experiment_views import ExperimentList, ExperimentView, line, view
from meshcache.extproc.keys import load_keys
from meshcache.extproc.webhook import Notifier
from meshcache.process import raise_if_cancelled
from meshcache.tiers.decision_file import FILE_NAME, DecisionFile
from meshcache.tiers.decision_redis import DecisionRedis
from meshcache.tiers.decision_store import StoreError, remembered
from meshcache.tiers.redis import RedisTier

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from structlog.typing import FilteringBoundLogger

    from meshcache.experiment.findings import ArmNumbers, Findings
    from meshcache.experiment.overlay import Adoption, Overlay
    from meshcache.experiment.state import Decision, Record
    from meshcache.extproc.control import WorkerOptions
    from meshcache.observe.audit import AuditLog
    from meshcache.observe.metrics import Metrics
    from meshcache.policy.compiled import Experiment
    from meshcache.policy.snapshot import Snapshot
    from meshcache.tiers.decision_store import DecisionStore, Stored

POLL: Final = 0.5
"""Seconds after which a pod sees what another has decided, should nobody have told it."""
_PAUSE: Final = 0.5
"""Seconds before a store that did not answer is asked again."""
_TRIES: Final = 5
"""How often a person's order is tried anew when something else was decided in between."""


class NumbersFinder(Finder, Protocol):
    """Tells people more than the decider wants to know; `extproc.evidence.LedgerFinder` is one."""

    async def all(self, experiment: Experiment, record: Record) -> tuple[Findings | None, tuple[ArmNumbers, ...]]:
        """What the record's epoch shows, and what each arm has shown."""
        ...


class NotKnownError(Exception):
    """There is no experiment of that name in the policies in force."""


class OrderRefusedError(Exception):
    """A person's order could not be carried out now. One line that says why."""


class Deciding:
    """First `open`, then `start`; at last `stop`. Belongs to the supervisor's event loop."""

    def __init__(
        self,
        options: WorkerOptions,
        finder: NumbersFinder,
        apply: Callable[[Mapping[str, Overlay], Iterable[Adoption]], object],
        metrics: Metrics,
        log: FilteringBoundLogger,
        audit: AuditLog,
        *,
        installed: Callable[[], Awaitable[object]],
        every: float = EVERY,
        settling: float = SETTLING,
    ) -> None:
        """`options` are the workers', with stores filled in; `apply` puts overlays and adoptions in force, and
        `installed` waits, for as long as a person would, until every worker has them; `every` so many seconds it is
        looked whether there is something to decide, and for `settling` seconds a store that is new to us is left to
        the other pods.

        Raises `ValueError` for a store that no worker could use either.
        """
        self._finder = finder
        self._apply = apply
        self._installed = installed
        self._log = log
        self._copy = DecisionFile(
            Path(options.data_dir) / FILE_NAME,
            set_aside=lambda path: log.error("the file of decisions held something else; set aside", file=str(path)),
            unsaved=self._unsaved,
        )
        self._client = RedisTier(options.warm_url) if options.warm_url else None
        self._store: DecisionStore = self._copy
        if self._client is not None:
            self._store = DecisionRedis(self._client.send, self._client.where, lambda: load_keys(options, log))
        self._snapshot: Snapshot | None = None
        self._records: dict[str, Record] = {}
        self._kept = self._records
        """What is on disk, where that is a copy."""
        self._offered: dict[str, int] = {}
        self._in_force: tuple[dict[str, Overlay], tuple[Adoption, ...]] | None = None
        self._connected = False
        self._away = ""
        self._unwritable = ""
        self._failing: dict[str, str] = {}
        self._notifier = Notifier(
            lambda: None if self._snapshot is None else self._snapshot.config.webhook,
            log,
            lambda outcome: metrics.inc("experiment_notices_total", (outcome,)),
        )
        self._news = DecisionNews(metrics, log, audit, self._notifier)
        self._mine: asyncio.Queue[tuple[Record, tuple[Decision, ...], Mapping[str, Any]]] = asyncio.Queue()
        self._made: dict[str, int] = {}
        """By experiment, the newest version that was written here."""
        self._decider = Decider(
            self._store,
            finder,
            decided=self._decided,
            found=self._found,
            failed=self._failed,
            # A file of this pod's alone is as it was left.
            settling=settling,
            beginning=0.0 if self._client is None else settling,
        )
        self._every = every
        self._tasks: list[asyncio.Task[None]] = []

    def open(self, snapshot: Snapshot) -> None:
        """Put in force what was decided last, as far as it is known here. Blocks. Before the first worker starts."""
        try:
            self._records = self._kept = remembered(self._copy.load(), time.time())
        except StoreError as error:
            self._log.error("what was decided last about experiments is not known", error=str(error))
        self.install(snapshot)

    def install(self, snapshot: Snapshot) -> None:
        """These policies are in force."""
        self._snapshot = snapshot
        self._put_in_force()

    def start(self) -> None:
        """Begin to follow, and to decide where it is for this process to do so."""
        works = (self._follow(), self._decide(), self._report(), self._notifier.run())
        self._tasks = [asyncio.create_task(work) for work in works]

    async def stop(self) -> None:
        """Decide nothing any more, and let another process lead. Safe to call twice."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        with contextlib.suppress(StoreError):
            await self._decider.step_down()
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    @property
    def leads(self) -> bool:
        """Whether this process decides."""
        return self._decider.leads

    @property
    def connected(self) -> bool:
        """Whether what is known here is what the store holds."""
        return self._connected

    def overview(self) -> ExperimentList:
        """All experiments of the policies in force."""
        experiments = () if self._snapshot is None else self._snapshot.experiments
        return ExperimentList(
            experiments=tuple(line(each, self._record_of(each)) for each in experiments),
            leads=self.leads,
            connected=self._connected,
            store=self._store.where,
        )

    async def show(self, name: str) -> ExperimentView:
        """One experiment, with what has been counted. Raises `NotKnownError`."""
        experiment = self._experiment(name)
        record = self._record_of(experiment)
        findings: Findings | None = None
        numbers: tuple[ArmNumbers, ...] = ()
        if record is not None:
            findings, numbers = await self._finder.all(experiment, record)
        return view(
            experiment,
            record,
            findings,
            numbers,
            time.time(),
            leads=self.leads,
            connected=self._connected,
            store=self._store.where,
        )

    async def order(
        self, name: str, order: Order, who: Mapping[str, Any], *, text: str = "", arm: str = ""
    ) -> ExperimentView:
        """Carry out what a person wants, wherever the leader is; `who` goes into the audit log. This pod's workers
        have it in force then, if they answer at all.

        Raises `NotKnownError`, `ValueError` with a sentence for what makes no sense, and `OrderRefusedError`.
        """
        # To its end, once begun, whether or not its caller waits for it.
        await asyncio.shield(asyncio.create_task(self._order(name, order, who, text, arm)))
        await self._installed()
        return await self.show(name)

    async def _order(self, name: str, order: Order, who: Mapping[str, Any], text: str, arm: str) -> None:
        person = str(who.get("user") or who.get("uid") or who.get("token") or "somebody")
        try:
            for _ in range(_TRIES):
                experiment = self._experiment(name)
                before = (await self._store.read()).records.get(name)
                record, begun = begin(experiment, before, time.time())
                findings = None
                if before is not None and record is before and record.counting:
                    findings = await self._finder.findings(experiment, record)
                evidence = () if findings is None else findings.evidence(experiment)
                after, decisions = carry_out(
                    experiment, record, order, time.time(), who=person, text=text, arm=arm, evidence=evidence
                )
                adoption = None if self._snapshot is None else self._snapshot.adoption(name, after.winner)
                version = (0 if before is None else before.version) + 1
                after = msgspec.structs.replace(after, version=version, adoption=adoption)
                if await self._store.write(after, None):
                    self._decided(after, (*begun, *decisions), who)
                    self._take(await self._store.read())
                    return
        except StoreError as error:
            raise OrderRefusedError(f"nothing was decided: {error}; try again, or change the files") from error
        raise OrderRefusedError("nothing was decided: others keep deciding about it at this moment; try again")

    def _experiment(self, name: str) -> Experiment:
        for experiment in () if self._snapshot is None else self._snapshot.experiments:
            if experiment.name == name:
                return experiment
        raise NotKnownError(f"no experiment in force is named {name}")

    def _record_of(self, experiment: Experiment) -> Record | None:
        """What was decided about this text; None for nothing yet. The record of another text may have other arms."""
        record = self._records.get(experiment.name)
        return record if record is not None and record.fits(experiment) else None

    # -- following -----------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            try:
                stored = await self._store.read()
                lost = self._lost(stored)
                if lost:
                    await self._store.offer(lost)
                    self._mended(lost)
                    stored = await self._store.read()
                self._take(stored)
                await self._keep()
                await self._store.wait(POLL)
                raise_if_cancelled()
            except StoreError as error:
                self._lose_touch(error)
                await asyncio.sleep(_PAUSE)
            except Exception as error:
                # Whatever it is, who follows no more would not hear of a rollback.
                self._log.error("following decisions failed", error=error, exc_info=True)
                await asyncio.sleep(_PAUSE)

    def _mended(self, lost: Iterable[Record]) -> None:
        versions = {record.name: record.version for record in lost}
        if versions != self._offered:
            # Told once, should the store not keep it.
            self._offered = versions
            self._log.warning("the store had lost decisions; they were put back", experiments=sorted(versions))

    def _lost(self, stored: Stored) -> list[Record]:
        """What is known here and the store has not, or has in an older version."""
        known = remembered(self._records, time.time())
        versions = {name: record.version for name, record in stored.records.items()}
        return [record for name, record in known.items() if versions.get(name, 0) < record.version]

    async def _keep(self) -> None:
        """Have on disk what is known."""
        records = self._records
        if records is self._kept or self._store is self._copy:
            return
        try:
            await asyncio.to_thread(self._copy.keep, records)
        except StoreError as error:
            self._log.warning("decisions could not be kept on disk", error=str(error))
        if not self._copy.holds:
            self._kept = records

    def _take(self, stored: Stored) -> None:
        """Put what the store holds in force here."""
        if not self._connected:
            self._log.info("following decisions about experiments", store=self._store.where)
        self._connected, self._away = True, ""
        before, after = self._records, stored.records
        if after == before:
            return
        for name, record in after.items():
            known = before.get(name)
            if record.version <= self._made.get(name, 0) or known is None:
                continue
            news = tuple(one for one in record.decisions if one not in known.decisions)
            self._news.learned(record, news)
        self._records = dict(after)
        self._put_in_force()

    def _put_in_force(self) -> None:
        if self._snapshot is None:
            return
        overlays = {}
        for experiment in self._snapshot.experiments:
            overlay = overlay_of(experiment, self._records.get(experiment.name))
            if overlay is not None:
                overlays[experiment.name] = overlay
        # The newest last: of two on one route that one is to hold.
        promoted = sorted(self._records.values(), key=lambda record: record.decisions[-1].at if record.decisions else 0)
        adoptions = tuple(record.adoption for record in promoted if record.adoption is not None)
        if (overlays, adoptions) != self._in_force:
            self._in_force = (overlays, adoptions)
            self._apply(overlays, adoptions)
        self._news.in_force({name: overlay.phase for name, overlay in overlays.items()})

    def _unsaved(self, error: OSError | None) -> None:
        if error is None:
            self._log.info("decisions about experiments are on disk again")
        else:
            self._log.error(
                "decisions about experiments are in force, but not on disk", file=self._copy.where, error=error.strerror
            )

    def _lose_touch(self, error: StoreError) -> None:
        if self._away != str(error):
            self._log.warning(
                "decisions about experiments cannot be followed; those known here stay in force", error=str(error)
            )
        self._connected, self._away = False, str(error)

    # -- deciding ------------------------------------------------------------------------------------------------

    async def _decide(self) -> None:
        led = False
        while True:
            try:
                if self._snapshot is not None and await self._decider.look(self._snapshot):
                    self._take(await self._store.read())
                raise_if_cancelled()
                self._unwritable = ""
            except StoreError as error:
                # Where nothing can be read either, the one that follows says so.
                if self._connected and self._unwritable != str(error):
                    self._unwritable = str(error)
                    self._log.error("nothing can be decided about experiments", error=str(error))
            except Exception as error:
                self._log.error("deciding about experiments failed", error=error, exc_info=True)
            if led != self.leads:
                led = self.leads
                self._log.info("deciding about experiments" if led else "another process decides about experiments")
                if not led:
                    self._news.blind()
            await asyncio.sleep(self._every)

    def _decided(self, record: Record, decisions: tuple[Decision, ...], who: Mapping[str, Any] | None = None) -> None:
        self._made[record.name] = max(record.version, self._made.get(record.name, 0))
        self._mine.put_nowait((record, decisions, who or {}))

    def _found(self, experiment: Experiment, findings: Findings | None) -> None:
        self._failing.pop(experiment.name, None)
        self._news.found(experiment, findings)

    def _failed(self, name: str, error: Exception) -> None:
        if self._failing.get(name) != repr(error):
            self._failing[name] = repr(error)
            self._log.error("experiment cannot be judged", experiment=name, error=error, exc_info=True)

    async def _report(self) -> None:
        """Tell of what was decided here, without holding up what is to be decided next."""
        while True:
            news = await self._mine.get()
            try:
                await self._news.decided(*news)
            except Exception as error:
                # Whatever it is, the next decision is to be told.
                self._log.error("telling of a decision failed", error=error, exc_info=True)
