"""One worker process: `python -m meshcache.extproc.worker --control-fd N --parent PID`, started by the supervisor.

It answers Envoy on its own unix socket. Options and policies come over the control channel; when that closes,
the supervisor is gone and so is the worker.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import uvloop

from meshcache.extproc import assembly
from meshcache.extproc.control import (
    TO_WORKER,
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
from meshcache.extproc.options import Grpc
from meshcache.extproc.transport import NativeTransport
from meshcache.observe import logs
from meshcache.observe.metrics import Metrics
from meshcache.policy.documents import Documents
from meshcache.policy.errors import PolicyErrors
from meshcache.process import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from structlog.typing import FilteringBoundLogger

    from meshcache.extproc.transport import Converse, Transport

_COLLECT_AFTER: Final = 10_000
"""Objects that may be made, less those that went, before the young ones are looked through (700 by default)."""
INVALID_INTERVAL: Final = 0.02
"""Seconds between two reports of what has become invalid: what comes meanwhile goes together."""
METRICS_INTERVAL: Final = 1.0
"""Seconds between two metric reports: what a `kill -9` can lose."""


class Service(Protocol):
    """What `assembly.build` returns: the cache behind the ext_proc edge."""

    @property
    def converse(self) -> Converse:
        """What answers the messages of one stream."""
        ...

    def failed(self, error: BaseException) -> None:
        """A conversation has let an error out, which should not happen."""
        ...

    def install(self, documents: Documents, generation: int) -> None:
        """Compile and swap in a policy set. Raises `PolicyErrors`; then the one before stays."""
        ...

    def overlay(self, overlays: Overlays) -> None:
        """Put what has been decided about experiments in force, for the set at hand and those to come."""
        ...

    def admit(self, plans: FilterPlans) -> None:
        """These are the plans by which filters in Envoy work."""
        ...

    async def invalidated(self) -> Invalid:
        """What requests have made invalid that filters in Envoy may not know of, as soon as there is something."""
        ...

    async def apply_purges(self) -> int:
        """Put every purge rule of the pod's log in effect; the generation of the newest."""
        ...

    async def count_purged(self) -> tuple[int, int, tuple[bytes, ...]] | None:
        """Look through memory for what new rules concern: their first and last generation, and the keys of entries.

        None when there are no new rules.
        """
        ...

    def sample(self) -> None:
        """Bring the gauges up to date; called before metrics are reported."""
        ...

    def retire(self) -> None:
        """Begin nothing in the background any more that a request could wait for another process to do."""
        ...

    async def drain(self, timeout: float) -> None:  # noqa: ASYNC109 - the bound is the service's to divide
        """Let background work (refreshes, writes) finish within `timeout` seconds."""
        ...

    async def close(self) -> None:
        """Release everything. Called once, last."""
        ...


class Worker:
    """The life of a worker: configured, given policies, serving, drained."""

    def __init__(
        self, channel: Channel[ToWorker, FromWorker], options: WorkerOptions, log: FilteringBoundLogger
    ) -> None:
        self._channel = channel
        self._options = options
        self._log = log
        self._metrics = Metrics()
        self._stop = asyncio.Event()
        self._offered: asyncio.Queue[Policies] = asyncio.Queue()
        self._purged = asyncio.Event()
        # What came before it was listening is to be told, too.
        self._purged.set()
        self._drain_timeout = options.drain_timeout
        self._service: Service | None = None
        self._transport: Transport | None = None

    def stop(self, timeout: float | None = None) -> None:
        """Begin to drain; `timeout` seconds bound it. Asking twice changes nothing but the bound."""
        if timeout is not None:
            self._drain_timeout = timeout
        self._stop.set()

    async def run(self) -> None:
        """Serve until told to stop or until the control channel closes."""
        self._service = await assembly.build(self._options, self._metrics, self._log)
        _spare_the_collector()
        tasks = [asyncio.create_task(work) for work in self._works(self._service)]
        for task in tasks:
            task.add_done_callback(lambda _task: self._stop.set())
        try:
            await self._stop.wait()
            # Pings are answered meanwhile: a worker that drains is not hung.
            await self._drain()
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(ControlError):
            await self._channel.send(MetricsReport(self._metrics.snapshot()))
            await self._channel.send(Drained())
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, ControlError):
                raise end

    def _works(self, service: Service) -> tuple[Coroutine[Any, Any, None], ...]:
        return (
            self._obey(service),
            self._install_all(),
            self._follow_purges(service),
            self._tell_invalid(service),
            self._report(),
        )

    async def _tell_invalid(self, service: Service) -> None:
        with contextlib.suppress(ControlError):
            while True:
                await self._channel.send(await service.invalidated())
                await asyncio.sleep(INVALID_INTERVAL)

    async def _follow_purges(self, service: Service) -> None:
        while True:
            await self._purged.wait()
            self._purged.clear()
            await self._channel.send(Applied(await service.apply_purges()))
            found = await service.count_purged()
            if found is not None:
                await self._channel.send(Counted(*found))

    async def _obey(self, service: Service) -> None:
        while (message := await self._channel.receive()) is not None:
            match message:
                case Ping(number):
                    await self._channel.send(Pong(number))
                case Policies():
                    self._offered.put_nowait(message)
                case Overlays(version):
                    # Not behind a policy set that is being compiled: a rollback must not wait for that.
                    service.overlay(message)
                    await self._channel.send(OverlaysInstalled(version))
                case FilterPlans():
                    service.admit(message)
                case Purged():
                    self._purged.set()
                case Drain(timeout):
                    self.stop(timeout)
                case Configure():
                    raise ControlError("configured twice")

    async def _install_all(self) -> None:
        while True:
            message = await self._offered.get()
            if self._service is not None and not self._stop.is_set():
                await self._install(self._service, message)

    async def _install(self, service: Service, message: Policies) -> None:
        documents = Documents(files=message.files, digest=message.digest)
        try:
            # In a thread: requests go on under the set before while a large one is compiled.
            await asyncio.to_thread(service.install, documents, message.generation)
        except PolicyErrors as errors:
            # The supervisor has compiled the same text, so this tells of a difference between the processes.
            self._log.error("policies refused by worker", generation=message.generation, errors=str(errors))
            await self._channel.send(Refused(message.generation, tuple(str(error) for error in errors.errors)))
            return
        if self._stop.is_set():
            return
        if self._transport is None:
            self._transport = _transport(self._options.grpc, service)
            await self._transport.listen(Path(self._options.socket_path), service.converse)
            await self._channel.send(Installed(message.generation))
            await self._channel.send(Ready(os.getpid()))
        else:
            await self._channel.send(Installed(message.generation))

    async def _drain(self) -> None:
        """Health off, no new streams, those in flight finish, then what runs behind them."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._drain_timeout
        if self._transport is not None:
            await self._transport.retire()
        if self._service is not None:
            self._service.retire()
        if self._transport is not None:
            # Streams that are still open at the deadline are cancelled: Envoy then goes on without the cache.
            await self._transport.stop(self._drain_timeout)
        if self._service is not None:
            await self._service.drain(max(0.1, deadline - loop.time()))
            await self._service.close()

    async def _report(self) -> None:
        with contextlib.suppress(ControlError):
            while True:
                await asyncio.sleep(METRICS_INTERVAL)
                if self._service is not None:
                    self._service.sample()
                await self._channel.send(MetricsReport(self._metrics.snapshot()))


def _transport(kind: Grpc, service: Service) -> Transport:
    if kind is Grpc.NATIVE:
        return NativeTransport(service.failed)
    # Imported by those alone who want it: the library brings threads and memory of its own.
    from meshcache.extproc.grpcio_transport import GrpcioTransport

    return GrpcioTransport(service.failed)


def _spare_the_collector() -> None:
    """Leave what lives as long as the process out of every garbage collection, and collect less often.

    A request's own objects hold no cycles and go at once.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 50)


async def _main(control: socket.socket) -> int:
    channel: Channel[ToWorker, FromWorker] = await Channel.open(control, TO_WORKER)
    try:
        first = await channel.receive()
    except ControlError:
        return 1
    if not isinstance(first, Configure):
        return 0 if first is None else 1
    options = first.options
    logs.configure(options.log_level, options.log_format)
    log = logs.get_logger(worker=options.index)
    worker = Worker(channel, options, log)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, worker.stop)
    try:
        await worker.run()
    except Exception as error:
        log.error("worker failed", error=error, exc_info=True)
        return 1
    finally:
        channel.close()
    return 0


def main(arguments: list[str] | None = None) -> int:
    """The entry of the process; returns its exit status."""
    parser = argparse.ArgumentParser(prog="meshcache worker")
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, default=None)
    options = parser.parse_args(arguments)
    die_with_parent(options.parent)
    # A terminal sends SIGINT to all; the supervisor alone decides what to do about it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=options.control_fd)
    control.set_inheritable(False)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_main(control))


if __name__ == "__main__":
    sys.exit(main())
