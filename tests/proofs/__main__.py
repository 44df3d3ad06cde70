"""The long forms of what must hold, one part after the other: `python -m proofs`, or `make proofs`.

Each part prints one line, and the last line is JSON. The exit status is 0 only when everything held. Environment:
`PARTS` which of them (all), `HISTORIES` of the model (5000) and of the filter (2000), `RACES` of purges and of the
filter (1000), `REQUESTS` of the interference (40000) and of each trial of `aa` (20000), `EXPERIMENTS` of the statistics
(1000), `TRIALS` of `aa` (200) and of each kind of `verdicts` (20), `SWAPS` of policy sets (1000), `OPERATIONS` of the
filter's store (10000000), `KILLS` of who counts (500), `SECONDS_PER_PATH` of the bench.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.processes import MeasurementError
from bench.settings import positive

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REPOSITORY = Path(__file__).parents[2]
NUMBERS = ("HISTORIES", "RACES", "REQUESTS", "EXPERIMENTS", "TRIALS", "SWAPS", "OPERATIONS", "KILLS", "PROCESSES")
"""What of the environment has to be a whole number from 1 on, where it is there."""


@dataclass(frozen=True, slots=True)
class Part:
    """One proof: a module that is run, and fails when something does not hold."""

    name: str
    claim: str
    module: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def _tests(*arguments: str) -> list[str]:
    # Long runs: what limits a single test to two minutes elsewhere does not apply.
    return ["pytest", "-q", "--hypothesis-profile=proofs", "-o", "timeout=0", *arguments]


PARTS = (
    Part("model", "no difference between engine and model", ["model"]),
    Part("fuzz", "no exception leaves a parser, none takes more than linear time", _tests("tests/fuzz")),
    Part(
        "herd",
        "a herd is one request, two when the leader leaves, on a busy machine as well",
        _tests(
            *("tests/e2e/test_herds.py", "tests/e2e/test_herds_under_load.py"),
            *("-k", "five_hundred or leading or killed or under_load"),
        ),
        {"HERD_CLIENTS": "2000"},
    ),
    Part(
        "purge",
        "once nothing is pending nothing serves the old answer",
        _tests("tests/e2e/test_purges.py", "tests/e2e/test_filter_drops.py", "-k", "races"),
        {"PURGE_RACES": os.environ.get("RACES") or "1000"},
    ),
    Part(
        "interference",
        "each arm hits as often in a mixed run as alone with its share, to within a point",
        ["proofs.interference"],
    ),
    Part(
        "statistics",
        "equal arms are called different in at most 5 %, unequal ones are found in time",
        ["proofs.statistics"],
    ),
    Part(
        "aa",
        "arms of one policy are called different in at most 5 %, through the engine, and no guardrail fires",
        ["proofs.alike"],
    ),
    Part("verdicts", "a worse candidate is rolled back by itself, a better one wins", ["proofs.verdicts"]),
    Part(
        "swaps",
        "policy sets are in effect in 500 ms under load, no request fails or is decided by two",
        ["proofs.swaps"],
    ),
    Part("simulate", "a million requests are replayed against a policy in less than a minute", ["proofs.simulation"]),
    Part(
        "deciders",
        "never two decide, and a worse candidate is taken back whatever is killed",
        _tests(
            "tests/extproc/test_decider.py",
            "tests/extproc/test_decider_stopped.py",
            "tests/experiment/test_plan.py",
            "tests/e2e/test_decided_experiments.py",
            "tests/e2e/test_counts_through_kills.py",
        ),
        {"TWO_PODS": "1"},
    ),
    Part(
        "hot",
        "the filter in Envoy never gives what its model or a race forbids, whatever comes and goes",
        _tests(
            *("tests/wasm/test_filter_machine.py", "tests/e2e/test_filter_races.py"),
            *("tests/e2e/test_filter_served.py", "tests/e2e/test_filter_guarded.py"),
        ),
        {
            "FILTER_HISTORIES": os.environ.get("HISTORIES") or "2000",
            "FILTER_RACES": os.environ.get("RACES") or "1000",
            "FILTER_LONG": "1",
        },
    ),
    Part(
        "numbers",
        "hits in Envoy count once, whatever is lost on the way and whoever is killed",
        _tests(
            *("tests/extproc/test_filter_numbers.py", "tests/wasm/test_counts.py", "tests/wasm/test_booked.py"),
            *("tests/wasm/test_filter_told.py", "tests/e2e/test_hits_in_envoy_count.py"),
        ),
        {"KILLS": os.environ.get("KILLS") or "500", "FILTER_HISTORIES": "300"},
    ),
    Part(
        "vectors",
        "filter and engine choose the same arm and key on 100,000 requests, no plan makes the filter trap",
        _tests("tests/wasm/test_vectors.py", "tests/wasm/test_garbage_plans.py"),
        {"VECTOR_PLANS": "1000"},
    ),
    Part(
        "filter",
        "whatever the filter in Envoy is granted, the engine would have answered from memory",
        _tests("tests/wasm/test_played_filter.py"),
    ),
    Part(
        "store",
        "the filter's memory is within its budget and 10 %, and tells nothing but what was put in",
        _tests("tests/wasm/test_filter_store.py", "-k", "long_run"),
        {"STORE_OPERATIONS": os.environ.get("OPERATIONS") or "10000000"},
    ),
    Part("ttfb", "the first byte of a streamed miss comes within 1 ms of echo's", ["bench.stream"]),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a part went."""

    held: bool
    seconds: float
    found: dict[str, Any]
    """What it says on its last line, if that is JSON."""
    output: str


def run(part: Part) -> Outcome:
    """Run one part to its end."""
    paths = [str(REPOSITORY), str(REPOSITORY / "tests"), os.environ.get("PYTHONPATH", "")]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", *part.module],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **part.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    return Outcome(done.returncode == 0, time.monotonic() - began, _last_line(lines), done.stdout + done.stderr)


def _last_line(lines: Sequence[str]) -> dict[str, Any]:
    try:
        found = json.loads(lines[-1])
    except (IndexError, ValueError):
        return {"summary": lines[-1]} if lines else {}
    return found if isinstance(found, dict) else {}


def chosen(names: str) -> list[Part]:
    """The parts of these names (with commas between), all when there are none; raises `SystemExit` for others."""
    if not names:
        return list(PARTS)
    wanted = [name.strip() for name in names.split(",")]
    known = {part.name: part for part in PARTS}
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"proofs: no part is called {unknown[0]!r}; there are {', '.join(known)}")
    return [known[name] for name in wanted]


def main() -> int:
    """Run the parts; returns the exit status."""
    outcomes: dict[str, Outcome] = {}
    try:
        for name in NUMBERS:
            positive(name, 1)
    except MeasurementError as error:
        raise SystemExit(f"proofs: {error}") from error
    try:
        for part in chosen(os.environ.get("PARTS", "")):
            outcome = outcomes[part.name] = run(part)
            verdict = "holds" if outcome.held else "FAILS"
            print(f"{part.name:<13}{verdict:<8}{outcome.seconds:>7.0f} s  {part.claim}", flush=True)
            if not outcome.held:
                print(outcome.output, file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        return 130
    print(
        json.dumps(
            {
                name: {"holds": outcome.held, "seconds": round(outcome.seconds, 1), **outcome.found}
                for name, outcome in outcomes.items()
            }
        )
    )
    return 0 if all(outcome.held for outcome in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
