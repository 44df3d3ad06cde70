"""One request from its headers to the end of its response: what the client gets, and what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cache_harness import Rig
from meshcache.message import Headers, Response
from policy_texts import policies

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


PLAIN = policies(freshness="{defaultTtl: 60s}")


# -- hits and freshness -----------------------------------------------------------------------------------------


async def test_the_second_request_is_answered_from_memory(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one", headers={"content-type": "text/plain"})
        first = await rig.get()
        assert (first.body, first.decision, first.reason, first.stored) == (b"one", "miss", "uri-miss", True)
        assert first.headers.get("cache-status") == 'meshcache; fwd=uri-miss; stored; ttl=60; detail="miss policy=p"'
        rig.clock.pass_by(7.9)
        second = await rig.get()
        assert (second.body, second.decision, second.tier, second.age) == (b"one", "hit", "hot", 7)
        assert second.headers.get("content-type") == "text/plain"
        assert second.headers.get("cache-status") == 'meshcache; hit; ttl=52; detail="tier=hot policy=p"'
        assert rig.origin.times == 1
        assert rig.meter.requests == [("miss", "uri-miss", "", "all", ""), ("hit", "", "hot", "all", "")]
        assert rig.meter.stores == ["stored"]
        assert rig.meter.bytes_served == {"hot": 3}


async def test_a_stale_answer_without_validator_is_fetched_anew(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.clock.pass_by(60)
        rig.origin.says("/a", b"two")
        got = await rig.get()
        assert (got.body, got.decision, got.reason) == (b"two", "miss", "stale")
        assert (await rig.get()).body == b"two"


async def test_a_policy_binds_what_is_stored_already(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.clock.pass_by(30)
        assert (await rig.get()).decision == "hit"
        rig.install(policies(freshness="{defaultTtl: 20s}"))
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            waiting = await rig.forwarded("GET")
            assert (waiting.forward.decision, waiting.forward.reason) == ("miss", "stale")
            waiting.exchange.close()
        rig.install(policies(freshness="{defaultTtl: 10m}"))
        rig.clock.pass_by(200)
        got = await rig.get()
        assert (got.body, got.decision, got.age) == (b"one", "hit", 230)


@pytest.mark.parametrize(
    ("freshness", "cache_control", "lasts"),
    [
        ("{maxTtl: 5s}", "max-age=600", 5),
        ("{mode: override, defaultTtl: 90s}", "max-age=5", 90),
        ("{defaultTtl: 90s}", "max-age=5", 5),
        ("{defaultTtl: 90s}", "s-maxage=7, max-age=5", 7),
    ],
)
async def test_lifetimes_by_policy_and_origin(tmp_path: Path, freshness: str, cache_control: str, lasts: int) -> None:
    async with Rig(tmp_path, policies(freshness=freshness)) as rig:
        rig.origin.says("/a", cache_control=cache_control)
        await rig.get()
        rig.clock.pass_by(lasts - 0.5)
        assert (await rig.get()).decision == "hit"
        rig.clock.pass_by(0.5)
        assert (await rig.get()).decision == "miss"


async def test_errors_have_lifetimes_of_their_own(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s, negative: [{status: 404, ttl: 5s}]}")) as rig:
        rig.origin.says("/a", b"none", status=404)
        rig.origin.says("/b", b"gone", status=410)
        await rig.get("/a")
        got = await rig.get("/a")
        assert (got.status, got.body, got.decision) == (404, b"none", "hit")
        rig.clock.pass_by(5)
        assert (await rig.get("/a")).decision == "miss"
        await rig.get("/b")
        assert (await rig.get("/b")).decision == "miss"


async def test_head_is_answered_from_a_stored_get_and_stores_nothing(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one")
        assert (await rig.ask("HEAD")).decision == "miss"
        assert (await rig.get()).decision == "miss"
        head = await rig.ask("HEAD")
        assert (head.decision, head.status, head.body) == ("hit", 200, b"")
        assert rig.meter.stores == ["method", "stored"]


async def test_the_age_of_the_origin_s_answer_counts(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", cache_control="max-age=60", headers={"age": "50"})
        await rig.get()
        rig.clock.pass_by(9)
        assert (await rig.get()).age == 59
        rig.clock.pass_by(1)
        assert (await rig.get()).decision == "miss"


async def test_the_time_on_the_way_counts_as_age(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", cache_control="max-age=60")
        waiting = await rig.forwarded("GET")
        rig.clock.pass_by(20)
        await waiting.finish()
        assert (await rig.get()).age == 20


async def test_no_cache_is_validated_every_time(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{mode: override, defaultTtl: 60s}")) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60, no-cache", headers={"etag": '"1"'})
        await rig.get()
        for _ in range(2):
            got = await rig.get()
            assert (got.decision, got.body, got.status) == ("revalidated", b"one", 200)
        rig.origin.says("/a", b"two", cache_control="max-age=60, no-cache", headers={"etag": '"2"'})
        assert (await rig.get()).body == b"two"


async def test_the_client_may_ask_for_the_origin_s_own_answer(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.origin.says("/a", b"two")
        got = await rig.get("/a", {"cache-control": "no-cache"})
        assert (got.body, got.decision, got.reason) == (b"two", "miss", "request")
        assert (await rig.get()).body == b"two", "what came is stored"


async def test_the_client_may_take_what_is_stale(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.clock.pass_by(100)
        got = await rig.get("/a", {"cache-control": "max-stale=50"})
        assert (got.body, got.decision, got.age) == (b"one", "hit", 100)
        assert "ttl=-40" in (got.headers.get("cache-status") or "")
        assert (await rig.get("/a", {"cache-control": "max-stale=10"})).decision == "miss"


# -- what is not stored -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "request_headers", "reason"),
    [
        ({"cache_control": "no-store, max-age=60"}, {}, "response-no-store"),
        ({"cache_control": "private, max-age=60"}, {}, "private"),
        ({"cache_control": 'private="x a", max-age=60'}, {}, "private"),
        ({"headers": {"cdn-cache-control": "private, max-age=60"}}, {}, "private"),
        ({"headers": {"surrogate-control": "no-store"}, "cache_control": "max-age=60"}, {}, "response-no-store"),
        ({"cache_control": "max-age=60"}, {"cache-control": "no-store"}, "request-no-store"),
        ({"cache_control": "max-age=60"}, {"authorization": "Bearer x"}, "authorization"),
        ({"cache_control": "max-age=60", "headers": {"vary": "*"}}, {}, "vary-star"),
        ({"cache_control": "max-age=60", "from_origin": False}, {}, "local-reply"),
        ({"cache_control": "max-age=60", "status": 206}, {}, "partial"),
        ({"cache_control": "max-age=60", "cut_off": True}, {}, "truncated"),
        ({"cache_control": "max-age=60", "headers": {"content-length": "5"}}, {}, "truncated"),
        ({"cache_control": "max-age=60", "headers": {"x-a": "one\ntwo"}}, {}, "bad-headers"),
        ({"cache_control": "max-age=60", "body": b"x" * (5 << 20)}, {}, "too-large"),
        ({"cache_control": "max-age=60", "headers": {"content-length": str(5 << 20)}}, {}, "too-large"),
        ({"cache_control": "max-age=60", "body": b"x" * (3 << 20)}, {}, "no-memory"),
        ({"status": 503}, {}, "status"),
        ({"status": 404}, {}, "no-freshness"),
    ],
)
async def test_never_stored(
    tmp_path: Path, answer: dict[str, object], request_headers: Mapping[str, str], reason: str
) -> None:
    async with Rig(tmp_path, PLAIN, copy_bytes=2 << 20 if reason == "no-memory" else 64 << 20) as rig:
        rig.origin.says("/a", **({"body": b"four"} | answer))  # type: ignore[arg-type]
        await rig.get("/a", request_headers)
        assert rig.meter.stores == [reason]
        again = await rig.forwarded("GET")
        again.exchange.close()
        assert again.forward.decision == "miss"
        rig.forget_memory()
        again = await rig.forwarded("GET")
        again.exchange.close()
        assert again.forward.decision == "miss"


async def test_a_body_cut_off_is_forgotten_and_its_memory_given_back(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"x" * 100_000, cut_off=True)
        waiting = await rig.forwarded("GET", chunk=30_000)
        await waiting.finish()
        assert rig.cache.copies.used == 0
        waiting.exchange.close()
        waiting.exchange.on_end()
        assert rig.meter.stores == ["truncated"], "closing twice counts once, and nothing is stored after"
        assert (await rig.forwarded("GET")).forward.decision == "miss"


async def test_copies_under_way_are_counted_until_they_end(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN, copy_bytes=100) as rig:
        rig.origin.says("/a", b"x" * 60)
        rig.origin.says("/b", b"y" * 60)
        one = await rig.forwarded("GET", "/a")
        await one.exchange.on_response(Response(200, Headers(one.reply.headers)))
        one.exchange.on_body(b"x" * 60)
        assert rig.cache.copies.used == 60
        assert (await rig.get("/b")).body == b"y" * 60
        assert rig.meter.stores == ["no-memory"]
        one.exchange.on_end()
        assert rig.cache.copies.used == 0
        assert (await rig.get("/a")).decision == "hit"
        await rig.get("/b")
        assert (await rig.get("/b")).decision == "hit"


async def test_an_answer_without_body_is_stored_at_once(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"", status=204)
        await rig.get()
        got = await rig.get()
        assert (got.status, got.body, got.decision) == (204, b"", "hit")


async def test_cookies_are_not_replayed(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        fields = (("set-cookie", "sid=1"), ("set-cookie", "b=2"), ("x-a", "kept"))
        rig.origin.says("/a", b"one", cache_control="max-age=60", headers=fields)
        first = await rig.get()
        assert first.headers.get_all("set-cookie") == ["sid=1", "b=2"], "the first client gets them"
        second = await rig.get()
        assert (second.decision, second.headers.get("x-a"), "set-cookie" in second.headers) == ("hit", "kept", False)
        rig.forget_memory()
        assert "set-cookie" not in (await rig.get()).headers


async def test_cache_status_of_the_caches_behind_stays_in_front(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", headers={"cache-status": "inner; hit"})
        first = await rig.get()
        assert (first.headers.get("cache-status") or "").startswith("inner; hit, meshcache; fwd=uri-miss; stored")
        assert (await rig.get()).headers.get_all("cache-status") == [
            'meshcache; hit; ttl=60; detail="tier=hot policy=p"'
        ]
        got = await rig.ask("POST")
        assert got.headers.get("cache-status") == 'inner; hit, meshcache; fwd=method; detail="method"'


# -- bypass -----------------------------------------------------------------------------------------------------

ROUTES = """
kind: CacheRoute
metadata: {name: plain}
spec: {match: [{path: {prefix: /plain}}]}
"""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"method": "POST"}, "method"),
        ({"method": "OPTIONS"}, "method"),
        ({"headers": {"if-match": '"1"'}}, "precondition"),
        ({"headers": {"upgrade": "websocket"}}, "upgrade"),
        ({"headers": {"content-type": "application/grpc"}}, "grpc"),
        ({"complete": False}, "request-body"),
        ({"path": "/plain/x"}, "route-not-cached"),
        ({"authority": ""}, "bad-request"),
    ],
)
async def test_what_goes_by_the_cache(tmp_path: Path, arguments: dict[str, object], reason: str) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s}", more=ROUTES)) as rig:
        for path in ("/a", "/plain/x"):
            rig.origin.says(path, b"one")
        await rig.get()
        got = await rig.ask(**({"method": "GET"} | arguments))  # type: ignore[arg-type]
        assert (got.decision, got.reason, got.body) == ("bypass", reason, b"one")
        assert rig.origin.times == 2
        assert rig.meter.requests[-1][:2] == ("bypass", reason)
        assert rig.meter.stores == ["stored"]


async def test_without_policies_everything_goes_by(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.cache.snapshot = None
        assert (await rig.get()).reason == "no-policy"
        assert (await rig.ask("POST")).reason == "method"


async def test_a_method_that_the_policy_does_not_cache(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s}", key="{methods: [GET]}")) as rig:
        rig.origin.says("/a")
        await rig.get()
        assert (await rig.ask("HEAD")).reason == "method"
        assert (await rig.get()).decision == "hit"


async def test_only_unsafe_requests_are_watched(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        for method, watched in (
            ("POST", True),
            ("DELETE", True),
            ("PURGE", True),
            ("OPTIONS", False),
            ("TRACE", False),
        ):
            assert (await rig.forwarded(method)).forward.watch is watched
        assert not (await rig.forwarded("GET", headers={"if-match": "*"})).forward.watch
