"""Measures, prints a table and, with `JSON=1`, the numbers as JSON on the last line.

Environment: `SECONDS_PER_PATH` length of one run (5), `ROUNDS` runs of each pair (5), `CONNECTIONS` at full load (32).
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.paths import Running, Way, running_ways
from bench.processes import MeasurementError, raise_on_termination
from bench.spread import Spread, added_ratio, ratio
from bench.stream import Streamed, compare
from bench.wrk import Sample, require_wrk, run_wrk

PAIRS = (("hit", "echo"), ("warm-hit", "echo"), ("hit", "envoy-cache"), ("hit", "direct"), ("proxy", "direct"))
"""Compared by requests per second at full load, the two run in turn."""
PASSING = ("unique-proxy", "pass", "tee", "miss")
"""Compared by median latency at light load, run in turn."""
LIGHT_CONNECTIONS = 2
STRAYED = 0.01
"""The share of a run's requests that may take another way: an entry is renewed, a run is cut off at its end."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How long, how often, how hard."""

    seconds: int
    rounds: int
    connections: int
    as_json: bool

    @classmethod
    def from_environment(cls) -> Settings:
        """Raises `MeasurementError` for what is not a positive whole number."""
        return cls(
            seconds=_positive("SECONDS_PER_PATH", 5),
            rounds=_positive("ROUNDS", 5),
            connections=_positive("CONNECTIONS", 32),
            as_json=os.environ.get("JSON", "") not in ("", "0"),
        )


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

    def run(self) -> None:
        """Measure everything; raises `MeasurementError` when a run did not do what it is measured for."""
        for first, second in PAIRS:
            taken = self._in_turn((first, second), self._settings.connections)
            rates = [[sample.rps for sample in taken[name]] for name in (first, second)]
            self.ratios[f"{first}/{second}"] = ratio(rates[0], rates[1])
        taken = self._in_turn(PASSING, LIGHT_CONNECTIONS)
        baseline, passed, teed, missed = ([sample.p50_ms for sample in taken[name]] for name in PASSING)
        self.ratios["missAdded/echoAdded"] = added_ratio(missed, passed, baseline)
        self.ratios["missAdded/teeAdded"] = added_ratio(missed, teed, baseline)
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

    def _measure(self, way: Way, connections: int) -> Sample:
        before = self._counter.read()
        sample = run_wrk(
            way.url,
            seconds=self._settings.seconds,
            connections=connections,
            unique=way.unique,
            headers=way.headers,
        )
        check_share(way, (self._counter.read() - before) / sample.requests)
        return sample


def check_share(way: Way, share: float) -> None:
    """Raise `MeasurementError` when requests went to the origin that should not have, or the other way round."""
    if way.reaches_origin and share < 1 - STRAYED:
        raise MeasurementError(f"{way.name}: only {share:.1%} of the requests reached the origin; all should")
    if not way.reaches_origin and share > STRAYED:
        raise MeasurementError(f"{way.name}: {share:.1%} of the requests reached the origin; none should")


def summary(
    samples: dict[str, list[Sample]], ratios: dict[str, Spread], streamed: Streamed | None = None
) -> dict[str, dict[str, dict[str, float]]]:
    """Return what `JSON=1` prints: medians by path, and ratios and times to a stream's first byte with their spread."""
    return {
        "paths": {
            name: {
                "rps": round(statistics.median(sample.rps for sample in taken), 1),
                "p50Ms": round(statistics.median(sample.p50_ms for sample in taken), 3),
                "p99Ms": round(statistics.median(sample.p99_ms for sample in taken), 3),
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
        connections = LIGHT_CONNECTIONS if name in PASSING else settings.connections
        lines.append(f"{name:<14}{connections:>12}{path['rps']:>10.0f}{path['p50Ms']:>10.3f}{path['p99Ms']:>10.3f}")
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
    found = summary(bench.samples, bench.ratios, bench.streamed)
    print(table(found, settings))
    if settings.as_json:
        print(json.dumps(found))
    return 0


def _positive(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise MeasurementError(f"{name} is {text!r}; it has to be a whole number from 1 on")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
