"""What the supervisor does for the filters in Envoy: plans, what to drop, and how far each filter has come with both.

A new plan is told to the workers first, and to filters once the workers go by the policies behind it; a purge once the
workers have applied it. So what a filter asks for afterwards is answered by nothing old.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from meshcache.extproc import filter_living
from meshcache.extproc.control import FilterPlan, FilterPlans
from meshcache.extproc.drop_log import INCARNATION_BITS, DropLog
from meshcache.extproc.filter_feed import Reply
from meshcache.extproc.filter_registry import FilterRegistry
from meshcache.extproc.filter_routes import changed_routes
from meshcache.extproc.purger import reached
from meshcache.policy.hints import filter_keeps
from meshcache.wasm import feed
from meshcache.wasm.labels import labels_of_resources, labels_of_routes, labels_of_rule
from meshcache.wasm.marks import SECRET_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from meshcache.engine.purges import Rule
    from meshcache.extproc.child import WorkerProcess
    from meshcache.extproc.filter_feed import Poll
    from meshcache.extproc.filter_registry import FilterWorker
    from meshcache.extproc.status import FilterStatus
    from meshcache.observe.metrics import Metrics
    from meshcache.policy.compiled import KeySpec
    from meshcache.policy.snapshot import Snapshot

LEASE: Final = 10.0
"""Seconds for which a filter may serve after it has sent a poll that was answered."""
PATIENCE: Final = 2.0
"""Seconds for which a plan is held back for workers that have not its policies yet. They keep nothing under it."""
_STEP: Final = 0.01
_PLANS_KEPT: Final = 4
_TOLD_KEPT: Final = 32
_SPECS_KEPT: Final = 64
_ANNOUNCED_KEPT: Final = 1024


class InForce(NamedTuple):
    """The policies in force, and which they are."""

    snapshot: Snapshot
    """With what has been decided about experiments."""
    version: int
    """Of the overlays in it."""


class _Plan(NamedTuple):
    id: str
    body: bytes
    generation: int
    version: int


class _Told(NamedTuple):
    """A plan as filters are told of it. One of the same id may come again, of policies that are the same to it."""

    plan: str
    step: int
    """Of the drop log, with what is to be dropped because of it."""
    generation: int
    version: int


_NOTHING: Final = _Told("", 0, 0, 0)


class FilterHub:
    """First `changed`, then `run` in a task. Belongs to one event loop."""

    def __init__(
        self,
        *,
        compiled: Callable[[Snapshot, bytes, float], tuple[str, bytes]],
        in_force: Callable[[], InForce],
        workers: Callable[[], Sequence[WorkerProcess]],
        metrics: Metrics,
        log: FilteringBoundLogger,
        progressed: Callable[[], None] = lambda: None,
        numbers: Callable[[bytes], Awaitable[bool]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        lease: float = LEASE,
        living: Path | None = None,
    ) -> None:
        """`compiled` makes a plan of policies, a secret and a lease; it is called in a thread.

        `progressed` is called when a filter has come further with its plan; `numbers` takes batches of counts.
        `living` is the file of `filter_living`; None: a supervisor that begins anew knows nothing of filters of before.
        """
        self._compile = compiled
        self._in_force = in_force
        self._workers = workers
        self._metrics = metrics
        self._log = log
        self._progressed = progressed
        self.take_numbers = numbers
        """See `filter_feed.Filters.numbers`; None: counts are taken and dropped."""
        self._lease = lease
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._registry = FilterRegistry(lease, clock)
        self._living = living
        self._drops = DropLog(secrets.randbits(INCARNATION_BITS))
        self._dirty = asyncio.Event()
        self._news = asyncio.Event()
        """Set, and replaced by a new one, when there is something to tell."""
        self._plans: OrderedDict[str, _Plan] = OrderedDict()
        """The newest last."""
        self._told: deque[_Told] = deque(maxlen=_TOLD_KEPT)
        self._current: _Plan | None = None
        self._logged = ""
        """Id of the plan that the log was told of last."""
        self._snapshot: Snapshot | None = None
        """The policies behind it."""
        self._specs: dict[bytes, KeySpec] = {}
        self._withheld: deque[tuple[int, tuple[int, ...] | None]] = deque()
        """Purges that not all workers have applied yet: generation of the pod's log, and labels."""
        self._announced: deque[tuple[int, int]] = deque(maxlen=_ANNOUNCED_KEPT)
        """Generation of the pod's log and step of the drop log, of those that filters have been told of."""
        self._purged = self._drops.step
        """Step of the newest of them."""
        self._asked = False
        """Whether a filter has ever asked."""
        self._closed = False

    # -- policies ----------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Other policies are in force, or something else has been decided about experiments."""
        snapshot = self._in_force().snapshot
        # At once: a purge by URL from now on means what these policies store for it as well.
        specs = {policy.key.fingerprint: policy.key for policy in snapshot.in_use}
        older = [item for item in self._specs.items() if item[0] not in specs]
        self._specs = dict([*specs.items(), *older][: max(_SPECS_KEPT, len(specs))])
        self._dirty.set()

    def load(self) -> None:
        """Learn of filters that asked a supervisor before this one. Blocks."""
        if self._living is not None:
            self._registry.restore(filter_living.read(self._living))

    async def run(self) -> None:
        """Compile and publish a plan after every change, and keep in mind who asks, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            if self._living is not None:
                tasks.create_task(self._remember(self._living))

    async def _remember(self, path: Path) -> None:
        while True:
            await asyncio.sleep(filter_living.WRITTEN_EVERY)
            if ago := self._registry.ago:
                # Without it a purge after a restart waits for fewer filters than there may be.
                with suppress(OSError):
                    await asyncio.to_thread(filter_living.write, path, ago)

    async def _follow(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            snapshot, version = self._in_force()
            try:
                made = await asyncio.to_thread(self._compile, snapshot, self._secret, self._lease)
                await self._publish(_Plan(*made, snapshot.generation, version), snapshot)
            except Exception as error:
                # By no plan nothing is answered that is not right; by an old one it might be.
                self._log.error("no plan for the filters in Envoy", error=error, exc_info=True)
                self._current = None
                self._wake()

    async def _publish(self, plan: _Plan, snapshot: Snapshot) -> None:
        self._plans.pop(plan.id, None)
        self._plans[plan.id] = plan
        while len(self._plans) > _PLANS_KEPT:
            self._plans.popitem(last=False)
        self._tell_workers()
        for _ in range(int(PATIENCE / _STEP)):
            if not any(_lags(worker, plan) for worker in self._workers()):
                break
            await asyncio.sleep(_STEP)
        before, self._snapshot = self._snapshot, snapshot
        routes = () if before is None else changed_routes(before, snapshot)
        if routes is None:
            self._drop(None, "policies")
        elif routes:
            self._drop(labels_of_routes(routes), "policies")
        self._current = plan
        self._tell_of_plan()
        self._told.append(_Told(plan.id, self._drops.step, plan.generation, plan.version))
        self._metrics.set("filter_plan_bytes", (), len(plan.body))
        self._wake()

    def _tell_of_plan(self) -> None:
        """A line of the log for each plan, where there are filters to go by it."""
        plan = self._current
        if plan is not None and self._asked and plan.id != self._logged:
            self._logged = plan.id
            self._log.info("plan for the filters in Envoy", plan=plan.id, bytes=len(plan.body))

    def _tell_workers(self) -> None:
        for worker in self._workers():
            worker.tell_plans(self.plans)

    @property
    def plans(self) -> FilterPlans:
        """What a worker is told of plans: none, as long as nobody has one, so that it has nothing to tell either."""
        plans = self._plans.values() if self._asked else ()
        return FilterPlans(
            self._secret,
            tuple(FilterPlan(bytes.fromhex(plan.id), plan.generation, plan.version) for plan in plans),
        )

    @property
    def overlaid(self) -> int | None:
        """The version of overlays that every filter goes by which may answer by itself; None when there is none."""
        may_answer = (worker for worker in self._registry.living() if worker.plan or worker.planned)
        return min((self._goes_by(worker).version for worker in may_answer), default=None)

    def _goes_by(self, worker: FilterWorker) -> _Told:
        """What that filter has been told last of all that it goes by now: its plan, and what was dropped with it."""
        told = (one for one in reversed(self._told) if one.plan == worker.plan and worker.step >= one.step)
        return next(told, _NOTHING)

    # -- what to drop ------------------------------------------------------------------------------------------

    def announce(self, rules: Sequence[Rule] | None, generation: int) -> None:
        """Purge rules are in the pod's log, up to this generation of it; None: everything stored is dead."""
        labels: list[int] | None = [] if rules is not None else None
        for rule in rules or ():
            said = labels_of_rule(rule, self._specs.values())
            if said is None or labels is None:
                labels = None
                break
            labels += said
        self._withheld.append((generation, None if labels is None else tuple(labels)))
        self.applied()

    def applied(self) -> None:
        """A worker has applied purge rules, or has ended: what all have applied is told to the filters."""
        while self._withheld:
            generation, labels = self._withheld[0]
            if any(worker.ready and not reached(worker.applied, generation) for worker in self._workers()):
                return
            self._withheld.popleft()
            self._drop(labels, "purge")
            self._purged = self._drops.step
            self._announced.append((generation, self._purged))

    def invalid(self, resources: Collection[bytes] | None) -> None:
        """These resource ids, None for all, have become invalid.

        The filter that has asked about the request, and has heard the same with its answer, drops them once more:
        nobody knows whether the answer has come to it, and other Envoys may have this sidecar, too.
        """
        self._drop(None if resources is None else labels_of_resources(resources), "invalidation")

    def standing(self, generation: int) -> tuple[list[str], list[str]]:
        """The filters that have dropped what a purge of this generation of the pod's log concerns, and the others."""
        step = next((step for announced, step in self._announced if reached(announced, generation)), None)
        if step is None and not self._withheld:
            step = self._purged
        return self._registry.standing(step)

    @property
    def pending(self) -> list[str]:
        """The filters that have not dropped what all purges so far concern."""
        return self._registry.standing(None if self._withheld else self._purged)[1]

    def _drop(self, labels: tuple[int, ...] | None, cause: str) -> None:
        if labels != ():
            self._drops.add(labels)
            self._metrics.inc("filter_drops_total", (cause, "labels" if labels is not None else "everything"))
            self._wake()

    # -- filters -----------------------------------------------------------------------------------------------

    async def poll(self, poll: Poll) -> Reply | None:
        """See `filter_feed.Filters`."""
        worker = self._registry.seen(poll.worker)
        if not self._asked and not self._closed:
            self._asked = True
            self._tell_workers()
            self._tell_of_plan()
        if worker is None:
            self.refuse()
            return None
        worker.version, worker.entries, worker.bytes = poll.version, poll.entries, poll.bytes
        fills, evictions = worker.more(poll.fills, poll.evictions)
        self._metrics.inc("filter_fills_total", (), fills)
        self._metrics.inc("filter_evictions_total", (), evictions)
        worker.step, worker.plan, worker.planned = self._drops.step_of(poll.after), poll.plan, False
        self._progressed()
        loop = asyncio.get_running_loop()
        until = loop.time() + poll.wait
        while True:
            news = self._news
            reply = self._reply(poll)
            left = until - loop.time()
            if reply is None or reply.body is not None or left <= 0.0:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await news.wait()
        self._metrics.inc(
            "filter_polls_total", ("refused" if reply is None else "unchanged" if reply.body is None else "news",)
        )
        worker.planned = reply is not None and reply.body is not None and reply.plan != poll.plan
        return reply

    def _reply(self, poll: Poll) -> Reply | None:
        plan = self._current
        behind = self._drops.since(poll.after)
        if plan is None or (self._closed and behind.labels == ()):
            return None
        if self._closed:
            return Reply(plan.id, feed.encode(self._drops.generation, behind.labels))
        # Of a filter that knows another log nobody knows which secret its plan has.
        body = plan.body if poll.plan != plan.id or not behind.known else b""
        if not body and behind.labels == ():
            return Reply(plan.id, None)
        return Reply(plan.id, feed.encode(self._drops.generation, behind.labels, body))

    def refuse(self) -> None:
        """See `filter_feed.Filters`."""
        self._metrics.inc("filter_polls_total", ("refused",))

    async def numbers(self, body: bytes) -> bool:
        """See `filter_feed.Filters`."""
        return True if self.take_numbers is None else await self.take_numbers(body)

    @property
    def status(self) -> tuple[FilterStatus, ...]:
        """The filters that have been seen lately."""
        keeps = self._snapshot is None or filter_keeps(self._snapshot.config)
        return self._registry.status(lambda worker: self._goes_by(worker).generation, keeps=keeps)

    def sample(self) -> None:
        """Bring the gauges up to date."""
        living = list(self._registry.living())
        self._metrics.set("filter_workers", (), len(living))
        self._metrics.set("filter_entries", (), sum(worker.entries for worker in living))
        self._metrics.set("filter_bytes", (), sum(worker.bytes for worker in living))

    def close(self) -> None:
        """Have filters drop what they have: from now on nobody tells them of purges. Safe to call twice."""
        if not self._closed:
            self._closed = True
            self._asked = False
            self._tell_workers()
            self._drop(None, "end")

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def _lags(worker: WorkerProcess, plan: _Plan) -> bool:
    return worker.ready and (worker.generation < plan.generation or worker.overlaid < plan.version)
