"""Everything about purges that the supervisor holds, put together: the pod's log, the fleet's, sweeps, and purges."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from meshcache.engine.purge_state import Header, PurgeState
from meshcache.extproc.budgets import DEFAULT_COLD_BYTES, WARM_FILE_BYTES
from meshcache.extproc.fleet_follower import FleetFollower
from meshcache.extproc.invalidation_follower import InvalidationFollower
from meshcache.extproc.keys import assignment_secret
from meshcache.extproc.locations import WARM_FOLDER, cold_folder, pod_id
from meshcache.extproc.purge_book import PurgeBook
from meshcache.extproc.purger import Purger, reached
from meshcache.extproc.status import PurgeStatus
from meshcache.tiers.board import Board
from meshcache.tiers.fleet_log import FleetLog
from meshcache.tiers.lmdb_file import LmdbFile
from meshcache.tiers.object_folder import ObjectFolder
from meshcache.tiers.purge_log import FILE_NAME
from meshcache.tiers.redis import RedisTier
from meshcache.tiers.sweeping import Sweepable, Sweeper, SweptFile, SweptFolder, SweptStore
from meshcache.tiers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from meshcache.engine.purges import Rule
    from meshcache.extproc.control import Counted, WorkerOptions
    from meshcache.extproc.filter_hub import FilterHub
    from meshcache.extproc.purger import Member, PurgeRequest, PurgeResult
    from meshcache.observe.audit import AuditLog
    from meshcache.observe.metrics import Metrics
    from meshcache.policy.snapshot import Snapshot

CHECK_EVERY: Final = 0.5
_LEAST_KEPT: Final = 60.0


class Purging:
    """First `open`, then `start`; at last `stop` and `close`. Belongs to the supervisor's event loop."""

    def __init__(
        self,
        options: WorkerOptions,
        members: Callable[[], Sequence[Member]],
        metrics: Metrics,
        log: FilteringBoundLogger,
        audit: AuditLog,
        filters: FilterHub,
    ) -> None:
        """`options` are the workers', with stores filled in. Raises `BoardError` and `ValueError` as a worker does."""
        data = Path(options.data_dir)
        self._filters = filters
        self._members = members
        self._log = log
        self._keeps = _LEAST_KEPT
        self._changed = asyncio.Event()
        self._stopped = False
        self._tasks: list[asyncio.Task[None]] = []
        self._board = Board(data / "board")
        self._store = RedisTier(options.warm_url) if options.warm_url else None
        self._invalidations = None
        self._book = PurgeBook(
            data / FILE_NAME,
            self._board,
            log,
            tell=self._tell,
            shared=self._store is not None,
            announce=filters.announce,
        )
        self._pod = pod_id(data)
        self._name = f"{socket.gethostname()}-{self._pod[:6]}"
        self._threads = Threads("sweep", 1)
        self._file: LmdbFile | None = None
        self._sweeper = Sweeper(self._stores(options, data))
        self._follower = None
        if self._store is not None:
            self._invalidations = InvalidationFollower(self._store.send, self._board, self._pod, heard=filters.invalid)
            self._follower = FleetFollower(
                FleetLog(self._store.send, self._pod),
                self._book,
                log,
                pod=self._pod,
                name=self._name,
                where=self._store.where,
                waiting=lambda: [*self._waiting(), *filters.pending],
                keeps=lambda: self._keeps,
                learned=self._sweep_for,
            )
        self._metrics = metrics
        self._purger = Purger(
            self._book,
            members,
            self._sweeper,
            self._follower,
            partial(assignment_secret, options, log),
            metrics,
            audit=audit.append,
            filters=filters.standing,
        )

    def open(self) -> None:
        """Put the rules that are kept in effect. Blocks. Before the first worker starts."""
        self._book.open()

    def start(self) -> None:
        """Begin to follow the other pods."""
        self._tasks = [asyncio.create_task(self._check())]
        if self._follower is not None:
            self._tasks.append(asyncio.create_task(self._follower.run()))
        if self._invalidations is not None:
            self._tasks.append(asyncio.create_task(self._invalidations.run()))

    async def stop(self) -> None:
        """Follow nobody any more, and sign off. The workers have ended. Safe to call twice."""
        if self._stopped:
            return
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sweeper.close()
        if self._follower is not None:
            await self._follower.leave()
        if self._store is not None:
            await self._store.close()
        await self._threads.close(1.0)
        if self._file is not None:
            self._file.close()
        self._book.close()
        self._board.close()

    def install(self, snapshot: Snapshot) -> None:
        """These policies are in force."""
        self._book.keying.install(policy.key for policy in snapshot.in_use)
        tiers = [policy.tiers for policy in snapshot.in_use]
        # What is held under an earlier set is not forgotten: it only grows.
        self._keeps = max([self._keeps, *(max(each.hot.ttl, each.cold.ttl) + _LEAST_KEPT for each in tiers)])

    async def purge(self, request: PurgeRequest, who: Mapping[str, Any]) -> PurgeResult:
        """See `Purger.purge`."""
        return await self._purger.purge(request, who)

    async def result(self, purge_id: str) -> PurgeResult | None:
        """See `Purger.result`."""
        return await self._purger.result(purge_id)

    @property
    def status(self) -> PurgeStatus:
        """For the admin API."""
        state = self._book.state
        return PurgeStatus(
            pod=self._name,
            number=state.number,
            rules=len(state),
            owed=len(state.owed) if self._follower is not None else 0,
            following=self._follower is None or self._follower.connected,
        )

    def applied(self) -> None:
        """A worker has applied rules, or has ended."""
        self._changed.set()
        self._filters.applied()
        self.progressed()

    def progressed(self) -> None:
        """Other pods may be waiting for what has just been applied."""
        if self._follower is not None:
            self._follower.poke()

    def counted(self, worker: str, counted: Counted) -> None:
        """A worker has looked through its memory."""
        self._purger.counted(worker, counted.first, counted.last, counted.keys)

    # -- parts -------------------------------------------------------------------------------------------------

    async def _tell(self, generation: int) -> None:
        """Give the workers a new generation; returns when all that serve have applied it."""
        for member in self._members():
            member.tell(generation)
        while self._waiting():
            self._changed.clear()
            await self._changed.wait()

    def _waiting(self) -> list[str]:
        """The workers that have not applied the newest rule."""
        newest = self._book.generation
        return [member.name for member in self._members() if member.ready and not reached(member.applied, newest)]

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY)
            await self._book.check()
            self._metrics.set("purge_rules", (), self.status.rules)
            self._metrics.set("purges_owed", (), self.status.owed)

    def _sweep_for(self, rules: Sequence[Rule]) -> None:
        """Remove what rules of other pods have killed in this one's own stores."""
        steps = [self._book.known[rule.uid] for rule in rules if rule.uid in self._book.known]
        if not steps:
            return
        own = PurgeState(Header(self._book.state.incarnation, number=steps[0].number - 1), self._book.keying)
        for step in steps:
            own.apply(step)
        self._sweeper.begin(own, own_only=True)

    def _stores(self, options: WorkerOptions, data: Path) -> dict[str, tuple[Sweepable, bool]]:
        folder = ObjectFolder(
            cold_folder(options.cold_url) or data / "cold", options.cold_max_bytes or DEFAULT_COLD_BYTES
        )
        stores: dict[str, tuple[Sweepable, bool]] = {"the cold folder": (SweptFolder(folder, self._threads), False)}
        if self._store is not None:
            stores["the warm store"] = (SweptStore(self._store.send), True)
        else:
            self._file = LmdbFile(data / WARM_FOLDER, WARM_FILE_BYTES)
            stores["the warm file"] = (SweptFile(self._file, self._threads), False)
        return stores
