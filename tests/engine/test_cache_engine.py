"""What changes the store: invalidation over all tiers and workers, and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cache_harness import Rig, Sent
from cache_origin import Reply, by_field
from policy_texts import experiment, policies

if TYPE_CHECKING:
    from pathlib import Path


PLAIN = policies(freshness="{defaultTtl: 60s}")
BY_SCORE = policies(
    freshness="{defaultTtl: 60s}", placement="{hotAt: 70, warmAt: 30}", config="trust: {scoreHeader: {from: [any]}}"
)


# -- invalidation -------------------------------------------------------------------------------------------------

OTHER_POLICY = """
---
kind: CachePolicy
metadata: {name: other}
spec: {freshness: {defaultTtl: 60s}, key: {query: {sort: true}}}
"""


async def test_an_answer_that_varies_by_host_is_not_shared_where_the_key_leaves_it_out(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s}", key="{host: false}")) as rig:
        rig.origin.does("/a", lambda request: Reply(200, (("vary", "accept, Host"),), request.authority.encode()))
        for authority in ("one.example", "two.example"):
            assert (await rig.get("/a", authority=authority)).body == authority.encode()


async def test_an_unsafe_request_that_succeeds_makes_everything_for_its_target_invalid(tmp_path: Path) -> None:
    text = policies(
        freshness="{defaultTtl: 60s}",
        placement="{hotAt: 70, warmAt: 30}",
        more=experiment(second="other") + OTHER_POLICY,
        config="trust: {canaryHeader: {from: [any]}, scoreHeader: {from: [any]}}",
    )
    async with Rig(tmp_path, text, workers=2) as rig:
        rig.origin.does("/a?z=1&b=2", by_field("accept"))
        asking: list[dict[str, str]] = [
            {"accept": accept, "x-user-score": score} | arm
            for accept in ("x", "y")
            for score in ("0.9", "0.5", "0")
            for arm in ({}, {"x-canary": "v2"})
        ]
        for headers in asking:
            await rig.get("/a?z=1&b=2", headers)
            assert (await rig.get("/a?z=1&b=2", headers, worker=1)).decision == "hit"
        rig.origin.does("/a?z=1&b=2", lambda _: Reply(204))
        await rig.ask("DELETE", "/a?z=1&b=2")
        rig.origin.does("/a?z=1&b=2", lambda _: Reply(200, (("cache-control", "no-store"),), b"new"))
        for headers in asking:
            for worker in (0, 1):
                for score in ("0.9", "0"):
                    got = await rig.get("/a?z=1&b=2", headers | {"x-user-score": score}, worker=worker)
                    assert got.body == b"new"


@pytest.mark.parametrize(
    ("method", "status", "gone"),
    [
        ("POST", 200, True),
        ("POST", 201, True),
        ("PUT", 204, True),
        ("DELETE", 204, True),
        ("PATCH", 303, True),
        ("PURGE", 200, True),
        ("POST", 400, False),
        ("POST", 404, False),
        ("POST", 500, False),
        ("OPTIONS", 200, False),
        ("TRACE", 200, False),
    ],
)
async def test_which_requests_invalidate(tmp_path: Path, method: str, status: int, gone: bool) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.origin.says("/a", b"done", status=status)
        await rig.ask(method)
        assert isinstance(await rig.send("GET"), Sent) == gone


async def test_what_is_invalidated_during_an_edit_of_the_key_does_not_come_back_with_the_old_key(
    tmp_path: Path,
) -> None:
    before, meanwhile = (
        policies(freshness="{defaultTtl: 60s}", key=f"{{query: {{exclude: [{name}]}}}}") for name in ("utm", "other")
    )
    async with Rig(tmp_path, before) as rig:
        rig.origin.says("/a?utm=1", b"old")
        await rig.get("/a?utm=1")
        rig.install(meanwhile)
        await rig.ask("POST", "/a?utm=1")
        rig.origin.says("/a?utm=1", b"new")
        rig.install(before)
        assert (await rig.get("/a?utm=1")).body == b"new"


async def test_the_scheme_before_a_proxy_tells_which_locations_are_of_the_same_origin(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/b", b"one")
        secure = {"x-forwarded-proto": "https"}
        await rig.get("/b", secure)
        rig.origin.says("/a", b"done", status=201, headers={"location": "https://example.com/b"})
        await rig.ask("POST", "/a", secure)
        assert isinstance(await rig.send("GET", "/b", secure), Sent)


async def test_a_method_that_is_overridden_is_the_method(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        got = await rig.get("/a", {"x-http-method-override": "DELETE"})
        assert (got.decision, got.reason) == ("bypass", "method")
        assert isinstance(await rig.send("GET"), Sent)


async def test_an_answer_of_envoy_s_own_does_not_invalidate(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.origin.says("/a", b"direct", from_origin=False)
        await rig.ask("POST")
        assert (await rig.get()).decision == "hit"


@pytest.mark.parametrize(
    "fields",
    [
        {"upgrade": "h2c", "connection": "upgrade"},
        {"content-type": "application/grpc"},
        {"content-type": "application/grpc-web+json"},
        {"range": "bytes=0-1"},
        {"if-match": '"a"'},
    ],
)
async def test_no_field_lets_an_unsafe_request_past_invalidation(tmp_path: Path, fields: dict[str, str]) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        await rig.ask("POST", "/a", fields)
        assert isinstance(await rig.send("GET"), Sent)


OTHER_SPELLINGS = ("example.com.", "EXAMPLE.com", "example.com:80", "example.com:", "Example.com.:80")


@pytest.mark.parametrize("authority", OTHER_SPELLINGS)
async def test_one_host_written_in_other_ways_is_one_host(tmp_path: Path, authority: str) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one")
        await rig.get(authority="example.com")
        shared = (await rig.get(authority=authority)).decision == "hit"
        # To a browser a name with its last dot is another origin.
        assert shared is not ("com." in authority)
        await rig.ask("POST", authority=authority)
        assert isinstance(await rig.send("GET", authority="example.com"), Sent)


@pytest.mark.parametrize("authority", OTHER_SPELLINGS)
async def test_an_origin_that_knows_a_host_in_one_spelling_only_is_not_made_to_fail_in_all(
    tmp_path: Path, authority: str
) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        for status in (404, 301):
            rig.origin.says("/a", b"no such host", status=status, cache_control="max-age=60")
            assert (await rig.get(authority=authority)).status == status
            rig.origin.says("/a", b"one")
            assert (await rig.get(authority="example.com")).body == b"one"
            await rig.ask("POST", authority="example.com")


@pytest.mark.parametrize(
    ("field", "value", "gone"),
    [
        ("location", "/b", True),
        ("location", "http://example.com/b", True),
        ("location", "http://EXAMPLE.com:80/b", True),
        ("content-location", "b", True),
        ("location", "/%62", True),
        ("content-location", "http://example.com/x/%2e%2e/b", True),
        ("location", "http://elsewhere.example/b", False),
        ("location", "https://example.com/b", False),
        ("location", "//elsewhere.example/b", False),
        ("location", "http://[", False),
    ],
)
async def test_what_the_answer_names_is_invalid_too_within_its_origin(
    tmp_path: Path, field: str, value: str, gone: bool
) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/b", b"one")
        await rig.get("/b")
        rig.origin.says("/a", b"done", status=201, headers={field: value})
        await rig.ask("POST", "/a")
        assert isinstance(await rig.send("GET", "/b"), Sent) == gone


@pytest.mark.parametrize("score", ["0.9", "0.5", "0"])
async def test_a_fill_that_began_before_an_invalidation_is_kept_nowhere(tmp_path: Path, score: str) -> None:
    async with Rig(tmp_path, BY_SCORE, workers=2) as rig:
        rig.origin.says("/a", b"old")
        waiting = await rig.forwarded("GET", headers={"x-user-score": score})
        rig.origin.says("/a", b"new")
        await rig.ask("POST", "/a", worker=1)
        assert (await waiting.finish()).body == b"old", "it was asked for before"
        for worker in (0, 1):
            assert (await rig.get("/a", {"x-user-score": score}, worker=worker)).body == b"new"
        rig.forget_memory()
        assert (await rig.get("/a")).body == b"new"


async def test_an_invalidation_in_the_middle_of_the_body_counts(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", by_field("accept"))
        waiting = await rig.forwarded("GET", headers={"accept": "x"})
        await waiting.finish()
        rig.clock.pass_by(61)
        waiting = await rig.forwarded("GET", headers={"accept": "x"})
        rig.origin.does("/a", lambda _: Reply(204))
        await rig.ask("POST")
        await waiting.finish()
        assert rig.meter.stores == ["stored", "invalidated"]
        assert isinstance(await rig.send("GET", headers={"accept": "x"}), Sent)


async def test_a_write_still_under_way_at_an_invalidation_does_not_count(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"old")
        waiting = await rig.forwarded("GET")
        await waiting.finish()  # the write to the lower tier has not begun
        await rig.ask("POST")
        await rig.settle()
        rig.forget_memory()
        assert isinstance(await rig.send("GET"), Sent)


async def test_a_304_to_a_request_from_before_an_invalidation_does_not_revive(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"old", cache_control="max-age=10", headers={"etag": '"1"'})
        await rig.get()
        rig.clock.pass_by(20)
        waiting = await rig.forwarded("GET")
        await rig.ask("POST")
        assert (await waiting.finish()).body == b"old"
        rig.origin.says("/a", b"new", headers={"etag": '"2"'})
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            assert (await rig.get()).body == b"new"


async def test_policies_that_came_into_force_meanwhile_are_thought_of(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s}", key="{query: {exclude: [u]}}")) as rig:
        rig.origin.says("/a?u=1", b"old")
        await rig.get("/a?u=1")
        waiting = await rig.forwarded("POST", "/a?u=1")
        rig.install(PLAIN)
        await rig.get("/a?u=1")
        await waiting.finish()
        assert isinstance(await rig.send("GET", "/a?u=1"), Sent), "by the new policies"
        rig.install(policies(freshness="{defaultTtl: 60s}", key="{query: {exclude: [u]}}"))
        assert isinstance(await rig.send("GET", "/a?u=1"), Sent), "by those with which it began"


# -- memory -------------------------------------------------------------------------------------------------------


async def test_the_serialised_reply_is_kept_beside_the_entry_and_counted(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        await rig.get()
        key = next(iter(rig.workers[0].memory._entries))
        entry = rig.workers[0].memory.get(key, rig.clock.now)
        assert entry is not None
        assert entry.rendered is not None
        used = rig.workers[0].memory.used_bytes
        rig.cache.keeper.render(key, entry, rig.clock.now)
        assert rig.workers[0].memory.used_bytes == used


async def test_memory_stays_within_its_budget(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN, hot_bytes=50_000) as rig:
        for number in range(30):
            rig.origin.says(f"/{number}", b"x" * 5_000)
            await rig.get(f"/{number}")
            assert rig.workers[0].memory.used_bytes <= 50_000
        assert [(await rig.get(f"/{number}")).tier for number in (29, 0)] == ["hot", "warm"]
