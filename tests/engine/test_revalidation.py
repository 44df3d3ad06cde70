"""Validation: of what is stored by the origin, of what a client holds by what is stored; and errors of the origin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cache_harness import Got, Rig, Sent
from cache_origin import START, Reply
from meshcache.engine.answers import NO_ANSWER
from meshcache.rfc.fields import format_http_date
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path

    from meshcache.message import Request


PLAIN = policies(freshness="{defaultTtl: 60s}")


# -- validation ---------------------------------------------------------------------------------------------------


async def stale(rig: Rig, **more: str) -> None:
    """Store an answer with an entity tag and let it grow stale."""
    fields = {"etag": '"1"', "x-a": "old", "content-type": "text/plain"} | more
    rig.origin.says("/a", b"one", cache_control="max-age=10", headers=fields)
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
            'meshcache; fwd=stale; fwd-status=304; stored; ttl=100; detail="revalidated tier=hot policy=p"'
        )
        rig.clock.pass_by(99)
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            got = await rig.get()
            assert (got.decision, got.age, got.headers.get("x-a")) == ("hit", 99, "new")


async def test_a_cookie_that_comes_with_a_304_is_this_clients_alone(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        await stale(rig)
        rig.origin.does(
            "/a",
            lambda _: Reply(
                304, (("etag", '"1"'), ("cache-control", "max-age=9"), ("set-cookie", "s=1"), ("set-cookie", "t=2"))
            ),
        )
        got = await rig.get()
        assert (got.status, got.headers.get_all("set-cookie")) == (200, ["s=1", "t=2"])
        again = await rig.get()
        assert (again.decision, again.headers.get_all("set-cookie")) == ("hit", [])


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


@pytest.mark.parametrize(
    ("stored", "told"), [('W/"1"', {"etag": '"1"'}), ('"1"', {"last-modified": format_http_date(START)})]
)
async def test_a_304_that_names_no_validator_of_what_is_stored_is_not_kept(
    tmp_path: Path, stored: str, told: dict[str, str]
) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=10", headers={"etag": stored})
        await rig.get()
        rig.clock.pass_by(20)
        rig.origin.says("/a", status=304, headers=told)
        got = await rig.get()
        assert (got.status, got.body) == (200, b"one")
        assert "stored" not in (got.headers.get("cache-status") or "")
        await rig.settle()
        rig.origin.says("/a", b"two")
        assert (await rig.get()).body == b"two"


DATED = {"last-modified": format_http_date(START)}
"""Asked by date as well, an origin may have overlooked the tag."""


def confused(request: Request) -> Reply:
    """An origin that says 304 for what nobody has asked about, and has an answer when nothing is asked about."""
    if "if-none-match" in request.headers:
        return Reply(304, (("etag", '"9"'),))
    return Reply(200, (("etag", '"9"'), ("cache-control", "max-age=60"), ("set-cookie", "sid=1")), b"nine")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_after_a_304_for_something_else_the_origin_is_asked_anew(tmp_path: Path, method: str) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        await stale(rig, **DATED)
        rig.origin.does("/a", confused)
        got = await rig.ask(method, "/a", {"cookie": "sid=2", "accept": "text/html", "if-none-match": '"8"'})
        assert (got.status, got.decision) == (200, "refetched")
        assert got.body == (b"" if method == "HEAD" else b"nine")
        assert (got.headers.get("etag"), got.headers.get("set-cookie")) == ('"9"', None)
        assert (got.headers.get("cache-status") or "").startswith("meshcache; fwd=stale; fwd-status=200; stored")
        (anew,) = rig.refresher.asked
        assert dict(anew.headers.without({"surrogate-capability"})) == {"accept": "text/html"}
        await rig.settle()
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            got = await rig.get()
            assert (got.body, got.decision) == (b"nine", "hit")


async def test_a_304_to_a_tag_alone_confirms_it_whatever_it_names(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        await stale(rig)
        rig.origin.says("/a", status=304, cache_control="max-age=60", headers={"etag": '"9"', "x-a": "new"})
        for decision in ("revalidated", "hit"):
            got = await rig.get()
            assert (got.body, got.decision) == (b"one", decision)
            assert (got.headers.get("etag"), got.headers.get("x-a")) == ('"1"', "new")


@pytest.mark.parametrize("answer", [{"status": 503}, {"cache_control": "private"}, {"headers": {"vary": "x-other"}}])
async def test_an_answer_that_is_not_for_sharing_is_none_then(tmp_path: Path, answer: dict[str, Any]) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        await stale(rig, **DATED)
        rig.origin.says("/a", b"nine", **answer)
        told = rig.origin.ask

        def ask(request: Request) -> Reply:
            return Reply(304, (("etag", '"9"'),)) if "if-none-match" in request.headers else told(request)

        rig.origin.ask = ask  # type: ignore[method-assign]
        got = await rig.get("/a", {"x-other": "mine"})
        assert (got.status, got.decision) == (502, "mismatch")


async def test_nor_where_it_would_take_the_client_s_credentials(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s}", key="{cookies: [sid]}")) as rig:
        await stale(rig, **DATED)
        rig.origin.does("/a", confused)
        assert (await rig.get()).status == 502
        assert rig.refresher.asked == []


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_304_for_something_else_is_no_answer(tmp_path: Path, method: str) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.cache.refresher = None
        await stale(rig, **DATED)
        rig.origin.says("/a", status=304, headers={"etag": '"9"'})
        got = await rig.ask(method, "/a")
        assert (got.status, got.decision) == (502, "mismatch")
        assert got.body == (b"" if method == "HEAD" else NO_ANSWER.body)
        assert got.headers.get("cache-control") == "no-store"
        assert got.headers.get("cache-status") == (
            'meshcache; fwd=stale; fwd-status=304; detail="mismatch tier=hot policy=p"'
        )
        assert rig.meter.requests[-1][:2] == ("mismatch", "stale")
        await rig.settle()
        rig.origin.says("/a", b"nine", headers={"etag": '"9"'})
        got = await rig.get()
        assert (got.status, got.body) == (200, b"nine")
        assert rig.origin.asked[-1].headers.get("if-none-match") is None


async def test_it_is_one_to_a_client_who_holds_that(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        await stale(rig, **DATED)
        rig.origin.says("/a", status=304, headers={"etag": '"9"'})
        got = await rig.get("/a", {"if-none-match": '"8", W/"9"'})
        assert (got.status, got.headers.get("etag")) == (304, '"9"')
        await rig.settle()
        assert isinstance(await rig.send("GET"), Sent), "what was stored is gone"


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


async def test_an_error_leaves_what_is_stored_in_place(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        await stale(rig)
        rig.origin.says("/a", b"oops", status=503)
        assert (await rig.get()).status == 503
        await rig.settle()
        rig.origin.says("/a", b"one", headers={"etag": '"1"'})
        assert (await rig.get()).decision == "revalidated"


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
