"""The filter in a few lines: what it keeps, gives and drops, by what the sidecar's engine says; and a world around it.

It takes requests as they come, so its test is the engine's: that whatever is granted is right for as long as it says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cache_harness import HOST
from meshcache.decisions import AskedFor
from meshcache.engine.key import cache_key
from meshcache.engine.outcome import Answer, Pass
from meshcache.extproc.filter_marks import FilterMarks
from meshcache.extproc.filter_routes import changed_routes
from meshcache.message import Headers, Request
from meshcache.rfc.cache_control import EMPTY
from meshcache.rfc.fields import http_date
from meshcache.rfc.storing import storable_fields
from meshcache.wasm.labels import labels_of_resources, labels_of_routes, labels_of_rule
from meshcache.wasm.marks import FOR_COOKIES, Ask, Keep, parse_drop, parse_keep
from model.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from meshcache.engine.purges import PurgeKind
    from meshcache.policy.snapshot import Snapshot
    from model.flights import Flight, Reply

SECRET = bytes(range(32))
PLAN = b"the plan"


@dataclass
class Entry:
    """An answer that the filter keeps."""

    values: tuple[str | None, ...]
    status: int
    fields: tuple[tuple[str, str], ...]
    body: bytes
    keep: Keep
    born: int
    worker: int
    """Of the sidecar, which has granted it."""
    came: float
    """When it came from the origin, or was confirmed (Unix seconds)."""


@dataclass
class Asked:
    """A request that was handed on."""

    flight: Flight
    ask: Ask
    born: int
    worker: int
    keep: Keep | None = None
    passing: bool = False
    came: float = 0.0
    removed: tuple[str, ...] = ()
    """Fields that the sidecar has taken off an answer that goes by."""


class PlayedFilter:
    """One worker of Envoy."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        """The policies of its plan."""
        self.clock = 0
        self.all = 0
        self.dropped: dict[int, int] = {}
        self.entries: dict[bytes, list[Entry]] = {}

    def digest(self, request: Request) -> bytes | None:
        selection = self.snapshot.select(request)
        if selection.policy is None:
            return None
        revision = self.snapshot.revision(request)
        return cache_key(request, selection.policy.key, namespace=selection.namespace, revision=revision).digest

    def drop(self, labels: Sequence[int] | None) -> None:
        self.clock += 1
        if labels is None:
            self.all = self.clock
        else:
            self.dropped.update(dict.fromkeys(labels, self.clock))

    def alive(self, labels: Sequence[int], born: int) -> bool:
        return self.all <= born and all(self.dropped.get(label, 0) <= born for label in labels)

    def answer(self, request: Request, now: float) -> Entry | None:
        """What it gives by itself at `now` (Unix seconds)."""
        digest = self.digest(request)
        at = now * 1000
        for entry in self.entries.get(digest or b"", ()):
            keep = entry.keep
            if (
                tuple(request.headers.get(name) for name in keep.vary) == entry.values
                and at < min(keep.drop_at, max(keep.fresh_until, keep.stale_until))
                and self.alive(keep.labels, entry.born)
                and ("cookie" not in request.headers or keep.flags & FOR_COOKIES)
            ):
                return entry
        return None

    def take(self, asked: Asked, status: int, fields: Sequence[tuple[str, str]], body: bytes) -> None:
        """Keep an answer, unless what it is dropped by has been dropped meanwhile."""
        keep = asked.keep
        if keep is None or not self.alive(keep.labels, asked.born):
            return
        headers = asked.flight.request.headers
        values = tuple(headers.get(name) for name in keep.vary)
        stored = storable_fields(Headers(fields), EMPTY)
        kept = tuple(field for field in stored if field[0] not in ("cache-status", "content-length"))
        chain = self.entries.setdefault(asked.ask.digest, [])
        for other in chain:
            if (other.keep.vary, other.values) == (keep.vary, values) and other.keep.birth > keep.birth:
                return
        chain[:] = [other for other in chain if (other.keep.vary, other.values) != (keep.vary, values)][:3]
        chain.insert(0, Entry(values, status, kept, body, keep, asked.born, asked.worker, asked.came))


def _date(fields: Iterable[tuple[str, str]]) -> float:
    date = http_date(Headers(fields).get("date") or "", 0.0)
    assert date is not None
    return date


async def _answered(exchange: Any) -> Any:
    return exchange.start() or await exchange.search()


class Play:
    """A world with a filter in front of its workers. What the feed would tell waits until it is told."""

    def __init__(
        self, folder: Path, snapshot: Snapshot, workers: int, origin: Callable[[Flight, Request], Reply]
    ) -> None:
        self.world = World(folder, workers, origin)
        self.snapshot = snapshot
        self.marks = FilterMarks()
        self.marks.admit(SECRET, frozenset({PLAN}))
        self.news: list[Callable[[], None]] = []
        self._invalid: dict[frozenset[bytes], Callable[[], None]] = {}
        """The last news that these resources have become invalid."""
        self.under_way: list[Asked] = []
        self._outcomes: dict[int, Any] = {}
        for worker in self.world.workers:
            worker.cache.on_invalid = self._on_invalid
            self._listen(worker.cache)
        self.world.install(snapshot)
        self.filter = PlayedFilter(snapshot)

    @property
    def now(self) -> float:
        return self.world.time.now

    # -- what happens ------------------------------------------------------------------------------------------

    def get(self, path: str, fields: dict[str, str], worker: int) -> Entry | None:
        """A plain request through the filter."""
        request = Request("GET", HOST, path, Headers(fields.items()))
        entry = self.filter.answer(request, self.now)
        why = AskedFor.MISS
        if entry is not None:
            if self.now * 1000 < entry.keep.fresh_until:
                return entry
            # As if this were the one that is handed on.
            why = AskedFor.STALE
        digest = self.filter.digest(request)
        if digest is not None:
            self._ask(request, Ask(PLAN, digest, why), worker)
        return None

    def unsafe(self, path: str, worker: int) -> None:
        """One that changes something, through the filter."""
        self._ask(Request("POST", HOST, path), Ask(PLAN, bytes(32), AskedFor.UNSAFE), worker)

    def besides(self, method: str, path: str, fields: dict[str, str], worker: int) -> None:
        """One about which the filter asks nothing."""
        self.world.begin(Request(method, HOST, path, Headers(fields.items())), worker, None)
        self._look()

    def advance(self, number: int) -> None:
        """The next part of an answer of the origin comes."""
        flights = self.world.flights
        if flights:
            self.world.advance(flights[number % len(flights)])
            self._look()

    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)
        self._look()

    def purge(self, kind: PurgeKind, value: str) -> None:
        """All workers have applied it before filters are told of it."""
        from meshcache.engine.purges import Rule, parse_value

        self.world.purge(kind, value, soft=False, told=len(self.world.workers))
        rule = Rule(kind, parse_value(kind, value), False, self.now, "uid")
        labels = labels_of_rule(rule, [policy.key for policy in self.snapshot.in_use])
        self.news.append(lambda: self.filter.drop(labels))

    def install(self, snapshot: Snapshot) -> None:
        """Other policies: the workers have them at once, the filter when it is told."""
        before, self.snapshot = self.snapshot, snapshot
        self.world.install(snapshot)

        def take() -> None:
            routes = changed_routes(before, snapshot)
            if routes != ():
                self.filter.drop(None if routes is None else labels_of_routes(routes))
            self.filter.snapshot = snapshot

        self.news.append(take)
        self._look()

    def tell(self) -> None:
        """The filter hears of everything."""
        news, self.news = self.news, []
        for each in news:
            each()

    # -- what must hold ----------------------------------------------------------------------------------------

    def check(self, path: str, fields: dict[str, str]) -> None:
        """What the filter gives, its worker's engine would have given from memory: the same, or something newer."""
        request = Request("GET", HOST, path, Headers(fields.items()))
        entry = self.filter.answer(request, self.now)
        if entry is None or self.news:
            return
        cache = self.world.workers[entry.worker].cache
        exchange = cache.open(request)
        try:
            outcome = self.world.loop.run_until_complete(_answered(exchange))
            held = exchange._state.candidate
            if held is not None and held.stored.response_time > entry.came and not isinstance(outcome, Answer):
                # What a refresh has brought may be for fewer than what it has replaced, which is as good as it was.
                return
            assert isinstance(outcome, Answer), f"the engine would have asked for {path}: {entry.keep}"
            assert outcome.decision in ("hit", "stale-swr")
            stored = outcome.stored
            fresh = self.now * 1000 < entry.keep.fresh_until
            if stored.response_time == entry.came:
                assert outcome.tier == "hot"
                assert (stored.status, stored.fields, stored.body) == (entry.status, entry.fields, entry.body)
                assert outcome.age == int((self.now * 1000 - entry.keep.birth) / 1000)
                assert (outcome.decision == "hit") is fresh
            else:
                # Of two that were under way together the one with the later date is newer, whichever came first.
                assert stored.response_time > entry.came or _date(stored.fields) > _date(entry.fields)
        finally:
            exchange.close()

    def close(self) -> None:
        for worker in self.world.workers:
            worker.cache.retire()
        while self.world.flights or any(worker.tasks for worker in self.world.workers):
            self.world.pass_time(1.0)
            self.advance(0)
        self.world.close()

    # -- what the engine says ----------------------------------------------------------------------------------

    def _on_invalid(self, resources: frozenset[bytes]) -> None:
        def drop() -> None:
            self.filter.drop(labels_of_resources(resources))

        self.news.append(drop)
        self._invalid[resources] = drop

    def _ask(self, request: Request, ask: Ask, worker: int) -> None:
        request.asked = ask
        born = self.filter.clock
        flight = self.world.begin(request, worker, None)
        self.under_way.append(Asked(flight, ask, born, worker))
        self._look()

    def _listen(self, cache: Any) -> None:
        opened = cache.open
        outcomes = self._outcomes

        class Listening:
            def __init__(self, exchange: Any, request: Request) -> None:
                self._exchange, self._request = exchange, request

            def _heard(self, outcome: Any) -> Any:
                if isinstance(outcome, Answer | Pass) and self._request.asked is not None:
                    outcomes[id(self._request)] = outcome
                return outcome

            def start(self) -> Any:
                return self._heard(self._exchange.start())

            async def search(self) -> Any:
                return self._heard(await self._exchange.search())

            async def wait(self) -> Any:
                return self._heard(await self._exchange.wait())

            async def on_response(self, response: Any) -> Any:
                return self._heard(await self._exchange.on_response(response))

            def __getattr__(self, name: str) -> Any:
                return getattr(self._exchange, name)

        cache.open = lambda request: Listening(opened(request), request)

    def _look(self) -> None:
        """Do as the filter does with what has been answered so far."""
        for asked in list(self.under_way):
            flight = asked.flight
            outcome = self._outcomes.pop(id(flight.request), None)
            if outcome is not None:
                self._head(asked, outcome)
            if not flight.finished:
                continue
            self.under_way.remove(asked)
            if asked.keep is None or not flight.whole:
                continue
            if asked.passing:
                reply = flight.reply
                assert reply is not None
                fields = [field for field in reply.fields if field[0] not in asked.removed]
                self.filter.take(asked, reply.status, fields, reply.body)
            else:
                got = flight.got
                assert got is not None
                self.filter.take(asked, got.status, got.headers.fields, got.body)

    def _head(self, asked: Asked, outcome: Answer | Pass) -> None:
        if isinstance(outcome, Pass) and outcome.invalid is not None:
            field = self.marks.drop(asked.ask, outcome.invalid)
            assert field is not None
            drop = parse_drop(field[1], SECRET)
            assert drop is not None
            self.filter.drop(drop[2].labels)
            # What the feed says of it besides is for answers that do not get here: this one has to do by itself.
            besides = self._invalid.pop(outcome.invalid, None)
            if besides in self.news:
                self.news.remove(besides)
            return
        asked.came = self.now if isinstance(outcome, Pass) else outcome.stored.response_time
        if isinstance(outcome, Pass):
            asked.passing, asked.removed = True, outcome.remove
        field = self.marks.keep(asked.ask, outcome.grant)
        if field is not None:
            found = parse_keep(field[1], SECRET)
            assert found is not None
            assert found[:2] == (PLAN, asked.ask.digest)
            asked.keep = found[2]
            assert not math.isinf(asked.keep.drop_at)
