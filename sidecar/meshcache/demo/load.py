"""A skewed load for demonstrations: users who ask for pictures, few of which are asked for most."""

from __future__ import annotations

import asyncio
import re
from array import array
from bisect import bisect
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Final

import httpx

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_IN_FLIGHT: Final = 512
"""Requests at once; beyond, the load waits, and its requests are late."""
_OWN: Final = re.compile(r"meshcache;(?P<hit> hit)?.*?\bdetail=\"[^\"]*?\barm=(?P<arm>[a-z0-9.-]+)")


@dataclass
class Tally:
    """What one arm's requests came to."""

    hits: int = 0
    origin: int = 0
    """Requests that waited for the origin."""
    latencies: array[float] = field(default_factory=lambda: array("d"))
    """Seconds, one for each request."""

    @property
    def requests(self) -> int:
        """How many there were."""
        return len(self.latencies)

    @property
    def hit_ratio(self) -> float:
        """Of all requests; NaN without any."""
        return self.hits / self.requests if self.requests else float("nan")

    @property
    def mean(self) -> float:
        """Mean latency in seconds; NaN without requests."""
        return sum(self.latencies) / self.requests if self.requests else float("nan")

    def quantiles(self, *levels: float) -> list[float]:
        """The latencies in seconds that these shares do not exceed; NaN without requests."""
        if not self.requests:
            return [float("nan")] * len(levels)
        ordered = sorted(self.latencies)
        return [ordered[min(self.requests - 1, int(level * self.requests))] for level in levels]


@dataclass(frozen=True)
class LoadOptions:
    """What the load is like."""

    rate: float
    """Requests a second, at random moments (a Poisson process)."""
    keys: int = 500
    exponent: float = 1.2
    """Of the zipf law that says how popular the pictures are."""
    users: int = 2000
    network: float = 0.0
    """Seconds that every request is on its way to Envoy: slept here, and part of every latency."""
    seed: int = 1


class Load:
    """Sends requests until it is cancelled, and counts what comes back for each arm."""

    def __init__(self, base: str, options: LoadOptions) -> None:
        self._base = base
        self._options = options
        self._random = Random(options.seed)  # noqa: S311 - a load that can be had again
        self._weights = list(accumulate(1 / rank**options.exponent for rank in range(1, options.keys + 1)))
        self._slots = asyncio.Semaphore(MOST_IN_FLIGHT)
        self.tallies: dict[str, Tally] = {}
        self.failed = 0
        """Requests without an answer, or with another status than 200, since the beginning."""
        self.sent = 0
        self.lateness = 0.0
        """Seconds by which the latest request was sent after its moment: more than a little means a busy machine."""

    def start_anew(self) -> dict[str, Tally]:
        """The counts up to now; counting begins anew."""
        before, self.tallies = self.tallies, {}
        return before

    async def run(self, on_failure: Callable[[str], None]) -> None:
        """Send requests until cancelled; `on_failure` is told of each that failed."""
        limits = httpx.Limits(max_connections=MOST_IN_FLIGHT, max_keepalive_connections=64)
        async with (
            httpx.AsyncClient(base_url=self._base, limits=limits, timeout=10.0) as client,
            asyncio.TaskGroup() as group,
        ):
            due = perf_counter()
            while True:
                due += self._random.expovariate(self._options.rate)
                await asyncio.sleep(max(0.0, due - perf_counter()))
                await self._slots.acquire()
                self.lateness = perf_counter() - due
                group.create_task(self._one(client, on_failure))

    async def _one(self, client: httpx.AsyncClient, on_failure: Callable[[str], None]) -> None:
        picture = bisect(self._weights, self._random.random() * self._weights[-1])
        user = self._random.randrange(self._options.users)
        began = perf_counter()
        try:
            await asyncio.sleep(self._options.network)
            self.sent += 1
            answer = await client.get(f"/v1/images/{picture}/labels", headers={"x-user-id": f"user-{user}"})
        except httpx.HTTPError as error:
            self.failed += 1
            on_failure(str(error) or type(error).__name__)
            return
        finally:
            self._slots.release()
        latency = perf_counter() - began
        found = _OWN.search(answer.headers.get("cache-status", ""))
        if answer.status_code != 200:
            self.failed += 1
            on_failure(f"status {answer.status_code}")
        elif found is None:
            # Envoy has gone on without the sidecar: an answer all the same.
            self.tallies.setdefault("", Tally()).latencies.append(latency)
        else:
            tally = self.tallies.setdefault(found["arm"], Tally())
            tally.latencies.append(latency)
            if found["hit"]:
                tally.hits += 1
            else:
                tally.origin += 1
