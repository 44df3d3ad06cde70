"""A popular entry is renewed shortly before it is stale; no other is."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import pytest

from cache_harness import Rig
from cache_origin import START
from meshcache.engine.judge import judge
from meshcache.engine.records import StoredResponse
from meshcache.rfc.fields import format_http_date
from policy_texts import compiled, policies

if TYPE_CHECKING:
    from pathlib import Path

AHEAD = policies(freshness="{defaultTtl: 100s, refreshAhead: 10%}")


def renew_from(policy: str, *, cache_control: str = "max-age=100", initial_age: float = 0.0) -> float:
    """Seconds after its coming from which a response is renewed early."""
    fields = (("cache-control", cache_control), ("date", format_http_date(START)))
    stored = StoredResponse(b"k", (), 200, fields, START, START, initial_age, False, b"b")
    return judge(stored, compiled(policies(freshness=policy)).policies["p"].freshness).renew_from - START


@pytest.mark.parametrize(
    ("policy", "more", "after"),
    [
        ("{refreshAhead: 10%}", {}, 90.0),
        ("{refreshAhead: 50%}", {}, 50.0),
        ("{refreshAhead: 10%, maxTtl: 50s}", {}, 45.0),
        ("{}", {}, inf),
        ("{refreshAhead: 0}", {}, inf),
        # Of what is left of its lifetime as it comes: the answer to the renewal is as old, and shall not be renewed
        # at once again.
        ("{refreshAhead: 10%}", {"initial_age": 90.0}, 9.0),
        ("{refreshAhead: 10%}", {"initial_age": 100.0}, inf),
        ("{refreshAhead: 10%}", {"cache_control": "no-cache"}, inf),
    ],
)
def test_when_an_entry_is_renewed(policy: str, more: dict[str, float], after: float) -> None:
    assert renew_from(policy, **more) == pytest.approx(after, abs=0.001)  # type: ignore[arg-type]


async def test_a_popular_entry_is_renewed_behind_a_hit(tmp_path: Path) -> None:
    async with Rig(tmp_path, AHEAD) as rig:
        rig.origin.says("/a", b"old")
        await rig.get()
        for _ in range(3):
            await rig.get()
        rig.clock.pass_by(89)
        await rig.get()
        await rig.settle()
        assert rig.refresher.asked == [], "not yet"
        rig.clock.pass_by(2)
        rig.origin.says("/a", b"new")
        got = await rig.get()
        assert (got.body, got.decision, got.age) == (b"old", "hit", 91)
        await rig.settle()
        assert (rig.meter.refreshes, rig.meter.refresh_causes) == (["stored"], ["ahead"])
        got = await rig.get()
        assert (got.body, got.decision, got.age) == (b"new", "hit", 0)


async def test_one_that_is_seldom_asked_for_is_not(tmp_path: Path) -> None:
    async with Rig(tmp_path, AHEAD) as rig:
        rig.origin.says("/a", b"old")
        await rig.get()
        rig.clock.pass_by(95)
        assert (await rig.get()).decision == "hit"
        await rig.settle()
        assert rig.refresher.asked == []
        assert (await rig.get()).decision == "hit"
        await rig.settle()
        assert len(rig.refresher.asked) == 1, "the second hit makes it popular"


async def test_the_renewed_entry_has_to_become_popular_again(tmp_path: Path) -> None:
    async with Rig(tmp_path, AHEAD) as rig:
        rig.origin.says("/a")
        await rig.get()
        rig.clock.pass_by(95)
        for _ in range(2):
            await rig.get()
        await rig.settle()
        rig.clock.pass_by(95)
        await rig.get()
        await rig.settle()
        assert len(rig.refresher.asked) == 1


async def test_many_hits_cause_one_renewal(tmp_path: Path) -> None:
    async with Rig(tmp_path, AHEAD, workers=2) as rig:
        rig.origin.says("/a", b"old")
        await rig.get()
        await rig.get(worker=1)
        rig.clock.pass_by(95)
        rig.refresher.may_go.clear()
        for _ in range(20):
            for worker in (0, 1):
                assert (await rig.get(worker=worker)).decision == "hit"
        await rig.refresher.asked_for(1)
        rig.origin.says("/a", b"new")
        rig.refresher.may_go.set()
        await rig.settle()
        assert (len(rig.refresher.asked), rig.workers[1].refresher.asked) == (1, [])
        assert rig.meter.refreshes == ["stored"]
        # The other worker goes on by its own copy, and takes the renewed one where both find it.
        rig.clock.pass_by(0.2)
        assert (await rig.get(worker=1)).body == b"old"
        await rig.settle()
        got = await rig.get(worker=1)
        assert (got.body, got.decision) == (b"new", "hit")
        assert rig.workers[1].meter.refreshes == ["found"]
        assert rig.workers[1].refresher.asked == []


async def test_a_renewal_that_fails_leaves_the_entry_as_it_is(tmp_path: Path) -> None:
    async with Rig(tmp_path, AHEAD) as rig:
        rig.origin.says("/a", b"old")
        await rig.get()
        rig.clock.pass_by(95)
        rig.origin.says("/a", b"broken", status=500)
        for _ in range(5):
            got = await rig.get()
            assert (got.body, got.decision) == (b"old", "hit")
            await rig.settle()
        assert rig.meter.refreshes == ["error"]


@pytest.mark.parametrize(
    ("key", "fields", "headers"),
    [
        ("{}", {"cache-control": "public, max-age=100"}, {"authorization": "Bearer x"}),
        ("{cookies: [sid]}", {}, {"cookie": "sid=1"}),
        ("{}", {"vary": "cookie"}, {"cookie": "sid=1"}),
    ],
)
async def test_what_credentials_chose_is_not_renewed(
    tmp_path: Path, key: str, fields: dict[str, str], headers: dict[str, str]
) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 100s, refreshAhead: 10%}", key=key)) as rig:
        rig.origin.says("/a", headers=fields)
        await rig.get("/a", headers)
        rig.clock.pass_by(95)
        for _ in range(5):
            assert (await rig.get("/a", headers)).decision == "hit"
        await rig.settle()
        assert rig.refresher.asked == []


async def test_without_a_refresher_a_popular_entry_is_a_hit_like_any_other(tmp_path: Path) -> None:
    async with Rig(tmp_path, AHEAD) as rig:
        rig.cache.refresher = None
        rig.origin.says("/a")
        await rig.get()
        rig.clock.pass_by(95)
        for _ in range(3):
            assert (await rig.get()).decision == "hit"


async def test_at_the_end_nothing_is_renewed_any_more(tmp_path: Path) -> None:
    text = policies(freshness="{defaultTtl: 100s, refreshAhead: 10%, staleWhileRevalidate: 100s}")
    async with Rig(tmp_path, text) as rig:
        rig.origin.says("/a", b"old")
        await rig.get()
        rig.cache.retire()
        rig.clock.pass_by(95)
        for _ in range(3):
            assert (await rig.get()).decision == "hit"
        rig.clock.pass_by(10)
        got = await rig.get()
        assert (got.decision, got.body) == ("stale-swr", b"old"), "clients are answered as before"
        await rig.settle()
        assert rig.refresher.asked == []
