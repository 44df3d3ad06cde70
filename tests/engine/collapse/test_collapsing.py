"""Requests for one key at one time: one goes to the origin, and what becomes of the others."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
from crowds import COLLAPSING, Crowd

from cache_harness import Got, Rig
from cache_origin import Reply, by_field
from meshcache.engine.collapse.herd import Herd, Member
from meshcache.engine.collapse.place import ALONE, Place
from meshcache.message import Headers, Request, Response
from policy_texts import policies


@pytest.fixture
async def rig(tmp_path: Path) -> Any:
    async with Rig(tmp_path, COLLAPSING) as rig:
        yield rig


@pytest.fixture
def crowd(rig: Rig) -> Crowd:
    return Crowd(rig)


def status_of(got: Got) -> str:
    return got.headers.get("cache-status") or ""


async def test_one_asks_the_origin_and_all_get_its_answer(rig: Rig, crowd: Crowd) -> None:
    rig.origin.says("/a", b"one", cache_control="max-age=60", headers={"x": "y"})
    leader = await rig.forwarded("GET")
    await crowd.join(50)
    assert crowd.waiting == 50
    got = await leader.finish()
    assert (got.decision, got.stored) == ("miss", True)
    answers = await crowd.all()
    assert {(one.decision, one.body, one.status, one.tier, one.age) for one in answers} == {
        ("collapsed", b"one", 200, "hot", 0)
    }
    assert {status_of(one) for one in answers} == {
        'meshcache; fwd=uri-miss; collapsed; ttl=60; detail="collapsed tier=hot policy=p"'
    }
    assert rig.origin.times == 1
    assert rig.meter.collapses == {"answered": 50}
    assert [one[0] for one in rig.meter.requests].count("collapsed") == 50
    assert (await rig.get()).decision == "hit"


async def test_all_get_a_body_that_is_stored_in_chunks(rig: Rig, crowd: Crowd) -> None:
    body = bytes(range(256)) * 6000
    rig.origin.says("/a", body, cache_control="max-age=60")
    leader = await rig.forwarded("GET")
    await crowd.join(5)
    await leader.finish()
    answers = await crowd.all()
    assert [one.body == body for one in answers] == [True] * 5
    assert {one.decision for one in answers} == {"collapsed"}
    assert rig.origin.times == 1


async def test_other_keys_do_not_wait(rig: Rig, crowd: Crowd) -> None:
    await rig.forwarded("GET")
    other = await rig.forwarded("GET", "/b")
    await other.finish()


async def test_without_collapsing_each_asks_the_origin(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(collapse="{enabled: false}")) as rig:
        for _ in range(3):
            await rig.forwarded("GET")
        assert rig.origin.times == 3


async def test_one_takes_over_when_the_leading_client_leaves(rig: Rig, crowd: Crowd) -> None:
    rig.origin.says("/a", b"one", cache_control="max-age=60")
    leader = await rig.forwarded("GET")
    await crowd.join(20)
    leader.exchange.close()
    await crowd.stirred()
    assert crowd.waiting == 19
    answers = await crowd.all()
    assert {one.body for one in answers} == {b"one"}
    assert rig.origin.times == 2
    assert rig.meter.collapses == {"takeover": 1, "answered": 19}
    (taken,) = (one for one in answers if one.decision == "miss")
    assert "; collapsed=?0" in status_of(taken)


async def test_a_leader_whose_body_is_cut_off(rig: Rig, crowd: Crowd) -> None:
    rig.origin.says("/a", b"one", cache_control="max-age=60", cut_off=True)
    leader = await rig.forwarded("GET")
    await crowd.join(5)
    await leader.finish()
    await crowd.stirred()
    rig.origin.says("/a", b"two", cache_control="max-age=60")
    assert rig.origin.times == 2
    rest = await crowd.all()
    assert rig.origin.times <= 3
    assert {one.body for one in rest if one.complete} <= {b"one", b"two"}


@pytest.mark.parametrize("from_origin", [True, False])
async def test_a_leader_that_gets_an_error_is_followed_by_one(rig: Rig, crowd: Crowd, from_origin: bool) -> None:
    rig.origin.says("/a", b"sorry", status=503, from_origin=from_origin)
    leader = await rig.forwarded("GET")
    await crowd.join(20)
    await leader.finish()
    await crowd.stirred()
    assert crowd.waiting == 19
    rig.origin.says("/a", b"one", cache_control="max-age=60")
    crowd.sent[0].reply = rig.origin.ask(crowd.sent[0].request)
    answers = await crowd.all()
    assert {one.body for one in answers} == {b"one"}


async def test_after_two_errors_each_gets_its_own_a_few_at_a_time(rig: Rig, crowd: Crowd) -> None:
    rig.origin.says("/a", b"sorry", status=500)
    leader = await rig.forwarded("GET")
    await crowd.join(20)
    await leader.finish()
    await crowd.stirred()
    assert len(crowd.sent) == 1
    await crowd.tasks.pop(0).result().finish()  # type: ignore[union-attr]
    await crowd.stirred()
    assert len(crowd.sent) == 8
    await crowd.all()
    assert crowd.most <= 8
    assert rig.origin.times == 21
    assert rig.meter.collapses == {"takeover": 1, "released": 19}


async def test_what_is_stale_stands_in_for_all_when_the_leader_fails(tmp_path: Path) -> None:
    text = policies(collapse="{maxWait: 5s}", freshness="{staleIfError: 1h}")
    async with Rig(tmp_path, text) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=10", headers={"etag": '"1"'})
        await rig.get()
        rig.clock.pass_by(20)
        rig.origin.says("/a", b"sorry", status=503)
        leader = await rig.forwarded("GET")
        crowd = Crowd(rig)
        await crowd.join(10)
        assert (await leader.finish()).decision == "stale-if-error"
        answers = await crowd.all()
        assert {(one.decision, one.body) for one in answers} == {("stale-if-error", b"one")}
        assert all("fwd=stale; collapsed; ttl=-10" in status_of(one) for one in answers)
        assert rig.origin.times == 2
        assert rig.meter.collapses == {"stale": 10}


UNSHARED = [
    {"cache-control": "no-store"},
    {"cache-control": "private, max-age=60"},
    {"set-cookie": "a=b"},
    {"cache-control": "max-age=60", "vary": "*"},
    {"cache-control": "no-cache", "etag": '"1"'},
    {"cache-control": "max-age=0", "etag": '"1"'},
    {"cache-control": "max-age=60", "content-length": "9999999"},
]


@pytest.mark.parametrize("fields", UNSHARED, ids=str)
async def test_an_answer_that_is_not_for_sharing_releases_a_few_at_a_time_at_its_head(
    rig: Rig, crowd: Crowd, fields: dict[str, str]
) -> None:
    asked = iter(range(1000))
    rig.origin.does("/a", lambda _: _own(next(asked), fields))
    leader = await rig.forwarded("GET")
    await crowd.join(30)
    reply = leader.reply
    await leader.exchange.on_response(Response(reply.status, Headers(reply.headers)))
    await crowd.stirred()
    assert len(crowd.sent) == 8, "its body is not waited for"
    await crowd.all()
    assert crowd.most <= 8
    assert rig.origin.times == 31
    assert len({one.body for one in crowd.got}) == 30, "each has its own"
    leader.exchange.close()


def _own(number: int, fields: dict[str, str]) -> Reply:
    return Reply(200, tuple(fields.items()), b"for request %d" % number)


async def test_a_stream_of_events_is_not_waited_for(rig: Rig, crowd: Crowd) -> None:
    rig.origin.says("/a", b"data: 1", cache_control="max-age=60", headers={"content-type": "text/event-stream; a=b"})
    leader = await rig.forwarded("GET")
    await crowd.join(30)
    reply = leader.reply
    await leader.exchange.on_response(Response(reply.status, Headers(reply.headers)))
    await crowd.stirred()
    assert len(crowd.sent) == 8
    # One that has ended is as good as any answer.
    await crowd.sent[0].finish()
    await crowd.stirred()
    assert crowd.waiting == 0
    assert rig.origin.times == 9
    await crowd.all()
    leader.exchange.close()


async def test_what_was_not_for_sharing_is_not_waited_for_for_a_while(rig: Rig) -> None:
    rig.origin.says("/a", b"one", cache_control="no-store")
    await rig.get()
    for _ in range(5):
        await rig.forwarded("GET")
    assert rig.meter.collapses == {"hit-for-miss": 5}
    rig.clock.pass_by(31)
    await rig.forwarded("GET")
    assert rig.meter.collapses == {"hit-for-miss": 5}


async def test_what_is_for_sharing_again_is_waited_for_again(rig: Rig, crowd: Crowd) -> None:
    rig.origin.says("/a", b"one", cache_control="no-store")
    await rig.get()
    rig.origin.says("/a", b"two", cache_control="max-age=5")
    await rig.get()
    rig.clock.pass_by(6)
    await rig.forwarded("GET")
    await crowd.join(3)
    assert crowd.waiting == 3
    crowd.drop()


async def test_one_validation_for_all(rig: Rig, crowd: Crowd) -> None:
    rig.origin.says("/a", b"one", cache_control="max-age=10", headers={"etag": '"1"'})
    await rig.get()
    rig.clock.pass_by(20)
    leader = await rig.forwarded("GET")
    assert leader.forward.decision == "revalidate"
    await crowd.join(20)
    assert crowd.waiting == 20
    assert (await leader.finish()).decision == "revalidated"
    answers = await crowd.all()
    assert {(one.decision, one.body) for one in answers} == {("collapsed", b"one")}
    assert all("fwd=stale; collapsed; ttl=10" in status_of(one) for one in answers)
    assert rig.origin.times == 2


async def test_who_wants_the_origins_own_answer_waits_for_nobody(rig: Rig, crowd: Crowd) -> None:
    rig.origin.says("/a", b"one", cache_control="max-age=60")
    await rig.forwarded("GET")
    for fields in (
        {"cache-control": "no-cache"},
        {"cache-control": "max-age=0"},
        {"cache-control": "no-store"},
        {"range": "bytes=0-1"},
    ):
        await rig.forwarded("GET", headers=fields)
    await rig.forwarded("HEAD")
    await crowd.join(1, headers={"cache-control": "max-stale=5"})
    # Which says nothing (RFC 9111 section 5.4): its client gets a fresh answer from the store, too.
    await crowd.join(1, headers={"pragma": "no-cache"})
    assert crowd.waiting == 2
    crowd.drop()


async def test_an_answer_to_one_caller_is_never_given_to_another(rig: Rig, crowd: Crowd) -> None:
    def answer(request: Request) -> Reply:
        who = request.headers.get("authorization") or "anyone"
        return Reply(200, (("cache-control", "max-age=60"),), who.encode())

    rig.origin.does("/a", answer)
    leader = await rig.forwarded("GET", headers={"authorization": "ann"})
    for name in ("bob", "cyd", "dan"):
        await crowd.join(1, headers={"authorization": name})
    anonymous = await rig.forwarded("GET")
    assert (await leader.finish()).body == b"ann"
    assert (await anonymous.finish()).body == b"anyone"
    assert {one.body for one in await crowd.all()} == {b"bob", b"cyd", b"dan"}


async def test_what_all_may_see_is_shared_among_authorized_callers(rig: Rig, crowd: Crowd) -> None:
    rig.origin.says("/a", b"one", cache_control="public, max-age=60")
    leader = await rig.forwarded("GET", headers={"authorization": "ann"})
    await crowd.join(3, headers={"authorization": "bob"})
    await leader.finish()
    assert {one.decision for one in await crowd.all()} == {"collapsed"}
    assert rig.origin.times == 1


async def test_each_variant_has_its_own_leader(rig: Rig, crowd: Crowd) -> None:
    rig.origin.does("/a", by_field("accept-language"))
    leader = await rig.forwarded("GET", headers={"accept-language": "de"})
    for language in ("de", "fr", "en"):
        await crowd.join(10, headers={"accept-language": language})
    assert crowd.waiting == 30
    await leader.finish()
    await crowd.stirred()
    assert crowd.waiting == 18, "the first of each of two languages goes on"
    answers = await crowd.all()
    assert sorted({one.body for one in answers}) == [
        b"accept-language=de",
        b"accept-language=en",
        b"accept-language=fr",
    ]
    assert rig.origin.times == 3


async def test_a_coded_answer_is_not_given_to_a_client_that_cannot_read_it(rig: Rig, crowd: Crowd) -> None:
    def coded(request: Request) -> Reply:
        fields = (("cache-control", "max-age=60"),)
        if "gzip" in (request.headers.get("accept-encoding") or ""):
            # Without a word of what it varies on.
            return Reply(200, (*fields, ("content-encoding", "gzip")), b"coded")
        return Reply(200, fields, b"plain")

    rig.origin.does("/a", coded)
    leader = await rig.forwarded("GET", headers={"accept-encoding": "gzip"})
    await crowd.join(3, headers={"accept-encoding": "gzip, br"})
    await crowd.join(3, headers={"accept-encoding": "identity"})
    await leader.finish()
    answers = await crowd.all()
    assert sorted(one.body for one in answers) == [b"coded"] * 3 + [b"plain"] * 3


async def test_cookies_do_not_wait_for_strangers(rig: Rig, crowd: Crowd) -> None:
    rig.origin.does("/a", by_field("cookie", vary="accept"))
    leader = await rig.forwarded("GET")
    with_cookies = await rig.forwarded("GET", headers={"cookie": "sid=1"})
    assert (await leader.finish()).body == b"cookie=None"
    assert (await with_cookies.finish()).body == b"cookie=sid=1"


async def test_what_is_invalidated_meanwhile_is_not_given_to_those_that_wait(rig: Rig, crowd: Crowd) -> None:
    rig.origin.says("/a", b"old", cache_control="max-age=60")
    leader = await rig.forwarded("GET")
    await crowd.join(5)
    await rig.ask("POST")
    rig.origin.says("/a", b"new", cache_control="max-age=60")
    await leader.finish()
    assert {one.body for one in await crowd.all()} == {b"new"}


async def test_nobody_waits_longer_than_the_policy_says(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(collapse="{maxWait: 300ms}")) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60")
        leader = await rig.forwarded("GET")
        crowd = Crowd(rig)
        await crowd.join(5)
        assert crowd.waiting == 5
        await crowd.stirred(0.35)
        assert crowd.waiting == 0
        assert len(crowd.sent) == 5
        assert {one.body for one in await crowd.all()} == {b"one"}
        await leader.finish()
        assert rig.meter.collapses["released"] >= 1


async def test_a_client_that_leaves_while_it_waits_is_forgotten(rig: Rig, crowd: Crowd) -> None:
    rig.origin.says("/a", b"one", cache_control="max-age=60")
    leader = await rig.forwarded("GET")
    await crowd.join(5)
    for task in crowd.tasks[:3]:
        task.cancel()
    await crowd.stirred()
    crowd.tasks = crowd.tasks[3:]
    await leader.finish()
    assert {one.decision for one in await crowd.all()} == {"collapsed"}


async def test_what_has_waited_is_gone_without_the_garbage_collector(rig: Rig, crowd: Crowd) -> None:
    rig.origin.says("/a", b"one", cache_control="max-age=60")
    gc.collect()
    gc.disable()
    try:
        leader = await rig.forwarded("GET")
        await crowd.join(5)
        leader.exchange.close()
        await crowd.stirred()
        crowd.tasks[0].cancel()
        del leader
        await crowd.all()
        crowd.tasks.clear()
        await asyncio.sleep(0)
        assert [one for one in gc.get_objects() if isinstance(one, (Herd, Member, Place)) and one is not ALONE] == []
    finally:
        gc.enable()


async def test_an_answer_that_no_tier_takes_in_memory_is_handed_on(tmp_path: Path) -> None:
    text = policies(collapse="{maxWait: 5s}", placement="{hotAt: 70, warmAt: 30}", tiers=TIERS_WITHOUT_MEMORY)
    async with Rig(tmp_path, text) as rig:
        rig.origin.says("/a", b"x" * 5000, cache_control="max-age=60")
        leader = await rig.forwarded("GET")
        crowd = Crowd(rig)
        await crowd.join(5)
        await leader.finish()
        assert {(one.decision, one.body) for one in await crowd.all()} == {("collapsed", b"x" * 5000)}
        assert rig.origin.times == 1


TIERS_WITHOUT_MEMORY = """
hot: {maxObjectBytes: 1Ki}
warm: {ttl: 1h, maxObjectBytes: 2Mi, deadline: 5s}
"""
