"""Inputs that an origin may act on and the URL does not show: each is part of the key or never reaches the origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cache_harness import Rig
from cache_origin import Reply
from meshcache.engine.key import RETARGETING
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path

    from meshcache.message import Request

FRESH = ("cache-control", "max-age=60")


def reflecting(*names: str):
    """An origin that puts what it got in these fields into its answer, and says nothing in `vary`."""

    def answer(request: Request) -> Reply:
        seen = [f"{name}={request.headers.get(name)}" for name in names if name in request.headers]
        return Reply(200, (FRESH,), "; ".join(seen).encode() or b"clean")

    return answer


@pytest.mark.parametrize("name", sorted(RETARGETING))
async def test_what_one_client_makes_of_the_target_is_his_alone(tmp_path: Path, name: str) -> None:
    async with Rig(tmp_path, policies()) as cache:
        cache.origin.does("/a", reflecting(name))
        evil = f"host=evil.example;{name}" if name == "forwarded" else "evil.example"
        assert (await cache.get("/a", {name: evil})).body.decode() == f"{name}={evil}"
        assert (await cache.get("/a")).body == b"clean"
        assert (await cache.get("/a", {name: evil})).decision == "hit"


SPELLED = ("x-forwarded_host", "x_forwarded-host", "x_forwarded_host", "script_name", "x_http_destinationurl")


def as_variables(*names: str):
    """An origin that gets fields as variables, in whose names `-` and `_` are one, and believes the last one."""

    def answer(request: Request) -> Reply:
        found = {name.replace("-", "_"): value for name, value in request.headers}
        seen = [f"{name}={found[name.replace('-', '_')]}" for name in names if name.replace("-", "_") in found]
        return Reply(200, (FRESH,), "; ".join(seen).encode() or b"clean")

    return answer


@pytest.mark.parametrize("name", SPELLED)
async def test_no_more_is_it_given_to_others_for_an_underscore(tmp_path: Path, name: str) -> None:
    usual = name.replace("_", "-")
    async with Rig(tmp_path, policies()) as cache:
        cache.origin.does("/a", as_variables(usual))
        assert (await cache.get("/a", {name: "evil"})).body.decode() == f"{usual}=evil"
        assert (await cache.get("/a")).body == b"clean"
        assert (await cache.get("/a", {usual: "good"})).body.decode() == f"{usual}=good"
        assert (await cache.get("/a", {usual: "good", name: "evil"})).body.decode() == f"{usual}=evil"
        assert (await cache.get("/a", {usual: "good"})).body.decode() == f"{usual}=good"
        # To other origins the two are different fields: neither stands for the other.
        assert (await cache.get("/a", {usual: "evil"})).decision == "miss"
        assert (await cache.get("/a", {name: "evil"})).decision == "hit"


@pytest.mark.parametrize("key", ["headers: [x-of-mine]", "partition: [{header: x-of-mine}]"])
async def test_an_underscore_does_not_lead_past_the_key(tmp_path: Path, key: str) -> None:
    async with Rig(tmp_path, policies(key=key)) as cache:
        cache.origin.does("/a", as_variables("x-of-mine"))
        assert (await cache.get("/a", {"x_of-mine": "1"})).body == b"x-of-mine=1"
        assert (await cache.get("/a")).body == b"clean"
        assert (await cache.get("/a", {"x-of-mine": "1"})).decision == "miss"


async def test_an_underscore_does_not_lead_past_vary(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        reply = as_variables("accept-language")(request)
        return Reply(200, (*reply.headers, ("vary", "accept-language")), reply.body)

    async with Rig(tmp_path, policies()) as cache:
        cache.origin.does("/a", answer)
        assert (await cache.get("/a", {"accept_language": "fr"})).body == b"accept-language=fr"
        assert (await cache.get("/a")).body == b"clean"
        assert (await cache.get("/a", {"accept_language": "fr"})).decision == "hit"


async def test_an_underscore_does_not_lead_past_strip(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(key="strip: [x-evil-host]")) as cache:
        cache.origin.does("/a", as_variables("x-evil-host"))
        assert (await cache.get("/a", {"x_evil_host": "1", "x-evil_host": "2"})).body == b"clean"
        assert (await cache.get("/a")).decision == "hit"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("x_http_method_override", "method"), ("x-method_override", "method"), ("if_match", "precondition")],
)
async def test_an_underscore_does_not_make_a_request_an_ordinary_one(tmp_path: Path, name: str, reason: str) -> None:
    async with Rig(tmp_path, policies()) as cache:
        cache.origin.says("/a", cache_control="max-age=60")
        await cache.get("/a")
        got = await cache.get("/a", {name: "DELETE"})
        assert (got.decision, got.reason) == ("bypass", reason)
        assert (await cache.get("/a")).decision == ("miss" if reason == "method" else "hit")


async def test_a_field_that_the_policy_strips_never_reaches_the_origin(tmp_path: Path) -> None:
    names = "[X-Forwarded-Host, x-original-url, x-evil, cookie]"
    async with Rig(tmp_path, policies(key=f"strip: {names}")) as cache:
        cache.origin.does("/a", reflecting("x-forwarded-host", "x-original-url", "x-evil", "cookie"))
        evil = {"x-forwarded-host": "evil", "x-original-url": "/admin", "x-evil": "1", "cookie": "sid=1", "x-mine": "2"}
        first = await cache.get("/a", evil)
        assert first.body == b"clean"
        assert first.stored
        assert [name for name, _ in cache.origin.asked[0].headers] == ["x-mine", "surrogate-capability"]
        # All callers share one answer.
        for headers in ({}, evil, {"x-forwarded-host": "other"}):
            assert (await cache.get("/a", headers)).decision == "hit"
        assert cache.origin.times == 1


async def test_a_validation_is_stripped_as_well(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(key="strip: [x-evil]")) as cache:
        cache.origin.says("/a", body=b"x", cache_control="max-age=1", headers={"etag": '"1"'})
        await cache.get("/a")
        cache.clock.pass_by(5)
        assert (await cache.get("/a", {"x-evil": "1"})).decision == "revalidated"
        assert "x-evil" not in cache.origin.asked[1].headers


async def test_a_variant_by_a_stripped_field_is_the_one_for_its_absence(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(key="strip: [x-evil]")) as cache:
        cache.origin.says("/a", body=b"x", cache_control="max-age=60", headers={"vary": "x-evil"})
        await cache.get("/a", {"x-evil": "1"})
        assert (await cache.get("/a", {"x-evil": "2"})).decision == "hit"


async def test_requests_that_are_not_looked_up_are_left_alone(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(key="strip: [cookie]")) as cache:
        cache.origin.says("/a", body=b"x")
        await cache.ask("POST", "/a", {"cookie": "sid=1"})
        assert cache.origin.asked[0].headers.get("cookie") == "sid=1"


async def test_an_answer_for_pages_of_one_origin_is_kept_for_these(tmp_path: Path) -> None:
    def cors(request: Request) -> Reply:
        asking = request.headers.get("origin")
        allowed = (("access-control-allow-origin", asking),) if asking else ()
        return Reply(200, (FRESH, *allowed), (asking or "none").encode())

    async with Rig(tmp_path, policies()) as cache:
        cache.origin.does("/a", cors)
        for asking in ("https://evil.example", "https://good.example", "null"):
            assert (await cache.get("/a", {"origin": asking})).body.decode() == asking
        for asking in ("https://evil.example", "https://good.example", "null"):
            got = await cache.get("/a", {"origin": asking})
            assert (got.decision, got.body.decode()) == ("hit", asking)


@pytest.mark.parametrize("allowed", ["*", "https://fixed.example"])
async def test_an_answer_for_pages_of_any_origin_is_for_all(tmp_path: Path, allowed: str) -> None:
    async with Rig(tmp_path, policies()) as cache:
        cache.origin.says("/a", cache_control="max-age=60", headers={"access-control-allow-origin": allowed})
        await cache.get("/a", {"origin": "https://one.example"})
        assert (await cache.get("/a", {"origin": "https://two.example"})).decision == "hit"


@pytest.mark.parametrize(
    "path", ["/static/..%2faccount", "/static/..;/account", "/account%00.css", "/static/%252e%252e/x"]
)
async def test_a_path_that_may_be_another_to_the_origin_is_not_looked_up(tmp_path: Path, path: str) -> None:
    async with Rig(tmp_path, policies(freshness="{mode: override, defaultTtl: 1h}")) as cache:
        cache.origin.says(path, body=b"private")
        for _ in range(2):
            got = await cache.get(path)
            assert (got.decision, got.reason) == ("bypass", "ambiguous-path")
        assert cache.origin.times == 2


async def test_paths_share_nothing_unless_they_are_the_same_bytes(tmp_path: Path) -> None:
    paths = [
        "/a/b",
        "/a//b",
        "/a%2Fb",
        "/a%2fb",
        "/a/b/",
        "/A/b",
        "/a/b;v=1",
        "/a/b?",
        "/a/b%20",
        "/a/b+",
        "/a/%62",
        "/a/b.",
    ]
    async with Rig(tmp_path, policies()) as cache:
        for path in paths:
            cache.origin.says(path, body=path.encode(), cache_control="max-age=60")
            await cache.get(path)
        for path in paths:
            got = await cache.get(path)
            assert (got.decision, got.body.decode()) == ("hit", path)
