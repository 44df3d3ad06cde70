"""How much of `cache-status` a client is told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from cache_harness import Rig
from meshcache.message import Peer
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path

NEAR = Peer("10.0.0.1")
FAR = Peer("203.0.113.9")
UPSTREAM = ("cache-status", "inner; hit; ttl=7")


def rig(path: Path, level: str) -> Rig:
    config = (
        f"trust: {{cacheStatus: {{from: [mesh, {{addresses: [10.0.0.0/8]}}]}}}}\ntelemetry: {{cacheStatus: {level}}}"
    )
    return Rig(path, policies(config=config))


async def told(cache: Rig, peer: Peer) -> list[str | None]:
    """What is said of a miss, a hit, a validation, a method that is not looked up, and a miss that is not stored."""
    path = f"/{peer.address}"
    fields = (UPSTREAM, ("etag", '"1"'))
    cache.origin.says(path, cache_control="max-age=10", headers=fields)
    answers = [await cache.get(path, peer=peer), await cache.get(path, peer=peer)]
    cache.clock.pass_by(20)
    answers += [await cache.get(path, peer=peer), await cache.ask("POST", path, peer=peer)]
    cache.origin.says(path, cache_control="no-store", headers=fields)
    answers.append(await cache.get(path, peer=peer))
    return [got.headers.get("cache-status") for got in answers]


async def test_those_whom_trust_names_see_everything(tmp_path: Path) -> None:
    async with rig(tmp_path, "off") as cache:
        for peer in (NEAR, Peer("", mtls=True)):
            assert await told(cache, peer) == [
                'inner; hit; ttl=7, meshcache; fwd=uri-miss; stored; ttl=10; detail="miss policy=p"',
                'meshcache; hit; ttl=10; detail="tier=hot policy=p"',
                'meshcache; fwd=stale; fwd-status=304; stored; ttl=10; detail="revalidated tier=hot policy=p"',
                'inner; hit; ttl=7, meshcache; fwd=method; detail="method"',
                'inner; hit; ttl=7, meshcache; fwd=uri-miss; detail="miss response-no-store policy=p"',
            ]


async def test_the_key_is_told_to_those_who_see_everything_and_ask_for_it(tmp_path: Path) -> None:
    async with rig(tmp_path, "standard") as cache:
        cache.origin.says("/a", headers={"etag": '"1"'}, cache_control="max-age=10")
        asks = {"x-cache-status": "key"}
        for decision in ("miss", "hit", "revalidated"):
            got = await cache.get("/a", asks, peer=NEAR)
            status = got.headers.get("cache-status") or ""
            assert got.decision == decision
            assert re.search(r'; key="[0-9a-f]{64}"$', status)
            for headers, peer in (({}, NEAR), (asks, FAR)):
                assert "key=" not in str((await cache.get("/a", headers, peer=peer)).headers.get("cache-status"))
            if decision == "hit":
                cache.clock.pass_by(10)
        only = await cache.get("/b", asks | {"cache-control": "only-if-cached"}, peer=NEAR)
        assert "key=" in (only.headers.get("cache-status") or "")


async def test_strangers_see_no_names_of_policies_arms_and_tiers(tmp_path: Path) -> None:
    async with rig(tmp_path, "standard") as cache:
        assert await told(cache, FAR) == [
            "inner; hit; ttl=7, meshcache; fwd=uri-miss; stored; ttl=10",
            "meshcache; hit; ttl=10",
            "meshcache; fwd=stale; fwd-status=304; stored; ttl=10",
            "inner; hit; ttl=7, meshcache; fwd=method",
            "inner; hit; ttl=7, meshcache; fwd=uri-miss",
        ]


async def test_the_least_is_whether_the_origin_was_asked(tmp_path: Path) -> None:
    async with rig(tmp_path, "minimal") as cache:
        miss, method = "meshcache; fwd=miss", "meshcache; fwd=method"
        assert await told(cache, FAR) == [miss, "meshcache; hit", miss, method, miss]


async def test_nothing_is_nothing_of_other_caches_either(tmp_path: Path) -> None:
    async with rig(tmp_path, "off") as cache:
        assert [said or None for said in await told(cache, FAR)] == [None] * 5


@pytest.mark.parametrize("level", ["minimal", "off"])
async def test_who_may_see_is_judged_at_each_request(tmp_path: Path, level: str) -> None:
    async with rig(tmp_path, level) as cache:
        cache.origin.says("/a", cache_control="max-age=60")
        await cache.get("/a", peer=FAR)
        assert "policy=p" in ((await cache.get("/a", peer=NEAR)).headers.get("cache-status") or "")
        assert "policy=p" not in ((await cache.get("/a", peer=FAR)).headers.get("cache-status") or "")
