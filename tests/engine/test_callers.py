"""Who asks: credentials, experiment arms, scores and releases of the application."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cache_harness import Rig
from meshcache.message import Peer
from policy_texts import experiment, policies

if TYPE_CHECKING:
    from pathlib import Path


PLAIN = policies(freshness="{defaultTtl: 60s}")


# -- authorization ----------------------------------------------------------------------------------------------


async def test_an_anonymous_answer_is_not_given_to_an_authorized_caller(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"for all", cache_control="max-age=60")
        await rig.get()
        rig.origin.says("/a", b"for bob", cache_control="private, max-age=60")
        got = await rig.get("/a", {"authorization": "Bearer bob"})
        assert (got.body, got.decision, got.reason) == (b"for bob", "miss", "request")
        got = await rig.get()
        assert (got.body, got.decision) == (b"for all", "hit"), "his own answer says nothing against the stored one"


@pytest.mark.parametrize("directive", ["public", "s-maxage=60", "must-revalidate"])
async def test_an_authorized_answer_is_shared_when_the_origin_says_so(tmp_path: Path, directive: str) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"shared", cache_control=f"max-age=60, {directive}")
        await rig.get("/a", {"authorization": "Bearer bob"})
        assert (await rig.get("/a", {"authorization": "Bearer eve"})).decision == "hit"
        assert (await rig.get("/a")).decision == "hit"


async def test_an_authorized_caller_may_validate_what_was_stored_for_all(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60", headers={"etag": '"1"'})
        await rig.get()
        got = await rig.get("/a", {"authorization": "Bearer bob"})
        assert (got.body, got.decision) == (b"one", "revalidated")
        rig.clock.pass_by(59)
        assert (await rig.get()).decision == "hit"


# -- arms, score and revision -------------------------------------------------------------------------------------


async def test_arms_keep_their_own_answers(tmp_path: Path) -> None:
    text = policies(
        freshness="{defaultTtl: 60s}",
        more=experiment(),
        config="trust: {canaryHeader: {from: [{addresses: [10.0.0.1]}]}, cacheStatus: {from: [any]}}",
    )
    async with Rig(tmp_path, text) as rig:
        trusted = Peer("10.0.0.1")
        canary = {"x-canary": "v2"}
        rig.origin.says("/a", b"one")
        await rig.get(headers={"x-user-id": "bob"})
        got = await rig.get("/a", canary, peer=trusted)
        assert (got.decision, got.reason) == ("miss", "uri-miss")
        assert "arm=two" in (got.headers.get("cache-status") or "")
        assert (await rig.get("/a", canary, peer=trusted)).decision == "hit"
        assert (await rig.get("/a", canary, peer=Peer("10.0.0.2"))).tier == "hot", "not trusted: the first arm"
        assert [row[4] for row in rig.meter.requests] == ["one", "two", "two", "one"]
        assert rig.meter.units_missing == {"e": 1}


async def test_releases_of_the_application_keep_their_own_answers(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s}", config="revision: {from: envoyCluster}")) as rig:
        rig.origin.says("/a", b"one")
        await rig.get(cluster="app-v1")
        assert (await rig.get(cluster="app-v2")).decision == "miss"
        assert (await rig.get(cluster="app-v1")).decision == "hit"


BY_SCORE = policies(
    freshness="{defaultTtl: 60s}",
    placement="{hotAt: 70, warmAt: 30}",
    config="trust: {scoreHeader: {from: [any]}}",
)


@pytest.mark.parametrize(
    ("score", "tier", "then"), [("0.9", "hot", "warm"), ("0.5", "warm", "warm"), ("0", "cold", "cold")]
)
async def test_an_answer_is_written_where_its_caller_s_score_says(
    tmp_path: Path, score: str, tier: str, then: str
) -> None:
    async with Rig(tmp_path, BY_SCORE) as rig:
        rig.origin.says("/a", b"one")
        scored = {"x-user-score": score}
        await rig.get("/a", scored)
        assert len(rig.workers[0].memory) == (1 if tier == "hot" else 0)
        low = {"x-user-score": "0"}
        assert (await rig.get("/a", low)).tier == tier, "every caller finds it, whatever he has earned"
        rig.forget_memory()
        assert (await rig.get("/a", low)).tier == then


async def test_an_entry_moves_up_with_a_better_reader_and_never_down(tmp_path: Path) -> None:
    async with Rig(tmp_path, BY_SCORE) as rig:
        rig.origin.says("/a", b"one")
        await rig.get("/a", {"x-user-score": "0.1"})
        tiers = [(await rig.get("/a", {"x-user-score": score})).tier for score in ("0.1", "0.5", "0.5", "0.9", "0.1")]
        assert tiers == ["cold", "cold", "warm", "warm", "hot"]
        rig.forget_memory()
        assert (await rig.get("/a", {"x-user-score": "0.1"})).tier == "warm"


async def test_promotion_does_not_make_it_live_longer(tmp_path: Path) -> None:
    async with Rig(tmp_path, BY_SCORE) as rig:
        rig.origin.says("/a", b"one")
        await rig.get("/a", {"x-user-score": "0.1"})
        rig.clock.pass_by(50)
        assert (await rig.get("/a", {"x-user-score": "0.9"})).tier == "cold"
        rig.clock.pass_by(9)
        assert (await rig.get()).tier == "hot"
        rig.clock.pass_by(1)
        assert (await rig.get()).decision == "miss"


async def test_what_is_too_large_for_memory_goes_one_tier_down(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"x" * (1 << 20))
        rig.origin.says("/b", b"x" * (3 << 20))
        await rig.get("/a")
        await rig.get("/b")
        assert (await rig.get("/a")).tier == "warm"
        assert (await rig.get("/b")).tier == "cold"
