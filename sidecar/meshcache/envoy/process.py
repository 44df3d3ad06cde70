"""A supervised Envoy: started, awaited, drained and stopped through its admin interface."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx

from meshcache.envoy.binary import EnvoyError, find_envoy
from meshcache.envoy.bootstrap import INGRESS, MAIN_LISTENER, BootstrapOptions, build_bootstrap
from meshcache.envoy.render import to_json, to_plain

if TYPE_CHECKING:
    from types import TracebackType

_TAKEN = re.compile(r"cannot bind '([^']+)': (.+?)(?:\s*\[|$)", re.MULTILINE)
_DAMAGED = re.compile(r"Plugin \S+ failed to load")
_POLL = 0.02
_LOG_LINES = 5


class EnvoyProcess:
    """One Envoy process with its files in `folder` (created if absent): `envoy.json`, `envoy.log`.

    Usage: `start()`, `wait_ready()`, then `drain()` and `stop()`; as an async context manager it starts, waits
    and stops. Envoy stands in its own session, so that Ctrl-C in a terminal reaches only the parent, which can
    then drain; and the kernel kills it when the parent dies in whatever way.
    """

    def __init__(self, options: BootstrapOptions, folder: Path, *, binary: Path | None = None) -> None:
        self._options = options
        self._folder = folder
        self._binary = binary
        self._process: asyncio.subprocess.Process | None = None
        self._admin: httpx.AsyncClient | None = None

    @property
    def pid(self) -> int | None:
        """Envoy's process id once started."""
        return None if self._process is None else self._process.pid

    @property
    def log(self) -> Path:
        """What Envoy writes to standard error."""
        return self._folder / "envoy.log"

    async def start(self) -> None:
        """Write the configuration and start the binary. Raises `EnvoyError` when there is none."""
        binary = self._binary or find_envoy()
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "envoy.json"
        _write_private(config, to_json(to_plain(build_bootstrap(self._options))))
        arguments: list[str | Path] = [
            *(sys.executable, "-I", "-S", Path(__file__).with_name("_exec.py"), str(os.getpid()), binary),
            *("--config-path", config, "--concurrency", str(self._options.concurrency)),
            # Hot restart wants shared memory by a base id, over which several Envoys on a machine would clash.
            *("--disable-hot-restart", "--log-level", "warning"),
            # ext_proc warns at every request while the sidecar is away; its counters tell that as well.
            *("--component-log-level", "ext_proc:error"),
        ]
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._admin = _admin_client(self._options.admin)

    async def wait_ready(self, timeout: float = 30.0) -> None:  # noqa: ASYNC109 - the limit is part of the contract
        """Return when Envoy answers requests. Raises `EnvoyError` when it dies first or `timeout` seconds pass."""
        process, admin = self._started()
        try:
            async with asyncio.timeout(timeout):
                while process.returncode is None:
                    with contextlib.suppress(httpx.HTTPError):
                        if (await admin.get("/ready")).status_code == httpx.codes.OK:
                            return
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            msg = f"Envoy was not ready after {timeout:g} s; see {self.log}"
            raise EnvoyError(msg) from None
        raise EnvoyError(self._death_notice())

    async def listen_port(self) -> int:
        """The port that the main listener got, for options that left the choice to the kernel."""
        _, admin = self._started()
        answer = (await admin.get("/listeners", params={"format": "json"})).json()
        for listener in answer["listener_statuses"]:
            if listener["name"] == MAIN_LISTENER:
                return int(listener["local_address"]["socket_address"]["port_value"])
        msg = f"Envoy has no listener named {MAIN_LISTENER}"
        raise EnvoyError(msg)

    async def active_requests(self) -> int:
        """Requests in flight on the main listener."""
        _, admin = self._started()
        only = {"filter": rf"^http\.{INGRESS}\.downstream_rq_active$", "format": "json"}
        answer = await admin.get("/stats", params=only)
        stats: list[dict[str, Any]] = answer.json()["stats"]
        return sum(int(stat.get("value", 0)) for stat in stats)

    async def drain(self, timeout: float) -> bool:  # noqa: ASYNC109 - the limit is part of the contract
        """Take no new connection, tell kept ones to close, and let requests in flight finish.

        Returns whether all have finished within `timeout` seconds. Refreshes still pass. A dead Envoy is drained.
        """
        process, admin = self._started()
        try:
            async with asyncio.timeout(timeout):
                await admin.post("/healthcheck/fail")
                await admin.post("/drain_listeners", params={"inboundonly": ""})
                while process.returncode is None and await self.active_requests():  # noqa: ASYNC110 - Envoy cannot notify
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            return False
        except httpx.HTTPError:
            return process.returncode is not None
        return True

    async def stop(self, grace: float = 2.0) -> None:
        """End the process: SIGTERM, and SIGKILL after `grace` seconds. Does nothing when it is not running."""
        process, self._process = self._process, None
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.aclose()
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def wait(self) -> int:
        """The exit status, once the process has ended."""
        return await self._started()[0].wait()

    async def __aenter__(self) -> Self:
        await self.start()
        try:
            await self.wait_ready()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _started(self) -> tuple[asyncio.subprocess.Process, httpx.AsyncClient]:
        if self._process is None or self._admin is None:
            msg = "Envoy has not been started"
            raise EnvoyError(msg)
        return self._process, self._admin

    def _death_notice(self) -> str:
        with self.log.open(encoding="utf-8", errors="replace") as log:
            tail = deque(log, maxlen=200)
        text = "".join(tail)
        if self._options.wasm is not None and _DAMAGED.search(text):
            return (
                f"Envoy cannot load the filter {self._options.wasm}: build it anew by `meshcache wasm build`, or give "
                f"--no-wasm; {self.log} says what is wrong with it"
            )
        taken = _TAKEN.search(text)
        if taken:
            return f"cannot listen on {taken[1]}: {taken[2].strip().lower()}"
        last = " | ".join(line.strip() for line in list(tail)[-_LOG_LINES:]) or "it wrote nothing"
        return f"Envoy died at start: {last}"


def _admin_client(admin: Path | tuple[str, int]) -> httpx.AsyncClient:
    if isinstance(admin, Path):
        transport = httpx.AsyncHTTPTransport(uds=str(admin))
        return httpx.AsyncClient(transport=transport, base_url="http://envoy-admin", timeout=5.0)
    host, port = admin
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return httpx.AsyncClient(base_url=f"http://{authority}", timeout=5.0, trust_env=False)


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whatever the umask and whatever stood there."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
