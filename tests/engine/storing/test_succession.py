"""Which of two responses for one key stays: the newer one, and a good one before an error."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_harness import Rig, Sent
from cache_origin import START, Reply
from meshcache.engine.records import StoredResponse
from meshcache.engine.storing.succession import SLOW_SECONDS, gives_way, is_older, may_give_way
from meshcache.rfc.fields import format_http_date
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path

    from meshcache.tiers.base import TierRead

PLAIN = policies(freshness="{defaultTtl: 60s}")
ON_ERROR = policies(freshness="{defaultTtl: 60s, staleIfError: 5m}")


def response(asked: float, came: float, date: float | None = None) -> StoredResponse:
    fields = () if date is None else (("date", format_http_date(START + date)),)
    return StoredResponse(b"k", (), 200, fields, START + asked, START + came, 0.0, False, b"")


@pytest.mark.parametrize(
    ("one", "other", "older"),
    [
        # Asked for after the other had come: newer, whatever the dates say.
        (response(0, 1, 50), response(2, 3, 0), True),
        (response(2, 3, 0), response(0, 1, 50), False),
        # Under way together: by date, else by arrival.
        (response(0, 5, 1), response(2, 3, 2), True),
        (response(0, 5, 3), response(2, 3, 2), False),
        (response(0, 5, 2), response(2, 3, 2), False),
        (response(2, 3, 2), response(0, 5, 2), True),
        (response(0, 5), response(2, 3), False),
        (response(2, 3, 9), response(0, 5), True),
        # Nothing tells them apart.
        (response(0, 0, 0), response(0, 0, 0), False),
    ],
)
def test_which_is_older(one: StoredResponse, other: StoredResponse, older: bool) -> None:
    assert is_older(one, other) is older


TIMES = st.floats(0, 10)
RESPONSES = st.builds(
    lambda asked, took, date: response(asked, asked + took, date), TIMES, TIMES, st.none() | st.integers(0, 9)
)


@given(RESPONSES, RESPONSES)
def test_of_two_one_at_most_is_older(one: StoredResponse, other: StoredResponse) -> None:
    assert not (is_older(one, other) and is_older(other, one))
    assert not is_older(one, one)


async def sent(rig: Rig, worker: int = 0, **headers: str) -> Sent:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    outcome = await rig.send("GET", "/a", fields, worker=worker)
    assert isinstance(outcome, Sent)
    return outcome


async def test_a_slow_older_answer_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"old")
        slow = await sent(rig)
        rig.clock.pass_by(1)
        rig.origin.says("/a", b"new")
        quick = await sent(rig)
        assert (await quick.finish()).body == b"new"
        assert (await slow.finish()).body == b"old", "its own client gets it"
        assert rig.meter.stores == ["stored", "older"]
        await rig.settle()
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            got = await rig.get()
            assert (got.body, got.decision) == (b"new", "hit")


def undated(sent: Sent) -> Sent:
    """Its answer will be that what is stored is still right, without a word of when that was so."""
    sent.reply = Reply(304, (("etag", '"1"'),))
    return sent


@pytest.mark.parametrize("varied", [{}, {"vary": "accept-language"}], ids=["one for all", "variants"])
async def test_a_304_without_a_date_brings_nothing_back_that_was_replaced_meanwhile(
    tmp_path: Path, varied: dict[str, str]
) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"old", headers={"etag": '"1"', **varied})
        await rig.get()
        rig.clock.pass_by(100)
        slow = undated(await sent(rig))
        rig.clock.pass_by(0.1)
        rig.origin.says("/a", b"new", headers={"etag": '"2"', **varied})
        assert (await (await sent(rig, cache_control="no-cache")).finish()).body == b"new"
        rig.clock.pass_by(0.1)
        got = await slow.finish()
        assert (got.body, got.decision) == (b"old", "revalidated"), "its own client gets what was confirmed"
        assert rig.meter.stores == ["stored", "stored", "older"]
        await rig.settle()
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            assert (await rig.get()).body == b"new"


async def test_nor_in_the_store_of_several_workers(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN, workers=2) as rig:
        rig.origin.says("/a", b"old", headers={"etag": '"1"'})
        await rig.get()
        await rig.settle()
        rig.clock.pass_by(100)
        slow = undated(await sent(rig))
        rig.clock.pass_by(0.1)
        rig.origin.says("/a", b"new", headers={"etag": '"2"'})
        await (await sent(rig, worker=1, cache_control="no-cache")).finish()
        await rig.settle()
        rig.clock.pass_by(2 * SLOW_SECONDS)
        await slow.finish()
        await rig.settle()
        rig.forget_memory()
        assert (await rig.get(worker=1)).body == b"new"


async def test_a_304_with_a_later_date_does(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"old", headers={"etag": '"1"'})
        await rig.get()
        rig.clock.pass_by(100)
        slow = await sent(rig)
        rig.origin.says("/a", b"new", headers={"etag": '"2"'})
        await (await sent(rig, cache_control="no-cache")).finish()
        rig.clock.pass_by(2)
        slow.reply = Reply(304, (("etag", '"1"'), ("date", format_http_date(rig.clock.now))))
        await slow.finish()
        assert (await rig.get()).body == b"old", "the origin has taken its change back"


async def test_a_304_without_a_date_renews_what_it_was_asked_about(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"old", headers={"etag": '"1"'})
        await rig.get()
        rig.clock.pass_by(100)
        await undated(await sent(rig)).finish()
        assert (await rig.get()).decision == "hit"


async def test_not_in_the_store_of_several_workers_either(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN, workers=2) as rig:
        rig.origin.says("/a", b"old")
        slow = await sent(rig)
        rig.clock.pass_by(1)
        rig.origin.says("/a", b"new")
        await (await sent(rig, worker=1)).finish()
        await rig.settle()
        rig.clock.pass_by(SLOW_SECONDS)
        await slow.finish()
        await rig.settle()
        for worker in (0, 1):
            assert (await rig.get(worker=worker)).body == b"new"
        rig.forget_memory()
        assert (await rig.get()).body == b"new"


VARIED = {"vary": "accept-language"}


@pytest.mark.parametrize(("old", "new"), [({}, VARIED), (VARIED, {})], ids=["new one varies", "old one varies"])
async def test_nor_where_but_one_of_them_varies(tmp_path: Path, old: dict[str, str], new: dict[str, str]) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"old", headers=old)
        slow = await sent(rig, accept_language="en")
        rig.clock.pass_by(1)
        rig.origin.says("/a", b"new", headers=new)
        await (await sent(rig, accept_language="en")).finish()
        await slow.finish()
        assert rig.meter.stores == ["stored", "older"]
        await rig.settle()
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            assert (await rig.get("/a", {"accept-language": "en"})).body == b"new"


async def test_what_varies_for_others_and_came_meanwhile_stays(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"old")
        slow = await sent(rig, accept_language="en")
        rig.clock.pass_by(1)
        rig.origin.says("/a", b"german", headers=VARIED)
        await (await sent(rig, accept_language="de")).finish()
        await slow.finish()
        assert rig.meter.stores == ["stored", "older"]
        assert (await rig.get("/a", {"accept-language": "de"})).body == b"german"


async def test_a_variant_that_was_replaced_meanwhile_is_no_list_to_be_replaced(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"first", headers=VARIED)
        await rig.get("/a", {"accept-language": "en"})
        rig.clock.pass_by(100)
        rig.origin.says("/a", b"old")
        slow = await sent(rig, accept_language="en", cache_control="no-cache")
        rig.clock.pass_by(1)
        rig.origin.says("/a", b"new", headers=VARIED)
        await (await sent(rig, accept_language="en", cache_control="no-cache")).finish()
        await slow.finish()
        assert (await rig.get("/a", {"accept-language": "en"})).body == b"new"


async def test_an_answer_for_all_still_replaces_variants_that_were_known(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        for language in ("en", "de"):
            rig.origin.says("/a", language.encode(), headers=VARIED)
            await rig.get("/a", {"accept-language": language})
        rig.clock.pass_by(1)
        rig.origin.says("/a", b"for all")
        await rig.get("/a", {"accept-language": "en", "cache-control": "no-cache"})
        for language in ("en", "de", "fr"):
            assert (await rig.get("/a", {"accept-language": language})).body == b"for all"


async def test_variants_that_come_together_are_all_listed(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"by language", headers=VARIED)
        one = await sent(rig, accept_language="en", accept="a/b")
        rig.origin.says("/a", b"by type", headers={"vary": "accept"})
        two = await sent(rig, accept_language="de", accept="c/d")
        await one.finish()
        await two.finish()
        assert (await rig.get("/a", {"accept-language": "en", "accept": "x/y"})).body == b"by language"
        assert (await rig.get("/a", {"accept-language": "fr", "accept": "c/d"})).body == b"by type"


async def test_a_newer_answer_replaces_an_older_one_however_slow_it_is(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN, workers=2) as rig:
        rig.origin.says("/a", b"old")
        await rig.get(worker=1)
        await rig.settle()
        rig.clock.pass_by(100)
        rig.origin.says("/a", b"new")
        slow = await sent(rig)
        rig.clock.pass_by(30)
        await slow.finish()
        await rig.settle()
        for worker in (0, 1):
            assert (await rig.get(worker=worker)).body == b"new"


async def test_what_was_invalidated_keeps_nothing_out(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN, workers=2) as rig:
        rig.origin.says("/a", b"old")
        slow = await sent(rig)
        rig.clock.pass_by(2)
        await (await sent(rig, worker=1)).finish()
        await rig.ask("POST")
        await rig.settle()
        slow.exchange.close()
        rig.origin.says("/a", b"new")
        again = await sent(rig)
        rig.clock.pass_by(2)
        await again.finish()
        await rig.settle()
        assert (await rig.get(worker=1)).body == b"new"


async def test_a_clock_that_is_set_back_keeps_no_answer_out(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"old")
        await rig.get()
        rig.clock.pass_by(-20)
        rig.origin.says("/a", b"new")
        assert (await rig.get("/a", {"cache-control": "no-cache"})).body == b"new"
        assert (await rig.get()).body == b"new"


async def test_an_older_entry_is_not_moved_up_over_a_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"old")
        await rig.get()
        await rig.settle()
        rig.clock.pass_by(1)
        rig.origin.says("/a", b"new")
        newer = await sent(rig, cache_control="no-cache")
        rig.forget_memory()
        read, may_go, get = asyncio.Event(), asyncio.Event(), rig.warm.get

        async def late(key: bytes, resource: bytes) -> TierRead:
            found = await get(key, resource)
            read.set()
            await may_go.wait()
            return found

        monkeypatch.setattr(rig.warm, "get", late)
        reading = asyncio.create_task(rig.get())
        await read.wait()
        await newer.finish()
        may_go.set()
        assert (await reading).body == b"old"
        assert (await rig.get()).body == b"new"


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 406, 412, 426, 500, 502, 503, 504])
async def test_an_error_with_a_lifetime_does_not_replace_what_is_fresh(tmp_path: Path, status: int) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"good")
        await rig.get()
        rig.origin.says("/a", b"bad", status=status, cache_control="max-age=600")
        got = await rig.get("/a", {"cache-control": "no-cache"})
        assert (got.status, got.stored) == (status, False)
        assert rig.meter.stores == ["stored", "better-stored"]
        got = await rig.get()
        assert (got.body, got.decision) == (b"good", "hit")


async def test_nor_what_may_stand_in_for_it(tmp_path: Path) -> None:
    async with Rig(tmp_path, ON_ERROR) as rig:
        rig.origin.says("/a", b"good", cache_control="public, max-age=60")
        await rig.get()
        rig.clock.pass_by(100)
        rig.origin.says("/a", b"bad", status=503, cache_control="public, max-age=600")
        assert (await rig.get()).body == b"good"
        rig.clock.pass_by(261)
        got = await rig.get()
        assert (got.status, got.stored) == (503, True), "its time is over"
        assert (await rig.get()).decision == "hit"


async def test_nor_one_that_has_come_in_meanwhile(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN, workers=2) as rig:
        rig.origin.says("/a", b"bad", status=503, cache_control="max-age=600")
        failing, elsewhere = await sent(rig), await sent(rig, worker=1)
        rig.origin.says("/a", b"good")
        await (await sent(rig)).finish()
        await rig.settle()
        for worker in (failing, elsewhere):
            assert (await worker.finish()).status == 503
        await rig.settle()
        assert rig.meter.stores == ["stored", "better-stored"]
        for worker_number in (0, 1):
            assert (await rig.get(worker=worker_number)).body == b"good"
        rig.forget_memory()
        assert (await rig.get()).body == b"good"


@pytest.mark.parametrize(
    ("status", "held", "gives"),
    [
        (400, 200, True),
        (400, 301, True),
        (400, 404, True),
        (400, 400, False),
        (400, 503, False),
        (503, 400, True),
        (503, 502, False),
        (403, 200, False),
        (404, 200, False),
        (200, 200, False),
    ],
)
def test_which_gives_way(status: int, held: int, gives: bool) -> None:
    assert gives_way(status, held) is gives
    assert may_give_way(status) or not gives


async def test_an_error_replaces_an_error(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{negative: [{status: 503, ttl: 10s}]}")) as rig:
        for body in (b"one", b"two"):
            rig.origin.says("/a", body, status=503)
            assert (await rig.get("/a", {"cache-control": "no-cache"})).stored
            assert (await rig.get()).body == body
