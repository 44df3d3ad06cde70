"""The sidecar as one process tree: supervisor, workers, admin API and metrics port; started, signalled, stopped."""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from meshcache import __version__
from meshcache.admin.app import Unavailable, admin_app, metrics_app
from meshcache.admin.kept import KeptServer
from meshcache.admin.server import EmbeddedServer
from meshcache.admin.token import FILE_NAME as TOKEN_FILE
from meshcache.admin.token import Token, TokenError
from meshcache.cli.hangup import on_hangup
from meshcache.cli.options import DEFAULT_METRICS_LISTEN, refresh_cluster_name
from meshcache.cli.paths import admin_socket, run_folder
from meshcache.envoy.timeouts import message_timeout
from meshcache.experiment.orders import Order
from meshcache.extproc.control import WorkerOptions
from meshcache.extproc.deciding import NotKnownError, OrderRefusedError
from meshcache.extproc.experiment_views import ExperimentList, ExperimentView
from meshcache.extproc.filter_feed import filter_app
from meshcache.extproc.options import SOCKET_MODE, Grpc
from meshcache.extproc.purger import PurgeRequest, PurgeResult
from meshcache.extproc.settings import SupervisorOptions
from meshcache.extproc.supervisor import Supervisor
from meshcache.observe import logs
from meshcache.policy.errors import PolicyErrors
from meshcache.policy.sources import FolderSource, shown
from meshcache.policy.trust import parse_network
from meshcache.policy.values import cold_url, warm_url
from meshcache.process import FolderLock, StartError, UsageError, bind_tcp, make_folder, parse_address
from meshcache.wasm import module

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from pathlib import Path

ADMIN_SOCKET_MODE: Final = 0o600


@dataclass(frozen=True, slots=True)
class SidecarOptions:
    """The options of `meshcache serve`."""

    policies: Path
    data: Path
    socket_dir: Path
    workers: int
    warm_url: str
    cold_url: str
    metrics_listen: str
    """Empty: what the policies say, or else `DEFAULT_METRICS_LISTEN`."""
    refresh_url: str
    refresh_clusters: tuple[str, ...]
    show_all_to: tuple[str, ...]
    """Address ranges."""
    revision: str
    pod_labels: Path
    keys: Path | None
    token_file: Path | None
    """Of the admin API; None: in the data folder, made at first start."""
    lookup_timeout: float | None
    """Seconds that Envoy waits; None: what it would be configured to by the policies at the start."""
    grpc: Grpc
    drain_timeout: float
    log_level: str
    log_requests: bool
    log_format: str

    def for_supervisor(self) -> SupervisorOptions:
        """The same for the supervisor, with absolute paths."""
        worker = WorkerOptions(
            index=0,
            workers=self.workers,
            socket_path="",
            data_dir=str(self.data.absolute()),
            warm_url=self.warm_url,
            cold_url=self.cold_url,
            keys_dir="" if self.keys is None else str(self.keys.absolute()),
            refresh_url=self.refresh_url,
            refresh_clusters=self.refresh_clusters,
            shows_all=self.show_all_to,
            revision=self.revision,
            pod_labels_path=str(self.pod_labels),
            grpc=self.grpc,
            drain_timeout=self.drain_timeout,
            log_level=self.log_level,
            log_requests=self.log_requests,
            log_format=logs.log_format(self.log_format),
        )
        return SupervisorOptions(
            data=self.data.absolute(),
            socket_dir=self.socket_dir.absolute(),
            workers=self.workers,
            worker=worker,
            lookup_timeout=self.lookup_timeout,
            message_timeout=message_timeout,
            metrics_listen=self.metrics_listen,
        )


def check_store_urls(warm: str, cold: str) -> None:
    """Refuse what no worker could open, by the rules that hold for a CacheConfig. Raises `UsageError`."""
    for option, text, check in (("--warm", warm, warm_url), ("--cold", cold, cold_url)):
        try:
            if text:
                check(text)
        except ValueError as error:
            raise UsageError(f"{option}: {error}") from error


def check_refresh_url(url: str) -> None:
    """Refuse what no refresh could be sent to. Raises `UsageError`."""
    try:
        parts = urlsplit(url)
        sound = url.removeprefix("unix:") if parts.scheme == "unix" else parts.scheme == "http" and parts.hostname
        _ = parts.port
    except ValueError:
        sound = False
    if url and not sound:
        raise UsageError(f"--refresh-url {logs.redact(url)!r} is not unix:<path> or http://HOST:PORT")


def check_refresh_clusters(options: SidecarOptions) -> None:
    """Refuse names that no policy could hold, and names without a listener that knows them. Raises `UsageError`."""
    for name in options.refresh_clusters:
        refresh_cluster_name(name)
    if options.refresh_clusters and not options.refresh_url.startswith("unix:"):
        raise UsageError("--refresh-cluster needs Envoy's refresh listener: --refresh-url unix:<path>")


def check_ranges(networks: tuple[str, ...]) -> None:
    """Refuse what is no address range. Raises `UsageError`."""
    for network in networks:
        try:
            parse_network(network)
        except ValueError as error:
            raise UsageError(f"--show-all-to: {error}") from None


def check_text(options: SidecarOptions) -> None:
    """Refuse what cannot be told to workers. Raises `UsageError`."""
    try:
        msgspec.msgpack.encode(options.for_supervisor().worker)
    except UnicodeEncodeError as error:
        raise UsageError(f"{logs.redact(shown(error.object))}: an option has to be UTF-8 text") from None


async def run_sidecar(options: SidecarOptions) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit status; what kept it from starting is said on stderr."""
    stop = asyncio.Event()
    # Before anything else: asyncio would answer Ctrl-C by cancelling this in the middle of whatever it does.
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    logs.configure(options.log_level, options.log_format)
    sidecar = _Sidecar(options, stop)
    sidecar.handle_signals()
    try:
        await sidecar.start()
    except (StartError, PolicyErrors, OSError) as error:
        await sidecar.abandon()
        return fail(error)
    await sidecar.run()
    return 0


def fail(error: Exception) -> int:
    """Say on stderr what is wrong; returns the exit status: 2 for wrong usage, else 1."""
    if isinstance(error, PolicyErrors):
        text = f"meshcache: the policies are refused, and there is no earlier set to serve by:\n{error}"
    else:
        text = f"meshcache: {str(error) or type(error).__name__}"
    sys.stderr.write(logs.redact(text) + "\n")
    return 2 if isinstance(error, UsageError) else 1


class _Purges:
    """What the admin API asks of the supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def purge(self, body: bytes, who: Mapping[str, Any]) -> PurgeResult:
        """See `admin.app.Purges`."""
        try:
            request = msgspec.json.decode(body, type=PurgeRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"not a purge: {error}") from error
        return await self._supervisor.purging.purge(request, who)

    async def result(self, purge_id: str) -> PurgeResult | None:
        """See `admin.app.Purges`."""
        return await self._supervisor.purging.result(purge_id)


class OrderDetails(msgspec.Struct, forbid_unknown_fields=True):
    """What is said with an order about an experiment."""

    reason: str = ""
    arm: str = ""
    """Whom to promote, where nothing is compared."""


LONGEST_REASON: Final = 1000


class _Experiments:
    """What the admin API asks of the supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def overview(self) -> ExperimentList:
        """See `admin.app.Experiments`."""
        return self._supervisor.deciding.overview()

    async def show(self, name: str) -> ExperimentView:
        """See `admin.app.Experiments`."""
        try:
            return await self._supervisor.deciding.show(name)
        except NotKnownError as error:
            raise LookupError(str(error)) from error

    async def order(self, name: str, order: str, body: bytes, who: Mapping[str, Any]) -> ExperimentView:
        """See `admin.app.Experiments`."""
        try:
            wanted = Order(order)
        except ValueError:
            raise LookupError(f"{order} is none of {', '.join(Order)}") from None
        try:
            details = msgspec.json.decode(body, type=OrderDetails) if body else OrderDetails()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"not an order: {error}") from error
        if len(details.reason) > LONGEST_REASON:
            raise ValueError(f"a reason is at most {LONGEST_REASON} characters long")
        try:
            return await self._supervisor.deciding.order(name, wanted, who, text=details.reason, arm=details.arm)
        except NotKnownError as error:
            raise LookupError(str(error)) from error
        except OrderRefusedError as error:
            raise Unavailable(str(error)) from error


class _Sidecar:
    def __init__(self, options: SidecarOptions, stop: asyncio.Event) -> None:
        self._options = options
        self._log = logs.get_logger()
        self._stop = stop
        self._lock = FolderLock(options.data / "serve.lock")
        self._socket_lock = FolderLock(options.socket_dir / "sockets.lock", "--socket-dir")
        self._supervisor = Supervisor(
            options.for_supervisor(), FolderSource(options.policies), shown(options.policies), self._log
        )
        self._servers: list[EmbeddedServer | KeptServer] = []
        self._sockets: list[socket.socket] = []

    def handle_signals(self) -> None:
        """SIGTERM and SIGINT stop, the second at once; SIGUSR1 turns readiness off. For SIGHUP see `on_hangup`."""
        loop = asyncio.get_running_loop()
        on_hangup(loop, self._on_stop, self._log)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop)
        loop.add_signal_handler(signal.SIGUSR1, self._supervisor.lame_duck)

    def _on_stop(self) -> None:
        if self._stop.is_set():
            self._supervisor.kill()
        self._stop.set()

    async def start(self) -> None:
        """Everything that can fail comes before the first worker."""
        options = self._options
        check_store_urls(options.warm_url, options.cold_url)
        check_refresh_url(options.refresh_url)
        check_refresh_clusters(options)
        check_ranges(options.show_all_to)
        make_folder(options.data, "data")
        make_folder(run_folder(options.data), "socket")
        check_text(options)
        self._lock.acquire()
        # Sockets are made in the place of those that a killed process has left: nobody else's may be there.
        make_folder(options.socket_dir, "socket")
        self._socket_lock.acquire()
        try:
            token = Token.load_or_create(options.token_file or options.data / TOKEN_FILE)
        except TokenError as error:
            raise StartError(str(error)) from error
        config = self._supervisor.load()
        listen = options.metrics_listen or config.metrics_listen or DEFAULT_METRICS_LISTEN
        metrics = bind_tcp(*parse_address(listen, "--metrics-listen"), "--metrics-listen")
        self._sockets.append(metrics)
        host, port = metrics.getsockname()[:2]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        built = module.find()
        self._servers.append(
            EmbeddedServer(metrics_app(self._supervisor, None if module.fault(built) else built), metrics)
        )
        admin = admin_app(
            lambda: self._supervisor.status(address), _Purges(self._supervisor), _Experiments(self._supervisor), token
        )
        self._servers.append(KeptServer(admin, admin_socket(options.data), ADMIN_SOCKET_MODE, self._log))
        feed = filter_app(self._supervisor.filters)
        self._servers.append(KeptServer(feed, self._supervisor.filter_socket, SOCKET_MODE, self._log))
        for server in self._servers:
            await server.start()
        self._supervisor.start()
        self._log.info("sidecar started", version=__version__, workers=options.workers, metrics=address)

    async def run(self) -> None:
        """Until told to stop; then drain the workers while readiness can still be asked for."""
        await self._stop.wait()
        await self._supervisor.stop(self._options.drain_timeout)
        await self.abandon()

    async def abandon(self) -> None:
        """Give back what has been taken."""
        for server in self._servers:
            await server.stop()
        for sock in self._sockets:
            sock.close()
        self._socket_lock.release()
        self._lock.release()
