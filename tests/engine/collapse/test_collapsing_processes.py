"""Requests for one key at one time at several workers, and at several pods."""

from __future__ import annotations

from pathlib import Path

from crowds import COLLAPSING, Crowd

from cache_harness import Rig


async def test_one_worker_asks_for_all_of_the_pod(tmp_path: Path) -> None:
    async with Rig(tmp_path, COLLAPSING, workers=3) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60")
        leader = await rig.forwarded("GET")
        crowd = Crowd(rig)
        for worker in range(3):
            await crowd.join(10, worker=worker)
        assert crowd.waiting == 30
        await leader.finish()
        assert {(one.decision, one.body) for one in await crowd.all()} == {("collapsed", b"one")}
        assert rig.origin.times == 1


async def test_another_worker_takes_over(tmp_path: Path) -> None:
    async with Rig(tmp_path, COLLAPSING, workers=2) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60")
        leader = await rig.forwarded("GET")
        crowd = Crowd(rig)
        await crowd.join(10, worker=1)
        leader.exchange.close()
        answers = await crowd.all()
        assert [one.decision for one in answers].count("miss") == 1
        assert rig.origin.times == 2


async def test_what_one_worker_found_not_for_sharing_the_others_do_not_wait_for(tmp_path: Path) -> None:
    async with Rig(tmp_path, COLLAPSING, workers=2) as rig:
        rig.origin.says("/a", b"one", cache_control="no-store")
        leader = await rig.forwarded("GET")
        crowd = Crowd(rig)
        await crowd.join(10, worker=1)
        assert crowd.waiting == 10
        await leader.finish()
        await crowd.stirred(0.1)
        assert len(crowd.sent) == 4, "a worker's share of those that a pod sends at a time"
        await crowd.all()
        assert crowd.most <= 4


async def test_one_pod_asks_for_the_fleet(tmp_path: Path) -> None:
    async with Rig(tmp_path, COLLAPSING, workers=2, pods=True) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60")
        leader = await rig.forwarded("GET")
        crowd = Crowd(rig)
        await crowd.join(10, worker=1)
        assert crowd.waiting == 10
        await leader.finish()
        assert {one.decision for one in await crowd.all()} == {"collapsed"}
        assert rig.origin.times == 1
