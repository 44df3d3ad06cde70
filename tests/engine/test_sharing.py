"""Whose answer is given to whom: cookies, credentials, what a policy may ignore, pages in disguise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cache_harness import Rig
from cache_origin import Reply
from meshcache.message import Token
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path

    from cache_harness import Got
    from meshcache.message import Request

COOKIE = {"cookie": "sid=alice"}
# Lifetimes that the origin has not given.
MADE_UP = {
    "default": "{defaultTtl: 60s}",
    "override": "{mode: override, defaultTtl: 60s}",
    "heuristic": "{heuristic: 50%}",
}
UNSAID = {"default": None, "override": None, "heuristic": None}


def personal(request: Request) -> Reply:
    """An application that knows its visitor by his cookie and says nothing of it."""
    visitor = request.headers.get("cookie") or request.headers.get("authorization") or "stranger"
    old = ("last-modified", "Tue, 14 Nov 2022 22:13:20 GMT")
    return Reply(200, (old,), f"for {visitor}".encode())


def reason(got: Got) -> str:
    return (got.headers.get("cache-status") or "").partition('detail="')[2].split(" ")[1]


@pytest.mark.parametrize("how", list(MADE_UP))
async def test_a_made_up_lifetime_is_not_for_answers_to_cookies(tmp_path: Path, how: str) -> None:
    async with Rig(tmp_path, policies(freshness=MADE_UP[how])) as cache:
        cache.origin.does("/a", personal)
        first = await cache.get("/a", COOKIE)
        assert first.body == b"for sid=alice"
        assert not first.stored
        assert reason(first) == "cookie"
        assert (await cache.get("/a", {"cookie": "sid=bob"})).body == b"for sid=bob"
        assert (await cache.get("/a")).body == b"for stranger"
        # What strangers share is not for visitors whom the origin may know, and stays for strangers.
        assert (await cache.get("/a", COOKIE)).body == b"for sid=alice"
        assert (await cache.get("/a")).decision == "hit"


@pytest.mark.parametrize("how", list(MADE_UP))
async def test_a_made_up_lifetime_is_not_for_answers_that_set_a_cookie(tmp_path: Path, how: str) -> None:
    async with Rig(tmp_path, policies(freshness=MADE_UP[how])) as cache:
        fields = {"set-cookie": "sid=1", "last-modified": "Tue, 14 Nov 2022 22:13:20 GMT", "vary": "cookie"}
        cache.origin.says("/a", body=b"your session", headers=fields)
        first = await cache.get("/a")
        assert reason(first) == "cookie"
        assert (await cache.get("/a")).decision == "miss"


@pytest.mark.parametrize("said", ["max-age=60", "public, max-age=60", "s-maxage=60", "public"])
async def test_the_origins_own_word_is_for_all(tmp_path: Path, said: str) -> None:
    async with Rig(tmp_path, policies(freshness=MADE_UP["default"])) as cache:
        cache.origin.says("/a", cache_control=said, headers={"set-cookie": "b=2"})
        assert (await cache.get("/a", COOKIE)).stored
        for headers in ({}, {"cookie": "sid=bob"}):
            got = await cache.get("/a", headers)
            assert got.decision == "hit"
            assert "set-cookie" not in got.headers


async def test_an_override_does_not_lengthen_what_a_visitor_may_share(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{mode: override, defaultTtl: 1h}")) as cache:
        cache.origin.says("/a", cache_control="max-age=10")
        assert (await cache.get("/a", COOKIE)).stored
        cache.clock.pass_by(5)
        assert (await cache.get("/a", {"cookie": "sid=bob"})).decision == "hit"
        cache.clock.pass_by(10)
        assert (await cache.get("/a")).decision == "miss"
        # Nobody's answer has the whole hour, and so is nobody's with a cookie.
        cache.clock.pass_by(5)
        assert (await cache.get("/a")).decision == "hit"
        assert (await cache.get("/a", COOKIE)).decision != "hit"


async def test_what_can_only_be_validated_is_not_kept_for_a_visitor(tmp_path: Path) -> None:
    def by_date(request: Request) -> Reply:
        # Two visitors' pages, made at one time.
        if "if-modified-since" in request.headers:
            return Reply(304, ())
        return Reply(200, (("last-modified", "Tue, 14 Nov 2023 20:00:00 GMT"), ("cache-control", "no-cache")), b"alice")

    async with Rig(tmp_path, policies()) as cache:
        cache.origin.does("/a", by_date)
        assert reason(await cache.get("/a", COOKIE)) == "cookie"
        bobs = await cache.forwarded("GET", "/a", headers={"cookie": "sid=bob"})
        assert not [name for name, _ in bobs.forward.set_fields if name.startswith("if-")]


@pytest.mark.parametrize(
    ("key", "vary"),
    [("cookies: [sid]", None), ("headers: [cookie]", None), ("host: true", "cookie")],
    ids=["cookies", "headers", "vary"],
)
async def test_cookies_in_the_key_tell_visitors_apart(tmp_path: Path, key: str, vary: str | None) -> None:
    async with Rig(tmp_path, policies(freshness=MADE_UP["default"], key=key)) as cache:

        def answer(request: Request) -> Reply:
            fields = (("vary", vary),) if vary else ()
            return Reply(200, fields, (request.headers.get("cookie") or "none").encode())

        cache.origin.does("/a", answer)
        for who in ("sid=alice", "sid=bob"):
            assert (await cache.get("/a", {"cookie": who})).stored
        for who in ("sid=alice", "sid=bob"):
            got = await cache.get("/a", {"cookie": who})
            assert (got.decision, got.body.decode()) == ("hit", who)


async def test_cookies_that_the_origin_never_sees_tell_nobody_apart(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness=MADE_UP["default"], key="strip: [cookie]")) as cache:
        cache.origin.does("/a", personal)
        assert (await cache.get("/a", COOKIE)).body == b"for stranger"
        assert (await cache.get("/a", {"cookie": "sid=bob"})).decision == "hit"


async def test_stale_answers_with_a_made_up_lifetime_are_not_for_visitors_either(tmp_path: Path) -> None:
    stale = "{defaultTtl: 10s, staleWhileRevalidate: 1h, staleIfError: 1h}"
    async with Rig(tmp_path, policies(freshness=stale)) as cache:
        cache.origin.does("/a", personal)
        await cache.get("/a")
        cache.clock.pass_by(20)
        assert (await cache.get("/a", COOKIE)).body == b"for sid=alice"
        cache.origin.says("/a", status=503, body=b"down")
        assert (await cache.get("/a", COOKIE | {"cache-control": "max-stale"})).body == b"down"
        assert (await cache.get("/a", {"cache-control": "max-stale"})).body == b"for stranger"


# -- what a policy ignores


CONFIG = "identity: {subject: {jwtClaim: sub}}"


def as_(sub: str, **headers: str) -> dict[str, Any]:
    return {"headers": headers, "tokens": (Token("https://issuer.example", {"sub": sub}, b""),)}


def ignoring(path: Path, *names: str, more: str = "defaultTtl: 60s") -> Rig:
    freshness = f"{{ignore: [{', '.join(names)}], {more}}}"
    return Rig(path, policies(config=CONFIG, freshness=freshness, key="partition: [subject]"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no-store", "no-store"),
        ("no-store", "no-store, max-age=60"),
        ("private", "private, max-age=60"),
        ("private", "private"),
        ("no-cache", "no-cache, max-age=60"),
    ],
)
async def test_a_policy_may_keep_for_a_person_what_is_his(tmp_path: Path, name: str, said: str) -> None:
    async with ignoring(tmp_path, name) as cache:
        cache.origin.says("/a", body=b"alice", cache_control=said)
        assert (await cache.get("/a", **as_("alice"))).stored
        cache.origin.says("/a", body=b"bob", cache_control=said)
        assert (await cache.get("/a", **as_("bob"))).body == b"bob"
        got = await cache.get("/a", **as_("alice"))
        assert (got.decision, got.body) == ("hit", b"alice")
        assert (await cache.get("/a")).reason == "no-identity"
        cache.forget_memory()
        assert (await cache.get("/a", **as_("alice"))).body == b"alice"


@pytest.mark.parametrize("said", ["no-store", "private, max-age=60", "no-cache, max-age=60"])
async def test_what_a_policy_does_not_ignore_binds(tmp_path: Path, said: str) -> None:
    other = {"no-store": "private", "private, max-age=60": "no-cache", "no-cache, max-age=60": "no-store"}[said]
    async with ignoring(tmp_path, other, "authorization") as cache:
        cache.origin.says("/a", cache_control=said)
        await cache.get("/a", **as_("alice"))
        assert (await cache.get("/a", **as_("alice"))).decision != "hit"


async def test_a_person_gets_his_authorized_answer_again_where_the_policy_says_so(tmp_path: Path) -> None:
    for names, decision in (([], "miss"), (["authorization"], "hit")):
        async with ignoring(tmp_path / decision, *names) as cache:
            cache.origin.does("/a", personal)
            await cache.get("/a", **as_("alice", authorization="Bearer 1"))
            # Another token of the same person and standing.
            again = await cache.get("/a", **as_("alice", authorization="Bearer 2"))
            assert again.decision == decision
            assert (await cache.get("/a", **as_("bob", authorization="Bearer 3"))).body == b"for Bearer 3"


async def test_a_client_that_forbids_storing_is_obeyed(tmp_path: Path) -> None:
    async with ignoring(tmp_path, "no-store", "no-cache", "private") as cache:
        cache.origin.says("/a", cache_control="no-store")
        assert not (await cache.get("/a", **as_("alice", **{"cache-control": "no-store"}))).stored
        await cache.get("/a", **as_("alice"))
        assert (await cache.get("/a", **as_("alice", **{"cache-control": "no-cache"}))).decision == "miss"


@pytest.mark.parametrize("said", ["no-store, max-age=60", "private, max-age=60", "no-cache, max-age=60"])
async def test_a_policy_that_ignores_no_longer_binds_what_is_stored(tmp_path: Path, said: str) -> None:
    async with ignoring(tmp_path, "no-store", "private", "no-cache", more="staleIfError: 1h") as cache:
        cache.origin.says("/a", body=b"old", cache_control=said)
        await cache.get("/a", **as_("alice"))
        assert (await cache.get("/a", **as_("alice"))).decision == "hit"
        cache.install(policies(config=CONFIG, key="partition: [subject]", freshness="{staleIfError: 1h}"))
        cache.origin.says("/a", body=b"new", status=503)
        assert (await cache.get("/a", **as_("alice", **{"cache-control": "max-stale"}))).body == b"new"


async def test_fields_for_one_user_only_are_left_out_even_so(tmp_path: Path) -> None:
    async with ignoring(tmp_path, "private", "no-cache") as cache:
        said = 'private="x-user", no-cache="x-token", max-age=60'
        cache.origin.says("/a", cache_control=said, headers={"x-user": "alice", "x-token": "1", "x-other": "2"})
        await cache.get("/a", **as_("alice"))
        got = await cache.get("/a", **as_("alice"))
        assert got.decision == "hit"
        assert [name in got.headers for name in ("x-user", "x-token", "x-other")] == [False, False, True]


@pytest.mark.parametrize("said", ['private="x-user", max-age=60', 'no-cache="x-user", max-age=60'])
async def test_fields_for_one_user_only_reach_nobody_else(tmp_path: Path, said: str) -> None:
    async with Rig(tmp_path, policies()) as cache:
        cache.origin.says("/a", cache_control=said, headers={"x-user": "alice", "etag": '"1"'})
        first = await cache.get("/a")
        assert first.headers.get("x-user") == "alice"
        for _ in range(2):
            got = await cache.get("/a")
            assert (got.decision, got.headers.get("x-user")) == ("hit", None)
            cache.forget_memory()
        cache.clock.pass_by(100)
        assert (await cache.get("/a")).decision == "revalidated"
        assert (await cache.get("/a")).headers.get("x-user") is None


# -- pages in disguise


@pytest.mark.parametrize(
    "path", ["/account/x.css", "/account;.css", "/account%23.js", "/account%3fa.png", "/account/%2ecss", "/me/.woff2"]
)
@pytest.mark.parametrize("freshness", ["{defaultTtl: 60s}", "{mode: override, defaultTtl: 60s}", "{}"])
async def test_a_page_under_the_name_of_a_file_is_not_stored(tmp_path: Path, path: str, freshness: str) -> None:
    async with Rig(tmp_path, policies(freshness=freshness)) as cache:
        for said in ("max-age=60", "public, max-age=60"):
            cache.origin.says(path, cache_control=said, headers={"content-type": "text/html; charset=utf-8"})
            for headers in ({}, COOKIE):
                assert reason(await cache.get(path, headers)) == "type-mismatch"


async def test_an_origin_that_addresses_shared_caches_has_meant_it(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies()) as cache:
        json = {"content-type": "application/json"}
        cache.origin.says("/chart.js", cache_control="s-maxage=60", headers=json)
        cache.origin.says("/d3.js", cache_control="max-age=0", headers=json | {"cdn-cache-control": "max-age=60"})
        for path in ("/chart.js", "/d3.js"):
            await cache.get(path)
            assert (await cache.get(path)).decision == "hit"


async def test_a_missing_file_is_remembered_unless_the_visitor_is_known(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{negative: [{status: 404, ttl: 60s}]}")) as cache:
        cache.origin.says("/x.css", status=404, headers={"content-type": "text/html"})
        assert reason(await cache.get("/x.css", COOKIE)) == "cookie"
        cache.origin.says("/x.css", status=404, headers={"content-type": "text/html", "cache-control": "max-age=60"})
        assert reason(await cache.get("/x.css", COOKIE)) == "type-mismatch"
        await cache.get("/x.css")
        assert (await cache.get("/x.css")).decision == "hit"


async def test_the_check_can_be_turned_off_and_binds_at_once_when_it_is_on_again(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{typeMismatch: store}")) as cache:
        cache.origin.says("/x.js", cache_control="max-age=60", headers={"content-type": "application/json"})
        await cache.get("/x.js")
        assert (await cache.get("/x.js")).decision == "hit"
        cache.install(policies())
        assert (await cache.get("/x.js")).decision != "hit"


async def test_who_waits_with_a_cookie_does_not_share_what_strangers_share(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness=MADE_UP["default"])) as cache:
        cache.origin.does("/a", personal)
        leader = await cache.forwarded("GET", "/a")
        # Each kind of caller has a leader of its own, and answers of his own wait for nobody.
        visitor = await cache.forwarded("GET", "/a", headers=COOKIE)
        assert (await leader.finish()).stored
        got = await visitor.finish()
        assert (got.body, got.stored) == (b"for sid=alice", False)
        assert (await cache.get("/a")).decision == "hit"
