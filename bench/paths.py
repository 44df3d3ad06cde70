"""The ways of a request that are measured: each with real Envoy, one worker thread, and an origin that answers at once.

All but the origin run the bootstrap that `meshcache up` runs, so that a pair differs in what it is named for only.
"""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from envoy_data_plane.envoy.extensions.filters.http.cache.v3 import CacheConfig
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from envoy_data_plane.envoy.extensions.http.cache.simple_http_cache.v3 import SimpleHttpCacheConfig

from bench.envoys import bootstrap, direct_response, listener, running_envoy, write_failed
from bench.processes import LOOPBACK, MeasurementError, accepts, free_port, naming, running
from bench.stream import StreamWay
from meshcache.envoy.bootstrap import BootstrapOptions, DirectResponse, build_bootstrap
from meshcache.envoy.clusters import Origin
from meshcache.envoy.render import pack, to_plain
from meshcache.wasm import module

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from email.message import Message

HERE = Path(__file__).parent
REPOSITORY = HERE.parent
BODY = json.dumps({"labels": [{"name": f"label {n}", "score": round(1 / (n + 2), 4)} for n in range(14)]})
"""What the origin answers: some 500 bytes."""
ORIGIN_HEADERS = {"content-type": "application/json", "cache-control": "max-age=3600", "etag": '"bench"'}
MESSAGE_TIMEOUT = 5.0
"""Seconds. Long, so that a stall shows as latency, not as a request that went to the origin instead."""
READY_SECONDS = 90.0
_STORED = r"meshcache; fwd=uri-miss.*; stored"
ADDED_BY_ENVOY = frozenset({"server", "content-length", "connection", "transfer-encoding"})


@dataclass(frozen=True, slots=True)
class Way:
    """A way that requests can take, and how to tell that they took it."""

    name: str
    url: str
    reaches_origin: bool
    unique: bool = False
    """Whether every request is for another URL."""
    users: bool = False
    """Whether the requests are those of many users."""
    headers: Mapping[str, str] = field(default_factory=dict)
    cache_status: str = ""
    """A regular expression that `cache-status` has to match once the way is ready; empty: there is none."""

    @property
    def script(self) -> str:
        """By which wrk makes its requests."""
        return "unique.lua" if self.unique else "users.lua" if self.users else "report.lua"

    def prepare(self) -> Mapping[str, str]:
        """Ask until the answer shows that this way was taken; gives that answer's headers.

        Raises `MeasurementError` when it does not within `READY_SECONDS`.
        """
        deadline = time.monotonic() + READY_SECONDS
        asked = 0
        while True:
            asked += 1
            status, headers, body = get(f"{self.url}check-{asked}" if self.unique else self.url, self.headers)
            found = headers.get("cache-status", "")
            if (
                status == 200
                and body == BODY
                and re.search(self.cache_status, found)
                and bool(found) == bool(self.cache_status)
            ):
                return headers
            if time.monotonic() > deadline:
                raise MeasurementError(f"{self.name}: got status {status} with cache-status {found!r}")
            time.sleep(0.05)


class OriginCounter:
    """How many requests the origin has answered, from its Envoy's statistics."""

    def __init__(self, admin_port: int) -> None:
        self._url = f"http://{LOOPBACK}:{admin_port}/stats?format=json&filter=^http.origin.downstream_rq_completed$"

    def read(self) -> int:
        """Return the count; raises `MeasurementError` when the origin does not tell."""
        with naming("origin"):
            status, _, text = get(self._url)
            if status != 200:
                raise MeasurementError(f"its statistics answer {status}")
        return sum(int(stat["value"]) for stat in json.loads(text)["stats"])


@dataclass(frozen=True, slots=True)
class Running:
    """What runs."""

    ways: dict[str, Way]
    counter: OriginCounter
    streams: tuple[StreamWay, StreamWay]
    """To an origin that streams: through meshcache, and through an echo server that lets everything pass."""


@contextmanager
def running_ways(folder: Path) -> Iterator[Running]:
    """Run everything for the length of the block; each of the ways is seen to work.

    Raises `MeasurementError` when something does not start or does not do what it is measured for.
    """
    with ExitStack() as stack:
        origin_port, admin_port = free_port(), free_port()
        origin = listener("origin", origin_port, direct_response(BODY, ORIGIN_HEADERS))
        stack.enter_context(running_envoy("origin", bootstrap([origin], admin=admin_port), folder))
        drip_port = free_port()
        drip = [sys.executable, "-m", "bench.drip", str(drip_port)]
        environment = {"PYTHONPATH": str(REPOSITORY)}
        stack.enter_context(running("drip", drip, ready=accepts(drip_port), folder=folder, env=environment))

        def front(
            name: str,
            socket: Path | None = None,
            filters: Sequence[HttpFilter] = (),
            behind: int = origin_port,
            wasm: Path | None = None,
        ) -> str:
            return stack.enter_context(running_front(folder, name, behind, socket, filters, wasm))

        def echo(mode: str, *arguments: str | Path) -> str:
            name = f"echo-{mode}{'-native' if '--native' in arguments else ''}"
            socket = folder / f"{name}.sock"
            command = [sys.executable, "-m", "bench.echo", mode, socket, *arguments]
            stack.enter_context(running(name, command, ready=accepts(socket), folder=folder, env=environment))
            return front(f"envoy-{name}", socket)

        plain = front("envoy")
        cache = front("envoy-cache", filters=[cache_filter()])
        worker = stack.enter_context(running_sidecar(folder, "envoy-meshcache", HERE / "policies"))
        meshcache = front("envoy-meshcache", worker)
        filtered = front("envoy-filter", worker, wasm=built_filter())
        library = running_sidecar(folder, "envoy-grpcio", HERE / "policies", "data-grpcio", ("--grpc", "grpcio"))
        by_library = front("envoy-grpcio", stack.enter_context(library))
        ways = [
            Way("direct", f"{plain}/direct", reaches_origin=False),
            Way("proxy", f"{plain}/hit", reaches_origin=True),
            Way("envoy-cache", f"{cache}/hit", reaches_origin=False),
            Way("hit", f"{meshcache}/hit", reaches_origin=False, cache_status=r"meshcache; hit.*\bhot\b"),
            Way("hit-grpcio", f"{by_library}/hit", reaches_origin=False, cache_status=r"meshcache; hit.*\bhot\b"),
            Way(
                "warm-hit",
                f"{meshcache}/warm",
                reaches_origin=False,
                headers={"x-user-score": "0.5"},
                cache_status=r"meshcache; hit.*\bwarm\b",
            ),
            Way("wasm-hit", f"{filtered}/hit", reaches_origin=False, cache_status=r"meshcache; hit.*\bwasm\b"),
            Way(
                "wasm-hit-ab",
                f"{filtered}/ab",
                reaches_origin=False,
                users=True,
                headers={"x-user-id": "1"},
                cache_status=r"meshcache; hit.*\bwasm\b",
            ),
            Way("miss", f"{meshcache}/miss/", True, unique=True, cache_status=_STORED),
            Way("wasm-miss", f"{filtered}/miss/", True, unique=True, cache_status=_STORED),
        ]
        answers = {way.name: way.prepare() for way in ways}
        answer = folder / "answer.json"
        headers = {name: value for name, value in answers["hit"].items() if name not in ADDED_BY_ENVOY}
        answer.write_text(json.dumps({"headers": headers, "body": BODY}))
        late = [
            Way("echo", f"{echo('reply', answer)}/hit", reaches_origin=False, cache_status="meshcache; hit"),
            Way("echo-native", f"{echo('reply', answer, '--native')}/hit", False, cache_status="meshcache; hit"),
            Way("pass", f"{echo('pass')}/pass/", reaches_origin=True, unique=True),
            Way("tee", f"{echo('tee')}/tee/", reaches_origin=True, unique=True),
            Way("unique-proxy", f"{plain}/proxy/", reaches_origin=True, unique=True),
        ]
        for way in late:
            way.prepare()
        streamed = front("envoy-stream", worker, behind=drip_port)
        passed = front("envoy-stream-echo", folder / "echo-pass.sock", behind=drip_port)
        streams = (
            StreamWay("stream", f"{streamed}/stream/", _STORED),
            StreamWay("stream-echo", f"{passed}/stream/", ""),
        )
        yield Running({way.name: way for way in (*ways, *late)}, OriginCounter(admin_port), streams)


def built_filter() -> Path:
    """The filter for Envoy; raises `MeasurementError` when it is not there, or not of the sources as they are."""
    found = module.find()
    if found is None or not found.current:
        raise MeasurementError("the filter is not built from these sources; try: meshcache wasm build")
    return found.path


@contextmanager
def running_front(
    folder: Path,
    name: str,
    origin_port: int,
    socket: Path | None = None,
    filters: Sequence[HttpFilter] = (),
    wasm: Path | None = None,
    failed: Path | None = None,
) -> Iterator[str]:
    """Run the Envoy of `meshcache up` in front of the origin, with the sidecar at `socket` if there is one; its URL.

    What it answers by a status of 400 or above it writes to the file `failed`.
    """
    port = free_port()
    options = BootstrapOptions(
        listen=(LOOPBACK, port),
        origin=Origin(LOOPBACK, origin_port),
        worker_sockets=(socket,) if socket else (),
        refresh_socket=folder / f"{name}-refresh.sock",
        admin=folder / f"{name}-admin.sock",
        message_timeout=MESSAGE_TIMEOUT,
        cache=socket is not None,
        wasm=wasm,
        filters_before=tuple(filters),
        direct_responses=(DirectResponse("/direct", 200, BODY),),
    )
    try:
        document = to_plain(build_bootstrap(options))
    except ValueError as error:
        raise MeasurementError(f"{error}; point TMPDIR to a folder with a shorter name") from error
    if failed is not None:
        write_failed(document["static_resources"]["listeners"][0], failed)
    with running_envoy(name, document, folder):
        yield f"http://{LOOPBACK}:{port}"


@contextmanager
def running_sidecar(
    folder: Path, envoy: str, policies: Path, data: str = "data", more: Sequence[str] = ()
) -> Iterator[Path]:
    """Run the sidecar with one worker, which refreshes through the front `envoy`; gives the worker's socket."""
    socket = folder / data / "run" / "worker-0.sock"
    command: list[str | Path] = [Path(sys.executable).parent / "meshcache", "serve"]
    command += ["--policies", policies, "--data", folder / data, "--metrics-listen", f"{LOOPBACK}:0"]
    command += ["--refresh-url", f"unix:{folder / f'{envoy}-refresh.sock'}", *more]
    with running(f"meshcache-{data}", command, ready=accepts(socket), folder=folder, timeout=180):
        yield socket


def cache_filter() -> HttpFilter:
    """Envoy's own cache, in memory."""
    settings = CacheConfig(typed_config=pack(SimpleHttpCacheConfig()))
    return HttpFilter(name="envoy.filters.http.cache", typed_config=pack(settings))


def get(url: str, headers: Mapping[str, str] | None = None) -> tuple[int, dict[str, str], str]:
    """Return status, headers (lower-case names) and text; raises `MeasurementError` when there is no answer."""
    request = urllib.request.Request(url, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, _lower(response.headers), response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, _lower(error.headers), error.read().decode(errors="replace")
    except OSError as error:
        raise MeasurementError(f"no answer from {url}: {error}") from error


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
