"""Measures, prints a table and, with `JSON=1`, the numbers as JSON on the last line.

Environment: `SECONDS_PER_PATH` length of one run (3), `ROUNDS` runs of each path (5), `CONNECTIONS` at full load (32).
`ZIPF=1`: instead, the whole beside other caches (`bench.zipf`).
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from bench import zipf
from bench.paths import Running, Way, running_ways
from bench.processes import MeasurementError, naming, raise_on_termination
from bench.settings import Settings
from bench.spread import Spread, added_ratio, ratio
from bench.stream import Streamed, compare
from bench.wrk import Sample, require_wrk, run_wrk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GROUPS = (
    ("direct", "wasm-hit", "envoy-cache", "wasm-hit-ab", "hit"),
    ("echo", "echo-native", "hit", "hit-grpcio", "warm-hit", "proxy", "direct"),
)
"""Run in turn at full load."""
COMPARED = (
    (("wasm-hit", "direct"), ("wasm-hit", "envoy-cache"), ("wasm-hit-ab", "direct"), ("hit", "envoy-cache")),
    (
        ("hit", "echo"),
        ("hit", "echo-native"),
        ("hit", "hit-grpcio"),
        ("warm-hit", "echo"),
        ("hit", "direct"),
        ("proxy", "direct"),
    ),
)
"""Of each group, what is compared by requests per second."""
PASSING = ("unique-proxy", "pass", "tee", "miss", "wasm-miss")
"""Compared by median latency at light load, run in turn."""
HALF = {"wasm-half": "wasm-hit", "direct-half": "direct"}
"""Each way at half of the load that `wasm-hit` takes."""
HALF_DELAY_MS = 20
"""How long each connection waits on average between two requests of it."""
HALF_TRIES = 3
"""Runs of a second by which the number of connections is found."""
PASSING_TRIES = 5
"""Times that they are run until each of them adds something to the first."""
LIGHT_CONNECTIONS = 1
"""One request at a time: what it takes, and not how requests wait for each other."""
STRAYED = 0.01
"""The share of a run's requests that may take another way: an entry is renewed, a run is cut off at its end."""


class Bench:
    """Runs ways in turn and keeps what was measured, by way and in order."""

    def __init__(self, running: Running, settings: Settings) -> None:
        self._ways = running.ways
        self._counter = running.counter
        self._streams = running.streams
        self._settings = settings
        self.streamed: Streamed | None = None
        self.samples: dict[str, list[Sample]] = {}
        self.ratios: dict[str, Spread] = {}
        self.connections = dict.fromkeys(PASSING, LIGHT_CONNECTIONS)
        """How many a way has at a time, where it is not the number for full load."""

    def run(self) -> None:
        """Measure everything; raises `MeasurementError` when a run did not do what it is measured for."""
        for group, compared in zip(GROUPS, COMPARED, strict=True):
            taken = self._in_turn(group, self._settings.connections)
            rates = {name: [sample.rps for sample in samples] for name, samples in taken.items()}
            self.ratios |= {f"{up}/{down}": ratio(rates[up], rates[down]) for up, down in compared}
        self._half()
        self._pass()
        self.streamed = compare(self._streams, seconds=self._settings.seconds, rounds=self._settings.rounds)

    def _in_turn(self, names: tuple[str, ...], connections: int) -> dict[str, list[Sample]]:
        taken: dict[str, list[Sample]] = {name: [] for name in names}
        for number in range(self._settings.rounds):
            for name in names:
                sample = self._measure(self._ways[name], connections)
                taken[name].append(sample)
                self.samples.setdefault(name, []).append(sample)
                say(f"{'  '.join(names):<40} {number + 1}/{self._settings.rounds}  {name:<12} {sample.rps:9.0f} req/s")
        return taken

    def _pass(self) -> None:
        for left in reversed(range(PASSING_TRIES)):
            taken = self._in_turn(PASSING, LIGHT_CONNECTIONS)
            try:
                self.ratios |= added_by_passing(*([sample.p50_ms for sample in taken[name]] for name in PASSING))
                return
            except MeasurementError:
                if not left:
                    raise
            # On a machine that others use too, a second may tell anything.
            say("The way with nothing in it was not the fastest: once more")
            for name in PASSING:
                del self.samples[name]

    def _half(self) -> None:
        """Each connection waits between its requests; there are so many that half of the load comes of it."""
        wanted = statistics.median(sample.rps for sample in self.samples["wasm-hit"]) / 2
        for name, way in HALF.items():
            self.connections[name] = self._connections_for(wanted, name, self._ways[way])
            self.samples[name] = []
        for number in range(self._settings.rounds):
            for name, way in HALF.items():
                sample = self._measure(self._ways[way], self.connections[name], "paced.lua", [HALF_DELAY_MS])
                self.samples[name].append(sample)
                say(f"{'  '.join(HALF):<40} {number + 1}/{self._settings.rounds}  {name:<12} {sample.rps:9.0f} req/s")
        self.ratios["wasm-half/wasm-hit"] = Spread.of([sample.rps / wanted / 2 for sample in self.samples["wasm-half"]])

    def _connections_for(self, wanted: float, name: str, way: Way) -> int:
        connections = max(1, round(wanted * HALF_DELAY_MS / 1e3))
        for _ in range(HALF_TRIES):
            # How long a wait and an answer take together depends on how busy everything is.
            with naming(f"{name}, looking for the number of connections"):
                tried = run_wrk(
                    way.url, seconds=1, connections=connections, script="paced.lua", arguments=[HALF_DELAY_MS]
                )
            connections = max(1, round(connections * wanted / tried.rps))
        return connections

    def _measure(self, way: Way, connections: int, script: str = "", arguments: Sequence[object] = ()) -> Sample:
        before = self._counter.read()
        with naming(way.name):
            sample = run_wrk(
                way.url,
                seconds=self._settings.seconds,
                connections=connections,
                script=script or way.script,
                arguments=arguments,
                headers={} if way.users else way.headers,
            )
        check_share(way, (self._counter.read() - before) / sample.requests)
        return sample


def added_by_passing(
    baseline: Sequence[float],
    passed: Sequence[float],
    teed: Sequence[float],
    missed: Sequence[float],
    filtered: Sequence[float],
) -> dict[str, Spread]:
    """The ratios of `PASSING`, by the medians of its ways in ms. Raises `MeasurementError` as `added_ratio` does."""
    return {
        "missAdded/echoAdded": added_ratio(missed, passed, baseline),
        "missAdded/teeAdded": added_ratio(missed, teed, baseline),
        "missWith/missWithout": ratio(filtered, missed),
    }


def check_share(way: Way, share: float) -> None:
    """Raise `MeasurementError` when requests went to the origin that should not have, or the other way round."""
    if way.reaches_origin and share < 1 - STRAYED:
        raise MeasurementError(f"{way.name}: only {share:.1%} of the requests reached the origin; all should")
    if not way.reaches_origin and share > STRAYED:
        raise MeasurementError(f"{way.name}: {share:.1%} of the requests reached the origin; none should")


def summary(
    samples: dict[str, list[Sample]],
    ratios: dict[str, Spread],
    streamed: Streamed | None = None,
    connections: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, dict[str, dict[str, float]]]:
    """Return what `JSON=1` prints: medians by path, and ratios and times to a stream's first byte with their spread.

    `connections` tells them of the paths that have another number than at full load.
    """
    return {
        "paths": {
            name: {
                "rps": round(statistics.median(sample.rps for sample in taken), 1),
                "p50Ms": round(statistics.median(sample.p50_ms for sample in taken), 3),
                "p99Ms": round(statistics.median(sample.p99_ms for sample in taken), 3),
                **({"connections": connections[name]} if name in connections else {}),
            }
            for name, taken in samples.items()
        },
        "ratios": {
            name: {part: round(value, 3) for part, value in asdict(spread).items()} for name, spread in ratios.items()
        },
        **({} if streamed is None else {"stream": streamed.plain()}),
    }


def table(found: dict[str, dict[str, dict[str, float]]], settings: Settings) -> str:
    """Return the summary for people."""
    lines = [f"{'path':<14}{'connections':>12}{'req/s':>10}{'p50 ms':>10}{'p99 ms':>10}"]
    for name, path in found["paths"].items():
        connections = path.get("connections", settings.connections)
        lines.append(f"{name:<14}{connections:>12.0f}{path['rps']:>10.0f}{path['p50Ms']:>10.3f}{path['p99Ms']:>10.3f}")
    lines += ["", f"{'ratio':<22}{'median':>10}{'low':>10}{'high':>10}"]
    for name, spread in found["ratios"].items():
        lines.append(f"{name:<22}{spread['median']:>10.3f}{spread['low']:>10.3f}{spread['high']:>10.3f}")
    if "stream" in found:
        lines += ["", f"{'stream, first byte':<22}{'median':>10}{'low':>10}{'high':>10}"]
        for name, spread in found["stream"].items():
            lines.append(f"{name:<22}{spread['median']:>10.3f}{spread['low']:>10.3f}{spread['high']:>10.3f}")
    return "\n".join(lines)


def say(text: str) -> None:
    """Tell how far it is, on stderr."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Run the bench; returns the exit status."""
    raise_on_termination()
    try:
        settings = Settings.from_environment()
        require_wrk()
        if zipf.wanted():
            return zipf.main(settings)
        with tempfile.TemporaryDirectory(prefix="meshcache-bench-") as folder:
            say("Starting Envoy, origin, echo servers and meshcache")
            with running_ways(Path(folder)) as running:
                bench = Bench(running, settings)
                bench.run()
    except MeasurementError as error:
        say(f"bench: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    found = summary(bench.samples, bench.ratios, bench.streamed, bench.connections)
    print(table(found, settings))
    if settings.as_json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
