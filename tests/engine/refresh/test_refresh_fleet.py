"""One refresh for each entry in the fleet: pods that share a store and leases, and nothing else."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

from cache_harness import Rig
from meshcache.engine.refresh.background import ELSEWHERE_SECONDS, MOST_AT_ONCE, RETRY_SECONDS
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path

SWR = policies(freshness="{defaultTtl: 10s, staleWhileRevalidate: 10m}")


async def stale(rig: Rig) -> None:
    """In the memory of every pod, and past its lifetime."""
    rig.origin.says("/a", b"old")
    for worker in range(len(rig.workers)):
        await rig.get(worker=worker)
    await rig.settle()
    rig.clock.pass_by(15)
    rig.origin.says("/a", b"new")


async def test_pods_together_refresh_an_entry_once(tmp_path: Path) -> None:
    async with Rig(tmp_path, SWR, workers=3, pods=True) as rig:
        await stale(rig)
        rig.refresher.may_go.clear()
        for _ in range(10):
            for worker in range(3):
                assert (await rig.get(worker=worker)).decision == "stale-swr"
        await rig.refresher.asked_for(1)
        assert [worker.meter.refreshes for worker in rig.workers] == [[], ["elsewhere"], ["elsewhere"]]
        rig.refresher.may_go.set()
        await rig.settle()
        assert [len(worker.refresher.asked) for worker in rig.workers] == [1, 0, 0]
        # What one has fetched, the others take from the store.
        rig.clock.pass_by(ELSEWHERE_SECONDS)
        for worker in (1, 2):
            await rig.get(worker=worker)
            await rig.settle()
            assert rig.workers[worker].meter.refreshes == ["elsewhere", "found"]
            got = await rig.get(worker=worker)
            assert (got.body, got.decision, got.tier) == (b"new", "hit", "hot")
        assert [len(worker.refresher.asked) for worker in rig.workers] == [1, 0, 0]


async def test_the_fleet_is_asked_once_by_a_pod_that_has_to_wait(tmp_path: Path) -> None:
    async with Rig(tmp_path, SWR, workers=2, pods=True) as rig:
        await stale(rig)
        rig.refresher.may_go.clear()
        await rig.get()
        await rig.refresher.asked_for(1)
        assert rig.fleet is not None
        for _ in range(50):
            await rig.get(worker=1)
            await asyncio.sleep(0)
        assert rig.fleet.asked.total() == 2, "one by each pod"


async def test_after_a_failure_no_pod_tries_again_before_the_pause_is_over(tmp_path: Path) -> None:
    async with Rig(tmp_path, SWR, workers=2, pods=True) as rig:
        await stale(rig)
        rig.refresher.fails = rig.workers[1].refresher.fails = True
        pauses = []
        asked = 0
        for tick in range(1200):
            for worker in (0, 1):
                assert (await rig.get(worker=worker)).body == b"old"
                await rig.settle()
            now = sum(len(worker.refresher.asked) for worker in rig.workers)
            if now > asked:
                assert now == asked + 1, "one pod at a time"
                pauses.append(tick)
                asked = now
            rig.clock.pass_by(0.1)
        waits = [(later - earlier) / 10 for earlier, later in pairwise(pauses)]
        assert waits[0] >= RETRY_SECONDS
        assert waits[-1] > 4 * waits[0], "ever longer"
        assert len(pauses) < 20, "for two minutes"
        rig.refresher.fails = rig.workers[1].refresher.fails = False
        rig.clock.pass_by(30.1)
        await rig.get()
        await rig.settle()
        assert (await rig.get()).body == b"new"


async def test_no_more_at_once_than_all_policies_may_have_together(tmp_path: Path) -> None:
    text = policies(freshness="{defaultTtl: 10s, staleWhileRevalidate: 10m}", refresh="{maxConcurrent: 1024}")
    async with Rig(tmp_path, text, pods=True) as rig:
        paths = [f"/{number}" for number in range(MOST_AT_ONCE + 3)]
        for path in paths:
            rig.origin.says(path)
            await rig.get(path)
        rig.clock.pass_by(15)
        rig.refresher.may_go.clear()
        for path in paths:
            assert (await rig.get(path)).decision == "stale-swr"
        await rig.refresher.asked_for(MOST_AT_ONCE)
        assert rig.meter.refreshes == ["saturated"] * 3
        assert len(rig.refresher.asked) == MOST_AT_ONCE


async def test_a_refresh_that_is_broken_off_leaves_no_lease_behind(tmp_path: Path) -> None:
    async with Rig(tmp_path, SWR, workers=2, pods=True) as rig:
        await stale(rig)
        rig.refresher.may_go.clear()
        await rig.get()
        await rig.refresher.asked_for(1)
        for task in rig.workers[0].tasks:
            task.cancel()
        await asyncio.gather(*rig.workers[0].tasks, return_exceptions=True)
        rig.workers[0].tasks.clear()
        await rig.get(worker=1)
        await rig.settle()
        assert (await rig.get(worker=1)).body == b"new"
