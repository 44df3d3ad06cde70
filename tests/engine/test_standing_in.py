"""What is stored and stale stands in for an error of the origin (RFC 5861 section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cache_harness import Rig
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path


PLAIN = policies(freshness="{defaultTtl: 60s}")


ON_ERROR = policies(freshness="{defaultTtl: 60s, staleIfError: 5m}")


@pytest.mark.parametrize("from_origin", [True, False])
@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_stale_answer_stands_in_for_an_error(tmp_path: Path, status: int, from_origin: bool) -> None:
    async with Rig(tmp_path, ON_ERROR) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.clock.pass_by(100)
        rig.origin.says("/a", b"oops", status=status, from_origin=from_origin)
        got = await rig.get()
        assert (got.status, got.body, got.decision, got.age) == (200, b"one", "stale-if-error", 100)
        # The origin was asked, so it is no hit (RFC 9211 section 2.1).
        assert got.headers.get("cache-status") == (
            f'meshcache; fwd=stale; fwd-status={status}; detail="stale-if-error tier=hot policy=p"'
        )
        rig.clock.pass_by(260.1)
        assert (await rig.get()).status == status


@pytest.mark.parametrize("status", [400, 401, 403, 404, 501])
async def test_it_does_not_stand_in_for_other_answers(tmp_path: Path, status: int) -> None:
    async with Rig(tmp_path, ON_ERROR) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.clock.pass_by(100)
        rig.origin.says("/a", b"no", status=status)
        assert (await rig.get()).status == status


@pytest.mark.parametrize("forbids", ["must-revalidate", "proxy-revalidate", "no-cache"])
async def test_it_does_not_stand_in_where_the_origin_forbids_it(tmp_path: Path, forbids: str) -> None:
    async with Rig(tmp_path, ON_ERROR) as rig:
        rig.origin.says("/a", b"one", cache_control=f"max-age=10, {forbids}", headers={"etag": '"1"'})
        await rig.get()
        rig.clock.pass_by(20)
        rig.origin.says("/a", b"oops", status=503)
        assert (await rig.get()).status == 503


async def test_a_stored_error_stands_in_for_no_other(tmp_path: Path) -> None:
    async with Rig(tmp_path, ON_ERROR) as rig:
        rig.origin.says("/a", b"for an hour", status=503, cache_control="max-age=10")
        await rig.get()
        rig.clock.pass_by(11)
        rig.origin.says("/a", b"for a minute", status=503)
        for _ in range(2):
            assert (await rig.get()).body == b"for a minute"
        rig.origin.says("/a", b"one")
        assert (await rig.get()).body == b"one", "the origin is asked as soon as it is well"


async def test_an_origin_that_has_just_failed_is_not_asked_by_every_client(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s, staleIfError: 10m}")) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.clock.pass_by(100)
        rig.origin.says("/a", b"oops", status=503)
        rig.origin.asked.clear()
        asked = []
        for _ in range(400):
            before = rig.origin.times
            got = await rig.get()
            assert (got.body, got.decision) == (b"one", "stale-if-error")
            status = got.headers.get("cache-status") or ""
            assert ("fwd=stale; fwd-status=503" if rig.origin.times > before else "; hit; ttl=-") in status
            asked.append(rig.origin.times)
            rig.clock.pass_by(0.25)
        assert asked[3] == 1
        assert asked[4] == 2
        assert asked[-1] <= 9, "in a hundred seconds"
        rig.origin.says("/a", b"two")
        # A client who wants the origin's own answer gets it at any time, and that ends the pause for all.
        assert (await rig.get("/a", {"cache-control": "no-cache"})).body == b"two"
        assert (await rig.get()).body == b"two"


async def test_it_is_asked_again_soon_after(tmp_path: Path) -> None:
    async with Rig(tmp_path, ON_ERROR) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.clock.pass_by(100)
        rig.origin.says("/a", b"oops", status=503)
        await rig.get()
        rig.origin.says("/a", b"two")
        assert (await rig.get()).body == b"one"
        rig.clock.pass_by(1)
        assert (await rig.get()).body == b"two"


@pytest.mark.parametrize("status", [401, 403, 404, 429])
async def test_a_refusal_is_no_failure(tmp_path: Path, status: int) -> None:
    async with Rig(tmp_path, ON_ERROR) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=10", headers={"etag": '"1"'})
        await rig.get()
        rig.clock.pass_by(20)
        rig.origin.says("/a", b"no", status=status)
        for _ in range(2):
            assert (await rig.get()).status == status


async def test_it_does_not_stand_in_for_an_authorized_caller(tmp_path: Path) -> None:
    async with Rig(tmp_path, ON_ERROR) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.origin.says("/a", b"oops", status=503)
        assert (await rig.get("/a", {"authorization": "x"})).status == 503
