"""Stale-while-revalidate: one refresh at a time, behind the client's back, without his secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from grown_stale import SWR, stale

from cache_harness import Rig, Sent
from cache_origin import Reply
from meshcache.engine.refresh.background import LEASE_SECONDS
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path

    from meshcache.message import Request


async def test_a_stale_answer_is_given_at_once_and_refreshed_behind_it(tmp_path: Path) -> None:
    async with Rig(tmp_path, SWR) as rig:
        await stale(rig)
        got = await rig.get()
        assert (got.body, got.decision, got.tier, got.age) == (b"old", "stale-swr", "hot", 15)
        assert got.headers.get("cache-status") == 'meshcache; hit; ttl=-5; detail="stale-swr tier=hot policy=p"'
        await rig.settle()
        assert rig.meter.refreshes == ["stored"]
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            got = await rig.get()
            assert (got.body, got.decision, got.age) == (b"new", "hit", 0)


async def test_from_a_lower_tier_too(tmp_path: Path) -> None:
    async with Rig(tmp_path, SWR) as rig:
        await stale(rig)
        rig.forget_memory()
        got = await rig.get()
        assert (got.body, got.decision, got.tier) == (b"old", "stale-swr", "warm")
        await rig.settle()
        assert (await rig.get()).body == b"new"


async def test_a_refresh_asks_for_the_target_that_the_client_meant(tmp_path: Path) -> None:
    asked = {"x-forwarded-proto": "https", "x-forwarded-host": "shop.example"}
    async with Rig(tmp_path, SWR) as rig:
        rig.origin.does("/a", lambda request: Reply(body=str(request.headers.get("x-forwarded-host")).encode()))
        await rig.get("/a", asked)
        rig.clock.pass_by(15)
        assert (await rig.get("/a", asked)).decision == "stale-swr"
        await rig.settle()
        assert {name: rig.refresher.asked[0].headers.get(name) for name in asked} == asked
        assert (await rig.get("/a", asked)).body == b"shop.example"


async def test_not_past_the_window(tmp_path: Path) -> None:
    async with Rig(tmp_path, SWR) as rig:
        await stale(rig)
        rig.clock.pass_by(25.1)
        got = await rig.get()
        assert (got.body, got.decision) == (b"new", "miss")
        assert rig.refresher.asked == []


async def test_many_that_ask_cause_one_refresh(tmp_path: Path) -> None:
    async with Rig(tmp_path, SWR, workers=2) as rig:
        await stale(rig)
        rig.refresher.may_go.clear()
        for _ in range(5):
            for worker in (0, 1):
                assert (await rig.get("/a", worker=worker)).decision == "stale-swr"
        await rig.refresher.asked_for(1)
        rig.refresher.may_go.set()
        await rig.settle()
        assert len(rig.refresher.asked) == 1
        assert rig.workers[1].refresher.asked == []
        got = await rig.get()
        assert (got.body, got.decision) == (b"new", "hit")


async def test_a_worker_that_is_late_finds_what_another_has_fetched(tmp_path: Path) -> None:
    async with Rig(tmp_path, SWR, workers=2) as rig:
        await stale(rig)
        await rig.get("/a", worker=1)  # comes into the second worker's memory, stale
        await rig.settle()
        assert len(rig.workers[1].refresher.asked) == 1
        assert (await rig.get()).decision == "stale-swr", "the first worker's memory does not know yet"
        await rig.settle()
        assert rig.refresher.asked == []
        assert rig.meter.refreshes == ["found"]
        got = await rig.get()
        assert (got.body, got.decision, got.tier) == (b"new", "hit", "hot")


async def test_the_lease_of_a_worker_that_died_runs_out(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 10s, staleWhileRevalidate: 10m}"), workers=2) as rig:
        await stale(rig)
        rig.refresher.may_go.clear()
        await rig.get()
        await rig.refresher.asked_for(1)
        rig.clock.pass_by(LEASE_SECONDS - 0.1)
        await rig.get("/a", worker=1)
        await rig.workers[1].settle()
        assert rig.workers[1].refresher.asked == []
        rig.clock.pass_by(0.1)
        await rig.get("/a", worker=1)
        await rig.workers[1].settle()
        assert len(rig.workers[1].refresher.asked) == 1


async def test_what_a_refresh_asks_for(tmp_path: Path) -> None:
    text = policies(
        freshness="{defaultTtl: 10s, staleWhileRevalidate: 30s}",
        key="{headers: [x-plan], partition: [{header: x-org}]}",
    )
    async with Rig(tmp_path, text) as rig:
        asked = {
            "accept": "text/html",
            "user-agent": "curl",
            "x-plan": "gold",
            "x-org": "acme",
            "x-vary": "v",
            "x-other": "o",
        }
        answer = {"headers": {"etag": '"1"', "vary": "x-vary"}, "cache_control": "max-age=10, public"}
        rig.origin.says("/a", b"old", **answer)  # type: ignore[arg-type]
        await rig.get("/a", asked)
        rig.clock.pass_by(15)
        secrets = {"authorization": "Bearer bob", "cookie": "sid=1", "proxy-authorization": "p"}
        conditions = {"if-none-match": '"mine"', "if-modified-since": "Tue, 14 Nov 2023 22:13:20 GMT"}
        got = await rig.get("/a", asked | secrets | conditions)
        assert got.decision == "stale-swr"
        await rig.settle()
        [sent] = rig.refresher.asked
        wanted = {name: value for name, value in asked.items() if name != "x-other"} | {"if-none-match": '"1"'}
        wanted["surrogate-capability"] = 'meshcache="Surrogate/1.0"'
        assert dict(sent.headers) == wanted
        assert (sent.method, sent.authority, sent.path, sent.scheme) == ("GET", "example.com", "/a", "http")
        assert rig.meter.refreshes == ["not-modified"]
        assert (await rig.get("/a", asked)).decision == "hit"


@pytest.mark.parametrize(
    ("key", "vary", "headers"),
    [
        ("{}", None, {"authorization": "Bearer x"}),
        ("{cookies: [sid]}", None, {"cookie": "sid=1"}),
        ("{headers: [authorization]}", None, {}),
        ("{partition: [{header: cookie}]}", None, {}),
        ("{}", "cookie", {"cookie": "sid=1"}),
        ("{}", "accept, authorization", {}),
    ],
)
async def test_what_credentials_chose_is_validated_by_the_next_client_himself(
    tmp_path: Path, key: str, vary: str | None, headers: dict[str, str]
) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 10s, staleWhileRevalidate: 30s}", key=key)) as rig:
        fields = {"etag": '"1"'} | ({} if vary is None else {"vary": vary})
        rig.origin.says("/a", b"old", cache_control="max-age=10, public", headers=fields)
        await rig.get("/a", headers)
        rig.clock.pass_by(15)
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            waiting = await rig.send("GET", "/a", headers)
            assert isinstance(waiting, Sent)
            assert waiting.forward.decision == "revalidate"
            waiting.exchange.close()
        assert rig.refresher.asked == []


async def test_where_the_revision_is_envoy_s_choice_nothing_is_refreshed(tmp_path: Path) -> None:
    text = policies(freshness="{defaultTtl: 10s, staleWhileRevalidate: 30s}", config="revision: {from: envoyCluster}")
    async with Rig(tmp_path, text) as rig:
        await stale(rig)
        assert (await rig.get()).decision == "miss"
        assert rig.refresher.asked == []


BY_CLUSTER = policies(freshness="{defaultTtl: 10s, staleWhileRevalidate: 30s}", config="revision: {from: envoyCluster}")


@pytest.mark.parametrize(("cluster", "refreshed"), [("v1", True), ("v3", False), ("", False)])
async def test_but_through_the_cluster_that_it_is_of(tmp_path: Path, cluster: str, refreshed: bool) -> None:
    async with Rig(tmp_path, BY_CLUSTER, refresh_clusters=["v1", "v2"]) as rig:
        rig.origin.says("/a", b"old")
        await rig.get(cluster=cluster)
        await rig.get(cluster="v2")
        rig.clock.pass_by(15)
        assert (await rig.get(cluster=cluster)).decision == ("stale-swr" if refreshed else "miss")
        await rig.settle()
        assert [request.cluster for request in rig.refresher.asked] == ["v1"] * refreshed


@pytest.mark.parametrize(("cluster", "decision"), [("v1", "stale-swr"), ("v2", "miss")])
async def test_and_through_no_other_that_a_policy_names(tmp_path: Path, cluster: str, decision: str) -> None:
    text = BY_CLUSTER.replace("spec:\n", "spec:\n  refresh: {via: v1}\n", 1)
    async with Rig(tmp_path, text, refresh_clusters=["v1", "v2"]) as rig:
        rig.origin.says("/a", b"old")
        await rig.get(cluster=cluster)
        rig.clock.pass_by(15)
        assert (await rig.get(cluster=cluster)).decision == decision


@pytest.mark.parametrize(("via", "cluster"), [("envoy", ""), ("replica", "replica")])
async def test_a_refresh_goes_where_the_policy_says(tmp_path: Path, via: str, cluster: str) -> None:
    text = policies(freshness="{defaultTtl: 10s, staleWhileRevalidate: 30s}", refresh=f"{{via: {via}}}")
    async with Rig(tmp_path, text, refresh_clusters=["replica"]) as rig:
        await stale(rig)
        # What Envoy chose for the client says nothing here, and no header does.
        await rig.get("/a", {"x-meshcache-refresh-cluster": "other"}, cluster="origin")
        await rig.settle()
        (sent,) = rig.refresher.asked
        assert sent.cluster == cluster
        assert "x-meshcache-refresh-cluster" not in sent.headers
        assert (await rig.get()).body == b"new"


async def test_without_a_refresher_the_client_waits(tmp_path: Path) -> None:
    async with Rig(tmp_path, SWR) as rig:
        rig.cache.refresher = None
        await stale(rig)
        assert (await rig.get()).decision == "miss"


async def test_head_requests_refresh_as_well(tmp_path: Path) -> None:
    async with Rig(tmp_path, SWR) as rig:
        await stale(rig)
        got = await rig.ask("HEAD")
        assert (got.decision, got.body) == ("stale-swr", b"")
        await rig.settle()
        assert rig.meter.refreshes == ["stored"]
        got = await rig.get()
        assert (got.decision, got.body) == ("hit", b"new")


async def test_variants_are_refreshed_each_for_itself(tmp_path: Path) -> None:
    counter = 0

    def answer(request: Request) -> Reply:
        nonlocal counter
        counter += 1
        accept = request.headers.get("accept")
        return Reply(200, (("vary", "accept"),), f"{accept} {counter}".encode())

    async with Rig(tmp_path, SWR) as rig:
        rig.origin.does("/a", answer)
        for accept in ("x", "y"):
            await rig.get("/a", {"accept": accept})
        rig.clock.pass_by(15)
        for accept in ("x", "y"):
            await rig.get("/a", {"accept": accept})
            await rig.settle()
        assert rig.meter.refreshes == ["stored", "stored"]
        bodies = [(await rig.get("/a", {"accept": accept})).body for accept in ("x", "y")]
        assert bodies == [b"x 3", b"y 4"]


async def test_no_more_refreshes_at_once_than_the_policy_allows(tmp_path: Path) -> None:
    text = policies(freshness="{defaultTtl: 10s, staleWhileRevalidate: 30s}", refresh="{maxConcurrent: 2}")
    async with Rig(tmp_path, text) as rig:
        for path in ("/a", "/b", "/c"):
            rig.origin.says(path, b"old")
            await rig.get(path)
        rig.clock.pass_by(15)
        rig.refresher.may_go.clear()
        for path in ("/a", "/b", "/c"):
            assert (await rig.get(path)).decision == "stale-swr"
        await rig.refresher.asked_for(2)
        assert rig.meter.refreshes == ["saturated"]
        rig.refresher.may_go.set()
        await rig.settle()
        await rig.get("/c")
        await rig.settle()
        assert sorted(request.path for request in rig.refresher.asked) == ["/a", "/b", "/c"]


async def test_an_invalidation_during_a_refresh_wins(tmp_path: Path) -> None:
    async with Rig(tmp_path, SWR) as rig:
        await stale(rig, headers={"etag": '"1"'})
        rig.refresher.may_go.clear()
        await rig.get()
        await rig.refresher.asked_for(1)
        await rig.ask("POST")
        rig.refresher.may_go.set()
        await rig.settle()
        assert isinstance(await rig.send("GET"), Sent)


async def test_a_better_reader_promotes_while_it_is_refreshed(tmp_path: Path) -> None:
    text = policies(
        freshness="{defaultTtl: 10s, staleWhileRevalidate: 30s}",
        placement="{hotAt: 70, warmAt: 30}",
        config="trust: {scoreHeader: {from: [any]}}",
    )
    async with Rig(tmp_path, text) as rig:
        rig.origin.says("/a", b"old")
        await rig.get("/a", {"x-user-score": "0"})
        rig.clock.pass_by(15)
        rig.origin.says("/a", b"new")
        assert (await rig.get("/a", {"x-user-score": "1"})).tier == "cold"
        await rig.settle()
        got = await rig.get("/a", {"x-user-score": "0"})
        assert (got.body, got.tier) == (b"new", "hot")
        rig.forget_memory()
        assert (await rig.get("/a", {"x-user-score": "0"})).body == b"new"
