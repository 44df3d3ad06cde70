"""Millions of requests to the hot tier in Envoy, with evictions and invalidations all the time: does its memory grow?

Environment: `WASM` how many requests (10000000), `SECONDS` at most (7200), `BUDGET` the filter's memory in each of
Envoy's workers, in MiB (16), `OBJECTS` how many there are (4000; some 28 MiB), `ROUND` seconds between two looks (10).
Meanwhile some clients look closely: a body is that of its path, whole, and not older than what anybody had made by a
POST, and was told of, before it was asked for. The last line on stdout is JSON; the exit status is 0 only if all was
right.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import httpx
import uvloop

from bench.processes import LOOPBACK, MeasurementError, accepts, free_port, raise_on_termination, running
from bench.wrk import parse, require_wrk
from soak.__main__ import say
from soak.resident import resident
from soak.sizes import TAGS, body_of, rank, version_in

if TYPE_CHECKING:
    from collections.abc import Iterator

WRK_THREADS: Final = 1
WRK_CONNECTIONS: Final = 32
CLIENTS: Final = 4
ENVOY_WORKERS: Final = 2
ALLOWED: Final = 0.10
"""How far above the budget the memory of one VM may be."""
POLICIES = """\
apiVersion: meshcache.dev/v1alpha1
kind: CacheConfig
metadata: {{name: default}}
spec:
  budgets: {{hot: 64Mi, filter: {budget}Mi}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {{name: soak}}
spec:
  tiers: {{warm: {{ttl: 60s, deadline: 1s}}, cold: {{ttl: 60s, deadline: 1s}}}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {{name: all}}
spec: {{match: [{{path: {{prefix: /}}}}], policyRef: {{name: soak}}}}
"""


@dataclass
class Origin:
    """What it has changes with each POST."""

    versions: Counter[str] = field(default_factory=Counter)
    asked: int = 0

    def answer(self, method: str, path: str) -> bytes:
        """The bytes of a whole answer."""
        self.asked += 1
        if method == "POST":
            self.versions[path] += 1
            made = b"%d" % self.versions[path]
            return b"HTTP/1.1 200 x\r\ncontent-length: %d\r\n\r\n" % len(made) + made
        body = body_of(path, self.versions[path])
        tag = int(path.rpartition("/")[2]) % TAGS
        head = (
            f"HTTP/1.1 200 x\r\ncache-control: max-age=120\r\ncache-tag: t{tag}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class OriginProtocol(asyncio.Protocol):
    """One connection; requests come one after the other, without bodies."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            method, path, _ = self._buffer[: self._buffer.index(b"\r\n")].decode("latin-1").split(" ")
            self._buffer = self._buffer[end + 4 :]
            self._transport.write(self._origin.answer(method, path))


@dataclass
class Watcher:
    """A client that looks at every byte."""

    base: str
    objects: int
    seed: int
    floors: Counter[str]
    """By path, the version of which somebody has been told that it is made; all clients have this one."""
    answers: int = 0
    hot: int = 0
    wrong: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Ask until cancelled."""
        rng = random.Random(self.seed)
        async with httpx.AsyncClient(base_url=self.base, trust_env=False, timeout=30) as client:
            while True:
                path = f"/hot/{rank(self.objects, rng.random())}"
                if rng.random() < 0.02:
                    answer = await client.post(path)
                    self.floors[path] = max(self.floors[path], int(answer.text))
                    continue
                floor = self.floors[path]
                answer = await client.get(path)
                self.answers += 1
                self.hot += "tier=wasm" in answer.headers.get("cache-status", "")
                version = version_in(path, answer.content)
                if answer.status_code != 200 or version is None or version < floor:
                    self.wrong.append(f"GET {path}: {answer.status_code}, {version} for {floor}")
                await asyncio.sleep(rng.random() * 0.004)


@dataclass(frozen=True)
class Settings:
    """How long, and with what."""

    requests: int
    seconds: float
    budget: int
    objects: int
    round: int

    @classmethod
    def from_environment(cls) -> Settings:
        """Raises `MeasurementError` for what is no positive number."""
        found = [_positive(name, default) for name, default in _DEFAULTS.items()]
        return cls(int(found[0]), found[1], int(found[2]) << 20, int(found[3]), max(int(found[4]), 1))


_DEFAULTS: Final = {"WASM": 10_000_000, "SECONDS": 7200, "BUDGET": 16, "OBJECTS": 4000, "ROUND": 10}


def vm_sizes(pid: int) -> list[int]:
    """Bytes of memory that each of Envoy's VMs has, the largest first.

    V8 reserves gigabytes behind the memory of a module, so that no access needs a check: by that it is known.
    """
    sizes = []
    before = (0, 0, "")
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, mode = line.split()[:2]
        start, end = (int(text, 16) for text in span.split("-"))
        if mode == "---p" and end - start > 4 << 30 and before[1] == start and before[2] == "rw-p":
            sizes.append(before[1] - before[0])
        before = (start, end, mode)
    return sorted(sizes, reverse=True)


async def load(base: str, settings: Settings, seed: int) -> int:
    """One round of wrk; how many requests were answered."""
    script = Path(__file__).with_name("hot_load.lua")
    wrk = shutil.which("wrk") or "wrk"
    process = await asyncio.create_subprocess_exec(
        *(wrk, "--threads", str(WRK_THREADS), "--connections", str(WRK_CONNECTIONS)),
        *("--duration", f"{settings.round}s", "--timeout", "30s", "--script", str(script), base),
        *("--", str(settings.objects), str(seed)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return parse(out.decode()).requests


async def _soak(settings: Settings) -> dict[str, Any]:
    require_wrk()
    origin = Origin()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: OriginProtocol(origin), LOOPBACK, 0, backlog=1024)
    with tempfile.TemporaryDirectory(prefix="mc-hot-", dir="/tmp") as name:
        folder = Path(name)
        say(f"Starting Envoy with {ENVOY_WORKERS} workers, the filter in each, and the sidecar")
        starting = _meshcache(folder, server.sockets[0].getsockname()[1], settings)
        port, envoy = await asyncio.to_thread(starting.__enter__)
        try:
            found = await _run(settings, f"http://{LOOPBACK}:{port}", envoy, origin)
        finally:
            await asyncio.to_thread(starting.__exit__, None, None, None)
    server.close()
    return found


async def _run(settings: Settings, base: str, envoy: int, origin: Origin) -> dict[str, Any]:
    floors: Counter[str] = Counter()
    watchers = [Watcher(base, settings.objects, seed, floors) for seed in range(CLIENTS)]
    tasks = [asyncio.create_task(watcher.run()) for watcher in watchers]
    began, done, rounds = time.monotonic(), 0, 0
    sizes: list[list[int]] = []
    own: list[int] = []
    try:
        while done < settings.requests and time.monotonic() - began < settings.seconds:
            rounds += 1
            done += await load(base, settings, rounds)
            sizes.append(vm_sizes(envoy))
            own.append(resident(envoy).own)
            told = " ".join(f"{size / 2**20:.1f}" for size in sizes[-1])
            wrong = sum(len(watcher.wrong) for watcher in watchers)
            say(f"{done:>9} requests  VMs MiB: {told}  Envoy MiB: {own[-1] / 2**20:.1f}  wrong: {wrong}")
            for task in tasks:
                if task.done():
                    task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return judge(settings, watchers, sizes, own, done, time.monotonic() - began, origin)


def judge(
    settings: Settings,
    watchers: list[Watcher],
    sizes: list[list[int]],
    own: list[int],
    done: int,
    seconds: float,
    origin: Origin,
) -> dict[str, Any]:
    """What came of it, for the last line. `sizes` are those of the VMs at each look, `own` those of Envoy itself."""
    answers = sum(watcher.answers for watcher in watchers)
    hot = sum(watcher.hot for watcher in watchers) / max(answers, 1)
    wrong = [text for watcher in watchers for text in watcher.wrong]
    largest = max((size for look in sizes for size in look), default=0)
    allowed = settings.budget * (1 + ALLOWED)
    # Two thirds of the way everything has been filled long since; what grows from then on is a leak.
    middle = own[len(own) * 2 // 3] if own else 0
    growth = own[-1] / middle - 1 if middle else 0.0
    problems = [f"wrong: {text}" for text in wrong[:5]]
    if done < settings.requests:
        problems.append(f"only {done} of {settings.requests} requests were made")
    if largest > allowed:
        problems.append(f"a VM has {largest / 2**20:.1f} MiB, more than {allowed / 2**20:.1f}")
    if hot < 0.3:
        problems.append(f"only {hot:.0%} were answered by the filter")
    return {
        "requests": done,
        "seconds": round(seconds, 1),
        "perSecond": round(done / seconds, 1),
        "originAsked": origin.asked,
        "watched": answers,
        "wrong": len(wrong),
        "hot": round(hot, 3),
        "budgetMiB": settings.budget >> 20,
        "largestVmMiB": round(largest / 2**20, 2),
        "envoyMiB": [round(size / 2**20, 1) for size in (own[0], middle, own[-1])] if own else [],
        "envoyGrowth": round(growth, 4),
        "problems": problems,
    }


@contextmanager
def _meshcache(folder: Path, origin_port: int, settings: Settings) -> Iterator[tuple[int, int]]:
    """`meshcache up`: its port, and the pid of its Envoy."""
    (folder / "policies").mkdir()
    (folder / "policies" / "soak.yaml").write_text(POLICIES.format(budget=settings.budget >> 20))
    port = free_port()
    command: list[str | Path] = [Path(sys.executable).parent / "meshcache", "up", "--log-level", "warning"]
    command += ["--origin", f"http://{LOOPBACK}:{origin_port}", "--listen", f"{LOOPBACK}:{port}"]
    command += ["--policies", folder / "policies", "--data", folder / "data", "--drain-timeout", "2"]
    command += ["--metrics-listen", f"{LOOPBACK}:0", "--concurrency", str(ENVOY_WORKERS)]
    with running("meshcache", command, ready=accepts(port), folder=folder, timeout=90) as process:
        yield port, _envoy(process.pid)


def _envoy(parent: int) -> int:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        found = re.match(r"(\d+) \(envoy\) \S (\d+) ", stat.read_text())
        if found and int(found[2]) == parent:
            return int(found[1])
    raise MeasurementError("there is no Envoy")


def _positive(name: str, default: float) -> float:
    text = os.environ.get(name) or str(default)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise MeasurementError(f"{name} is {text!r}; it has to be a number above 0")
    return number


def main() -> int:
    """Run the soak; returns the exit status."""
    raise_on_termination()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(_soak(Settings.from_environment()))
    except MeasurementError as error:
        say(f"soak: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    for problem in found["problems"]:
        say(f"soak: {problem}")
    print(json.dumps(found))
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
