"""A whole experiment in virtual time, by the real engine, assignment, ledger, statistics and plan.

Some users ask far more often than others, each has favourites among the keys, and a connection of its own speed; keys
are asked for by Zipf's law. Requests go through the engine as `meshcache simulate` leads them, each arm with the cache
that its units have filled; what they show is counted in the ledger's book, and judged as a decider does, again and
again.
"""

from __future__ import annotations

import gc
import os
import random
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meshcache.experiment.counted import Counted, Folded, read, split
from meshcache.experiment.judging import judge
from meshcache.experiment.ledger import Book, window_of
from meshcache.experiment.overlay import Phase
from meshcache.experiment.plan import begin, step
from meshcache.experiment.state import TERMINAL, overlay_of
from meshcache.experiment.totals import EpochTotals
from meshcache.extproc import wire
from meshcache.policy.compile import compile_documents
from meshcache.policy.documents import Documents
from meshcache.simulate.callers import Callers
from meshcache.simulate.latency import LatencyModel
from meshcache.simulate.origin import Origin
from meshcache.simulate.replay import Replay
from meshcache.simulate.trace import TraceRequest
from meshcache.simulate.world import Sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from meshcache.experiment.findings import Findings
    from meshcache.experiment.state import Decision, Record
    from meshcache.policy.snapshot import Snapshot

START = 1_800_000_000.0
_HOST = "example.com"
_GRACE = 1.0
"""Seconds after which a window of the ledger is folded once it has closed, as a supervisor does it."""

_YOUNG = 50_000
"""Objects after which the collector looks for cycles: a replay makes many objects and hardly any cycles."""

Seen = tuple[float, bool]
"""What the client of a request sees: seconds, and whether it is an error."""


@dataclass(frozen=True)
class Traffic:
    """Who asks for what."""

    users: int = 20_000
    activity: float = 0.7
    """Users' requests are distributed by rank to this power."""
    keys: int = 10_000
    zipf: float = 1.0
    favourites: int = 5
    """Keys that a user prefers, drawn by Zipf's law as all are."""
    loyal: float = 0.5
    """The share of requests that are for favourites."""
    rate: float = 100.0
    """Requests a second, at times as chance has it."""
    failing: float = 0.005
    """The share of requests that the origin answers with 503."""

    def requests(self, count: int, seed: int) -> Iterator[TraceRequest]:
        """So many requests in order of time."""
        rng = np.random.default_rng(seed)
        users = _by_rank(rng, self.users, self.activity, count)
        keys = _by_rank(rng, self.keys, self.zipf, count)
        own = _by_rank(rng, self.keys, self.zipf, self.users * self.favourites).reshape(self.users, self.favourites)
        chosen = own[users, rng.integers(0, self.favourites, count)]
        keys = np.where(rng.random(count) < self.loyal, chosen, keys)
        times = START + np.cumsum(rng.exponential(1 / self.rate, count))
        fails = rng.random(count) < self.failing
        rows = zip(times.tolist(), users.tolist(), keys.tolist(), fails.tolist(), strict=True)
        for when, user, key, failed in rows:
            yield TraceRequest(when, f"/{key}", 1000, 503 if failed else 200, host=_HOST, user=f"u{user}")


def _by_rank(rng: np.random.Generator, ranks: int, power: float, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    weights = np.arange(1.0, ranks + 1) ** -power
    return np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(count)).clip(max=ranks - 1)


def processes() -> ProcessPoolExecutor:
    """Where trials run beside each other: `PROCESSES` of the environment (2)."""
    return ProcessPoolExecutor(int(os.environ.get("PROCESSES") or 2), initializer=_seldom_collected)


def _seldom_collected() -> None:
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 50)


class _Counted(Replay):
    """A replay whose requests tell an experiment what they have shown, as `extproc.conversation` has them do."""

    def __init__(self, *given: Any, seen: Callable[[str, TraceRequest, Seen], Seen], **more: Any) -> None:
        super().__init__(*given, **more)
        self._seen = seen

    def _note(self, asked: TraceRequest, exchange: Any, *given: Any) -> None:
        super()._note(asked, exchange, *given)
        account = exchange.account
        if account is not None:
            latency, error = given[3], given[8]
            latency, error = self._seen(exchange.selection.arm, asked, (latency, error))
            account.failed(failed=error)
            account.settle(latency)


class Trial:
    """One experiment from its first request on. Use as a context manager.

    `worse` says what the client of a request sees, given his arm, what he would see otherwise, and a number that is
    drawn between 0 and 1.
    """

    def __init__(
        self,
        text: str,
        traffic: Traffic,
        seed: int,
        *,
        worse: Callable[[str, Seen, float], Seen] = lambda _arm, seen, _draw: seen,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mc-trial-")
        self._worse = worse
        self._connections: dict[str, float] = {}
        self._random = random.Random(seed)
        self._seed = seed
        self._policies = compile_documents(Documents.of([("policies.yaml", text)]), generation=1, secret=b"%d" % seed)
        (self.experiment,) = self._policies.experiments
        self.record, decisions = begin(self.experiment, None, START)
        self.decisions: list[Decision] = list(decisions)
        self.findings: Findings | None = None
        """Of the last look."""
        origin = Origin(validators=False)
        self._origin = origin
        self.replay = _Counted(
            Path(self._folder.name),
            self._policies,
            Sizes(),
            start=START,
            origin=origin,
            latency=LatencyModel(sigma=0.3, seed=seed),
            callers=Callers.of_policies(self._policies),
            render=wire.render,
            seen=self._shown,
        )
        self._asked = traffic
        self._install()

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.replay.finish()
        self._folder.cleanup()

    @property
    def now(self) -> float:
        """Seconds since the first request could come."""
        return self.replay.world.loop.now - START

    def run(self, requests: int, every: int) -> Iterator[EpochTotals]:
        """Send so many requests, and decide after every few of them; yields what is known whenever it was looked at."""
        for number, asked in enumerate(self._asked.requests(requests, self._seed), 1):
            self.replay.feed(self._origin.seen(asked))
            if number % every == 0:
                yield self.look()
                if self.record.phase in TERMINAL:
                    return

    def look(self) -> EpochTotals:
        """Read the ledger, and take the next step of the plan."""
        now = self.replay.world.loop.now
        totals = self._totals(now)
        if self.record.phase is Phase.RUNNING:
            self.findings = judge(self.experiment, self.record.epoch, self.record.weights, totals)
        before = self.record
        self.record, decisions = step(self.experiment, before, self.findings, now)
        self.decisions += decisions
        if _in_force(before) != _in_force(self.record):
            self._install()
        return totals

    def _totals(self, now: float) -> EpochTotals:
        self._folded.fold([self._book.buffer], window_of(now - _GRACE) - 1)
        found: Counted = read(self._book.buffer)
        found.sampled = self._folded.sampled
        return EpochTotals(found.totals(), split(found.sample, found.arms), now)

    def _install(self) -> None:
        overlay = overlay_of(self.experiment, self.record)
        assert overlay is not None
        snapshot: Snapshot = self._policies.with_overlays({self.experiment.name: overlay})
        arms = len(self.experiment.arms)
        self._book, self._folded = Book.in_memory(arms, self._random.getrandbits(32)), Folded.none(arms)
        snapshot.tallies = dict.fromkeys(snapshot.counted, self._book)
        self.replay.world.cache.install(snapshot)

    def _shown(self, arm: str, asked: TraceRequest, seen: Seen) -> Seen:
        connection = self._connections.get(asked.user)
        if connection is None:
            connection = self._connections[asked.user] = self._random.lognormvariate(-4.5, 1.0)
        return self._worse(arm, (seen[0] + connection, seen[1]), self._random.random())


def _in_force(record: Record) -> tuple[Any, ...]:
    return record.phase in TERMINAL, record.weights, record.epoch, record.counting
