"""`meshcache demo ab` at work: two policies side by side on real Envoy, then one of them swapped under load."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import httpx

from meshcache.demo import ab_policies
from meshcache.demo.load import Load, LoadOptions, Tally
from meshcache.process import StartError, end

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

START_TIMEOUT: Final = 60.0
SWAP_TIMEOUT: Final = 10.0
POLL: Final = 0.02
TICK: Final = 0.5
_READY: Final = re.compile(r"meshcache is ready on (http://\S+)")


@dataclass(frozen=True)
class AbOptions:
    """The options of `meshcache demo ab`, as given."""

    folder: Path
    """Where policies, data and log are written; it exists."""
    admin_socket: Path
    """Where the admin API will listen."""
    workers: int
    warmup: int
    """Seconds that are left out of the numbers."""
    seconds: int
    """How long both arms are measured."""
    after: int
    """How long is measured after the swap."""
    origin_ms: int
    load: LoadOptions


@dataclass
class Progress:
    """Where the demonstration stands."""

    stage: str
    left: float
    """Seconds until the next stage."""
    tallies: dict[str, Tally]
    failed: int
    lateness: float
    experiment: dict[str, Any] = field(default_factory=dict)
    """What the admin API says of the experiment; empty before it says anything."""


@dataclass
class AbResult:
    """What was measured."""

    before: dict[str, Tally]
    """By arm, while the policies were different."""
    after: dict[str, Tally]
    """By arm, from the moment at which the swap was in effect."""
    experiment: dict[str, Any]
    """What the experiment's own numbers said at the end of the measurement."""
    swap_seconds: float
    """From the file's save to its effect in every worker."""
    sent: int
    failed: int
    failures: list[str]

    @property
    def better(self) -> bool:
        """Whether the candidate had more hits and the shorter mean latency."""
        control, candidate = (self.before.get(arm, Tally()) for arm in (ab_policies.CONTROL, ab_policies.CANDIDATE))
        return candidate.hit_ratio > control.hit_ratio and candidate.mean < control.mean


async def run_ab(options: AbOptions, show: Callable[[Progress], None]) -> AbResult:
    """Start Envoy, sidecar and origin, load them, swap a policy, stop everything.

    `show` is called twice a second. Raises `StartError` when something does not start or ends by itself.
    """
    policies = options.folder / "policies"
    policies.mkdir()
    ab_policies.write_policies(policies, options.warmup)
    async with _Mesh(options, policies) as mesh:
        return await _measure(options, mesh, policies, show)


async def _measure(options: AbOptions, mesh: _Mesh, policies: Path, show: Callable[[Progress], None]) -> AbResult:
    load = Load(mesh.base, options.load)
    failures: list[str] = []

    def on_failure(what: str) -> None:
        if len(failures) < 5:
            failures.append(what)

    async def stage(name: str, seconds: float) -> dict[str, Any]:
        until = time.monotonic() + seconds
        found: dict[str, Any] = {}
        while (left := until - time.monotonic()) > 0:
            found = await mesh.experiment() or found
            show(Progress(name, left, load.tallies, load.failed, load.lateness, found))
            mesh.check()
            await asyncio.sleep(min(TICK, left))
        return found

    running = asyncio.create_task(load.run(on_failure))
    try:
        await stage("warming up", options.warmup)
        load.start_anew()
        experiment = await stage("measuring", options.seconds)
        before = load.start_anew()
        generation = await mesh.generation()
        saved = time.monotonic()
        ab_policies.swap_control(policies)
        await mesh.reaches(generation + 1)
        swap_seconds = time.monotonic() - saved
        load.start_anew()
        await stage(f"{ab_policies.CONTROL} swapped", options.after)
        after = load.start_anew()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    return AbResult(before, after, experiment, swap_seconds, load.sent, load.failed, failures)


class _Mesh:
    """`meshcache up` as a process of its own."""

    def __init__(self, options: AbOptions, policies: Path) -> None:
        self._options = options
        self._policies = policies
        self._log = options.folder / "up.log"
        self._process: asyncio.subprocess.Process | None = None
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(options.admin_socket)), base_url="http://meshcache", timeout=5.0
        )
        self.base = ""

    async def __aenter__(self) -> _Mesh:
        options = self._options
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "meshcache", "up", "--listen", "127.0.0.1:0"),
                # Another meshcache may run on this machine, with the port that metrics have by default.
                *("--metrics-listen", "127.0.0.1:0"),
                *("--policies", str(self._policies), "--data", str(options.folder / "data")),
                *("--workers", str(options.workers), "--latency-ms", str(options.origin_ms)),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        try:
            async with asyncio.timeout(START_TIMEOUT):
                self.base = await self._ready()
        except BaseException as error:
            await self.__aexit__()
            if isinstance(error, TimeoutError):
                raise StartError(f"not ready within {START_TIMEOUT:g} s; {self._log} says more") from None
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()
        if self._process is not None:
            await end(self._process, 15.0)

    async def _ready(self) -> str:
        process = self._process
        if process is None or process.stdout is None:
            raise StartError("meshcache up was not started")
        while line := await process.stdout.readline():
            found = _READY.search(line.decode(errors="replace"))
            if found is not None:
                return found[1]
        raise StartError(f"meshcache up did not start: {self._last_words()}")

    def check(self) -> None:
        """Raises `StartError` when it has ended by itself."""
        if self._process is not None and self._process.returncode is not None:
            raise StartError(f"meshcache up has ended: {self._last_words()}")

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"see {self._log}"

    async def experiment(self) -> dict[str, Any]:
        """What the admin API says of the experiment; empty when it says nothing yet."""
        return await self._get(f"/experiments/{ab_policies.EXPERIMENT}")

    async def _get(self, path: str) -> dict[str, Any]:
        with contextlib.suppress(httpx.HTTPError, ValueError):
            answer = await self._client.get(path)
            if answer.is_success:
                found: dict[str, Any] = answer.json()
                return found
        return {}

    async def generation(self) -> int:
        """The policy set that every worker has; 0 while they differ."""
        status = await self._get("/status")
        found = {worker["generation"] for worker in status.get("workers", [])}
        return int(found.pop()) if len(found) == 1 else 0

    async def reaches(self, generation: int) -> None:
        """Wait until every worker has that policy set. Raises `StartError` when it takes too long."""
        until = time.monotonic() + SWAP_TIMEOUT
        while await self.generation() < generation:
            self.check()
            if time.monotonic() > until:
                raise StartError(f"the edit was not in effect within {SWAP_TIMEOUT:g} s; {self._log} says more")
            await asyncio.sleep(POLL)
