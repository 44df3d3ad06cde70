"""Whatever the filter is granted, the engine itself would have answered from memory at every moment of it."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import played_filter
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from played_filter import Play

from meshcache.engine.purges import PurgeKind
from meshcache.extproc import filter_marks
from meshcache.rfc.fields import format_http_date
from model.flights import Reply
from policy_texts import compiled, policies

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshcache.message import Request
    from model.flights import Flight

PATHS = ("/a", "/b?x=1")

TIERS = """
hot: {ttl: 40s, maxObjectBytes: 1Mi, deadline: 5s}
warm: {ttl: 1h, maxObjectBytes: 2Mi, deadline: 5s}
cold: {ttl: 24h, maxObjectBytes: 4Mi, deadline: 5s}
"""
POLICIES = [
    policies(freshness=freshness, tiers=TIERS, **more)
    for freshness, more in (
        ("{defaultTtl: 15s, staleWhileRevalidate: 20s}", {}),
        ("{defaultTtl: 5s}", {"key": "{query: {include: []}}"}),
        ("{mode: override, defaultTtl: 30s, staleWhileRevalidate: 60s, refreshAhead: 50%}", {}),
        ("{maxTtl: 8s, staleIfError: 1m}", {}),
        ("{defaultTtl: 15s}", {"placement": "{hotAt: 70, warmAt: 30}"}),
    )
]
SAID = (
    None,
    "max-age=10",
    "max-age=30, stale-while-revalidate=20",
    "s-maxage=20",
    "max-age=10, must-revalidate",
    "public, max-age=20, no-cache",
    'max-age=20, private="x-own"',
    "no-store",
    "private, max-age=30",
    "max-age=0, stale-while-revalidate=30",
)
VARY = (None, "accept-language", "accept-encoding, x-mode", "*")
OWN: tuple[dict[str, str], ...] = (
    {},
    {"x-own": "1"},
    {"set-cookie": "a=b"},
    {"connection": "x-own", "x-own": "2"},
    {"surrogate-key": "red"},
    {"content-encoding": "gzip"},
    {"age": "7"},
    {"x-envoy-upstream-service-time": "3"},
    {"access-control-allow-origin": "https://a.example"},
)
ASKING: tuple[dict[str, str], ...] = (
    {},
    {"accept-language": "de"},
    {"accept-language": "en", "x-mode": "1"},
    {"accept-encoding": "gzip"},
    {"cookie": "s=1"},
    {"origin": "https://a.example"},
)
BESIDES: tuple[dict[str, str], ...] = (
    {"cache-control": "no-cache"},
    {"authorization": "Basic x"},
    {"range": "bytes=0-1"},
    {"cache-control": "max-age=3"},
)
PURGES = (
    (PurgeKind.URL, "http://example.com/a"),
    (PurgeKind.TAG, "red"),
    (PurgeKind.ROUTE, "all"),
    (PurgeKind.PREFIX, "/b"),
    (PurgeKind.ALL, ""),
)


class Origin:
    """Answers with what it is told to say; every body is another."""

    def __init__(self) -> None:
        self.made = 0
        self.says: dict[str, tuple[str | None, str | None, dict[str, str], int, bool]] = {
            path: ("max-age=10", None, {}, 200, True) for path in PATHS
        }
        self.play: Play | None = None

    def __call__(self, _flight: Flight, sent: Request) -> Reply:
        assert self.play is not None
        if sent.method not in ("GET", "HEAD"):
            return Reply(200, (("location", PATHS[1]),), b"")
        said, vary, own, status, tagged = self.says[sent.path]
        fields = [("content-type", "text/plain"), ("date", format_http_date(self.play.now)), *own.items()]
        fields += [] if said is None else [("cache-control", said)]
        fields += [] if vary is None else [("vary", vary)]
        if tagged and status == 200:
            fields.append(("etag", '"same"'))
            if sent.headers.get("if-none-match") == '"same"':
                return Reply(304, tuple(fields), b"")
        self.made += 1
        body = b"" if sent.method == "HEAD" else b"body %d" % self.made
        return Reply(status, tuple(fields), body)


number = st.integers(0, 99)
path = st.sampled_from(PATHS)
asking = st.sampled_from(ASKING)

steps = st.one_of(
    st.tuples(st.just("get"), path, asking, number),
    st.tuples(st.just("get"), path, asking, number),
    st.tuples(st.just("through"), path, asking, number),
    st.tuples(st.just("through"), path, asking, number),
    st.tuples(st.just("besides"), st.sampled_from(["GET", "HEAD", "DELETE"]), path, st.sampled_from(BESIDES), number),
    st.tuples(st.just("unsafe"), path, number),
    st.tuples(st.just("advance"), number),
    st.tuples(st.just("advance"), number),
    st.tuples(st.just("pass"), st.sampled_from([0.5, 3.0, 4.0, 9.0, 20.0, 45.0])),
    st.tuples(
        st.just("says"),
        path,
        st.sampled_from(SAID),
        st.sampled_from(VARY),
        st.sampled_from(OWN),
        st.sampled_from([200, 200, 404, 301, 500]),
        st.booleans(),
    ),
    st.tuples(st.just("purge"), st.sampled_from(PURGES)),
    st.tuples(st.just("install"), st.sampled_from(POLICIES)),
    st.tuples(st.just("tell")),
    st.tuples(st.just("tell")),
)


def play(history: list[Any], workers: int, folder: Path, seen: Counter[str]) -> None:
    origin = Origin()
    it = origin.play = Play(folder, compiled(POLICIES[0]), workers, origin)
    do: dict[str, Callable[..., Any]] = {
        "get": lambda path, fields, number: it.get(path, fields, number % workers),
        "besides": lambda method, path, fields, number: it.besides(method, path, fields, number % workers),
        "unsafe": lambda path, number: it.unsafe(path, number % workers),
        "advance": it.advance,
        "pass": it.pass_time,
        "purge": lambda purge: it.purge(*purge),
        "install": lambda text: it.install(compiled(text)),
        "tell": it.tell,
    }
    try:
        for name, *arguments in history:
            if name == "says":
                origin.says[arguments[0]] = tuple(arguments[1:])  # type: ignore[assignment]
            elif name == "through":
                # All the way, with nothing in between.
                it.get(arguments[0], arguments[1], arguments[2] % workers)
                for _ in range(3):
                    it.advance(len(it.world.flights) - 1)
            else:
                do[name](*arguments)
            for where in PATHS:
                for fields in ASKING:
                    it.check(where, fields)
            seen["answers"] += sum(
                it.filter.answer(asked, it.now) is not None
                for asked in [_plain(where, fields) for where in PATHS for fields in ASKING]
            )
        it.tell()
    finally:
        it.close()


def _plain(where: str, fields: dict[str, str]) -> Request:
    from cache_harness import HOST
    from meshcache.message import Headers, Request

    return Request("GET", HOST, where, Headers(fields.items()))


LONG = settings().max_examples >= 1000
"""In `make proofs PARTS=filter`."""
LOOKED_FOR = 4000
"""Histories in which a fault has to be found: far fewer are enough, but which are tried depends on what is imported."""


def run(examples: int, *phases: Phase, random: bool = True) -> Counter[str]:
    """Play histories; how often the filter could have answered. Raises what the first that shows a fault raises."""
    seen: Counter[str] = Counter()

    @settings(
        deadline=None,
        max_examples=examples,
        derandomize=not random,
        database=settings().database if random else None,
        phases=phases,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(st.lists(steps, min_size=5, max_size=30), st.integers(1, 2))
    def holds(history: list[Any], workers: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            play(history, workers, Path(folder), seen)

    holds()
    return seen


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_what_is_granted_the_engine_would_have_answered() -> None:
    # A tenth of a second each.
    examples = settings().max_examples if LONG else min(settings().max_examples, 40)
    seen = run(examples, Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
    # Else it says nothing.
    assert seen["answers"] > examples


FAULTS: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "an edit drops nothing": (played_filter, "changed_routes", lambda *_: ()),
    "a purge drops nothing": (played_filter, "labels_of_rule", lambda *_: ()),
    "an unsafe request drops nothing": (filter_marks, "labels_of_resources", lambda _: ()),
    "everything lasts longer": (filter_marks, "_milliseconds", lambda seconds: int(seconds * 1000) + 5000),
}


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="seconds for each: in `make proofs PARTS=filter`")
@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_fault_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, instead = FAULTS[fault]
    monkeypatch.setattr(module, name, instead)
    with pytest.raises(AssertionError):
        run(LOOKED_FOR, Phase.generate, random=False)
