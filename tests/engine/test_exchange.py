"""One request from its headers to the end of its response: what the client gets, and what is kept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cache_harness import START, Got, Rig, Sent, policies
from meshcache.engine.records import StoredResponse
from meshcache.message import Headers, Peer, Response
from meshcache.rfc.fields import format_http_date

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from meshcache.tiers.base import TierRead

PLAIN = policies(freshness="{defaultTtl: 60s}")


async def sent(rig: Rig, method: str, path: str = "/a", **more: Any) -> Sent:
    outcome = await rig.send(method, path, **more)
    assert isinstance(outcome, Sent)
    return outcome


# -- hits and freshness -----------------------------------------------------------------------------------------


async def test_the_second_request_is_answered_from_memory(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one", headers={"content-type": "text/plain"})
        first = await rig.get()
        assert (first.body, first.decision, first.reason, first.stored) == (b"one", "miss", "uri-miss", True)
        assert first.headers.get("cache-status") == 'meshcache; fwd=uri-miss; stored; detail="miss policy=p"'
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
            waiting = await sent(rig, "GET")
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
        waiting = await sent(rig, "GET")
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
        ({"cache_control": 'private="x-a", max-age=60'}, {}, "private"),
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
        again = await sent(rig, "GET")
        again.exchange.close()
        assert again.forward.decision == "miss"
        rig.forget_memory()
        again = await sent(rig, "GET")
        again.exchange.close()
        assert again.forward.decision == "miss"


async def test_a_body_cut_off_is_forgotten_and_its_memory_given_back(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"x" * 100_000, cut_off=True)
        waiting = await sent(rig, "GET", chunk=30_000)
        await waiting.finish()
        assert rig.cache.copies.used == 0
        waiting.exchange.close()
        waiting.exchange.on_end()
        assert rig.meter.stores == ["truncated"], "closing twice counts once, and nothing is stored after"
        assert (await sent(rig, "GET")).forward.decision == "miss"


async def test_copies_under_way_are_counted_until_they_end(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN, copy_bytes=100) as rig:
        rig.origin.says("/a", b"x" * 60)
        rig.origin.says("/b", b"y" * 60)
        one = await sent(rig, "GET", "/a")
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
        rig.origin.says("/a", b"one", headers=(("set-cookie", "sid=1"), ("set-cookie", "b=2"), ("x-a", "kept")))
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


# -- authorization ----------------------------------------------------------------------------------------------


async def test_an_anonymous_answer_is_not_given_to_an_authorized_caller(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"for all", cache_control="max-age=60")
        await rig.get()
        rig.origin.says("/a", b"for bob", cache_control="private, max-age=60")
        got = await rig.get("/a", {"authorization": "Bearer bob"})
        assert (got.body, got.decision, got.reason) == (b"for bob", "miss", "request")
        got = await rig.get()
        assert (got.body, got.decision) == (b"for all", "hit"), "his own answer says nothing against the stored one"


@pytest.mark.parametrize("directive", ["public", "s-maxage=60", "must-revalidate"])
async def test_an_authorized_answer_is_shared_when_the_origin_says_so(tmp_path: Path, directive: str) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"shared", cache_control=f"max-age=60, {directive}")
        await rig.get("/a", {"authorization": "Bearer bob"})
        assert (await rig.get("/a", {"authorization": "Bearer eve"})).decision == "hit"
        assert (await rig.get("/a")).decision == "hit"


async def test_an_authorized_caller_may_validate_what_was_stored_for_all(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60", headers={"etag": '"1"'})
        await rig.get()
        got = await rig.get("/a", {"authorization": "Bearer bob"})
        assert (got.body, got.decision) == (b"one", "revalidated")
        rig.clock.pass_by(59)
        assert (await rig.get()).decision == "hit"


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
        ({"headers": {"range": "bytes=0-1"}}, "range"),
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
            assert (await sent(rig, method)).forward.watch is watched
        assert not (await sent(rig, "GET", headers={"range": "bytes=0-1"})).forward.watch


# -- a look-up that takes too long --------------------------------------------------------------------------------


async def test_a_look_up_given_up_goes_on_to_the_origin_and_stores_nothing(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN, lookup_timeout=0.02) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.forget_memory()
        rig.origin.says("/a", b"two")
        rig.warm.may_go.clear()
        got = await rig.get()
        assert (got.body, got.decision, got.stored) == (b"two", "miss", False)
        assert rig.meter.stores == ["stored", "no-tier"]
        rig.warm.may_go.set()
        got = await rig.get()
        assert (got.body, got.decision, got.tier) == (b"one", "hit", "warm")


async def test_a_look_up_given_up_between_two_variants_stores_nothing(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN, lookup_timeout=0.05) as rig:
        rig.origin.says("/a", b"one", headers={"vary": "accept"})
        await rig.get()
        rig.forget_memory()
        get, reads = rig.warm.get, 0

        async def then_hang(key: bytes, resource: bytes) -> TierRead:
            nonlocal reads
            reads += 1
            if reads > 1:
                await asyncio.sleep(60)
            return await get(key, resource)

        rig.warm.get = then_hang  # type: ignore[method-assign]
        got = await rig.get()
        assert (got.decision, got.stored, reads) == ("miss", False, 2)


async def test_what_lies_under_a_key_by_chance_is_not_given(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one")
        rig.origin.says("/v", b"one", headers={"vary": "accept"})
        await rig.get("/a")
        await rig.get("/v", {"accept": "x"})
        for key, (entry, _) in list(rig.workers[0].memory._entries.items()):
            assert entry.record.key
            if isinstance(entry.record, StoredResponse):
                other = {"selecting": (("accept", "y"),)} if entry.record.selecting else {"key": b"other material"}
                entry.record = msgspec.structs.replace(entry.record, **other)
                assert rig.workers[0].memory.get(key, rig.clock.now) is entry
        rig.warm.may_go.clear()
        for path in ("/a", "/v"):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await rig.get(path, {"accept": "x"})
        rig.warm.may_go.set()


async def test_what_is_surely_nowhere_is_not_looked_for(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN, lookup_timeout=0.02) as rig:
        rig.origin.says("/a", b"one")
        rig.warm.may_go.clear()
        assert (await rig.get()).stored
        assert (await rig.get()).decision == "hit"


async def test_a_look_up_given_up_does_not_cost_what_is_in_memory(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s, staleIfError: 5m}"), lookup_timeout=0.02) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.clock.pass_by(61)
        rig.warm.may_go.clear()
        assert (await rig.get()).decision == "miss"
        rig.origin.says("/a", b"oops", status=503)
        got = await rig.get()
        assert (got.body, got.decision) == (b"one", "stale-if-error")


async def test_a_tier_that_fails_is_a_miss(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one")

        async def fail(*_: object) -> None:
            raise OSError("disk on fire")

        rig.warm.get = fail  # type: ignore[assignment,method-assign]
        assert (await rig.get()).stored
        assert (await rig.get()).decision == "hit"
        rig.forget_memory()
        assert (await rig.get()).decision == "miss"


# -- validation ---------------------------------------------------------------------------------------------------


async def stale(rig: Rig) -> None:
    """Store an answer with an entity tag and let it grow stale."""
    rig.origin.says(
        "/a", b"one", cache_control="max-age=10", headers={"etag": '"1"', "x-a": "old", "content-type": "text/plain"}
    )
    await rig.get()
    rig.clock.pass_by(20)


async def test_a_304_brings_the_stored_answer_up_to_date(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        await stale(rig)
        rig.origin.says("/a", b"one", cache_control="max-age=100", headers={"etag": '"1"', "x-a": "new"})
        got = await rig.get()
        assert rig.origin.asked[-1].headers.get("if-none-match") == '"1"'
        assert (got.status, got.body, got.decision, got.age) == (200, b"one", "revalidated", 0)
        assert (got.headers.get("x-a"), got.headers.get("content-type")) == ("new", "text/plain")
        assert got.headers.get("cache-status") == (
            'meshcache; fwd=stale; fwd-status=304; stored; detail="tier=hot policy=p"'
        )
        rig.clock.pass_by(99)
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            got = await rig.get()
            assert (got.decision, got.age, got.headers.get("x-a")) == ("hit", 99, "new")


async def test_a_304_by_last_modified(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        modified = format_http_date(START - 1000)
        rig.origin.says("/a", b"one", cache_control="max-age=10", headers={"last-modified": modified})
        await rig.get()
        rig.clock.pass_by(20)
        rig.origin.says("/a", status=304, headers={"last-modified": modified})
        got = await rig.get()
        assert rig.origin.asked[-1].headers.get("if-modified-since") == modified
        assert (got.status, got.body, got.decision) == (200, b"one", "revalidated")


async def test_a_304_for_something_else_is_not_kept(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        await stale(rig)
        rig.origin.says("/a", status=304, headers={"etag": '"9"'})
        got = await rig.get()
        assert (got.status, got.body) == (200, b"one")
        assert "stored" not in (got.headers.get("cache-status") or "")
        await rig.settle()
        rig.origin.says("/a", b"nine", headers={"etag": '"9"'})
        assert (await rig.get()).body == b"nine"


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("no-store", False),
        ("private, max-age=60", False),
        ("max-age=60", True),
    ],
)
async def test_a_304_may_forbid_further_use(tmp_path: Path, told: str, kept: bool) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        await stale(rig)
        rig.origin.says("/a", status=304, cache_control=told, headers={"etag": '"1"'})
        got = await rig.get()
        assert (got.status, got.body, got.decision) == (200, b"one", "revalidated")
        assert ("; stored" in (got.headers.get("cache-status") or "")) == kept
        await rig.settle()
        assert isinstance(await rig.send("GET"), Got if kept else Sent)


async def test_a_304_that_changes_what_is_varied_on_is_not_kept(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        await stale(rig)
        rig.origin.says("/a", status=304, cache_control="max-age=60", headers={"etag": '"1"', "vary": "accept"})
        assert (await rig.get("/a", {"accept": "text/html"})).body == b"one"
        await rig.settle()
        rig.origin.says("/a", b"other")
        assert (await rig.get("/a", {"accept": "text/plain"})).body == b"other"


async def test_a_304_to_an_authorized_request_changes_nothing_for_others(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60", headers={"etag": '"1"'})
        await rig.get()
        rig.origin.says("/a", status=304, cache_control="private", headers={"etag": '"1"', "x-user": "bob"})
        got = await rig.get("/a", {"authorization": "Bearer bob"})
        assert (got.body, got.headers.get("x-user")) == (b"one", "bob")
        await rig.settle()
        got = await rig.get()
        assert (got.decision, got.headers.get("x-user")) == ("hit", None)


async def test_a_head_request_may_validate(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        await stale(rig)
        got = await rig.ask("HEAD")
        assert (got.status, got.body, got.decision) == (200, b"", "revalidated")
        got = await rig.get()
        assert (got.body, got.decision) == (b"one", "hit")


async def test_a_changed_answer_replaces_the_stored_one_in_every_tier(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        await stale(rig)
        rig.origin.says("/a", b"two", cache_control="max-age=100", headers={"etag": '"2"'})
        got = await rig.get()
        assert (got.body, got.decision) == (b"two", "revalidate")
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            assert (await rig.get()).body == b"two"


async def test_a_changed_answer_that_may_not_be_stored_ends_the_stored_one(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s, staleIfError: 1h}")) as rig:
        await stale(rig)
        rig.origin.says("/a", b"secret", cache_control="no-store")
        assert (await rig.get()).body == b"secret"
        await rig.settle()
        rig.origin.says("/a", b"oops", status=503)
        assert (await rig.get()).body == b"oops", "nothing is there to stand in"


@pytest.mark.parametrize("status", [400, 401, 403, 429])
async def test_a_client_s_own_fault_does_not_end_what_is_stored(tmp_path: Path, status: int) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.origin.says("/a", b"no", status=status)
        assert (await rig.get("/a", {"cache-control": "no-cache"})).status == status
        await rig.settle()
        assert (await rig.get()).body == b"one"


@pytest.mark.parametrize("status", [404, 410])
async def test_what_is_gone_ends_what_is_stored(tmp_path: Path, status: int) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s, staleIfError: 1h}")) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.origin.says("/a", b"no", status=status)
        assert (await rig.get("/a", {"cache-control": "no-cache"})).status == status
        await rig.settle()
        assert isinstance(await rig.send("GET"), Sent)


async def test_the_client_s_own_304_does_not_end_what_is_stored(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.origin.says("/a", status=304, headers={"etag": '"1"'})
        got = await rig.get("/a", {"cache-control": "no-cache", "if-none-match": '"1"'})
        assert got.status == 304
        await rig.settle()
        assert (await rig.get()).body == b"one"


# -- the client's own conditions ------------------------------------------------------------------------------------


async def test_a_client_that_holds_the_answer_gets_304(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one", headers={"etag": '"1"'})
        await rig.get()
        got = await rig.get("/a", {"if-none-match": 'W/"1", "7"'})
        assert (got.status, got.body, got.decision) == (304, b"", "hit")
        assert (await rig.get("/a", {"if-none-match": '"2"'})).status == 200
        assert rig.origin.times == 1
        assert rig.meter.bytes_served == {"hot": 3}


async def test_the_client_s_condition_is_judged_by_the_answer_that_was_validated(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        await stale(rig)
        got = await rig.get("/a", {"if-none-match": '"1"', "if-modified-since": format_http_date(START)})
        assert (got.status, got.decision) == (304, "revalidated")
        asked = rig.origin.asked[-1].headers
        assert (asked.get("if-none-match"), asked.get("if-modified-since")) == ('"1"', None)
        rig.clock.pass_by(20)
        got = await rig.get("/a", {"if-none-match": '"old"'})
        assert (got.status, got.body, got.decision) == (200, b"one", "revalidated")


# -- stale-if-error ---------------------------------------------------------------------------------------------

ON_ERROR = policies(freshness="{defaultTtl: 60s, staleIfError: 5m}")


@pytest.mark.parametrize("from_origin", [True, False])
@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_stale_answer_stands_in_for_an_error(tmp_path: Path, status: int, from_origin: bool) -> None:
    async with Rig(tmp_path, ON_ERROR) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.clock.pass_by(100)
        rig.origin.says("/a", b"oops", status=status, from_origin=from_origin)
        got = await rig.get()
        assert (got.status, got.body, got.decision, got.age) == (200, b"one", "stale-if-error", 100)
        assert (got.headers.get("cache-status") or "").startswith("meshcache; hit; ttl=-40;")
        rig.clock.pass_by(260.1)
        assert (await rig.get()).status == status


@pytest.mark.parametrize("status", [400, 401, 403, 404, 501])
async def test_it_does_not_stand_in_for_other_answers(tmp_path: Path, status: int) -> None:
    async with Rig(tmp_path, ON_ERROR) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.clock.pass_by(100)
        rig.origin.says("/a", b"no", status=status)
        assert (await rig.get()).status == status


@pytest.mark.parametrize("forbids", ["must-revalidate", "proxy-revalidate", "no-cache"])
async def test_it_does_not_stand_in_where_the_origin_forbids_it(tmp_path: Path, forbids: str) -> None:
    async with Rig(tmp_path, ON_ERROR) as rig:
        rig.origin.says("/a", b"one", cache_control=f"max-age=10, {forbids}", headers={"etag": '"1"'})
        await rig.get()
        rig.clock.pass_by(20)
        rig.origin.says("/a", b"oops", status=503)
        assert (await rig.get()).status == 503


async def test_it_does_not_stand_in_for_an_authorized_caller(tmp_path: Path) -> None:
    async with Rig(tmp_path, ON_ERROR) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.origin.says("/a", b"oops", status=503)
        assert (await rig.get("/a", {"authorization": "x"})).status == 503


async def test_an_error_leaves_what_is_stored_in_place(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        await stale(rig)
        rig.origin.says("/a", b"oops", status=503)
        assert (await rig.get()).status == 503
        await rig.settle()
        rig.origin.says("/a", b"one", headers={"etag": '"1"'})
        assert (await rig.get()).decision == "revalidated"


# -- arms, score and revision -------------------------------------------------------------------------------------

EXPERIMENT = """
kind: CacheExperiment
metadata: {name: e}
spec:
  routeRef: {name: all}
  unit: [{header: x-user-id}]
  arms:
    - {name: one, policyRef: {name: p}, weight: 1}
    - {name: two, policyRef: {name: p}, weight: 0, force: [{header: x-canary, exact: v2}]}
"""


async def test_arms_keep_their_own_answers(tmp_path: Path) -> None:
    text = policies(
        freshness="{defaultTtl: 60s}",
        more=EXPERIMENT,
        config="trust: {canaryHeader: {from: [{addresses: [10.0.0.1]}]}}",
    )
    async with Rig(tmp_path, text) as rig:
        trusted = Peer("10.0.0.1")
        canary = {"x-canary": "v2"}
        rig.origin.says("/a", b"one")
        await rig.get(headers={"x-user-id": "bob"})
        got = await rig.get("/a", canary, peer=trusted)
        assert (got.decision, got.reason) == ("miss", "uri-miss")
        assert "arm=two" in (got.headers.get("cache-status") or "")
        assert (await rig.get("/a", canary, peer=trusted)).decision == "hit"
        assert (await rig.get("/a", canary, peer=Peer("10.0.0.2"))).tier == "hot", "not trusted: the first arm"
        assert [row[4] for row in rig.meter.requests] == ["one", "two", "two", "one"]
        assert rig.meter.units_missing == {"e": 1}


async def test_releases_of_the_application_keep_their_own_answers(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s}", config="revision: {from: envoyCluster}")) as rig:
        rig.origin.says("/a", b"one")
        await rig.get(cluster="app-v1")
        assert (await rig.get(cluster="app-v2")).decision == "miss"
        assert (await rig.get(cluster="app-v1")).decision == "hit"


BY_SCORE = policies(
    freshness="{defaultTtl: 60s}",
    placement="{hotAt: 70, warmAt: 30}",
    config="trust: {scoreHeader: {from: [any]}}",
)


@pytest.mark.parametrize(
    ("score", "tier", "then"), [("0.9", "hot", "warm"), ("0.5", "warm", "warm"), ("0", "cold", "cold")]
)
async def test_an_answer_is_written_where_its_caller_s_score_says(
    tmp_path: Path, score: str, tier: str, then: str
) -> None:
    async with Rig(tmp_path, BY_SCORE) as rig:
        rig.origin.says("/a", b"one")
        scored = {"x-user-score": score}
        await rig.get("/a", scored)
        assert len(rig.workers[0].memory) == (1 if tier == "hot" else 0)
        low = {"x-user-score": "0"}
        assert (await rig.get("/a", low)).tier == tier, "every caller finds it, whatever he has earned"
        rig.forget_memory()
        assert (await rig.get("/a", low)).tier == then


async def test_an_entry_moves_up_with_a_better_reader_and_never_down(tmp_path: Path) -> None:
    async with Rig(tmp_path, BY_SCORE) as rig:
        rig.origin.says("/a", b"one")
        await rig.get("/a", {"x-user-score": "0.1"})
        tiers = [(await rig.get("/a", {"x-user-score": score})).tier for score in ("0.1", "0.5", "0.5", "0.9", "0.1")]
        assert tiers == ["cold", "cold", "warm", "warm", "hot"]
        rig.forget_memory()
        assert (await rig.get("/a", {"x-user-score": "0.1"})).tier == "warm"


async def test_promotion_does_not_make_it_live_longer(tmp_path: Path) -> None:
    async with Rig(tmp_path, BY_SCORE) as rig:
        rig.origin.says("/a", b"one")
        await rig.get("/a", {"x-user-score": "0.1"})
        rig.clock.pass_by(50)
        assert (await rig.get("/a", {"x-user-score": "0.9"})).tier == "cold"
        rig.clock.pass_by(9)
        assert (await rig.get()).tier == "hot"
        rig.clock.pass_by(1)
        assert (await rig.get()).decision == "miss"


async def test_what_is_too_large_for_memory_goes_one_tier_down(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"x" * (1 << 20))
        rig.origin.says("/b", b"x" * (3 << 20))
        await rig.get("/a")
        await rig.get("/b")
        assert (await rig.get("/a")).tier == "warm"
        assert (await rig.get("/b")).tier == "cold"
