"""The supervisor: the one process that reads the policy folder, and that starts and watches the workers.

It serves no gRPC itself, and starts its workers as new programs, so no process ever forks with a server running.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from meshcache import __version__
from meshcache.extproc.child import COMMAND, WorkerProcess
from meshcache.extproc.conditions import Conditions, tiers_of
from meshcache.extproc.control import WorkerOptions
from meshcache.extproc.counting import Counting
from meshcache.extproc.deciding import Deciding
from meshcache.extproc.evidence import LedgerFinder
from meshcache.extproc.filter_hub import FilterHub, InForce
from meshcache.extproc.filter_living import FILE_NAME as LIVING_FILE
from meshcache.extproc.filter_numbers import FilterNumbers
from meshcache.extproc.filter_plan import compiled_plan
from meshcache.extproc.filter_state import FOLDER as FILTERS_FOLDER
from meshcache.extproc.keeper import PolicyKeeper, Source
from meshcache.extproc.keys import assignment_secret, load_keys
from meshcache.extproc.last_good import LastGoodFile
from meshcache.extproc.links import SharedLinks
from meshcache.extproc.overlays import OverlaysInForce
from meshcache.extproc.purging import Purging
from meshcache.extproc.settings import with_stores
from meshcache.extproc.status import Status
from meshcache.extproc.surroundings import surroundings
from meshcache.observe.audit import FILE_NAME as AUDIT_FILE
from meshcache.observe.audit import AuditLog
from meshcache.observe.exposition import render
from meshcache.observe.metrics import Metrics, Snapshot, merge
from meshcache.policy.compiled import Config
from meshcache.process import StartError, check_unix_path, make_folder
from meshcache.tiers.board import BoardError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from meshcache.extproc.settings import SupervisorOptions
    from meshcache.policy.snapshot import Snapshot as PolicySet

LAST_GOOD_NAME: Final = "policies.last-good"
IN_FORCE: Final = 2.0
"""Seconds for which a person's order waits for workers that do not say that they have it."""
WATCH_RETRY: Final = 0.5
"""Seconds before a watch that ended is begun again."""


class Supervisor:
    """Workers under one policy set. First `load`, then `start`, at last `stop`."""

    def __init__(
        self,
        options: SupervisorOptions,
        source: Source,
        source_name: str,
        log: FilteringBoundLogger,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._options = options
        self._log = log
        self._metrics = Metrics()
        self._keeper = PolicyKeeper(
            source,
            source_name,
            LastGoodFile(options.data / LAST_GOOD_NAME),
            lambda: surroundings(options.worker),
            self._metrics,
            log,
        )
        self._audit = AuditLog(options.data / AUDIT_FILE, on_failure=self._not_audited)
        self._started_at = time.time()
        self._draining = False
        self._command = command
        self._workers: list[WorkerProcess] = []
        self._purging: Purging | None = None
        self._deciding: Deciding | None = None
        self._counting: Counting | None = None
        self._filter_numbers: FilterNumbers | None = None
        self.filters = FilterHub(
            compiled=compiled_plan,
            in_force=lambda: InForce(self.snapshot, self.overlays.message.version),
            workers=lambda: self._workers,
            metrics=self._metrics,
            log=log,
            progressed=self._filter_progressed,
            living=options.data / FILTERS_FOLDER / LIVING_FILE,
        )
        """The filters in Envoy's workers."""
        self.overlays = OverlaysInForce(
            lambda: self._workers,
            lambda: self._keeper.policies.generation,
            filters=lambda: self.filters.overlaid,
            applied=self.filters.changed,
        )
        """What has been decided about experiments. May be applied from `load` on."""
        self._links: SharedLinks | None = None
        self._config = Config()
        self._envoy_waits = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._watch: asyncio.Task[None] | None = None
        self._filtering: asyncio.Task[None] | None = None
        self._conditions = Conditions()

    def load(self) -> Config:
        """Load the first policy set; returns what it configures for the installation.

        Raises `StartError` for a folder that cannot be used, `PolicyErrors` or `OSError` for policies that cannot be
        read.
        """
        make_folder(self._options.data, "data")
        make_folder(self._options.socket_dir, "socket")
        for index in range(self._options.workers):
            check_unix_path(self._options.socket_path(index))
        check_unix_path(self._options.filter_socket)
        try:
            secret = assignment_secret(self._options.worker, self._log)
        except ValueError as error:
            raise StartError(str(error)) from error
        self._keeper.load(secret)
        self._config = self._keeper.snapshot.config
        self._audit.append("policies", self._installed())
        self._envoy_waits = self._options.lookup_timeout or self._envoy_should_wait()
        try:
            options = with_stores(self._options.worker, self._config)
            self._purging = Purging(options, lambda: self._workers, self._metrics, self._log, self._audit, self.filters)
            self._counting = Counting(
                options,
                lambda: self.snapshot.counted,
                lambda: load_keys(options, self._log),
                self._metrics,
                self._log,
            )
            self._filter_numbers = FilterNumbers(
                self._options.data, lambda: self.snapshot.counted, self._metrics, self._log
            )
            self.filters.take_numbers = self._filter_numbers.take
            self._deciding = Deciding(
                options,
                LedgerFinder(self._counting),
                self.overlays.apply,
                self._metrics,
                self._log,
                self._audit,
                installed=lambda: self.overlays.wait_installed(self.overlays.message.version, IN_FORCE),
            )
        except (BoardError, ValueError) as error:
            raise StartError(str(error)) from error
        self._purging.install(self._keeper.snapshot)
        self._purging.open()
        self._deciding.open(self._keeper.snapshot)
        self._links = SharedLinks(
            with_stores(self._options.worker, self._config), lambda: self._keeper.snapshot.remembers
        )
        self._workers = [self._worker(index) for index in range(self._options.workers)]
        self.filters.load()
        self.filters.changed()
        return self._config

    def start(self) -> None:
        """Start the workers and follow the policy folder. Only after `load`."""
        self._warn_of_old_settings()
        self.purging.start()
        self.counting.start()
        self.filter_numbers.start()
        self.deciding.start()
        if self._links is not None:
            self._links.start()
        self._tasks = [asyncio.create_task(worker.keep()) for worker in self._workers]
        self._filtering = asyncio.create_task(self.filters.run())
        self._watch = asyncio.create_task(self._follow())

    def lame_duck(self) -> None:
        """Not ready from now on, yet serving: whoever sends work may go elsewhere first."""
        if not self._draining:
            self._draining = True
            self._log.info("draining")

    async def stop(self, timeout: float) -> None:  # noqa: ASYNC109 - the bound is handed on to the workers
        """Drain all workers within about `timeout` seconds; returns when every one is gone."""
        self.lame_duck()
        for task in (self._watch, self._filtering):
            if task is not None:
                task.cancel()
        self.filters.close()
        await asyncio.gather(*(worker.drain(timeout) for worker in self._workers))
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._deciding is not None:
            await self._deciding.stop()
        if self._filter_numbers is not None:
            # Before what tells its last counts.
            await self._filter_numbers.stop()
        if self._counting is not None:
            await self._counting.stop()
        if self._purging is not None:
            await self._purging.stop()
        if self._links is not None:
            await self._links.stop()
        self._log.info("stopped")

    def kill(self) -> None:
        """End all workers at once; `stop` then returns soon."""
        self._draining = True
        for worker in self._workers:
            worker.kill()

    @property
    def filter_socket(self) -> Path:
        """Where filters in Envoy ask; whoever serves `filters` binds it."""
        return self._options.filter_socket

    @property
    def purging(self) -> Purging:
        """Purges. Only after `load`."""
        if self._purging is None:
            raise RuntimeError("nothing has been loaded yet")
        return self._purging

    @property
    def deciding(self) -> Deciding:
        """Decisions about experiments. Only after `load`."""
        if self._deciding is None:
            raise RuntimeError("nothing has been loaded yet")
        return self._deciding

    @property
    def counting(self) -> Counting:
        """What has been counted of experiments, here and elsewhere. Only after `load`."""
        if self._counting is None:
            raise RuntimeError("nothing has been loaded yet")
        return self._counting

    @property
    def filter_numbers(self) -> FilterNumbers:
        """Takes in what the filter in Envoy has counted. Only after `load`."""
        if self._filter_numbers is None:
            raise RuntimeError("nothing has been loaded yet")
        return self._filter_numbers

    @property
    def snapshot(self) -> PolicySet:
        """The policies in force, with what has been decided about experiments. Only after `load`."""
        return self.overlays.over(self._keeper.snapshot)

    @property
    def ready(self) -> bool:
        """Whether at least one worker answers by a policy set, and no drain has begun."""
        return not self._draining and any(worker.ready for worker in self._workers)

    def metrics(self) -> Snapshot:
        """All counts: this process's, the workers', and those of workers that have ended."""
        self.filters.sample()
        counts = [self._metrics.snapshot()]
        for worker in self._workers:
            counts.extend(worker.counts)
        return merge(counts)

    def metrics_page(self) -> bytes:
        """The same for Prometheus."""
        return render(self.metrics(), __version__)

    def status(self, metrics_address: str = "") -> Status:
        """For the admin API."""
        tiers = tiers_of(self.metrics(), with_stores(self._options.worker, self._config))
        filters = self.filters.status
        return Status(
            version=__version__,
            pid=os.getpid(),
            started_at=self._started_at,
            ready=self.ready,
            draining=self._draining,
            metrics_address=metrics_address,
            policies=self._keeper.status,
            workers=tuple(worker.status for worker in self._workers),
            tiers=tiers,
            conditions=self._conditions.of(
                self._keeper, self._workers, tiers, filters, stores_current=self._stores_current
            ),
            purges=self.purging.status,
            experiments=self.overlays.status(self._keeper.snapshot),
            adoptions=self.overlays.message.adoptions,
            filters=filters,
        )

    async def _follow(self) -> None:
        """Hand every new good set to the workers. A watch that breaks is begun again: serving goes on."""
        while True:
            try:
                async for policies in self._keeper.updates():
                    self._warn_of_old_settings()
                    self.purging.install(self._keeper.snapshot)
                    self.deciding.install(self._keeper.snapshot)
                    await asyncio.to_thread(self._audit.append, "policies", self._installed())
                    await asyncio.gather(*(worker.install(policies) for worker in self._workers))
                    self.filters.changed()
            except Exception as error:
                self._log.error("policy watch failed; beginning again", error=error, exc_info=True)
            await asyncio.sleep(WATCH_RETRY)

    def _installed(self) -> dict[str, Any]:
        """The policy set in force, for the audit log. Whoever can write to the folder can change it."""
        status = self._keeper.status
        return {
            "who": {"folder": status.source, "kept": status.from_last_good},
            "generation": status.generation,
            "digest": status.digest,
            "result": "in force",
        }

    def _not_audited(self, error: OSError) -> None:
        self._log.error("the audit log cannot be written", error=str(error))

    def _filter_progressed(self) -> None:
        self.overlays.acknowledged()
        if self._purging is not None:
            self._purging.progressed()

    def _warn_of_old_settings(self) -> None:
        """Say what of the set in force only comes into effect with a restart, of this process or of Envoy."""
        if not self._stores_current:
            self._log.warning("stores, budgets or admin of the CacheConfig have changed; they need a restart")
        needed = self._envoy_should_wait()
        if needed > self._envoy_waits:
            self._log.warning(
                "policies want Envoy to wait longer than it does; it needs a new configuration",
                envoy_waits=self._envoy_waits,
                needed=needed,
            )

    def _envoy_should_wait(self) -> float:
        snapshot = self._keeper.snapshot
        return self._options.message_timeout(snapshot.lookup_budget(), snapshot.longest_wait())

    def _worker_ended(self) -> None:
        self._metrics.inc("worker_restarts_total")
        # What it had made invalid it may not have told any more.
        self.filters.invalid(None)

    def _worker(self, index: int) -> WorkerProcess:
        options = msgspec.structs.replace(
            with_stores(self._options.worker, self._config),
            lookup_timeout=self._envoy_waits,
            index=index,
            workers=self._options.workers,
            socket_path=str(self._options.socket_path(index)),
        )
        return WorkerProcess(
            options,
            policies=lambda: self._keeper.policies,
            overlays=lambda: self.overlays.message,
            overlaid=self.overlays.acknowledged,
            plans=lambda: self.filters.plans,
            invalid=lambda invalid: self.filters.invalid(None if invalid.everything else invalid.resources),
            restarted=self._worker_ended,
            applied=self.purging.applied,
            counted=self.purging.counted,
            log=self._log,
            command=self._command,
        )

    @property
    def _stores_current(self) -> bool:
        """Whether what is read at the start alone is as the set in force has it."""
        return self._read_at_start(self._keeper.snapshot.config) == self._read_at_start(self._config)

    def _read_at_start(self, config: Config) -> tuple[WorkerOptions, str | None]:
        options = self._options
        return with_stores(options.worker, config), options.metrics_listen or config.metrics_listen
