"""How long the first byte of a streamed miss takes, next to the barest ext_proc server that lets the request through.

The first byte is that of the answer, as curl and browsers count it; that of the body is told as well. `python -m
bench.stream` measures this alone, prints JSON, and ends with status 1 when meshcache takes more than `MOST_ADDED_MS`
longer. Environment: `SECONDS_PER_PATH`, `ROUNDS`, as for the whole bench.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import sys
import tempfile
import time
import uuid
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from bench.drip import BODY_BYTES, DROP
from bench.processes import MeasurementError, raise_on_termination
from bench.spread import Spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_ADDED_MS = 1.0
CONNECTIONS = 4
"""Streams at a time: some 20 requests a second, so that nothing waits for anything but itself."""
PATIENCE = 10.0
"""Seconds that a stream of 200 ms may take at most."""


@dataclass(frozen=True, slots=True)
class StreamWay:
    """A way to an origin that streams."""

    name: str
    url: str
    """Ends with a slash; what is asked for is below it, each only once."""
    cache_status: str
    """A regular expression that `cache-status` of each answer has to match; empty: there is none."""


class Times(NamedTuple):
    """Milliseconds from the request to the first byte of the answer, and to the first byte of its body."""

    answer: float
    body: float


@dataclass(frozen=True, slots=True)
class Streamed:
    """What was found: milliseconds to the first byte, and how much more it is than without a cache."""

    stream_ms: Spread
    echo_ms: Spread
    added_ms: Spread
    body_added_ms: Spread
    """How much more it is to the first byte of the body."""

    @classmethod
    def of(cls, stream: Sequence[Times], echo: Sequence[Times]) -> Streamed:
        """Compare pair by pair."""
        pairs = list(zip(stream, echo, strict=True))
        return cls(
            Spread.of([times.answer for times in stream]),
            Spread.of([times.answer for times in echo]),
            Spread.of([one.answer - other.answer for one, other in pairs]),
            Spread.of([one.body - other.body for one, other in pairs]),
        )

    def plain(self) -> dict[str, dict[str, float]]:
        """As `JSON=1` prints it."""
        found = {
            "ttfbMs": self.stream_ms,
            "echoTtfbMs": self.echo_ms,
            "addedMs": self.added_ms,
            "bodyAddedMs": self.body_added_ms,
        }
        return {
            name: {part: round(value, 3) for part, value in asdict(spread).items()} for name, spread in found.items()
        }


def compare(ways: Sequence[StreamWay], *, seconds: float, rounds: int) -> Streamed:
    """Measure the two ways (meshcache, echo) in turn; raises `MeasurementError` for an answer that is not right."""
    taken: list[list[Times]] = [[], []]
    for number in range(rounds):
        for way, medians in zip(ways, taken, strict=True):
            medians.append(first_byte(way, seconds))
            told = f"{'stream  echo':<40} {number + 1}/{rounds}  {way.name:<12} {medians[-1].answer:9.3f} ms"
            print(f"{told} to the first byte", file=sys.stderr, flush=True)
    return Streamed.of(*taken)


def first_byte(way: StreamWay, seconds: float) -> Times:
    """The medians of the times to the first byte of all that can be asked meanwhile."""
    return asyncio.run(_first_byte(way, seconds))


async def _first_byte(way: StreamWay, seconds: float) -> Times:
    run = uuid.uuid4().hex[:8]
    until = time.monotonic() + seconds

    async def client(number: int) -> list[Times]:
        target = urlsplit(way.url)
        reader, writer = await asyncio.open_connection(target.hostname, target.port)
        # One after the other, and not all in step.
        await asyncio.sleep(number * 0.2 / CONNECTIONS)
        took: list[Times] = []
        try:
            while not took or time.monotonic() < until:
                path = f"{target.path}{run}-{number}-{len(took)}"
                async with asyncio.timeout(PATIENCE):
                    took.append(await _ask(way, reader, writer, path))
        finally:
            writer.close()
        return took

    try:
        found = await asyncio.gather(*(client(number) for number in range(CONNECTIONS)))
    except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
        raise MeasurementError(f"{way.name}: no whole answer: {error!r}") from error
    times = [each for took in found for each in took]
    return Times(statistics.median(each.answer for each in times), statistics.median(each.body for each in times))


async def _ask(way: StreamWay, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> Times:
    """How long one answer takes to begin; the whole of it is read and checked."""
    writer.write(f"GET {path} HTTP/1.1\r\nhost: bench\r\n\r\n".encode())
    began = time.perf_counter()
    first = await reader.readexactly(1)
    answer = time.perf_counter() - began
    head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    body = await reader.readexactly(1)
    took = Times(answer * 1e3, (time.perf_counter() - began) * 1e3)
    body += await reader.readuntil(b"\r\n0\r\n\r\n")
    status = re.search(r"^cache-status: (.*?)\r$", head, re.MULTILINE)
    found = status[1] if status else ""
    if not head.startswith("HTTP/1.1 200 ") or body.count(DROP[:-1]) * len(DROP) != BODY_BYTES:
        raise MeasurementError(f"{way.name}: {path} got {head.splitlines()[0]} and {len(body)} bytes")
    if not re.search(way.cache_status, found) or bool(found) != bool(way.cache_status):
        raise MeasurementError(f"{way.name}: {path} got cache-status {found!r}")
    return took


@contextmanager
def _running() -> Iterator[Sequence[StreamWay]]:
    from bench.paths import running_ways

    with tempfile.TemporaryDirectory(prefix="meshcache-bench-") as folder, running_ways(Path(folder)) as running:
        yield running.streams


def main() -> int:
    """Measure and judge; returns the exit status."""
    from bench.settings import Settings

    raise_on_termination()
    try:
        settings = Settings.from_environment()
        with _running() as ways:
            found = compare(ways, seconds=settings.seconds, rounds=settings.rounds)
    except MeasurementError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(json.dumps(found.plain()))
    return 0 if found.added_ms.median <= MOST_ADDED_MS else 1


if __name__ == "__main__":
    sys.exit(main())
