"""A long run through real Envoy with clients and an origin that misbehave: does any process of meshcache grow?

Environment: `REQUESTS` how many (1000000), `SECONDS` at most (900), `CLIENTS` at once (48), `WARMUP` the share of the
requests after which memory is first looked at (0.3), `GROWTH` how much it may grow from then on (0.05).
The last line on stdout is JSON; the exit status is 0 only if all answers were right and nothing grew.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import uvloop

from bench.processes import LOOPBACK, MeasurementError
from bench.settings import positive_number
from soak import origin
from soak.client import Client
from soak.front import meshcache
from soak.mix import Ask, Mix
from soak.resident import Resident, resident
from soak.say import say

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKERS = 2
LOOK_SECONDS = 1.0
"""Between two looks at the processes."""
LOOKS = 7
"""Of so many looks the median counts."""
POLICIES = """\
apiVersion: meshcache.dev/v1alpha1
kind: CacheConfig
metadata: {name: default}
spec:
  budgets: {hot: 16Mi}   # filled long before the first look at memory: what grows after that is a leak
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: soak}
spec:
  tiers: {warm: {ttl: 60s, deadline: 1s}, cold: {ttl: 60s, deadline: 1s}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: all}
spec: {match: [{path: {prefix: /}}], policyRef: {name: soak}}
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """How long, how hard, how strict."""

    requests: int
    seconds: float
    clients: int
    warmup: float
    growth: float

    @classmethod
    def from_environment(cls) -> Settings:
        """Raises `MeasurementError` for what is no positive number."""
        return cls(
            requests=int(positive_number("REQUESTS", 1_000_000)),
            seconds=positive_number("SECONDS", 900),
            clients=int(positive_number("CLIENTS", 48)),
            warmup=positive_number("WARMUP", 0.3),
            growth=positive_number("GROWTH", 0.05),
        )


@dataclass
class Soak:
    """One run."""

    settings: Settings
    port: int
    processes: dict[str, int]
    """The pids that are looked at, by name."""
    asked: int = 0
    stopped: bool = False
    seen: Counter[str] = field(default_factory=Counter)
    looks: dict[str, list[Resident]] = field(default_factory=dict)
    first: dict[str, Resident] = field(default_factory=dict)

    async def run(self) -> None:
        """Ask everything, and look at memory now and then."""
        mix = Mix(seed=1)
        self.looks = {name: [] for name in self.processes}
        until = time.monotonic() + self.settings.seconds

        def next_ask() -> Ask | None:
            if self.stopped or self.asked >= self.settings.requests or time.monotonic() > until:
                return None
            self.asked += 1
            return mix.next()

        clients = [Client(self.port, next_ask, self.seen) for _ in range(self.settings.clients)]
        looking = asyncio.create_task(self._look(clients))
        try:
            await asyncio.gather(*(client.run() for client in clients))
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        # What was for the clients has gone; garbage and pools are as they were at the first look.
        self._look_once()

    def stop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let what is under way come to its end, and ask no more."""
        self.stopped = True
        loop.remove_signal_handler(signal.SIGINT)

    async def _look(self, clients: list[Client]) -> None:
        loop, began, told = asyncio.get_running_loop(), time.monotonic(), 0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._look_once()
            for client in clients:
                client.check(loop.time())
            if not self.first and self.asked >= self.settings.warmup * self.settings.requests:
                self.first = self._now()
            if self.asked - told >= self.settings.requests / 20:
                told = self.asked
                mib = " ".join(f"{name} {self.looks[name][-1].own >> 20}" for name in self.processes)
                rate = self.asked / (time.monotonic() - began)
                say(f"{self.asked:>9} requests  {rate:6.0f}/s  MiB: {mib}  wrong: {self.wrong}")

    def _look_once(self) -> None:
        for name, pid in self.processes.items():
            with contextlib.suppress(OSError, KeyError):
                self.looks[name].append(resident(pid))

    def _now(self) -> dict[str, Resident]:
        """The median of the last looks at each process."""
        return {name: _middle(looks[-LOOKS:]) for name, looks in self.looks.items() if looks}

    @property
    def wrong(self) -> int:
        """Answers that were not right."""
        return sum(count for what, count in self.seen.items() if what.startswith("wrong:"))

    def summary(self, seconds: float) -> dict[str, Any]:
        """What came of it, for the last line."""
        last = self._now()
        first = self.first or last
        memory = {
            name: {
                "firstMiB": round(first[name].own / 2**20, 2),
                "lastMiB": round(last[name].own / 2**20, 2),
                "growth": round(last[name].own / first[name].own - 1, 4),
                "growthWithMappedFiles": round(last[name].total / first[name].total - 1, 4),
            }
            for name in last
        }
        judged = [memory[name]["growth"] for name in memory if name != "envoy"]
        problems = [f"{self.wrong} wrong answers"] if self.wrong else []
        if self.asked < self.settings.requests:
            problems.append(f"only {self.asked} of {self.settings.requests} requests were made")
        if not self.first:
            problems.append("the end came before the warm-up was over")
        problems += [
            f"{name} grew by {found['growth']:.1%}"
            for name, found in memory.items()
            if name != "envoy" and found["growth"] >= self.settings.growth
        ]
        return {
            "requests": self.asked,
            "seconds": round(seconds, 1),
            "perSecond": round(self.asked / seconds, 1),
            "answers": dict(sorted(self.seen.items())),
            "memory": memory,
            "worstGrowth": max(judged, default=0.0),
            "problems": problems,
        }


def _middle(looks: list[Resident]) -> Resident:
    return Resident(
        int(statistics.median(look.total for look in looks)), int(statistics.median(look.own for look in looks))
    )


@contextlib.contextmanager
def _meshcache(folder: Path, origin_port: int) -> Iterator[tuple[int, dict[str, int]]]:
    """`meshcache up` in front of the origin: its port, and the pids by name; raises when it is not well in the end."""
    options = ("--workers", str(WORKERS), "--metrics-listen", f"{LOOPBACK}:0")
    with meshcache(folder, origin_port, POLICIES, *options) as front:
        before = _status(folder)
        names = {"supervisor": before["pid"]} | {f"worker-{w['index']}": w["pid"] for w in before["workers"]}
        yield front.port, names | {"envoy": front.envoy}
        after = _status(folder)
        for worker, then in zip(after["workers"], before["workers"], strict=True):
            if worker["pid"] != then["pid"]:
                raise MeasurementError(f"worker {worker['index']} was started again")


def _status(folder: Path) -> dict[str, Any]:
    transport = httpx.HTTPTransport(uds=str(folder / "data" / "run" / "admin.sock"))
    with httpx.Client(transport=transport, timeout=10) as client:
        found: dict[str, Any] = client.get("http://meshcache/status").json()
    return found


def run() -> dict[str, Any]:
    """Run the soak: what came of it, `problems` and `interrupted` among it. Raises `MeasurementError`."""
    settings = Settings.from_environment()
    found = None
    try:
        with (
            socket.create_server((LOOPBACK, 0), backlog=1024) as listening,
            tempfile.TemporaryDirectory(prefix="mc-soak-", dir="/tmp") as folder,
        ):
            say(f"Starting Envoy and meshcache with {WORKERS} workers")
            # Before there is a loop: a Ctrl-C is heard here at once.
            with (
                _meshcache(Path(folder), listening.getsockname()[1]) as (port, processes),
                asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
            ):
                found = runner.run(_run(Soak(settings, port, processes), listening))
    except MeasurementError as error:
        if found is None:
            raise
        found["problems"].append(str(error))
    return found


async def _run(soak: Soak, listening: socket.socket) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    server = await origin.start(listening)
    # A second Ctrl-C ends it at once.
    loop.add_signal_handler(signal.SIGINT, soak.stop, loop)
    say(f"Asking {soak.settings.requests} times, {soak.settings.clients} at once")
    began = time.monotonic()
    await soak.run()
    server.close()
    return soak.summary(time.monotonic() - began) | {"interrupted": soak.stopped}
