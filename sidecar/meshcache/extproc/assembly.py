"""A worker's cache, put together: tiers, engine, refresher and the ext_proc edge over them."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshcache.decisions import Stage, TierName
from meshcache.engine.cache import Cache
from meshcache.engine.flights import Flights
from meshcache.extproc import wire
from meshcache.extproc.book_keeping import BookKeeping
from meshcache.extproc.budgets import DEFAULT_COLD_BYTES, WARM_FILE_BYTES, Shares
from meshcache.extproc.control import FilterPlans
from meshcache.extproc.conversation import ExternalProcessor
from meshcache.extproc.faults import FaultLog
from meshcache.extproc.filter_marks import FilterMarks
from meshcache.extproc.invalid_news import InvalidNews
from meshcache.extproc.keys import load_keys
from meshcache.extproc.locations import WARM_FOLDER, cold_folder, pod_id
from meshcache.extproc.metering import EngineMeter, PoolMeter, TierMeter
from meshcache.extproc.refresher import HttpRefresher
from meshcache.extproc.request_log import LoggedMeter, LoggingProcessor
from meshcache.extproc.surroundings import surroundings
from meshcache.extproc.waits import LoopWaits
from meshcache.policy.compile import compile_documents
from meshcache.tiers.base import TierError
from meshcache.tiers.board import Board
from meshcache.tiers.board_leases import BEAT
from meshcache.tiers.fleet import RedisLeases
from meshcache.tiers.link_exchange import LinkTeller
from meshcache.tiers.link_table import FILE_NAME as LINKS_FILE
from meshcache.tiers.link_table import LinkTable
from meshcache.tiers.lmdb import LmdbTier
from meshcache.tiers.memory import MemoryTier
from meshcache.tiers.objects import ObjectTier
from meshcache.tiers.presence import Presence
from meshcache.tiers.purge_log import FILE_NAME
from meshcache.tiers.purges import Purges
from meshcache.tiers.redis import RedisTier
from meshcache.tiers.stack import TierStack

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from structlog.typing import FilteringBoundLogger

    from meshcache.experiment.overlay import Adoption, Overlay
    from meshcache.extproc.control import Invalid, Overlays, WorkerOptions
    from meshcache.extproc.transport import Converse
    from meshcache.observe.metrics import Metrics
    from meshcache.policy.documents import Documents
    from meshcache.policy.snapshot import Snapshot
    from meshcache.tiers.base import Tier
    from meshcache.tiers.hooks import TierHooks
    from meshcache.tiers.signing import Keyring


class Service:
    """What a worker serves. `install` must be called before the first request is answered from the cache."""

    def __init__(
        self,
        options: WorkerOptions,
        metrics: Metrics,
        stack: TierStack,
        purges: Purges,
        board: Board,
        warm: Tier,
        hooks: TierHooks,
        keyring: Keyring,
        refresher: HttpRefresher | None,
        faults: FaultLog,
        log: FilteringBoundLogger,
    ) -> None:
        self._options = options
        self._log = log
        self._metrics = metrics
        self._stack = stack
        self._purges = purges
        self._board = board
        self._keyring = keyring
        self._refresher = refresher
        self._swap = threading.Lock()
        """Held while the set in force is exchanged, which takes no time: sets are compiled in a thread."""
        data = Path(options.data_dir)
        self._links = LinkTable(data / LINKS_FILE)
        if isinstance(warm, RedisTier):
            self._links.on_new = LinkTeller(warm.send, pod_id(data), self._spawn).add
        self._overlays: Mapping[str, Overlay] = {}
        self._overlaid = 0
        self._plans = FilterPlans(b"", ())
        self._marks = FilterMarks(lambda why, outcome: metrics.inc("filter_asks_total", (why, outcome)))
        self._invalid = InvalidNews()
        self._adoptions: tuple[Adoption, ...] = ()
        self._pool_meter = PoolMeter(metrics)
        self._background: set[asyncio.Task[None]] = set()
        self._fleet = RedisLeases(warm.send, hooks, self._spawn) if isinstance(warm, RedisTier) else None
        self._pulse = asyncio.get_running_loop().create_task(self._beat())
        self._cache = Cache(
            stack=stack,
            leases=board.leases,
            fleet=self._fleet,
            refresher=refresher,
            meter=LoggedMeter(metrics) if options.log_requests else EngineMeter(metrics),
            clock=time.time,
            spawn=self._spawn,
            waits=LoopWaits(),
            workers=options.workers,
            render=wire.render,
            copy_bytes=Shares.of(options.hot_bytes, options.workers).copies,
            flights=Flights(time.monotonic),
            on_invalid=self._on_invalid,
        )
        self._books = BookKeeping(Path(options.data_dir), options.index, lambda: self._cache.snapshot, metrics, log)
        patience = options.lookup_timeout
        if options.log_requests:
            self._processor: ExternalProcessor = LoggingProcessor(
                self._cache, on_error=faults.report, lookup_timeout=patience, log=log, marks=self._marks
            )
        else:
            self._processor = ExternalProcessor(
                self._cache, on_error=faults.report, lookup_timeout=patience, marks=self._marks
            )
        self._faults = faults

    @property
    def converse(self) -> Converse:
        """What answers the messages of one stream."""
        return self._processor.converse

    def failed(self, error: BaseException) -> None:
        """A conversation has let an error out, which should not happen."""
        self._faults.report("stream", error)

    def install(self, documents: Documents, generation: int) -> None:
        """Compile a policy set and put it in force for every request that begins from now on.

        Raises `PolicyErrors`; then the one before stays.
        """
        snapshot = compile_documents(
            documents,
            generation=generation,
            secret=self._keyring.assignment_secret,
            surroundings=surroundings(self._options),
            links=self._links,
        )
        if snapshot.remembers:
            self._open_links()
        self._cache.expect(snapshot)
        books = self._books.prepare(snapshot.with_overlays(self._overlays, self._adoptions))
        with self._swap:
            self._put_in_force(snapshot, self._overlays)
        del books  # those in force are held by the snapshot
        self._metrics.set("policy_generation", (), generation)

    def _open_links(self) -> None:
        try:
            self._links.open()
        except OSError as error:
            self._log.warning("units are not remembered: callers may change arm at a login", error=str(error))

    def overlay(self, overlays: Overlays) -> None:
        """Put what has been decided about experiments in force, for the set at hand and those to come."""
        with self._swap:
            self._overlays = {overlay.experiment: overlay for overlay in overlays.overlays}
            self._adoptions = overlays.adoptions
            self._overlaid = overlays.version
            policies = self._cache.snapshot
            if policies is not None:
                # A set that is still on its way may lack an experiment: what holds for it holds until then.
                kept = policies.overlays if overlays.generation > policies.generation else {}
                self._put_in_force(policies, {**kept, **self._overlays})

    def _put_in_force(self, policies: Snapshot, overlays: Mapping[str, Overlay]) -> None:
        """Put `policies` in force, with what has been decided on top. With the lock held."""
        snapshot = policies.with_overlays(overlays, self._adoptions)
        self._books.expect(snapshot)
        self._cache.swap(snapshot)
        self._books.follow(snapshot)
        if self._fleet is not None:
            # Who lets warm be slow wants to know what is in the store, and leases are there, too.
            self._fleet.allow(snapshot.warm_deadline)
        self._admit(snapshot)

    def admit(self, plans: FilterPlans) -> None:
        """These are the plans by which filters in Envoy work."""
        with self._swap:
            self._plans = plans
            if self._cache.snapshot is not None:
                self._admit(self._cache.snapshot)

    def _admit(self, snapshot: Snapshot) -> None:
        """Answer for the plans of what is in force here alone: by another, what is kept would be judged by two sets."""
        known = frozenset(
            plan.id
            for plan in self._plans.plans
            if plan.generation == snapshot.generation and plan.version == self._overlaid
        )
        self._marks.admit(self._plans.secret, known)

    def _on_invalid(self, resources: frozenset[bytes]) -> None:
        # Where no filter has a plan, none has anything to drop.
        if self._plans.plans:
            self._invalid.add(resources)

    async def invalidated(self) -> Invalid:
        """See `extproc.worker.Service`."""
        return await self._invalid.take()

    async def apply_purges(self) -> int:
        """Put every purge rule of the pod's log in effect; the generation of the newest."""
        await self._purges.catch_up()
        return self._purges.generation

    async def count_purged(self) -> tuple[int, int, tuple[bytes, ...]] | None:
        """See `extproc.worker.Service`."""
        return await self._purges.sweep(self._stack.memory)

    def sample(self) -> None:
        """Bring the gauges up to date; to be called before metrics are reported."""
        self._metrics.set("hot_bytes", (), self._stack.memory.used_bytes)
        self._metrics.set("hot_entries", (), len(self._stack.memory))
        self._pool_meter.report(self._stack.memory.pools(), self._cache.shares.arms)
        self._books.look_after()

    def retire(self) -> None:
        """Begin no more refreshes; what is asked is answered as before."""
        self._cache.retire()

    async def drain(self, timeout: float) -> None:  # noqa: ASYNC109 - the bound is divided among what waits
        """Let background refreshes and writes finish within about `timeout` seconds."""
        self.retire()
        if self._background:
            await asyncio.wait(self._background, timeout=timeout)
        await self._stack.drain(timeout)

    async def close(self) -> None:
        """Give up what still runs, and release everything."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._books.close()
        self._pulse.cancel()
        await asyncio.gather(self._pulse, return_exceptions=True)
        if self._refresher is not None:
            await self._refresher.close()
        if self._fleet is not None:
            await self._fleet.close()
        await self._stack.close()
        self._board.close()

    async def _beat(self) -> None:
        """Show the other workers that this one gets on."""
        while True:
            self._board.leases.beat()
            await asyncio.sleep(BEAT)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        # The loop itself keeps only a weak reference.
        self._background.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._faults.report("background", error)


async def build(options: WorkerOptions, metrics: Metrics, log: FilteringBoundLogger) -> Service:
    """Open what the options name.

    Raises `BoardError` and `KeyringError` when the data folder cannot be used, `ValueError` for an address of a
    kind that is not supported. A store that does not answer now is no error: it is tried again while serving.
    """
    data = Path(options.data_dir)
    keyring = load_keys(options, log)
    board = Board(data / "board")

    def on_breaker(tier: TierName, opened: bool, kind: str) -> None:
        if opened:
            log.warning("tier given up for a while", tier=tier, kind=kind)
        else:
            log.warning("tier in use again", tier=tier)

    meter = TierMeter(metrics, on_breaker)
    shares = Shares.of(options.hot_bytes, options.workers)
    memory = MemoryTier(
        shares.hot,
        on_evict=lambda reason: meter.evicted(TierName.HOT, reason, 1),
    )
    warm = await _warm(options, data, board, meter, log)
    cold = ObjectTier(
        cold_folder(options.cold_url) or data / "cold",
        options.cold_max_bytes or DEFAULT_COLD_BYTES,
        board,
        presence=Presence(data / "cold.presence"),
        on_evict=lambda reason, count: meter.evicted(TierName.COLD, reason, count),
    )
    purges = Purges(board, data / FILE_NAME, on_silence=memory.clear)
    purges.load()
    stack = TierStack(
        memory, warm, cold, board, keyring, meter, purges=purges, queue_bytes=shares.queue, opening_bytes=shares.opening
    )
    refresher = None
    if options.refresh_url:
        refresher = HttpRefresher(options.refresh_url, on_end=partial(EngineMeter(metrics).stage, Stage.REFRESH))
    return Service(options, metrics, stack, purges, board, warm, meter, keyring, refresher, FaultLog(metrics, log), log)


async def _warm(options: WorkerOptions, data: Path, board: Board, meter: TierMeter, log: FilteringBoundLogger) -> Tier:
    if options.warm_url:
        return RedisTier(options.warm_url, pod=pod_id(data))
    tier = LmdbTier(
        data / WARM_FOLDER,
        WARM_FILE_BYTES,
        board,
        presence=Presence(data / "warm.presence"),
        on_evict=lambda reason, count: meter.evicted(TierName.WARM, reason, count),
    )
    try:
        await tier.open()
    except TierError as error:
        log.error("warm file cannot be opened; it is tried again", error=str(error))
    return tier
