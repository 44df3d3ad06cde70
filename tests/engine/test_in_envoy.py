"""What the filter in Envoy may keep, rule by rule; `tests/wasm/test_played_filter.py` has the law behind them."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from cache_harness import HOST, Rig
from cache_origin import Reply
from meshcache.decisions import AskedFor
from meshcache.engine.in_envoy import LARGEST, Grant
from meshcache.engine.key import cache_key
from meshcache.engine.outcome import Answer, Pass
from meshcache.message import Headers, Request, Response
from meshcache.rfc.fields import format_http_date
from meshcache.wasm.marks import Ask
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = policies(freshness="{defaultTtl: 60s, staleWhileRevalidate: 30s}")
SCORED = policies(
    freshness="{defaultTtl: 60s}",
    placement="{hotAt: 70, warmAt: 30}",
    config="trust: {scoreHeader: {from: [any]}}",
)


def asking(rig: Rig, fields: dict[str, str], method: str = "GET", why: AskedFor = AskedFor.MISS) -> Request:
    """A request with the filter's question."""
    request = Request(method, HOST, "/a", Headers(fields.items()))
    snapshot = rig.cache.snapshot
    assert snapshot is not None
    selection = snapshot.select(request)
    assert selection.policy is not None
    key = cache_key(request, selection.policy.key, namespace=selection.namespace, revision=snapshot.revision(request))
    request.asked = Ask(b"the plan", key.digest, why)
    return request


async def passed(rig: Rig, reply: Reply, fields: dict[str, str] | None = None) -> Grant | None:
    """What is granted of an answer of the origin as it goes by."""
    headers = reply.headers
    if not any(name == "date" for name, _ in headers):
        headers = (*headers, ("date", format_http_date(rig.clock())))
    exchange = rig.cache.open(asking(rig, fields or {}))
    try:
        outcome: Any = exchange.start() or await exchange.search()
        outcome = await exchange.on_response(
            Response(reply.status, Headers(headers), reply.from_origin, complete=not reply.body)
        )
        assert isinstance(outcome, Pass)
        if outcome.copy:
            exchange.on_body(reply.body)
            exchange.on_end()
        return outcome.grant
    finally:
        exchange.close()
        await rig.settle()


def hit(rig: Rig, fields: dict[str, str] | None = None, method: str = "GET") -> Grant | None:
    """What is granted of an answer out of memory."""
    exchange = rig.cache.open(asking(rig, fields or {}, method))
    outcome = exchange.start()
    exchange.close()
    assert isinstance(outcome, Answer)
    return outcome.grant


def reply(*fields: tuple[str, str], body: bytes = b"one", status: int = 200, length: int | None = None) -> Reply:
    own = {name for name, _ in fields}
    given = [] if "content-type" in own else [("content-type", "text/plain")]
    return Reply(status, (*given, ("content-length", str(len(body) if length is None else length)), *fields), body)


async def test_what_goes_by_and_is_stored_is_granted_as_what_is_in_memory(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        one = await passed(rig, reply(("surrogate-key", "red"), ("age", "5")))
        assert one is not None
        assert one.fresh_until - one.birth == 60
        assert one.birth == rig.clock() - 5
        assert one.stale_until - one.fresh_until == 30
        assert one.drop_at == one.stale_until
        assert (one.renew_at, one.for_cookies, one.vary) == (inf, False, ())
        assert (one.route, one.tags) == ("all", ("red",))
        rig.clock.pass_by(3)
        assert hit(rig) == one


@pytest.mark.parametrize(
    ("fields", "granted"),
    [
        ((), True),
        ((("set-cookie", "a=b"),), False),
        ((("set-cookie", "a=b"), ("cache-control", "public, max-age=9")), True),
        ((("cache-control", "no-store"),), False),
        ((("cache-control", "private, max-age=9"),), False),
        ((("cache-control", "max-age=9, no-cache"), ("etag", '"e"')), False),
        ((("cache-control", 'max-age=9, no-cache="x-own"'), ("x-own", "1")), False),
        ((("cache-control", 'max-age=9, no-cache="x-own"'),), True),
        ((("connection", "x-own"), ("x-own", "1")), True),
        ((("x-meshcache-own", "1"), ("x-envoy-own", "1"), ("keep-alive", "3")), True),
        ((("vary", "*"),), False),
        ((("content-type", ""),), True),
        ((("cache-control", "max-age=0"),), True),
        ((("cache-control", "max-age=0, must-revalidate"), ("etag", '"e"')), False),
    ],
)
async def test_what_of_the_origin_is_granted(
    tmp_path: Path, fields: tuple[tuple[str, str], ...], granted: bool
) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        one = await passed(rig, reply(*fields))
        usable = one is not None and max(one.fresh_until, one.drop_at) > rig.clock()
        assert usable is granted


@pytest.mark.parametrize(
    ("size", "announced", "granted"),
    [
        (LARGEST, LARGEST, True),
        (LARGEST + 1, LARGEST + 1, False),
        (10, None, True),
    ],
)
async def test_how_large_it_may_be(tmp_path: Path, size: int, announced: int | None, granted: bool) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        given = reply(body=bytes(size))
        if announced is None:
            given.headers = tuple(field for field in given.headers if field[0] != "content-length")
        assert (await passed(rig, given) is not None) is granted
        assert (hit(rig) is not None) is granted


@pytest.mark.parametrize(("size", "told", "granted"), [(3, False, False), (1024, True, True), (1025, True, False)])
async def test_memory_may_take_less_than_the_filter(tmp_path: Path, size: int, told: bool, granted: bool) -> None:
    tiers = "hot: {ttl: 10m, maxObjectBytes: 1Ki}\nwarm: {ttl: 1h, maxObjectBytes: 2Mi}\ncold: {ttl: 24h}"
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s}", tiers=tiers)) as rig:
        given = reply(body=bytes(size))
        if not told:
            given.headers = tuple(field for field in given.headers if field[0] != "content-length")
        assert (await passed(rig, given) is not None) is granted


@pytest.mark.parametrize(
    ("asked", "said", "vary"),
    [
        ({}, ("vary", "X-B, x-a"), ("x-a", "x-b")),
        ({}, ("content-encoding", "gzip"), ("accept-encoding",)),
        ({"origin": "https://a.example"}, ("access-control-allow-origin", "https://a.example"), ("origin",)),
        ({"origin": "https://a.example"}, ("access-control-allow-origin", "*"), ()),
    ],
)
async def test_which_fields_have_to_be_equal(
    tmp_path: Path, asked: dict[str, str], said: tuple[str, str], vary: tuple[str, ...]
) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        asked = {**asked, "accept-encoding": "gzip"}
        for one in (await passed(rig, reply(said), asked), hit(rig, asked)):
            assert one is not None
            assert one.vary == vary


async def test_residence_in_memory_ends_it(tmp_path: Path) -> None:
    tiers = "hot: {ttl: 20s, maxObjectBytes: 1Mi}\nwarm: {ttl: 1h, maxObjectBytes: 2Mi}\ncold: {ttl: 24h}"
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s}", tiers=tiers)) as rig:
        one = await passed(rig, reply())
        assert one is not None
        assert one.drop_at == rig.clock() + 20
        rig.clock.pass_by(15)
        assert hit(rig) == one


async def test_a_caller_who_has_not_earned_memory_gets_nothing_kept(tmp_path: Path) -> None:
    async with Rig(tmp_path, SCORED) as rig:
        assert await passed(rig, reply(), {"x-user-score": "0.5"}) is None
        rig.forget_memory()
        # Lifted into memory by one who has; the other's request does not have it kept either.
        assert (await rig.get(headers={"x-user-score": "0.9"})).tier == "warm"
        assert hit(rig, {"x-user-score": "0.9"}) is not None
        assert hit(rig, {"x-user-score": "0.5"}) is None


async def test_what_is_no_plain_answer_is_not_kept(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        await passed(rig, reply(("etag", '"e"'), ("cache-control", "public, max-age=60")))
        assert hit(rig) is not None
        assert hit(rig, method="HEAD") is None
        assert hit(rig, {"if-none-match": '"e"'}) is None
        assert hit(rig, {"range": "bytes=0-1"}) is None
        # Who has a token that Envoy has verified is authorized, too.
        assert hit(rig, {"authorization": "x"}) is None
        assert hit(rig, {"if-none-match": '"f"'}) is not None


async def test_when_it_is_renewed(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s, refreshAhead: 50%}")) as rig:
        rig.origin.says("/a", b"two", cache_control="max-age=60")
        one = await passed(rig, reply())
        assert one is not None
        assert one.renew_at == rig.clock() + 30
        rig.clock.pass_by(31)
        # Nothing is popular after one request, but for who has counted more of them.
        assert hit(rig) is not None
        await rig.settle()
        assert rig.refresher.asked == []
        exchange = rig.cache.open(asking(rig, {}, why=AskedFor.RENEW))
        assert isinstance(exchange.start(), Answer)
        exchange.close()
        await rig.settle()
        assert len(rig.refresher.asked) == 1


async def test_what_cannot_be_refreshed_without_its_caller_is_not_served_stale(tmp_path: Path) -> None:
    text = policies(freshness="{defaultTtl: 60s, staleWhileRevalidate: 30s}", key="{cookies: [s]}")
    async with Rig(tmp_path, text) as rig:
        one = await passed(rig, reply())
        assert one is not None
        assert one.stale_until == one.fresh_until


async def test_what_memory_holds_by_now_is_newer(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        slow = rig.cache.open(asking(rig, {}))
        assert slow.start() is not None
        rig.clock.pass_by(1)
        assert await passed(rig, reply()) is not None
        rig.clock.pass_by(1)
        outcome = await slow.on_response(Response(200, Headers(reply(("date", "x")).headers)))
        assert isinstance(outcome, Pass)
        assert outcome.grant is None
        slow.close()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"cache-control": "no-cache"}, True),
        ({"cache-control": "max-age=0"}, True),
        ({"cache-control": "max-age=60"}, False),
        ({"cookie": "a=b"}, False),
    ],
)
async def test_a_reload_of_what_is_forgotten_here_reaches_what_envoy_remembers(
    tmp_path: Path, fields: dict[str, str], told: bool
) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        heard: list[frozenset[bytes]] = []
        rig.cache.on_invalid = heard.append
        exchange = rig.cache.open(Request("GET", HOST, "/a", Headers(fields.items())))
        assert exchange.start() is not None
        now = ("date", format_http_date(rig.clock()))
        await exchange.on_response(Response(200, Headers(reply(now).headers)))
        exchange.on_body(b"one")
        assert heard == [], "it has not come whole"
        exchange.on_end()
        assert bool(heard) is told
        exchange.close()


@pytest.mark.parametrize(("status", "told"), [(200, True), (404, True), (403, False), (503, False)])
async def test_so_does_one_of_what_may_not_be_stored_any_more(tmp_path: Path, status: int, told: bool) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        heard: list[frozenset[bytes]] = []
        rig.cache.on_invalid = heard.append
        exchange = rig.cache.open(Request("GET", HOST, "/a", Headers([("cache-control", "no-cache")])))
        assert exchange.start() is not None
        await exchange.on_response(Response(status, Headers([("cache-control", "no-store")]), complete=True))
        assert bool(heard) is told
        exchange.close()
