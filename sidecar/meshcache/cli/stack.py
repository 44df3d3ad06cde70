"""`meshcache up` at work: checks, start in order, supervision, and a stop that lets requests in flight finish."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import httpx
import msgspec

from meshcache.cli.checks import (
    cached_path,
    check_warm,
    filter_for_envoy,
    parse_origin,
    parse_refresh_clusters,
    policy_folder,
)
from meshcache.cli.hangup import on_hangup
from meshcache.cli.parts import EnvoyPart, ModulePart, Part, keep
from meshcache.cli.paths import DEFAULT_DATA, admin_socket, own_name, run_folder
from meshcache.cli.sidecar import check_store_urls, fail
from meshcache.envoy.binary import EnvoyError
from meshcache.envoy.bootstrap import BootstrapOptions
from meshcache.envoy.clusters import ORIGIN_CLUSTER, Origin, filter_socket
from meshcache.envoy.process import EnvoyProcess
from meshcache.envoy.timeouts import message_timeout
from meshcache.extproc.control import WorkerOptions
from meshcache.extproc.keeper import first_set
from meshcache.extproc.last_good import LastGoodFile
from meshcache.extproc.settings import with_stores
from meshcache.extproc.status import Status
from meshcache.extproc.supervisor import LAST_GOOD_NAME
from meshcache.extproc.surroundings import surroundings
from meshcache.observe import logs
from meshcache.policy.errors import PolicyErrors
from meshcache.policy.sources import FolderSource
from meshcache.process import FolderLock, StartError, bind_tcp, check_unix_path, make_folder, parse_address

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine
    from pathlib import Path

START_TIMEOUT: Final = 60.0
LOOPBACK: Final = ("127.0.0.0/8", "::1")
"""Who is on this machine: sees all of `cache-status`, unless the CacheConfig names others."""
WATCH_INTERVAL: Final = 1.0
"""Seconds between two questions to the sidecar, each of which has two seconds to be answered."""
MISSED: Final = 5
"""Unanswered questions after which the sidecar is taken for hung. They are counted, not seconds, so that an `up` which
was itself stopped for a while does not blame the sidecar."""
EXIT_GRACE: Final = 3.0
"""Seconds for the sidecar and the origin to go once nothing is in flight any more."""


@dataclass(frozen=True, slots=True)
class StackOptions:
    """The options of `meshcache up`, as given."""

    origin: str
    listen: str
    policies: Path | None
    warm: str
    cold: str
    workers: int
    concurrency: int
    data: Path
    metrics_listen: str
    latency_ms: int
    origin_timeout: float
    refresh_clusters: tuple[str, ...]
    grpc: str
    """What speaks gRPC to Envoy in the sidecar, as `serve --grpc` says it."""
    drain_timeout: float
    wasm: bool
    """Whether hot answers come from Envoy's own memory, where the filter for that is built."""
    log_level: str
    log_requests: bool


async def run_stack(options: StackOptions) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit status; what kept it from starting is said on stderr.

    0 after a drain, whether or not requests had to be cut short. A signal during the start, or a second one during
    the drain, ends everything at once: 128 plus its number, as if it had not been caught.
    """
    logs.configure(options.log_level, "auto")
    stop, hurry = asyncio.Event(), asyncio.Event()
    last: signal.Signals = signal.SIGTERM

    def on_signal(number: signal.Signals) -> None:
        nonlocal last
        last = number
        (hurry if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    on_hangup(loop, lambda: on_signal(signal.SIGHUP), logs.get_logger())
    stack = _Stack(options)
    try:
        started = await _unless(stack.start(), stop)
        if started:
            await stop.wait()
            if await _unless(stack.drain(), hurry):
                return 0
    except _AlreadySaid:
        await stack.kill()
        return 1
    except (StartError, PolicyErrors, EnvoyError, OSError) as error:
        await stack.kill()
        return fail(error)
    except BaseException:
        await stack.kill()
        raise
    await stack.kill()
    return 128 + last


async def _unless(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Run `work` until `stop` is set, then cancel it. Returns whether it came to its end; its errors are raised."""
    task = asyncio.create_task(work)
    waiting = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
            return True
        return False
    finally:
        for each in (task, waiting):
            each.cancel()
        await asyncio.gather(task, waiting, return_exceptions=True)


class _AlreadySaid(Exception):  # noqa: N818 - not an error to show
    """The sidecar did not start and has said why on the stderr that it shares with this process."""


class _Stack:
    def __init__(self, options: StackOptions) -> None:
        self._options = options
        self._log = logs.get_logger()
        self._data = options.data.absolute()
        self._run = run_folder(self._data)
        self._lock = FolderLock(options.data / "up.lock")
        self._policies = options.policies or self._data
        self._metrics_listen = options.metrics_listen
        self._demo_socket: socket.socket | None = None
        self._demo: ModulePart | None = None
        self._sidecar = ModulePart(
            "sidecar",
            "meshcache",
            self._sidecar_arguments,
            # Not as arguments: a URL may hold a password, and arguments can be read by everyone on the machine.
            environment={"MESHCACHE_WARM": options.warm, "MESHCACHE_COLD": options.cold},
        )
        self._refresh_clusters: dict[str, Origin] = {}
        self._envoy: EnvoyPart | None = None
        self._envoy_waits = 0.0
        self._cached_path: str | None = None
        self._keepers: list[asyncio.Task[None]] = []
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(admin_socket(self._data))), timeout=2.0
        )

    async def start(self) -> None:
        """Check everything, then start origin, sidecar and Envoy, and say what to try.

        Raises `StartError`, `PolicyErrors`, `EnvoyError` or `_AlreadySaid`.
        """
        options = self._options
        host, port = parse_address(options.listen, "--listen")
        if options.metrics_listen:
            parse_address(options.metrics_listen, "--metrics-listen")
        origin = parse_origin(options.origin) if options.origin else None
        self._refresh_clusters = parse_refresh_clusters(options.refresh_clusters, reserved=ORIGIN_CLUSTER)
        check_store_urls(options.warm, options.cold)
        with bind_tcp(host, port, "--listen") as probe:
            # The port is settled here, so that an Envoy that is started again gets the same.
            port = probe.getsockname()[1]
        make_folder(options.data, "data")
        make_folder(self._run, "socket")
        worker_sockets = tuple(self._run / f"worker-{index}.sock" for index in range(options.workers))
        for path in (*worker_sockets, filter_socket(self._run), self._run / "envoy-admin.sock"):
            check_unix_path(path)
        self._lock.acquire()
        self._policies, made = policy_folder(options.policies)
        await self._check_policies()

        if origin is None:
            origin = await self._start_demo()
        await self._sidecar.start()
        status = await self._sidecar_ready()
        self._metrics_listen = status.metrics_address
        envoy = EnvoyProcess(
            BootstrapOptions(
                listen=(host, port),
                origin=origin,
                worker_sockets=worker_sockets,
                refresh_socket=self._run / "refresh.sock",
                admin=self._run / "envoy-admin.sock",
                message_timeout=self._envoy_waits,
                concurrency=options.concurrency,
                origin_timeout=options.origin_timeout,
                refresh_clusters=self._refresh_clusters,
                wasm=filter_for_envoy(self._log) if options.wasm else None,
            ),
            self._data / "envoy",
        )
        self._envoy = EnvoyPart(envoy)
        await self._envoy.start()
        await envoy.wait_ready()
        parts: list[Part] = [self._sidecar, self._envoy, *([self._demo] if self._demo is not None else [])]
        self._keepers = [asyncio.create_task(keep(part, self._log)) for part in parts]
        self._keepers.append(asyncio.create_task(self._watch_sidecar()))
        self._say_ready(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", made, status)

    async def drain(self) -> None:
        """Readiness off, no new connections, requests in flight finish; then everything stops, outside first."""
        _say("\nstopping: requests in flight finish first; Ctrl-C again stops at once")
        await self._release_keepers()
        self._sidecar.signal(signal.SIGUSR1)
        if self._envoy is not None:
            if not await self._envoy.drain(self._options.drain_timeout):
                self._log.warning("requests were cut short", after=self._options.drain_timeout)
            await self._envoy.process.stop()
        await self._sidecar.stop(self._options.drain_timeout + EXIT_GRACE)
        if self._demo is not None:
            await self._demo.stop(EXIT_GRACE)
        await self._close()
        _say("stopped")

    async def kill(self) -> None:
        """End everything at once. Also after a start that failed half way."""
        await self._release_keepers()
        parts: list[Part | None] = [self._envoy, self._sidecar, self._demo]
        await asyncio.gather(*(part.kill() for part in parts if part is not None))
        await self._close()

    async def _release_keepers(self) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        self._keepers = []

    async def _close(self) -> None:
        await self._client.aclose()
        if self._demo_socket is not None:
            self._demo_socket.close()
        self._lock.release()

    async def _check_policies(self) -> None:
        """What the sidecar will start with: there is a set, its Redis answers, and Envoy waits as long as it needs."""
        # The options that the sidecar takes from the command line here; the others are as `serve` has them by default.
        worker = WorkerOptions(
            index=0,
            workers=1,
            socket_path="",
            data_dir="",
            warm_url=self._options.warm,
            refresh_clusters=(ORIGIN_CLUSTER, *self._refresh_clusters),
        )
        kept = LastGoodFile(self._data / LAST_GOOD_NAME).load()
        snapshot = first_set(FolderSource(self._policies), kept, surroundings(worker)).snapshot
        self._envoy_waits = message_timeout(snapshot.lookup_budget(), snapshot.longest_wait())
        self._cached_path = cached_path(snapshot)
        option = "--warm" if self._options.warm else "stores.warm.url"
        await check_warm(with_stores(worker, snapshot.config).warm_url, option)

    async def _start_demo(self) -> Origin:
        # The socket stays open here: while the demo origin is started again, requests wait instead of failing.
        self._demo_socket = bound = bind_tcp("127.0.0.1", 0, "the demo origin's port")
        arguments = ("--fd", str(bound.fileno()), "--latency-ms", str(self._options.latency_ms))
        self._demo = ModulePart("demo origin", "meshcache.demo.origin", lambda: arguments, fds=[bound.fileno()])
        await self._demo.start()
        return Origin("127.0.0.1", bound.getsockname()[1])

    def _sidecar_arguments(self) -> list[str]:
        options = self._options
        return [
            "serve",
            *("--policies", str(self._policies), "--data", str(options.data), "--workers", str(options.workers)),
            *("--metrics-listen", self._metrics_listen),
            *("--refresh-url", f"unix:{self._run / 'refresh.sock'}", "--drain-timeout", str(options.drain_timeout)),
            *("--lookup-timeout", str(self._envoy_waits), "--log-level", options.log_level),
            *("--grpc", options.grpc),
            *(f"--refresh-cluster={name}" for name in (ORIGIN_CLUSTER, *self._refresh_clusters)),
            *(f"--show-all-to={network}" for network in LOOPBACK),
            *(["--log-requests"] if options.log_requests else []),
        ]

    async def _sidecar_ready(self) -> Status:
        """The status once a worker answers. Raises `_AlreadySaid` when the sidecar ends first."""
        try:
            async with asyncio.timeout(START_TIMEOUT):
                while not self._sidecar.ended:
                    status = await self._status()
                    if status is not None and status.ready:
                        return status
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise StartError(f"no worker was ready within {START_TIMEOUT:g} s; the log above says why") from None
        raise _AlreadySaid

    async def _watch_sidecar(self) -> None:
        """Kill a sidecar that has answered and does so no more; then it is started again.

        Its workers go on meanwhile, but nobody minds them, the policies and the purges.
        """
        # It has told that it is ready.
        answered, missed = self._sidecar.pid, 0
        while True:
            await asyncio.sleep(WATCH_INTERVAL)
            if await self._status() is not None:
                answered, missed = self._sidecar.pid, 0
            elif answered is not None and answered == self._sidecar.pid:
                missed += 1
                if missed >= MISSED:
                    self._log.error("sidecar does not answer; killing it", missed=missed)
                    self._sidecar.signal(signal.SIGKILL)
                    answered = None

    async def _status(self) -> Status | None:
        with contextlib.suppress(httpx.HTTPError, OSError, msgspec.DecodeError):
            answer = await self._client.get("http://meshcache/status")
            return msgspec.json.decode(answer.content, type=Status)
        return None

    def _say_ready(self, address: str, made: bool, status: Status) -> None:
        options = self._options
        base = f"http://{address}"
        if options.origin:
            target = logs.redact(options.origin)
            path = self._cached_path
            hint = "twice: cache-status says what was done and why"
            if path is None:
                path, hint = "/", "from the origin: no route caches a whole path so far"
            tries = [(f"curl -i {quote(base + path)}", hint)]
        else:
            target = f"a demo origin that takes {options.latency_ms} ms for each answer"
            path = "/v1/images/cat/labels"
            tries = [
                (f"curl -i {quote(base + path)}", "twice: the second is a hit, see cache-status"),
                (f"curl -i -H 'x-canary: v2' {quote(base + path)}", "the other arm of the experiment"),
                (f"curl -i -X POST {quote(base + path)}", "changes the labels; stored answers are dropped"),
            ]
        width = max(len(command) for command, _ in tries)
        data = "" if options.data == DEFAULT_DATA else f" --data {quote(str(options.data))}"
        command = own_name()
        lines = [
            f"meshcache is ready on {base} in front of {target}",
            "",
            *(f"  {command:<{width}}   # {what}" for command, what in tries),
            "",
            f"policies  {self._policies.absolute()}{'  (copied from the examples)' if made else ''}"
            "  edit them: in effect within a second",
            f"metrics   http://{status.metrics_address}/metrics",
            f"status    {command} status{data}",
            *(f"arms      {command} experiment show{data} {name}" for name in status.policies.experiments[:1]),
            f"purge     {command} purge{data} --url {quote(base + path)}",
            "stop      Ctrl-C",
        ]
        if status.policies.refusal is not None:
            lines += ["", "the policies in the folder are refused; those from before serve:"]
            lines += [f"  {error}" for error in status.policies.refusal.errors[:10]]
        _say("\n".join(lines))


def _say(text: str) -> None:
    """Write to stdout; a reader that is gone is no reason to stop serving."""
    with contextlib.suppress(OSError):
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
