"""Random histories of one resource or two, and all that clients, origin, operator and time can do to them."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from cache_harness import HOST
from meshcache.engine.purges import PurgeKind
from meshcache.message import Headers, Request
from model.around import START
from model.flights import Flight, Reply, Stage
from model.judge import Judge
from model.origin import Origin
from model.rules import Asked, Policy, Said, Wanted
from model.witness import Witness
from model.wording import STYLES, date, policy_text, request_directives
from model.world import TICK, World
from policy_texts import compiled, policies

if TYPE_CHECKING:
    from meshcache.policy.snapshot import Snapshot

WORKERS = 2
SHORT_TIERS = """
hot: {ttl: 10m, maxObjectBytes: 1Mi, deadline: 5s}
warm: {ttl: 1h, maxObjectBytes: 2Mi, deadline: 5s}
cold: {ttl: 24h, maxObjectBytes: 4Mi, deadline: 5s}
"""
ALONE = "{enabled: false}"
TOGETHER = "{enabled: true, maxWait: 10s}"
POLICIES = (
    (Policy(), "{}", ALONE),
    (Policy(), "{}", TOGETHER),
    (Policy(default=15, swr=20, sie=60), "{}", TOGETHER),
    (Policy(default=15, swr=20, sie=60, ahead=50), "{}", ALONE),
    (Policy(default=5, longest=25, override=True, swr=10), "{}", TOGETHER),
    (Policy(longest=5, sie=30, negative={404: 10, 503: 3}), "{hotAt: 70, warmAt: 30}", TOGETHER),
    (Policy(default=40, swr=20, negative={404: 3}), "{hotAt: 70, warmAt: 30, promotion: never}", ALONE),
)
"""What the model knows of each policy, its `placement` and its `collapse`."""


@cache
def snapshot_of(number: int) -> Snapshot:
    policy, placement, collapse = POLICIES[number]
    return compiled(
        policies(
            freshness=policy_text(policy),
            placement=placement,
            collapse=collapse,
            key="{partition: [{header: x-tenant}]}",
            tiers=SHORT_TIERS,
            config="trust: {scoreHeader: {from: [any]}, cacheStatus: {from: [any]}}",
        )
    )


def _rarely(strategy: st.SearchStrategy[Any], otherwise: Any = None) -> st.SearchStrategy[Any]:
    return st.one_of(st.just(otherwise), st.just(otherwise), strategy)


_flags = _rarely(st.just(True), otherwise=False)
_seconds = st.sampled_from([0, 1, 2, 5, 10, 20, 30])
SAIDS = (
    st.builds(
        Said,
        max_age=st.none() | _seconds,
        s_maxage=_rarely(_seconds),
        swr=_rarely(_seconds),
        sie=_rarely(_seconds),
        no_store=_flags,
        no_cache=_flags,
        private=_flags,
        public=_flags,
        must_revalidate=_flags,
        proxy_revalidate=_flags,
        must_understand=_flags,
    ).map(lambda said: said)
    | st.just(Said(max_age=10))
    | st.just(Said(max_age=20, hidden=("x-secret",)))
)
WANTED = st.one_of(
    st.just(Wanted()),
    st.just(Wanted()),
    st.builds(
        Wanted,
        no_cache=_flags,
        no_store=_flags,
        only_if_cached=_flags,
        sie=_rarely(_seconds),
        max_age=_rarely(_seconds),
        min_fresh=_rarely(_seconds),
        max_stale=_rarely(_seconds.map(float) | st.just(math.inf)),
    ),
)
PATHS = st.sampled_from(["/a", "/a", "/a", "/b"])
CHANGES = st.one_of(
    st.fixed_dictionaries({"said": SAIDS, "style": st.sampled_from(STYLES), "status": st.just(200)}),
    st.fixed_dictionaries({"said": SAIDS, "style": st.sampled_from(STYLES), "local": st.just(False)}),
    st.fixed_dictionaries({"status": st.sampled_from([200, 203, 204, 301, 302, 404, 410, 500, 503, 299])}),
    st.fixed_dictionaries({"status": st.sampled_from([500, 502, 503, 504]), "local": st.booleans()}),
    st.just({"status": 200, "local": False}),
    st.fixed_dictionaries({"vary": st.sampled_from([(), ("accept",), ("accept", "x-b"), ("*",)])}),
    st.just({"vary": ("accept",), "status": 200, "said": Said(max_age=20)}),
    st.fixed_dictionaries(
        {
            "validator": st.sampled_from(["none", "strong", "strong", "weak", "date", "both"]),
            "sparse": st.booleans(),
            "cookie": st.booleans(),
        }
    ),
    st.fixed_dictionaries(
        {
            "expires_in": st.sampled_from([None, None, 0, 5, 20, -5, -math.inf]),
            "skew": st.sampled_from([0, 0, -3, 4, None]),
            "age": st.sampled_from([None, None, 0, 3, 15]),
        }
    ),
    st.fixed_dictionaries(
        {"names": st.sampled_from([None, "location /b", "content-location /b", "location http://other.example/a"])}
    ),
)


_BOTH = frozenset({"/a", "/b"})
PURGES = (
    (PurgeKind.URL, f"https://{HOST}/a", frozenset({"/a"})),
    (PurgeKind.PREFIX, "/a", frozenset({"/a"})),
    (PurgeKind.PREFIX, f"https://{HOST}/", _BOTH),
    (PurgeKind.TAG, "ta", frozenset({"/a"})),
    (PurgeKind.TAG, "tb", frozenset({"/b"})),
    (PurgeKind.TAG, "both", _BOTH),
    (PurgeKind.ROUTE, "all", _BOTH),
    (PurgeKind.ALL, "", _BOTH),
)
"""Purges, and the paths that each concerns."""


@dataclass(frozen=True)
class Client:
    """A request to come, and what becomes of it."""

    path: str
    worker: int
    method: str
    fields: tuple[tuple[str, str], ...]
    wanted: Wanted
    style: str
    end: str
    """`whole`; `cut` by the origin or `left` by the client in the middle of the body; `waits` for something to come."""
    after: float
    """Seconds that pass before."""


_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "accept": st.sampled_from(["x", "y"]),
        "x-b": st.sampled_from(["1", "2"]),
        "x-tenant": st.sampled_from(["1", "2"]),
        "authorization": st.sampled_from(["bob", "eve"]),
        "x-user-score": st.sampled_from(["0.1", "0.5", "0.9"]),
    },
)
CLIENTS = st.builds(
    Client,
    path=PATHS,
    worker=st.integers(0, WORKERS - 1),
    method=st.sampled_from(["GET", "GET", "GET", "GET", "HEAD"]),
    fields=st.one_of(
        st.just(()),
        st.just((("accept", "y"),)),
        st.just((("accept", "x"),)),
        _FIELDS.map(lambda fields: tuple(fields.items())),
    ),
    wanted=WANTED,
    style=st.sampled_from(STYLES),
    end=st.sampled_from(["whole", "whole", "whole", "whole", "cut", "left", "waits"]),
    after=st.sampled_from([0, 0, 0, 0, 1, 3, 8, 13, 40]),
)

SPANS = st.sampled_from([(0, 0), (0, 5), (3, None), (None, 4), (None, 99), (20, 99), (50, None), (None, 0)])
BURSTS = st.lists(CLIENTS, min_size=1, max_size=5)


class Histories(RuleBasedStateMachine):
    """Each rule is something that happens; after each, what the clients got by it has been judged."""

    tally: ClassVar[Counter[str]] = Counter()
    """What was judged in all histories so far."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="mc-model-")
        self.world = World(Path(self._folder.name), WORKERS, self._answer)
        self.origin = Origin(self.world.time)
        self.judge = Judge(self.origin, self.world.time)
        self.witness = Witness(self.origin, self.world.time, self.judge)
        self.witness.all_know = self.world.all_know
        self.world.on_begin = self.witness.begins
        self.world.on_head = self.witness.head_came
        self.world.on_finish = self._finished

    def _answer(self, flight: Flight, request: Request) -> Reply:
        return self.origin(flight, request)

    def _finished(self, flight: Flight) -> None:
        self.witness.ends(flight)

    def teardown(self) -> None:
        try:
            while self.world.flights:
                self._go_on()
            self.world.close()
        finally:
            Histories.tally.update(self.judge.tally)
            Histories.tally["histories"] += 1
            self._folder.cleanup()

    @initialize(number=st.integers(0, len(POLICIES) - 1))
    def begins(self, number: int) -> None:
        self.policy(number)

    # -- clients -------------------------------------------------------------------------------------------------------

    @rule(asked=BURSTS)
    def some_ask(self, asked: list[Client]) -> None:
        self.clients_ask(asked)

    def clients_ask(self, asked: list[Client]) -> None:
        for client in asked:
            if client.after:
                self.world.pass_time(client.after)
            self._ask(client)

    @rule(
        tags=st.lists(st.integers(0, 3), min_size=1, max_size=2),
        kind=st.sampled_from(["if-none-match", "if-none-match", "if-modified-since"]),
        client=CLIENTS,
    )
    def a_client_has_a_copy(self, tags: list[int], kind: str, client: Client) -> None:
        version = self.origin.resources[client.path].version
        known = self.origin.tags(client.path)
        copies = ", ".join(known[tag % len(known)] for tag in tags)
        value = copies if kind == "if-none-match" else date(START - 1000 + version)
        self._ask(replace(client, fields=(*client.fields, (kind, value))))

    @rule(span=SPANS, client=CLIENTS)
    def a_client_wants_a_part(self, span: tuple[int | None, int | None], client: Client) -> None:
        first, last = ("" if at is None else at for at in span)
        fields = (*client.fields, ("range", f"bytes={first}-{last}"))
        self._ask(replace(client, method="GET", fields=fields), span)

    @rule(method=st.sampled_from(["POST", "PUT", "DELETE"]), client=CLIENTS)
    def a_client_changes_something(self, method: str, client: Client) -> None:
        self._ask(replace(client, method=method, fields=(), wanted=Wanted()))

    def _ask(self, client: Client, span: tuple[int | None, int | None] | None = None) -> None:
        directives = request_directives(client.wanted, client.style)
        fields = dict(client.fields) if directives is None else {**dict(client.fields), "cache-control": directives}
        asked = Asked(client.method, client.path, dict(client.fields), client.wanted, span)
        due = self.witness.due(asked, client.worker, self.world.time.now + TICK)
        request = Request(asked.method, HOST, asked.path, Headers(fields.items()))
        flight = self.world.begin(request, client.worker, asked)
        if due:
            self.judge.tally["due"] += 1
            assert flight.finished, f"{asked} should have been answered: {self.witness.sure}"
            assert flight.got is not None
            assert flight.stage is None
        while client.end != "waits" and not flight.finished:
            if client.end != "whole" and flight.stage is Stage.HEAD:
                (self.world.cut if client.end == "cut" else self.world.leave)(flight)
            else:
                self._go_on()

    def _go_on(self) -> None:
        """Let the next thing come for which somebody waits."""
        for _ in range(100):
            asked = next((flight for flight in self.world.flights if flight.stage is not None), None)
            if asked is not None:
                self.world.advance(asked)
            if asked is not None or not self.world.flights:
                return
            # They wait for each other, or for another worker's lease.
            self.world.pass_time(0.5)
        raise AssertionError(f"somebody waits for ever: {self.world.flights}")

    # -- the origin's answers under way --------------------------------------------------------------------------------

    @precondition(lambda self: self.world.flights)
    @rule(which=st.integers(0, 9))
    def something_comes(self, which: int) -> None:
        asked = [flight for flight in self.world.flights if flight.stage is not None]
        if asked:
            self.world.advance(asked[which % len(asked)])

    @precondition(lambda self: self.world.flights)
    @rule(which=st.integers(0, 9))
    def a_client_leaves(self, which: int) -> None:
        clients = [flight for flight in self.world.flights if not flight.background]
        if clients:
            self.world.leave(clients[which % len(clients)])

    @precondition(lambda self: any(flight.stage is Stage.HEAD for flight in self.world.flights))
    @rule(which=st.integers(0, 9))
    def a_body_breaks_off(self, which: int) -> None:
        halves = [flight for flight in self.world.flights if flight.stage is Stage.HEAD]
        self.world.cut(halves[which % len(halves)])

    # -- everything else -----------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 1, 2, 3, 5, 10, 21, 45, 100]))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(path=PATHS, new=st.booleans(), what=CHANGES)
    def the_origin_changes(self, path: str, new: bool, what: dict[str, Any]) -> None:
        self.origin.change(path, version=self.origin.resources[path].version + new, **what)

    @rule(path=PATHS, status=st.sampled_from([500, 502, 503, 504]), local=st.booleans(), asked=BURSTS)
    def the_origin_is_down(self, path: str, status: int, local: bool, asked: list[Client]) -> None:
        before = self.origin.resources[path]
        self.origin.change(path, status=status, local=local)
        self.clients_ask(asked)
        self.origin.change(path, status=before.status, local=before.local)

    @rule(number=st.integers(0, len(POLICIES) - 1))
    def policy(self, number: int) -> None:
        self.world.install(snapshot_of(number))
        self.witness.policy = POLICIES[number][0]

    @rule(what=st.sampled_from(PURGES), soft=st.booleans(), told=st.sampled_from([WORKERS, WORKERS, WORKERS, 1, 0]))
    def something_is_purged(self, what: tuple[PurgeKind, str, frozenset[str]], soft: bool, told: int) -> None:
        kind, value, paths = what
        self.world.purge(kind, value, soft=soft, told=told)
        self.witness.purged(self.world.event(), paths, soft=soft)

    @rule(worker=st.integers(0, WORKERS - 1))
    def a_worker_forgets(self, worker: int) -> None:
        self.world.forget_memory(worker)
