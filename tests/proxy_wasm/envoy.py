"""What all workers of one Envoy have in common: time, shared data, metrics, the calls to clusters under way."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import wasmtime

from proxy_wasm.abi import Metric, Pairs, Status
from proxy_wasm.worker import Worker

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000_000
"""In nanoseconds."""


@dataclass
class Reply:
    """The answer to a call, or to a client."""

    status: int
    headers: Pairs = field(default_factory=list)
    body: bytes = b""

    def get(self, name: str) -> bytes | None:
        """The first value of a field."""
        return next((value for key, value in self.headers if key == name.encode()), None)

    def get_all(self, name: str) -> list[bytes]:
        """All values of a field."""
        return [value for key, value in self.headers if key == name.encode()]


@dataclass
class Call:
    """A call of a module to a cluster that has not been answered."""

    worker: Worker
    token: int
    cluster: str
    headers: Pairs
    body: bytes
    timeout_ms: int
    sent_ns: int
    """When, by the clock that nobody sets."""

    def get(self, name: str) -> bytes:
        """The value of a field or pseudo-header; empty where it is absent."""
        return next((value for key, value in self.headers if key == name.encode()), b"")

    def answer(self, reply: Reply) -> None:
        """End it with an answer. What is answered already, or whose VM is gone, stays so."""
        if self in self.worker.envoy.calls:
            self.worker.envoy.calls.remove(self)
            self.worker.call_ended(self, reply)

    def fail(self) -> None:
        """End it as Envoy ends a call that got no answer in time, or none at all: without headers."""
        if self in self.worker.envoy.calls:
            self.worker.envoy.calls.remove(self)
            self.worker.call_ended(self, None)


@cache
def _engine() -> wasmtime.Engine:
    # Not at import: it has signals of its own for traps, which pytest's fault handler takes if it comes later.
    return wasmtime.Engine()


@lru_cache(maxsize=8)
def _compiled(path: Path, _modified: int) -> wasmtime.Module:
    return wasmtime.Module.from_file(_engine(), str(path))


class Envoy:
    """One process: its workers load the same module, each into a VM of its own."""

    def __init__(self, module: Path, *, configuration: bytes = b"", clusters: frozenset[str] = frozenset()) -> None:
        self.engine = _engine()
        self.module = _compiled(module, module.stat().st_mtime_ns)
        self.configuration = configuration
        self.clusters = clusters
        self.now_ns = 1_800_000_000 * SECOND
        """Wall clock; tests move it."""
        self.monotonic_ns = 500 * SECOND
        """The clock that nobody sets."""
        self.random = random.Random(1)
        self.shared: dict[bytes, tuple[bytes, int]] = {}
        self.metrics: dict[tuple[Metric, bytes], int] = {}
        self.added_by_route: Pairs = []
        """Fields that the route adds to answers, also to those that a module makes."""
        self.rejects_stats = False
        """Whether `stats_config` keeps none of a module's metrics: then they are there, and stay what they are."""
        self.calls: list[Call] = []
        self.logs: list[tuple[int, str]] = []
        self.workers: list[Worker] = []
        self._cas = itertools.count(1)
        self._tokens = itertools.count(1)

    @property
    def now_ms(self) -> int:
        """Wall clock in milliseconds."""
        return self.now_ns // 1_000_000

    def start_worker(self) -> Worker:
        """Another VM; raises `AssertionError` where the module refuses to be configured."""
        worker = Worker(self)
        self.workers.append(worker)
        worker.start()
        return worker

    def advance(self, seconds: float) -> None:
        """Let time pass, and tick every worker whose time has come."""
        self.now_ns += int(seconds * SECOND)
        self.monotonic_ns += int(seconds * SECOND)
        for worker in self.workers:
            worker.tick_if_due()

    def set_clock(self, seconds: float) -> None:
        """Somebody moves the wall clock by so much, forwards or backwards; no time passes."""
        self.now_ns += int(seconds * SECOND)

    # -- what host calls ask -------------------------------------------------------------------------------------------

    def get_shared(self, key: bytes) -> tuple[bytes, int] | None:
        """A value and the number by which `set_shared` can tell whether it has changed."""
        return self.shared.get(key)

    def set_shared(self, key: bytes, value: bytes, cas: int) -> Status:
        """Set a value, unless `cas` is neither 0 nor that of the value in place."""
        held = self.shared.get(key)
        if held is not None and cas not in (0, held[1]):
            return Status.CAS_MISMATCH
        self.shared[key] = value, next(self._cas)
        return Status.OK

    def start_call(self, worker: Worker, cluster: bytes, headers: Pairs, body: bytes, timeout_ms: int) -> int | None:
        """The token of a new call, None for one that Envoy refuses as a bad argument."""
        named = {name for name, value in headers if value}
        if cluster.decode("latin-1") not in self.clusters or not {b":path", b":method", b":authority"} <= named:
            return None
        token = next(self._tokens)
        text = cluster.decode("latin-1")
        self.calls.append(Call(worker, token, text, headers, body, timeout_ms, self.monotonic_ns))
        return token
