"""One worker as the supervisor sees it: started, watched, given policies, started again when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from meshcache.extproc.control import (
    FROM_WORKER,
    Applied,
    Channel,
    Configure,
    ControlError,
    Counted,
    Drain,
    Drained,
    FilterPlans,
    FromWorker,
    Installed,
    Invalid,
    MetricsReport,
    Overlays,
    OverlaysInstalled,
    Ping,
    Policies,
    Pong,
    Purged,
    Ready,
    Refused,
    ToWorker,
    WorkerOptions,
)
from meshcache.extproc.locations import WARM_FOLDER
from meshcache.extproc.status import WorkerStatus
from meshcache.observe.metrics import EMPTY, Snapshot, merge, without_gauges
from meshcache.process import Backoff, StartError, is_gone, make_folder, send_signal, wait_or_kill
from meshcache.tiers.lmdb_folder import give_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from structlog.typing import FilteringBoundLogger

PING_INTERVAL: Final = 0.5
MISSED_PINGS: Final = 10
"""Unanswered pings after which a worker is taken for hung. Pings are counted, not seconds, so that a supervisor
which was itself stopped for a while (a suspended laptop) does not blame its workers."""
START_PINGS: Final = 60
"""The same before the first answer: a worker that starts imports, opens its stores and compiles the policies."""
EXIT_GRACE: Final = 2.0
"""Seconds for a worker to go after its channel has closed."""

_BY_MEMORY: Final = frozenset({signal.SIGBUS, signal.SIGSEGV})
"""How a process ends that reads a damaged LMDB file: it would again, and so would each one that follows it."""

COMMAND: Final = (sys.executable, "-m", "meshcache.extproc.worker")
_ALLOCATOR: Final = {
    # By default each of a worker's threads (of the stores, of gRPC's library) may have a heap of its own.
    "MALLOC_ARENA_MAX": "2",
    # By default the first large block that is freed raises both bounds: from then on bodies lie on the heap, between
    # what stays for long, and a heap that has once held many of them is not given back to the system.
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
"""How the GNU C library hands out memory in workers, where the environment does not say otherwise."""


class WorkerProcess:
    """A place for one worker. `keep` runs until `drain`; the counts of workers that have ended stay in `counts`."""

    def __init__(
        self,
        options: WorkerOptions,
        *,
        policies: Callable[[], Policies],
        overlays: Callable[[], Overlays] = lambda: Overlays(0, (), ()),
        restarted: Callable[[], None],
        applied: Callable[[], None] = lambda: None,
        counted: Callable[[str, Counted], None] = lambda _name, _counted: None,
        overlaid: Callable[[], None] = lambda: None,
        plans: Callable[[], FilterPlans] = lambda: FilterPlans(b"", ()),
        invalid: Callable[[Invalid], None] = lambda _invalid: None,
        log: FilteringBoundLogger,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._options = options
        self._policies = policies
        self._overlays = overlays
        self._on_overlaid = overlaid
        self._overlaid = 0
        self._plans = plans
        self._on_invalid = invalid
        self._restarted = restarted
        self._on_applied = applied
        self._on_counted = counted
        self._applied = 0
        self._log = log.bind(worker=options.index)
        self._command = command
        self._backoff = Backoff()
        self._channel: Channel[FromWorker, ToWorker] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._retired = EMPTY
        self._snapshot = EMPTY
        self._pinged = 0
        self._ponged = 0
        self._ready = False
        self._generation = 0
        self._restarts = 0
        self._started_at = 0.0
        self._socket: Path | None = None
        """Where it listens, once it does."""

    @property
    def ready(self) -> bool:
        """Whether it listens and has a policy set."""
        return self._ready

    @property
    def name(self) -> str:
        """For people."""
        return f"worker-{self._options.index}"

    @property
    def applied(self) -> int:
        """Generation of the newest purge rule that it has said to have in effect; 0 before it has said so."""
        return self._applied

    def tell(self, generation: int) -> None:
        """There are new purge rules, up to this generation. One that is just starting reads them with its start."""
        if self._channel is not None:
            self._channel.post(Purged(generation))

    @property
    def overlaid(self) -> int:
        """Version of the overlays that it has said to have in force; 0 before it has said so."""
        return self._overlaid

    def overlay(self, overlays: Overlays) -> None:
        """Hand over what has been decided about experiments; one that is just starting gets it with its start."""
        if self._channel is not None:
            self._channel.post(overlays)

    def tell_plans(self, plans: FilterPlans) -> None:
        """Other plans of filters are in use; one that is just starting gets them with its start."""
        if self._channel is not None:
            self._channel.post(plans)

    @property
    def generation(self) -> int:
        """The policy set it works by; 0 before its first."""
        return self._generation

    @property
    def status(self) -> WorkerStatus:
        """Its state now."""
        return WorkerStatus(
            index=self._options.index,
            pid=self._process.pid if self._process is not None else None,
            ready=self._ready,
            generation=self._generation,
            restarts=self._restarts,
            socket=self._options.socket_path,
            started_at=self._started_at,
        )

    @property
    def counts(self) -> tuple[Snapshot, Snapshot]:
        """What was counted by the workers that have ended, and by the one that runs."""
        return self._retired, self._snapshot

    async def keep(self) -> None:
        """Start the worker, and start it again whenever it ends, until `drain` or `kill`."""
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                status = await self._live()
            except OSError as error:
                status = f"could not be started: {error.strerror}"
            except Exception as error:
                # Whatever it is, a worker that is not started again would be missed for good.
                self._log.error("worker could not be watched", error=error, exc_info=True)
                status = "not watched"
            if self._stopping.is_set():
                return
            self._restarts += 1
            self._restarted()
            wait = self._backoff.after(time.monotonic() - began)
            self._log.warning("worker ended", status=status, restart_in=wait)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._stopping.wait()

    async def install(self, policies: Policies) -> None:
        """Hand over a policy set; a worker that is just starting gets it with its start."""
        if self._channel is not None:
            with contextlib.suppress(ControlError):
                await self._channel.send(policies)

    async def drain(self, timeout: float) -> None:  # noqa: ASYNC109 - the bound is handed on to the worker
        """Tell it to finish within `timeout` seconds; kill it soon after that. Returns when it is gone."""
        self._stopping.set()
        self._ready = False
        process = self._process
        if process is None:
            return
        if self._channel is not None:
            self._channel.post(Drain(timeout))
        if not await wait_or_kill(process, timeout + EXIT_GRACE):
            self._log.warning("worker did not drain in time", timeout=timeout)

    def kill(self) -> None:
        """End it at once."""
        self._stopping.set()
        self._kill_process()

    def _kill_process(self) -> None:
        if self._process is not None:
            send_signal(self._process, signal.SIGKILL)

    async def _live(self) -> str:
        """One life: from the start of a process to its end. Returns how it ended."""
        with contextlib.suppress(StartError):
            # It may have gone together with the socket. Where it cannot be made, the worker says why.
            make_folder(Path(self._options.socket_path).parent, "socket")
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = process = await asyncio.create_subprocess_exec(
                    *self._command,
                    "--control-fd",
                    str(theirs.fileno()),
                    "--parent",
                    str(os.getpid()),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=_ALLOCATOR | os.environ,
                    # A group of its own: what a terminal sends to the supervisor's group is not for workers.
                    process_group=0,
                )
            except OSError:
                ours.close()
                raise
        if self._stopping.is_set():
            self._kill_process()
        self._started_at = time.time()
        self._pinged = self._ponged = 0
        self._socket = None
        channel: Channel[FromWorker, ToWorker] = await Channel.open(ours, FROM_WORKER)
        self._channel = channel
        watchdog = asyncio.create_task(self._watch(channel))
        try:
            # Each is read in the same step in which it is written: a newer one can only follow it. What has been
            # decided comes first, so that no request is answered without it.
            await channel.send(Configure(self._options))
            await channel.send(self._overlays())
            await channel.send(self._plans())
            await channel.send(self._policies())
            await self._listen(channel)
        except ControlError as error:
            self._log.warning("worker spoke out of turn", error=str(error))
            self._kill_process()
        finally:
            watchdog.cancel()
            self._ready = False
            self._generation = 0
            self._applied = 0
            self._overlaid = 0
            self._channel = None
            channel.close()
            await wait_or_kill(process, EXIT_GRACE)
            self._process = None
            self._retired = merge([self._retired, without_gauges(self._snapshot)])
            self._snapshot = EMPTY
            self._on_applied()
            self._on_overlaid()
        code = process.returncode or 0
        if -code in _BY_MEMORY and not self._options.warm_url:
            await asyncio.to_thread(give_up, Path(self._options.data_dir) / WARM_FOLDER)
        return f"killed by signal {-code}" if code < 0 else f"exit status {code}"

    async def _listen(self, channel: Channel[FromWorker, ToWorker]) -> None:
        while (message := await channel.receive()) is not None:
            match message:
                case MetricsReport(snapshot):
                    self._snapshot = snapshot
                case Pong(number):
                    self._ponged = number
                case Installed(generation):
                    self._generation = generation
                    self._log.info("policies installed", generation=generation)
                case OverlaysInstalled(version):
                    self._overlaid = version
                    self._on_overlaid()
                case Ready(pid):
                    self._socket = Path(self._options.socket_path)
                    self._ready = not self._stopping.is_set()
                    self._log.info("worker ready", pid=pid, socket=self._options.socket_path)
                case Refused(generation, errors):
                    self._log.error("worker refused policies", generation=generation, errors=list(errors))
                case Applied(generation):
                    self._applied = generation
                    self._on_applied()
                case Counted():
                    self._on_counted(self.name, message)
                case Invalid():
                    self._on_invalid(message)
                case Drained():
                    self._ready = False

    async def _watch(self, channel: Channel[FromWorker, ToWorker]) -> None:
        while True:
            await asyncio.sleep(PING_INTERVAL)
            allowed = MISSED_PINGS if self._ponged else START_PINGS
            if self._pinged - self._ponged >= allowed:
                self._log.error("worker does not answer; killing it", missed_pings=self._pinged - self._ponged)
                self._kill_process()
                return
            if self._socket is not None and not self._stopping.is_set() and is_gone(self._socket):
                # Who is connected stays so, but an Envoy that starts, or connects anew, would never find it again.
                self._log.warning("the socket of a worker has gone; another one takes its place")
                self._socket = None
                self._ready = False
                channel.post(Drain(self._options.drain_timeout))
            self._pinged += 1
            channel.post(Ping(self._pinged))
