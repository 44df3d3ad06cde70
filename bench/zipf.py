"""The whole beside other caches: keys by Zipf's law, of which a few are asked for often and most hardly ever.

`ZIPF=1 python -m bench`. Each cache is real, has one worker where it can be told so, and the same origin, which
answers any key at once. Before it is measured each has been asked for every key once, and then for `ZIPF_WARMUP`
seconds (10) as it is going to be.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import peers
from bench.caches import Cache, lines
from bench.envoys import bootstrap, direct_response, listener, running_envoy
from bench.paths import (
    HERE,
    ORIGIN_HEADERS,
    OriginCounter,
    built_filter,
    cache_filter,
    get,
    running_front,
    running_sidecar,
)
from bench.processes import MeasurementError, free_port
from bench.settings import positive
from bench.spread import Spread
from bench.wrk import Sample, run_wrk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.settings import Settings

KEYS = 100_000
EXPONENT = 1.0
BODY = "0123456789abcdef" * 256
"""4 KB."""
BUDGET = 64 << 20
"""Bytes of memory for hot answers, where a cache can be told so."""
LONGEST_FILL = 300
"""Seconds in which every key has been asked for, or the cache cannot be measured."""
FILL_SECONDS = 2
"""Of one run of the filling."""
WITH, WITHOUT = "meshcache", "meshcache-no-wasm"
IN_MEMORY = Path("/dev/shm")
"""Where the files of the caches are, as long as `TMPDIR` names no other place: the disk is none of those measured."""
ROOM = 6 << 30
"""Bytes that have to be free there: of 100,000 keys some 2 GiB are files, and Envoy's cache holds as much again."""


@dataclass(frozen=True, slots=True)
class Row:
    """What was found of one cache: requests per second, milliseconds, and the share that reached the origin."""

    rps: Spread
    p50_ms: float
    p99_ms: float
    origin: float


def wanted() -> bool:
    """Whether the environment asks for this."""
    return os.environ.get("ZIPF", "") not in ("", "0")


def main(settings: Settings) -> int:
    """Measure and print; returns the exit status. Raises `MeasurementError`."""
    warmup, keys = positive("ZIPF_WARMUP", 10), positive("ZIPF_KEYS", KEYS)
    with tempfile.TemporaryDirectory(prefix="meshcache-zipf-", dir=_place()) as folder, ExitStack() as stack:
        _say(f"the files of the caches are in {folder}")
        caches, counter, missing = _running(Path(folder), stack)
        rows = _measure(caches, counter, settings, warmup, keys)
    print(table(rows, missing))
    if settings.as_json:
        print(json.dumps(plain(rows, missing)))
    return 0


def _place() -> Path | None:
    """The folder for the folder of this run; None for the system's own."""
    if "TMPDIR" in os.environ or not os.access(IN_MEMORY, os.W_OK):
        return None
    return IN_MEMORY if shutil.disk_usage(IN_MEMORY).free >= ROOM else None


def _running(folder: Path, stack: ExitStack) -> tuple[list[Cache], OriginCounter, dict[str, str]]:
    """The caches, the origin's counter, and why which cache is not there."""
    port, admin = free_port(), free_port()
    origin = listener("origin", port, direct_response(BODY, ORIGIN_HEADERS))
    stack.enter_context(running_envoy("origin", bootstrap([origin], admin=admin), folder))
    missing: dict[str, str] = {}

    def front(name: str, **options: Any) -> Cache:
        failed = folder / f"{name}.failed"
        url = stack.enter_context(running_front(folder, name, port, failed=failed, **options))
        return Cache(name, url, folder / f"{name}.log", failed=lambda: lines(failed))

    caches = []
    for name, module in ((WITH, built_filter()), (WITHOUT, None)):
        worker = stack.enter_context(running_sidecar(folder, name, HERE / "zipf_policies", data=f"data-{name}"))
        caches.append(front(name, socket=worker, wasm=module))
    caches.append(front("envoy-cache", filters=[cache_filter()]))
    nginx, varnish = peers.find_nginx(), peers.find_varnish()
    if nginx is None:
        missing["nginx"] = peers.NO_NGINX
    else:
        caches.append(stack.enter_context(peers.running_nginx(nginx, folder, port)))
    if varnish is None:
        missing["varnish"] = peers.NO_VARNISH
    else:
        caches.append(stack.enter_context(peers.running_varnish(varnish, folder, port, BUDGET)))
    for cache in caches:
        with cache.doing("first request"):
            status, _, body = get(f"{cache.url}/check")
            if status != 200 or body != BODY:
                raise MeasurementError(f"got status {status} and {len(body)} bytes")
    return caches, OriginCounter(admin), missing


def _measure(
    caches: Sequence[Cache], counter: OriginCounter, settings: Settings, warmup: int, keys: int
) -> dict[str, Row]:
    def run(cache: Cache, phase: str, seconds: int, seed: int) -> Sample:
        with cache.doing(phase):
            return run_wrk(
                f"{cache.url}/zipf/",
                seconds=seconds,
                connections=settings.connections,
                script="zipf.lua",
                arguments=[keys, EXPONENT, seed],
            )

    for cache in caches:
        _say(f"{cache.name:<18} is asked for every key")
        with cache.doing("asked for every key"):
            _fill(f"{cache.url}/zipf/", settings.connections, keys)
        _say(f"{cache.name:<18} warms up for {warmup} s")
        run(cache, "warm-up", warmup, seed=0)
    taken: dict[str, list[tuple[Sample, float]]] = {cache.name: [] for cache in caches}
    for number in range(settings.rounds):
        for cache in caches:
            before = counter.read()
            sample = run(cache, f"round {number + 1}", settings.seconds, seed=number + 1)
            taken[cache.name].append((sample, (counter.read() - before) / sample.requests))
            _say(f"{cache.name:<18} {number + 1}/{settings.rounds} {sample.rps:9.0f} req/s")
    return {name: _row(samples) for name, samples in taken.items()}


def _fill(url: str, connections: int, keys: int) -> None:
    """Ask for every key once, the rarest first. Raises `MeasurementError` when that does not come to an end."""
    left = keys
    for _ in range(LONGEST_FILL // FILL_SECONDS):
        if left <= 0:
            return
        sample = run_wrk(url, seconds=FILL_SECONDS, connections=connections, script="fill.lua", arguments=[left])
        # What was in flight when it ended is asked for again.
        left -= max(1, sample.requests - connections)
    raise MeasurementError(f"{left} keys had not been asked for after {LONGEST_FILL} s")


def _row(samples: list[tuple[Sample, float]]) -> Row:
    return Row(
        rps=Spread.of([sample.rps for sample, _ in samples]),
        p50_ms=statistics.median(sample.p50_ms for sample, _ in samples),
        p99_ms=statistics.median(sample.p99_ms for sample, _ in samples),
        origin=statistics.median(share for _, share in samples),
    )


def table(rows: Mapping[str, Row], missing: Mapping[str, str]) -> str:
    """For people."""
    lines = [f"{'zipf':<18}{'req/s':>9}{'low':>9}{'high':>9}{'p50 ms':>9}{'p99 ms':>9}{'from origin':>13}"]
    for name, row in rows.items():
        rates = "".join(f"{value:>9.0f}" for value in (row.rps.median, row.rps.low, row.rps.high))
        lines.append(f"{name:<18}{rates}{row.p50_ms:>9.3f}{row.p99_ms:>9.3f}{row.origin:>13.1%}")
    return "\n".join(lines + [f"{name:<18}{reason}" for name, reason in missing.items()])


def plain(rows: Mapping[str, Row], missing: Mapping[str, str]) -> dict[str, object]:
    """As `JSON=1` prints it."""
    return {
        "zipf": {
            name: {
                "rps": {part: round(value, 1) for part, value in asdict(row.rps).items()},
                "p50Ms": round(row.p50_ms, 3),
                "p99Ms": round(row.p99_ms, 3),
                "origin": round(row.origin, 4),
            }
            for name, row in rows.items()
        },
        "missing": dict(missing),
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
