"""What becomes of what a refresh brings: failures, answers that may not be kept, 304."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from grown_stale import SWR, stale

from cache_harness import Rig, Sent
from meshcache.engine.refresh.background import RETRY_SECONDS

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_refresh_that_fails_is_tried_again_after_a_pause(tmp_path: Path) -> None:
    async with Rig(tmp_path, SWR) as rig:
        await stale(rig)
        rig.refresher.fails = True
        for _ in range(3):
            assert (await rig.get()).decision == "stale-swr"
            await rig.settle()
        assert len(rig.refresher.asked) == 1
        rig.clock.pass_by(RETRY_SECONDS)
        rig.refresher.fails = False
        assert (await rig.get()).body == b"old"
        await rig.settle()
        assert rig.meter.refreshes == ["error", "stored"]
        assert (await rig.get()).body == b"new"


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 503])
async def test_an_error_leaves_the_stale_answer_until_its_window_ends(tmp_path: Path, status: int) -> None:
    async with Rig(tmp_path, SWR) as rig:
        await stale(rig)
        rig.origin.says("/a", b"no", status=status)
        for _ in range(3):
            assert (await rig.get()).body == b"old"
            await rig.settle()
        assert rig.origin.times == 1, "no more than one try in the pause"
        assert rig.meter.refreshes == ["error"]
        rig.clock.pass_by(30)
        assert (await rig.get()).status == status


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"cache_control": "no-store"}, "not-stored"),
        ({"cache_control": "private"}, "not-stored"),
        ({"headers": {"vary": "*"}}, "not-stored"),
        ({"status": 404}, "not-stored"),
        ({"status": 410}, "not-stored"),
    ],
)
async def test_an_answer_that_may_not_be_stored_ends_the_stale_one(
    tmp_path: Path, answer: dict[str, Any], outcome: str
) -> None:
    async with Rig(tmp_path, SWR, workers=2) as rig:
        await stale(rig)
        rig.origin.says("/a", b"new", **answer)
        assert (await rig.get()).body == b"old"
        await rig.settle()
        assert rig.meter.refreshes == [outcome]
        for worker in (0, 1):
            assert isinstance(await rig.send("GET", worker=worker), Sent)


@pytest.mark.parametrize(("told", "decision"), [("max-age=60", "hit"), ("no-store", "miss"), ("private", "miss")])
async def test_a_304_to_a_refresh(tmp_path: Path, told: str, decision: str) -> None:
    async with Rig(tmp_path, SWR) as rig:
        await stale(rig, headers={"etag": '"1"'})
        rig.origin.says("/a", status=304, cache_control=told, headers={"etag": '"1"'})
        await rig.get()
        await rig.settle()
        rig.origin.says("/a", b"new", cache_control="no-store")
        got = await rig.get()
        assert (got.decision, got.body) == (decision, b"old" if decision == "hit" else b"new")


async def test_a_304_for_something_else_ends_the_stale_answer(tmp_path: Path) -> None:
    async with Rig(tmp_path, SWR) as rig:
        await stale(rig, headers={"etag": '"1"', "last-modified": "Tue, 14 Nov 2023 22:13:20 GMT"})
        rig.origin.says("/a", status=304, headers={"etag": '"2"'})
        await rig.get()
        await rig.settle()
        assert rig.meter.refreshes == ["mismatch"]
        assert isinstance(await rig.send("GET"), Sent)


async def test_a_body_too_large_is_not_kept(tmp_path: Path) -> None:
    async with Rig(tmp_path, SWR) as rig:
        await stale(rig)
        rig.origin.says("/a", b"x" * (5 << 20))
        await rig.get()
        await rig.settle()
        assert rig.meter.refreshes == ["not-stored"]
        assert rig.cache.copies.used == 0
        again = await rig.forwarded("GET")
        again.exchange.close()


async def test_a_refresh_without_memory_for_the_copy_leaves_things_as_they_are(tmp_path: Path) -> None:
    async with Rig(tmp_path, SWR, copy_bytes=10) as rig:
        await stale(rig)
        rig.origin.says("/a", b"x" * 11)
        await rig.get()
        await rig.settle()
        assert rig.cache.copies.used == 0
        assert (await rig.get()).body == b"old"
        assert rig.meter.refreshes == ["error"]
