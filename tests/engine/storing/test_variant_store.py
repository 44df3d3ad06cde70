"""Variants of a resource over all tiers: each for those that select it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cache_harness import Rig
from cache_origin import Reply, by_field
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path

    from meshcache.message import Request

PLAIN = policies(freshness="{defaultTtl: 60s}")
BY_SCORE = policies(
    freshness="{defaultTtl: 60s}", placement="{hotAt: 70, warmAt: 30}", config="trust: {scoreHeader: {from: [any]}}"
)


@pytest.mark.parametrize("restarted", [False, True])
async def test_each_variant_is_kept_for_those_that_select_it(tmp_path: Path, restarted: bool) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", by_field("accept-language"))
        languages = ["de", "en", "", None]
        for language in languages:
            headers = {} if language is None else {"accept-language": language}
            got = await rig.get("/a", headers)
            assert (got.decision, got.reason) == ("miss", "uri-miss" if language == "de" else "vary-miss")
        if restarted:
            rig.forget_memory()
        for language in languages:
            headers = {} if language is None else {"accept-language": language}
            got = await rig.get("/a", headers)
            assert (got.decision, got.tier) == ("hit", "warm" if restarted else "hot")
            assert got.body == f"accept-language={language}".encode()
        assert (await rig.get("/a", {"accept-language": "fr"})).reason == "vary-miss"


async def test_the_list_of_variants_comes_into_memory_once(tmp_path: Path) -> None:
    async with Rig(tmp_path, BY_SCORE) as rig:
        rig.origin.does("/a", by_field("accept"))
        low = {"accept": "text/html", "x-user-score": "0"}
        await rig.get("/a", low)
        rig.forget_memory()
        for _ in range(2):
            got = await rig.get("/a", low)
            assert (got.decision, got.tier) == ("hit", "cold")
        assert len(rig.workers[0].memory) == 1


async def test_the_form_of_a_selecting_value_does_not_count(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", by_field("accept", vary="ACCEPT"))
        await rig.get("/a", {"accept": "text/html, text/plain"})
        assert (await rig.get("/a", {"accept": "text/html,text/plain"})).decision == "hit"
        assert (await rig.get("/a", {"accept": "TEXT/plain;q=1.0,text/html"})).decision == "hit"
        assert (await rig.get("/a", {"accept": "text/plain,text/html;q=0.9"})).decision == "miss"


async def test_the_newest_of_several_that_match_is_given(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", by_field("accept"))
        both = {"accept": "x", "x-b": "y"}
        await rig.get("/a", both)
        rig.clock.pass_by(10)
        rig.origin.does("/a", by_field("accept", "x-b"))
        await rig.get("/a", both | {"cache-control": "no-cache"})
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            assert (await rig.get("/a", both)).body == b"accept=x,x-b=y"
            got = await rig.get("/a", {"accept": "x"})
            assert (got.decision, got.body, got.age) == ("hit", b"accept=x", 10), "the older one still fits this"


async def test_an_answer_that_varies_on_everything_is_asked_for_each_time(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", by_field("accept", vary="accept, *"))
        for _ in range(2):
            assert (await rig.get("/a", {"accept": "x"})).decision == "miss"


@pytest.mark.parametrize("score", ["0.9", "0.5", "0"])
async def test_an_unvaried_answer_after_varied_ones_is_found(tmp_path: Path, score: str) -> None:
    async with Rig(tmp_path, BY_SCORE) as rig:
        rig.origin.does("/a", by_field("accept"))
        await rig.get("/a", {"accept": "x"})
        rig.clock.pass_by(1)
        rig.origin.says("/a", b"for all", cache_control="max-age=60")
        assert (await rig.get("/a", {"accept": "y", "x-user-score": score})).decision == "miss"
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            for accept in ("y", "x", "z"):
                got = await rig.get("/a", {"accept": accept, "x-user-score": score})
                assert (got.decision, got.body) == ("hit", b"for all")


@pytest.mark.parametrize("vary", [None, "accept-encoding"])
@pytest.mark.parametrize("status", [302, 404, 503])
async def test_what_is_no_success_takes_the_place_of_no_other_variant(
    tmp_path: Path, status: int, vary: str | None
) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", by_field("accept"))
        await rig.get("/a", {"accept": "x"})
        rig.clock.pass_by(1)
        fields = {} if vary is None else {"vary": vary}
        rig.origin.says("/a", b"other", status=status, cache_control="max-age=60", headers=fields)
        assert (await rig.get("/a", {"accept": "y"})).decision == "miss"
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            for accept, body in (("x", b"accept=x"), ("y", b"other")):
                got = await rig.get("/a", {"accept": accept})
                assert (got.decision, got.body) == ("hit", body)
        assert (await rig.get("/a", {"accept": "z"})).reason == "vary-miss"


@pytest.mark.parametrize("score", ["0.9", "0.5", "0"])
async def test_a_varied_answer_after_an_unvaried_one_is_found(tmp_path: Path, score: str) -> None:
    async with Rig(tmp_path, BY_SCORE) as rig:
        rig.origin.says("/a", b"for all", cache_control="max-age=60")
        await rig.get("/a", {"x-user-score": "0.9"})
        rig.clock.pass_by(1)
        rig.origin.does("/a", by_field("accept"))
        await rig.get("/a", {"accept": "x", "cache-control": "no-cache", "x-user-score": score})
        got = await rig.get("/a", {"accept": "x", "x-user-score": score})
        assert (got.decision, got.body) == ("hit", b"accept=x")
        assert (await rig.get("/a", {"accept": "y", "x-user-score": score})).decision == "miss"


async def test_a_variant_is_validated_and_kept_as_such(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        accept = request.headers.get("accept") or ""
        fields = (("vary", "accept"), ("etag", f'"{accept}"'), ("cache-control", "max-age=10"))
        if request.headers.get("if-none-match") == f'"{accept}"':
            return Reply(304, fields)
        return Reply(200, fields, accept.encode())

    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", answer)
        for accept in ("x", "y"):
            await rig.get("/a", {"accept": accept})
        rig.clock.pass_by(20)
        for decision in ("revalidated", "hit"):
            for accept in ("x", "y"):
                got = await rig.get("/a", {"accept": accept})
                assert (got.decision, got.body) == (decision, accept.encode())


async def test_a_304_that_adds_vary_makes_a_variant_of_it(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=10", headers={"etag": '"1"'})
        await rig.get("/a", {"accept": "x"})
        rig.clock.pass_by(20)
        rig.origin.says("/a", status=304, cache_control="max-age=60", headers={"etag": '"1"', "vary": "accept"})
        assert (await rig.get("/a", {"accept": "x"})).body == b"one"
        rig.origin.says("/a", b"other", cache_control="max-age=60", headers={"vary": "accept"})
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            assert (await rig.get("/a", {"accept": "x"})).decision == "hit"
        assert (await rig.get("/a", {"accept": "y"})).body == b"other"
        assert (await rig.get("/a", {"accept": "x"})).body == b"one"


@pytest.mark.parametrize("named", [None, "accept-encoding", "accept-encoding, accept"])
async def test_a_304_that_names_less_than_the_answer_did_does_not_widen_it(tmp_path: Path, named: str | None) -> None:
    def answer(request: Request) -> Reply:
        fields = (("etag", '"1"'), ("cache-control", "max-age=10"))
        if "if-none-match" in request.headers:
            return Reply(304, fields if named is None else (*fields, ("vary", named)))
        return Reply(
            200, (*fields, ("vary", "accept, accept-encoding")), (request.headers.get("accept") or "").encode()
        )

    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", answer)
        await rig.get("/a", {"accept": "x"})
        rig.clock.pass_by(20)
        got = await rig.get("/a", {"accept": "x"})
        assert got.decision == "revalidated"
        assert sorted((got.headers.get("vary") or "").split(", ")) == ["accept", "accept-encoding"]
        assert (await rig.get("/a", {"accept": "x"})).decision == "hit"
        assert (await rig.get("/a", {"accept": "y"})).body == b"y"


async def test_cookies_can_select(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", by_field("cookie"))
        await rig.get("/a", {"cookie": "sid=1"})
        assert (await rig.get("/a", {"cookie": "sid=2"})).body == b"cookie=sid=2"
        assert (await rig.get("/a", {"cookie": "sid=1"})).body == b"cookie=sid=1"


@pytest.mark.parametrize("vary", [{}, {"vary": "accept-encoding"}])
@pytest.mark.parametrize("coding", ["dcb", "dcz"])
async def test_what_a_dictionary_is_needed_for_is_for_those_who_have_it(
    tmp_path: Path, coding: str, vary: dict[str, str]
) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        fields = {"accept-encoding": f"br, {coding}", "available-dictionary": ":one:"}
        rig.origin.says("/a", b"by one", headers={"content-encoding": coding, **vary})
        await rig.get("/a", fields)
        assert (await rig.get("/a", fields)).decision == "hit"
        rig.origin.says("/a", b"by other", headers={"content-encoding": coding, **vary})
        for other in ({"available-dictionary": ":other:"}, {}):
            got = await rig.get("/a", {"accept-encoding": fields["accept-encoding"], **other})
            assert got.body == b"by other"
