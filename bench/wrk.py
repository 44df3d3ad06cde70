"""Load by wrk, and what it reports."""

from __future__ import annotations

import json
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.processes import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE = Path(__file__).parent
MISSING = "wrk is not installed; Debian, Ubuntu: apt-get install wrk; Fedora: dnf install wrk; else github.com/wg/wrk"

TIMEOUT = 2
"""Seconds within which each request has to be answered: wrk's own default."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run: requests answered, requests per second, latencies in milliseconds."""

    requests: int
    rps: float
    p50_ms: float
    p99_ms: float


def require_wrk() -> None:
    """Raise `MeasurementError`, saying how to install it, when wrk is missing."""
    if shutil.which("wrk") is None:
        raise MeasurementError(MISSING)


def run_wrk(
    url: str,
    *,
    seconds: int,
    connections: int,
    script: str = "report.lua",
    arguments: Sequence[object] = (),
    headers: Mapping[str, str] | None = None,
) -> Sample:
    """Load a URL from one thread, as the Lua file `script` says; it is given `arguments` or else a word for this run.

    Raises `MeasurementError` when any request failed: a socket error, an answer after more than `TIMEOUT` seconds, or a
    status of 400 and above.
    """
    command = ["wrk", "--threads", "1", "--connections", str(connections), "--duration", f"{seconds}s"]
    command += ["--timeout", f"{TIMEOUT}s"]
    for name, value in (headers or {}).items():
        command += ["--header", f"{name}: {value}"]
    command += ["--script", str(HERE / script), url, "--", *map(str, arguments or [uuid.uuid4().hex[:8]])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 30)
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(f"wrk did not end within {error.timeout:.0f} s") from error
    if done.returncode != 0:
        output = done.stderr.strip() or done.stdout.strip()
        raise MeasurementError(f"wrk failed with status {done.returncode}: {output}")
    return parse(done.stdout)


def parse(output: str) -> Sample:
    """Read the last line, which `report.lua` writes; raises `MeasurementError` for failed requests, or none at all."""
    lines = output.strip().splitlines()
    try:
        found = json.loads(lines[-1])
        requests, duration = int(found["requests"]), float(found["duration"])
        p50, p99, errors = float(found["p50"]), float(found["p99"]), dict(found["errors"])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise MeasurementError(f"wrk's report cannot be read: {output[-500:]!r}") from error
    failed = {kind: number for kind, number in errors.items() if number}
    if failed:
        told = ", ".join(f"{kind} {number}" for kind, number in failed.items())
        raise MeasurementError(f"requests failed: {told}; answered: {requests}")
    if not requests:
        raise MeasurementError("no request was answered")
    return Sample(requests=requests, rps=requests / (duration / 1e6), p50_ms=p50 / 1e3, p99_ms=p99 / 1e3)
