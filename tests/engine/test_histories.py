"""Random histories of requests, origin changes, policy edits and time, and what must hold whatever happens.

Every body that the origin makes is a number, under which the test keeps how it came about. Of each answer out of the
cache it then checks that some state of that response (as it came, or as a 304 has renewed it) allows the answer by
rules written here anew, far simpler than the engine's.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cache_harness import Got, Rig, Sent
from cache_origin import Reply
from meshcache.message import Headers, Request
from policy_texts import policies

PATHS = ("/a", "/b")


class Policy(NamedTuple):
    """A policy as the test reads it; the text is what the engine gets."""

    default: float | None = None
    longest: float = 1e9
    swr: float = 0
    sie: float = 0
    override: bool = False
    placement: str = "{}"

    @property
    def text(self) -> str:
        parts = [f"mode: {'override' if self.override else 'rfc9111'}"]
        parts += [f"staleWhileRevalidate: {self.swr}s", f"staleIfError: {self.sie}s"]
        parts += [] if self.default is None else [f"defaultTtl: {self.default}s"]
        parts += [] if self.longest == 1e9 else [f"maxTtl: {self.longest}s"]
        return policies(
            freshness=f"{{{', '.join(parts)}}}",
            placement=self.placement,
            config="trust: {scoreHeader: {from: [any]}}",
        )


POLICIES = (
    Policy(default=15),
    Policy(default=15, swr=20, sie=60),
    Policy(default=5, longest=25, override=True, swr=10),
    Policy(longest=5, sie=30, placement="{hotAt: 70, warmAt: 30}"),
    Policy(default=40, swr=20, placement="{hotAt: 70, warmAt: 30, promotion: never}"),
)


class Said(NamedTuple):
    """What a `cache-control` means."""

    lifetime: float | None = None
    swr: float | None = None
    never: bool = False
    validate: bool = False
    """Not without asking the origin."""
    stale: bool = True
    """May be served stale when a window says so."""
    only_own_windows: bool = False
    shared: bool = False
    """Also between callers with credentials."""


SAID = {
    None: Said(),
    "max-age=10": Said(10),
    "max-age=30, stale-while-revalidate=20": Said(30, swr=20),
    "public, max-age=20": Said(20, shared=True),
    "s-maxage=20": Said(20, only_own_windows=True, shared=True),
    "max-age=10, must-revalidate": Said(10, stale=False, shared=True),
    "public, max-age=20, no-cache": Said(20, validate=True, stale=False, shared=True),
    "no-store, max-age=30": Said(never=True),
    "private, max-age=30": Said(never=True),
}


class State(NamedTuple):
    """A response as it came, or as a 304 has renewed it."""

    at: float
    cache_control: str | None
    vary: str | None
    request: Headers


@dataclass
class Made:
    """A body that the origin has made."""

    path: str
    version: int
    order: int
    status: int
    whole: bool
    authorized: bool
    wanted_kept: bool
    """The request had no `no-store`."""
    states: list[State]


@dataclass
class Resource:
    """What the origin says at one path from now on."""

    version: int = 0
    cache_control: str | None = "max-age=10"
    vary: str | None = None
    validator: bool = True
    status: int = 200
    whole: bool = True


@dataclass
class Waiting:
    sent: Sent
    path: str
    headers: Headers
    policy: Policy
    started: int


@dataclass
class World:
    rig: Rig
    policy: Policy = POLICIES[0]
    resources: dict[str, Resource] = field(default_factory=lambda: {path: Resource() for path in PATHS})
    made: dict[bytes, Made] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    changed: dict[str, list[int]] = field(default_factory=lambda: {path: [] for path in PATHS})
    """When, in the order of events, an unsafe request to the path had succeeded."""
    events: int = 0

    def __post_init__(self) -> None:
        for path in PATHS:
            self.rig.origin.does(path, self.answer)

    # -- the origin ------------------------------------------------------------------------------------------------

    def answer(self, request: Request) -> Reply:
        self.events += 1
        resource = self.resources[request.path]
        if request.method not in ("GET", "HEAD"):
            if resource.status < 400:
                resource.version += 1
            return Reply(resource.status, (), b"done")
        etag = f'"{resource.version}-{request.headers.get("accept")}"'
        fields: dict[str, str | None] = {
            "cache-control": resource.cache_control,
            "vary": resource.vary,
            "etag": etag if resource.validator else None,
        }
        given = tuple((name, value) for name, value in fields.items() if value is not None)
        state = State(self.rig.clock.now, resource.cache_control, resource.vary, request.headers)
        if resource.status == 200 and resource.validator and request.headers.get("if-none-match") == etag:
            for made in self.made.values():
                seen = made.states[0].request.get("accept")
                if (made.path, made.version, seen) == (request.path, resource.version, request.headers.get("accept")):
                    made.states.append(state)
            return Reply(304, given)
        if request.method == "HEAD" and resource.status == 200:
            # It renews what it does not contradict (RFC 9111 section 4.3.5): without a validator, any version.
            for made in self.made.values():
                seen = made.states[0].request.get("accept")
                same = made.version == resource.version or not resource.validator
                if made.path == request.path and seen == request.headers.get("accept") and same:
                    made.states.append(state)
        body = str(len(self.made)).encode()
        self.made[body] = Made(
            path=request.path,
            version=resource.version,
            order=self.events,
            status=resource.status,
            whole=resource.whole,
            authorized="authorization" in request.headers,
            wanted_kept=request.headers.get("cache-control") != "no-store",
            states=[state],
        )
        return Reply(resource.status, given, body, cut_off=not resource.whole)

    # -- what may happen ---------------------------------------------------------------------------------------------

    async def pass_time(self, seconds: int) -> None:
        self.rig.clock.pass_by(seconds)

    async def change(self, path: str, changes: dict[str, Any]) -> None:
        resource = self.resources[path]
        resource.version += changes.get("new", True)
        for name in ("cache_control", "vary", "validator", "status", "whole"):
            setattr(resource, name, changes.get(name, getattr(resource, name)))

    async def edit(self, policy: Policy) -> None:
        self.policy = policy
        self.rig.install(policy.text)

    async def restart(self, worker: int) -> None:
        self.rig.workers[worker].memory.clear()

    async def settle(self) -> None:
        await self.rig.settle()

    async def request(self, method: str, path: str, headers: dict[str, str], worker: int, wait: bool) -> None:
        self.events += 1
        outcome = await self.rig.send(method, path, headers, worker=worker)
        fields = Headers(headers.items())
        if isinstance(outcome, Got):
            self.check(outcome, path, fields, self.policy, self.events)
            return
        self.waiting.append(Waiting(outcome, path, fields, self.policy, self.events))
        if not wait:
            await self.finish(-1)

    async def finish(self, which: int) -> None:
        if not self.waiting:
            return
        waiting = self.waiting.pop(which % len(self.waiting))
        got = await waiting.sent.finish()
        self.events += 1
        if waiting.sent.request.method not in ("GET", "HEAD"):
            if waiting.sent.reply.status < 400:
                self.changed[waiting.path].append(self.events)
            return
        if got.decision in ("stale-if-error", "revalidated"):
            self.check(got, waiting.path, waiting.headers, waiting.policy, waiting.started)
        else:
            assert got.status == waiting.sent.reply.status, "what the origin says is handed on"

    # -- what must hold ----------------------------------------------------------------------------------------------

    def check(self, got: Got, path: str, request: Headers, policy: Policy, started: int) -> None:
        """`got` came out of the cache for a request that began as event number `started`."""
        assert got.decision in ("hit", "stale-swr", "stale-if-error", "revalidated")
        assert "set-cookie" not in got.headers
        if not got.body:
            return
        made = self.made[got.body]
        assert made.path == path
        assert made.whole, "a body cut off was stored"
        assert made.wanted_kept, "the client said no-store"
        assert made.order > max((at for at in self.changed[path] if at < started), default=0), "it was invalidated"
        assert any(self.allows(state, made, got, request, policy) for state in made.states), (got, made, request)

    def allows(self, state: State, made: Made, got: Got, request: Headers, policy: Policy) -> bool:
        said = SAID[state.cache_control]
        if said.never or state.vary == "*":
            return False
        if made.authorized and not SAID[made.states[0].cache_control].shared:
            return False
        for name in () if state.vary is None else state.vary.split(", "):
            if state.request.get(name) != request.get(name):
                return False
        if got.decision == "revalidated":
            return True
        if said.validate or ("authorization" in request and not said.shared):
            return False
        age = self.rig.clock.now - state.at
        assigned = policy.default if made.status < 400 else None
        order = (assigned, said.lifetime) if policy.override else (said.lifetime, assigned)
        lifetime = next((seconds for seconds in order if seconds is not None), None)
        if lifetime is None:
            if got.decision != "stale-if-error":
                return False
            lifetime = 0.0
        past = age - min(lifetime, policy.longest)
        if not age - 1 <= got.age <= self.rig.clock.now - made.states[0].at:
            return False
        wanted = request.get("cache-control")
        window = 0.0
        if got.decision == "hit":
            if wanted == "no-cache":
                return False
            if wanted == "max-stale=5" and said.stale and not said.only_own_windows and past >= 0:
                return past <= 5
            return past < 0
        if said.stale:
            own = said.swr if got.decision == "stale-swr" else None
            given = policy.swr if got.decision == "stale-swr" else policy.sie
            window = own if own is not None else 0.0 if said.only_own_windows else given
        return window > 0 and past <= window


paths = st.sampled_from(["/a", "/a", "/b"])
accepts = st.sampled_from([{}, {"accept": "x"}, {"accept": "y"}])
headers = st.fixed_dictionaries(
    {},
    optional={
        "accept": st.sampled_from(["x", "y"]),
        "x-b": st.sampled_from(["1", "2"]),
        "authorization": st.sampled_from(["bob", "eve"]),
        "cache-control": st.sampled_from(["no-cache", "no-store", "max-stale=5"]),
        "x-user-score": st.sampled_from(["0.1", "0.5", "0.9"]),
    },
)
workers = st.integers(0, 1)
often = st.sampled_from([False, False, False, True])


def asking(methods: list[str], fields: st.SearchStrategy[dict[str, str]]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just("request"), st.sampled_from(methods), paths, fields, workers, often)


def changing(**what: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just("change"), paths, st.fixed_dictionaries({"new": st.booleans()} | what))


steps = st.one_of(
    asking(["GET"], accepts),
    asking(["GET"], accepts),
    asking(["GET"], accepts),
    asking(["GET", "GET", "HEAD"], headers),
    asking(["POST"], st.just({})),
    st.tuples(st.just("pass_time"), st.integers(1, 8)),
    st.tuples(st.just("pass_time"), st.integers(5, 30)),
    changing(cache_control=st.sampled_from(list(SAID))),
    changing(vary=st.sampled_from([None, "accept", "accept, x-b", "*"]), validator=st.booleans()),
    changing(status=st.sampled_from([200, 200, 404, 503]), whole=st.sampled_from([True, True, False])),
    st.tuples(st.just("finish"), st.integers(0, 5)),
    st.tuples(st.just("edit"), st.sampled_from(POLICIES)),
    st.tuples(st.just("restart"), workers),
    st.tuples(st.just("settle")),
)


async def run(history: list[tuple[Any, ...]], path: Path) -> None:
    async with Rig(path, POLICIES[0].text, workers=2) as rig:
        world = World(rig)
        for name, *arguments in history:
            await getattr(world, name)(*arguments)
        while world.waiting:
            await world.finish(0)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=40, max_size=80))
def test_what_must_hold_holds_through_any_history(history: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(history, Path(folder)))
