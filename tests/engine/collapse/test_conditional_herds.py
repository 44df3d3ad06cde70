"""Clients that hold a copy and ask about it while nothing is stored: what their answers are to others."""

from __future__ import annotations

from pathlib import Path

import pytest
from crowds import COLLAPSING, Crowd

from cache_harness import Rig

HELD, OTHER = {"if-none-match": '"1"'}, {"if-none-match": '"0"'}
FIELDS = {"etag": '"1"'}


async def test_a_whole_answer_to_a_condition_is_for_all(tmp_path: Path) -> None:
    async with Rig(tmp_path, COLLAPSING) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60", headers=FIELDS)
        leader = await rig.forwarded("GET", headers=OTHER)
        crowd = Crowd(rig)
        await crowd.join(5)
        await crowd.join(5, headers=HELD)
        await crowd.join(5, headers=OTHER)
        got = await leader.finish()
        assert (got.status, got.body, got.stored) == (200, b"one", True)
        answers = await crowd.all()
        assert [(one.status, one.body) for one in answers] == [(200, b"one")] * 5 + [(304, b"")] * 5 + [
            (200, b"one")
        ] * 5
        assert {one.decision for one in answers} == {"collapsed"}
        assert rig.origin.times == 1
        assert rig.origin.asked[0].headers.get("if-none-match") == '"0"', "as the client has sent it"


async def test_who_has_the_answer_leaves_the_way_to_one_that_has_not(tmp_path: Path) -> None:
    async with Rig(tmp_path, COLLAPSING) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60", headers=FIELDS)
        leader = await rig.forwarded("GET", headers=HELD)
        crowd = Crowd(rig)
        await crowd.join(20, headers=HELD)
        await crowd.join(20)
        got = await leader.finish()
        assert (got.status, got.decision, got.stored) == (304, "miss", False)
        answers = await crowd.all()
        assert sorted({(one.status, one.body) for one in answers}) == [(200, b"one"), (304, b"")]
        assert rig.origin.times == 2
        assert rig.origin.asked[1].headers.get("if-none-match") is None
        assert rig.meter.collapses == {"takeover": 1, "answered": 39}


async def test_those_that_all_have_it_ask_a_few_at_a_time(tmp_path: Path) -> None:
    async with Rig(tmp_path, COLLAPSING) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60", headers=FIELDS)
        leader = await rig.forwarded("GET", headers=HELD)
        crowd = Crowd(rig)
        await crowd.join(20, headers=HELD)
        await leader.finish()
        answers = await crowd.all()
        assert {one.status for one in answers} == {304}
        assert crowd.most <= 8
        # What comes next may be for all, and is waited for.
        leader = await rig.forwarded("GET")
        crowd = Crowd(rig)
        await crowd.join(5)
        asked = rig.origin.times
        await leader.finish()
        assert {one.decision for one in await crowd.all()} == {"collapsed"}
        assert rig.origin.times == asked


@pytest.mark.parametrize("pods", [True, False], ids=["pods", "workers"])
async def test_nor_does_it_keep_those_of_other_processes(tmp_path: Path, pods: bool) -> None:
    async with Rig(tmp_path, COLLAPSING, workers=2, pods=pods) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60", headers=FIELDS)
        leader = await rig.forwarded("GET", headers=HELD)
        crowd = Crowd(rig)
        await crowd.join(10, worker=1)
        assert crowd.waiting == 10
        assert (await leader.finish()).status == 304
        assert {one.body for one in await crowd.all()} == {b"one"}
        assert rig.origin.times == 2
