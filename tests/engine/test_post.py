"""Answers to POST that GET may be given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cache_harness import HOST, Rig
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = policies(freshness="{mode: rfc9111}")
ITSELF = {"content-location": "/a"}


async def test_an_answer_to_post_that_is_what_get_would_bring_is_given_to_get(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"old", cache_control="max-age=60")
        await rig.get()
        rig.origin.says("/a", b"new", cache_control="max-age=60", headers=ITSELF)
        got = await rig.ask("POST", "/a", complete=False)
        assert got.headers.get("cache-status") == 'meshcache; fwd=method; stored; detail="method"'
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            for method in ("GET", "HEAD"):
                again = await rig.ask(method)
                assert (again.decision, again.body) == ("hit", b"new" if method == "GET" else b"")
        assert (await rig.ask("POST", "/a", complete=False)).decision == "bypass", "never answered from the cache"
        assert rig.meter.stores == ["stored"] * 3


@pytest.mark.parametrize(
    "reference", ["/a", "", "a", f"http://{HOST}/a", f"//{HOST}/a", f"HTTP://{HOST.upper()}:80/a", "/b/../a"]
)
async def test_the_target_may_be_named_in_any_way(tmp_path: Path, reference: str) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"new", cache_control="max-age=60", headers={"content-location": reference})
        await rig.ask("POST")
        assert (await rig.get()).decision == "hit"


@pytest.mark.parametrize(
    ("answer", "request_headers"),
    [
        ({"cache_control": "max-age=60"}, {}),
        ({"cache_control": "max-age=60", "headers": {"content-location": "/b"}}, {}),
        ({"cache_control": "max-age=60", "headers": {"content-location": "/a?x"}}, {}),
        ({"cache_control": "max-age=60", "headers": {"content-location": "/a?"}}, {}),
        ({"cache_control": "max-age=60", "headers": {"content-location": "https://example.com/a"}}, {}),
        ({"cache_control": "max-age=60", "headers": {"content-location": "http://[/a"}}, {}),
        ({"cache_control": "max-age=60", "headers": (("content-location", "/a"), ("content-location", "/a"))}, {}),
        ({"headers": ITSELF}, {}),
        ({"headers": ITSELF | {"last-modified": "Sun, 06 Nov 1994 08:49:37 GMT"}}, {}),
        ({"cache_control": "max-age=0", "headers": ITSELF}, {}),
        ({"cache_control": "no-store, max-age=60", "headers": ITSELF}, {}),
        ({"cache_control": "private, max-age=60", "headers": ITSELF}, {}),
        ({"cache_control": "max-age=60", "headers": ITSELF, "status": 201}, {}),
        ({"cache_control": "max-age=60", "headers": ITSELF, "from_origin": False}, {}),
        ({"cache_control": "max-age=60", "headers": ITSELF, "cut_off": True}, {}),
        ({"cache_control": "max-age=60", "headers": ITSELF}, {"authorization": "Bearer x"}),
        ({"cache_control": "max-age=60", "headers": ITSELF}, {"x-http-method-override": "DELETE"}),
    ],
)
async def test_other_answers_to_post_are_not_stored(
    tmp_path: Path, answer: dict[str, object], request_headers: dict[str, str]
) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s}")) as rig:
        rig.origin.says("/a", b"new", **answer)  # type: ignore[arg-type]
        await rig.ask("POST", "/a", request_headers)
        rig.origin.says("/a", b"other", cache_control="max-age=60")
        assert (await rig.get()).body == b"other"


async def test_a_write_in_between_is_not_undone(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60", headers=ITSELF)
        post = await rig.forwarded("POST")
        rig.origin.says("/a", b"two", cache_control="max-age=60")
        await rig.ask("PUT")
        got = await post.finish()
        assert "stored" not in (got.headers.get("cache-status") or "")
        assert (await rig.get()).body == b"two"


async def test_a_write_while_the_body_comes_is_not_undone_either(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60", headers=ITSELF)
        await rig.ask("POST")
        await rig.ask("DELETE")
        rig.origin.says("/a", b"two", cache_control="max-age=60")
        assert (await rig.get()).body == b"two"


async def test_it_is_chosen_by_what_it_varies_on(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        headers = ITSELF | {"vary": "accept"}
        rig.origin.says("/a", b"json", cache_control="max-age=60", headers=headers)
        await rig.ask("POST", "/a", {"accept": "application/json"})
        assert (await rig.get("/a", {"accept": "application/json"})).decision == "hit"
        assert (await rig.get("/a", {"accept": "text/html"})).decision == "miss"


async def test_nothing_is_stored_where_nothing_is_cached(tmp_path: Path) -> None:
    uncached = "kind: CacheRoute\nmetadata: {name: none}\nspec: {match: [{path: {prefix: /none}}]}"
    async with Rig(tmp_path, policies(more=uncached)) as rig:
        rig.origin.says("/none", b"x", cache_control="max-age=60", headers={"content-location": "/none"})
        got = await rig.ask("POST", "/none")
        assert "stored" not in (got.headers.get("cache-status") or "")
        assert rig.meter.stores == []
