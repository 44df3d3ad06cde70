"""What a request reserves for an answer in one piece: only while it is at the origin, and given back in every end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cache_harness import Got, Rig
from policy_texts import policies

MIB = 1 << 20
BODY = b"x" * (2 * MIB)
TIERS = """
hot: {ttl: 10m, maxObjectBytes: 1Mi, deadline: 5s}
warm: {ttl: 1h, maxObjectBytes: 6Mi, deadline: 5s}
cold: {ttl: 24h, maxObjectBytes: 64Mi, deadline: 5s}
"""
COLLAPSING = policies(tiers=TIERS, collapse="{maxWait: 5s}")


@pytest.mark.parametrize("pods", [False, True])
async def test_who_waits_for_a_validation_reserves_nothing(tmp_path: Path, pods: bool) -> None:
    async with Rig(tmp_path, COLLAPSING, pods=pods) as rig:
        rig.origin.says("/a", BODY, cache_control="max-age=10", headers={"etag": '"1"'})
        await rig.get()
        rig.clock.pass_by(20)
        leader = await rig.forwarded("GET")
        crowd = [asyncio.create_task(rig.send("GET", "/a")) for _ in range(3)]
        await asyncio.sleep(0.1)
        assert rig.cache.copies.used == len(BODY), "the leader's alone"
        assert (await leader.finish()).decision == "revalidated"
        for one in crowd:
            got = await one
            assert isinstance(got, Got)
            assert (got.decision, got.body) == ("collapsed", BODY)
        assert rig.cache.copies.used == 0


async def test_who_takes_over_reserves_when_he_goes(tmp_path: Path) -> None:
    async with Rig(tmp_path, COLLAPSING) as rig:
        rig.origin.says("/a", BODY, cache_control="max-age=10", headers={"etag": '"1"'})
        await rig.get()
        rig.clock.pass_by(20)
        leader = await rig.forwarded("GET")
        follower = asyncio.create_task(rig.forwarded("GET"))
        await asyncio.sleep(0.1)
        leader.exchange.close()
        second = await follower
        assert second.forward.set_fields[0] == ("if-none-match", '"1"')
        assert rig.cache.copies.used == len(BODY)
        assert (await second.finish()).decision == "revalidated"
        assert rig.cache.copies.used == 0
