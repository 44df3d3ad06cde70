"""Millions of requests to the hot tier in Envoy, with evictions and invalidations all the time: does its memory grow?

Environment: `WASM` how many requests (10000000), `SECONDS` at most (7200), `BUDGET` the filter's memory in each of
Envoy's workers, in MiB (16), `OBJECTS` how many there are (30000; some 120 MiB), `ROUND` seconds between two looks
(10). What is popular moves on with each round. Meanwhile some clients look closely: a body is that of its path, whole,
and not older than what anybody had made by a POST, and was told of, before it was asked for. The last line on stdout is
JSON; the exit status is 0 only if all was right, and if there were enough evictions for it to mean something.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.request import urlopen

import uvloop

from bench.processes import LOOPBACK, free_port
from bench.settings import positive_number
from bench.wrk import parse, require_wrk
from soak.front import meshcache
from soak.hot_origin import Origin, OriginProtocol
from soak.resident import resident
from soak.say import say
from soak.sizes import STEP
from soak.watcher import Known, Watcher

if TYPE_CHECKING:
    from collections.abc import Iterator

WRK_THREADS: Final = 1
WRK_CONNECTIONS: Final = 32
CLIENTS: Final = 4
ENVOY_WORKERS: Final = 2
ALLOWED: Final = 0.10
"""How far above the budget the memory of one VM may be, and how much Envoy's may grow."""
EVICTED: Final = 0.01
"""So many entries for each request have to have gone for others."""
HOT: Final = 0.5
"""So large a part of the requests the filter has to answer."""
TOLD_SECONDS: Final = 3.0
"""Until filters have told what they have counted."""
POLICIES = """\
apiVersion: meshcache.dev/v1alpha1
kind: CacheConfig
metadata: {{name: default}}
spec:
  budgets: {{hot: 256Mi, filter: {budget}Mi}}   # what the filter has no room for, the sidecar has at hand
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {{name: soak}}
spec:
  tiers: {{hot: {{ttl: 300s}}, warm: {{ttl: 300s, maxObjectBytes: 0}}, cold: {{ttl: 300s, maxObjectBytes: 0}}}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {{name: all}}
spec: {{match: [{{path: {{prefix: /}}}}], policyRef: {{name: soak}}}}
"""


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
        found = [positive_number(name, default) for name, default in _DEFAULTS.items()]
        return cls(int(found[0]), found[1], int(found[2]) << 20, int(found[3]), max(int(found[4]), 1))


_DEFAULTS: Final = {"WASM": 10_000_000, "SECONDS": 7200, "BUDGET": 16, "OBJECTS": 30_000, "ROUND": 10}


class Counted(NamedTuple):
    """What the filters say of themselves, all together."""

    fills: int
    """Answers that they have taken in."""
    evictions: int
    """Those of them that had to go for others."""
    hits: int
    """Requests that they have answered."""


class Running(NamedTuple):
    """What has been started."""

    port: int
    metrics: str
    """Where they are, a URL."""
    envoy: int
    """Its pid."""

    def counted(self) -> Counted:
        """By the sidecar's metrics, which filters add to twice a second, and when they poll."""
        with urlopen(self.metrics, timeout=10) as answer:
            text = answer.read().decode()

        def total(pattern: str) -> int:
            return int(sum(map(float, re.findall(rf"^meshcache_{pattern} (\S+)$", text, re.MULTILINE))))

        hits = total(r'requests_total\{[^}]*tier="wasm"[^}]*\}')
        return Counted(total("filter_fills_total"), total("filter_evictions_total"), hits)


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


async def load(port: int, settings: Settings, number: int) -> int:
    """One round of wrk; how many requests were answered. Raises `MeasurementError` when one was not, or by an error."""
    script = Path(__file__).with_name("hot_load.lua")
    wrk = shutil.which("wrk") or "wrk"
    process = await asyncio.create_subprocess_exec(
        *(wrk, "--threads", str(WRK_THREADS), "--connections", str(WRK_CONNECTIONS)),
        *("--duration", f"{settings.round}s", "--timeout", "30s", "--script", str(script), f"http://{LOOPBACK}:{port}"),
        *("--", str(settings.objects), str(number * STEP), str(number)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return parse(out.decode()).requests


def run() -> dict[str, Any]:
    """Run the soak: what came of it, `problems` among it. Raises `MeasurementError`."""
    settings = Settings.from_environment()
    require_wrk()
    with (
        socket.create_server((LOOPBACK, 0), backlog=1024) as listening,
        tempfile.TemporaryDirectory(prefix="mc-hot-", dir="/tmp") as name,
    ):
        say(f"Starting Envoy with {ENVOY_WORKERS} workers, the filter in each, and the sidecar")
        # Before there is a loop: a Ctrl-C is heard here at once.
        with (
            _meshcache(Path(name), listening.getsockname()[1], settings) as started,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            return runner.run(_run(settings, started, listening))


async def _run(settings: Settings, started: Running, listening: socket.socket) -> dict[str, Any]:
    origin = Origin()
    server = await asyncio.get_running_loop().create_server(lambda: OriginProtocol(origin), sock=listening)
    known = Known(Counter())
    watchers = [Watcher(started.port, settings.objects, seed, known) for seed in range(CLIENTS)]
    tasks = [asyncio.create_task(watcher.run()) for watcher in watchers]
    began, done = time.monotonic(), 0
    seconds = 0.0
    sizes: list[list[int]] = []
    own: list[int] = []
    try:
        while done < settings.requests and seconds < settings.seconds:
            known.round += 1
            done += await load(started.port, settings, known.round)
            seconds = time.monotonic() - began
            sizes.append(vm_sizes(started.envoy))
            own.append(resident(started.envoy).own)
            told = " ".join(f"{size / 2**20:.1f}" for size in sizes[-1])
            wrong = sum(len(watcher.wrong) for watcher in watchers)
            counted = await asyncio.to_thread(started.counted)
            say(
                f"{done:>9} requests  {done / seconds:6.0f}/s  VMs MiB: {told}  Envoy MiB: {own[-1] / 2**20:.1f}"
                f"  fills: {counted.fills}  evictions: {counted.evictions}  wrong: {wrong}"
            )
            for task in tasks:
                if task.done():
                    task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(TOLD_SECONDS)
    counted = await asyncio.to_thread(started.counted)
    server.close()
    return judge(settings, watchers, sizes, own, done, seconds, origin, counted)


def judge(
    settings: Settings,
    watchers: list[Watcher],
    sizes: list[list[int]],
    own: list[int],
    done: int,
    seconds: float,
    origin: Origin,
    counted: Counted,
) -> dict[str, Any]:
    """What came of it, for the last line. `sizes` are those of the VMs at each look, `own` those of Envoy itself."""
    answers = sum(watcher.answers for watcher in watchers)
    hot = counted.hits / max(done + answers, 1)
    wrong = [text for watcher in watchers for text in watcher.wrong]
    made = sum(watcher.made for watcher in watchers)
    largest = max((size for look in sizes for size in look), default=0)
    allowed = settings.budget * (1 + ALLOWED)
    # A third of the way everything has been filled long since; what grows from then on is a leak.
    third = own[len(own) // 3] if own else 0
    growth = own[-1] / third - 1 if third else 0.0
    problems = [f"wrong: {text}" for text in wrong[:5]]
    if done < settings.requests:
        problems.append(f"only {done} of {settings.requests} requests were made")
    if largest > allowed:
        problems.append(f"a VM has {largest / 2**20:.1f} MiB, more than {allowed / 2**20:.1f}")
    if growth > ALLOWED:
        problems.append(f"Envoy grew by {growth:.1%}")
    if hot < HOT:
        problems.append(f"only {hot:.0%} were answered by the filter")
    if counted.evictions < done * EVICTED:
        problems.append(f"only {counted.evictions} evictions, too few to tell anything")
    if not made:
        problems.append("nothing was changed by a POST")
    if not made <= origin.made <= made + len(watchers):
        problems.append(f"the origin has made {origin.made} versions, clients were told of {made}")
    return {
        "requests": done,
        "seconds": round(seconds, 1),
        "perSecond": round(done / seconds, 1),
        "hits": counted.hits,
        "hot": round(hot, 3),
        "fills": counted.fills,
        "evictions": counted.evictions,
        "originAsked": origin.asked,
        "changed": made,
        "watched": answers,
        "watchedHot": sum(watcher.hot for watcher in watchers),
        "wrong": len(wrong),
        "budgetMiB": settings.budget >> 20,
        "largestVmMiB": round(largest / 2**20, 2),
        "envoyMiB": [round(size / 2**20, 1) for size in (own[0], third, own[-1])] if own else [],
        "envoyGrowth": round(growth, 4),
        "problems": problems,
    }


@contextmanager
def _meshcache(folder: Path, origin_port: int, settings: Settings) -> Iterator[Running]:
    """`meshcache up`, in front of the origin."""
    metrics = f"{LOOPBACK}:{free_port()}"
    policies = POLICIES.format(budget=settings.budget >> 20)
    options = ("--metrics-listen", metrics, "--concurrency", str(ENVOY_WORKERS))
    with meshcache(folder, origin_port, policies, *options) as front:
        yield Running(front.port, f"http://{metrics}/metrics", front.envoy)
