"""A replay does what a worker does: the same decisions, one by one, at the same times."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import AT_ONCE, START, asked, replayed

from cache_harness import Rig
from meshcache.decisions import Decision, TierName
from meshcache.simulate.latency import LatencyModel
from meshcache.simulate.origin import Origin
from meshcache.simulate.world import Sizes
from policy_texts import TIERS, experiment, policies

if TYPE_CHECKING:
    from pathlib import Path

FRESHNESS = "{defaultTtl: 60s, staleWhileRevalidate: 30s, refreshAhead: 20%}"
SHORT_TIERS = """
hot: {ttl: 20s, maxObjectBytes: 1Mi, deadline: 5s}
warm: {ttl: 50s, maxObjectBytes: 2Mi, deadline: 5s}
cold: {ttl: 24h, maxObjectBytes: 4Mi, deadline: 5s}
"""


@pytest.mark.parametrize("tiers", [TIERS, SHORT_TIERS], ids=["long", "short"])
async def test_every_decision_is_that_of_the_harness(tmp_path: Path, tiers: str) -> None:
    choose = random.Random(1)
    text = policies(freshness=FRESHNESS, tiers=tiers, collapse="{enabled: true}")
    times = sorted({choose.randrange(900) for _ in range(120)})
    requests = [asked(at, f"/{choose.randrange(5)}", 300 + 50 * (at // 400)) for at in times]

    expected = []
    (tmp_path / "rig").mkdir()
    async with Rig(tmp_path / "rig", text) as rig:
        for request in requests:
            await rig.settle()
            rig.clock.now = request.time
            etag = {"etag": f'"{request.size:x}"'}
            rig.origin.says(request.path, b"x" * request.size, cache_control="max-age=60", headers=etag)
            got = await rig.get(request.path)
            expected.append((got.decision, got.tier, len(got.body)))

    (tmp_path / "replay").mkdir()
    _, outcomes = replayed(tmp_path / "replay", text, requests)
    assert [(str(one.decision), str(one.tier or ""), one.size) for one in outcomes] == expected
    # Else the comparison would say little.
    seen = {(decision, tier) for decision, tier, _ in expected}
    assert seen >= {("miss", ""), ("hit", "hot"), ("stale-swr", "hot")}
    assert seen & ({("revalidated", "hot")} if tiers is TIERS else {("hit", "warm"), ("stale-swr", "warm")})


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4)), min_size=1, max_size=60),
    st.integers(5, 60),
)
def test_against_a_dictionary_of_when_it_was_stored(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], ttl: int
) -> None:
    text = policies(freshness=f"{{mode: override, defaultTtl: {ttl}s}}")
    now, requests, expected = 0, [], []
    stored: dict[int, int] = {}
    for pause, thing in steps:
        now += pause
        requests.append(asked(now, f"/{thing}"))
        fresh = thing in stored and now - stored[thing] < ttl
        expected.append(Decision.HIT if fresh else Decision.MISS)
        if not fresh:
            stored[thing] = now
    origin = Origin(validators=False)
    _, outcomes = replayed(tmp_path_factory.mktemp("world"), text, requests, origin=origin)
    assert [one.decision for one in outcomes] == expected


def test_requests_at_one_time_are_one_at_the_origin(tmp_path: Path) -> None:
    text = policies(freshness="{defaultTtl: 60s}", collapse="{enabled: true}")
    latency = LatencyModel(miss=0.2, hit=dict.fromkeys(TierName, 0.01))
    replay, outcomes = replayed(tmp_path, text, [asked(0), asked(0.05), asked(0.1), asked(1)], latency=latency)
    assert sorted((one.decision, round(one.latency, 3)) for one in outcomes) == [
        (Decision.COLLAPSED, 0.11),
        (Decision.COLLAPSED, 0.16),
        (Decision.HIT, 0.01),
        (Decision.MISS, 0.2),
    ]
    (tally,) = replay.tallies.values()
    assert (tally.origin_requests, tally.hits.total()) == (1, 1)


def test_stale_while_revalidate_is_stale_and_refreshes(tmp_path: Path) -> None:
    text = policies(freshness="{staleWhileRevalidate: 30s}")
    replay, outcomes = replayed(tmp_path, text, [asked(0), asked(70), asked(75)])
    assert [one.decision for one in outcomes] == [Decision.MISS, Decision.STALE_SWR, Decision.HIT]
    assert [one.stale_for for one in outcomes] == [0.0, 10.0, 0.0]
    assert (replay.refresh_requests, replay.refresh_bytes) == (1, 0)
    assert replay.meter.refreshes == {"not-modified": 1}


def test_an_answer_of_another_version_is_outdated(tmp_path: Path) -> None:
    _, outcomes = replayed(tmp_path, policies(freshness="{}"), [asked(0), asked(10, size=200), asked(70, size=200)])
    assert [(one.decision, one.size, one.outdated) for one in outcomes] == [
        (Decision.MISS, 100, False),
        (Decision.HIT, 100, True),
        (Decision.REVALIDATE, 200, False),
    ]


def test_memory_and_the_tiers_below_give_up_what_does_not_fit(tmp_path: Path) -> None:
    requests = [asked(place, f"/{place % 40}", 10_000) for place in range(200)]
    sizes = Sizes(hot=100_000, warm=200_000, cold=1 << 20)
    replay, _ = replayed(tmp_path, policies(freshness="{}"), requests, sizes=sizes)
    gone = replay.world.hooks.evicted_from
    assert 0 < replay.world.memory.peak_bytes <= 100_000
    assert replay.world.warm.peak_bytes <= 200_000
    assert gone[TierName.HOT, "capacity"] > 0
    assert gone[TierName.WARM, "capacity"] > 0
    (tally,) = replay.tallies.values()
    assert tally.requests == 200


def test_a_large_body_is_stored_in_chunks_and_read_again(tmp_path: Path) -> None:
    size = 3 << 20
    replay, outcomes = replayed(tmp_path, policies(freshness="{}"), [asked(0, size=size), asked(10, size=size)])
    assert [(one.decision, one.tier, one.size) for one in outcomes] == [
        (Decision.MISS, None, size),
        (Decision.HIT, TierName.COLD, size),
    ]
    assert replay.world.cold.peak_bytes > size


def test_an_unsafe_request_makes_stored_answers_invalid(tmp_path: Path) -> None:
    requests = [asked(0), asked(1), asked(2, method="POST", size=0), asked(3)]
    _, outcomes = replayed(tmp_path, policies(freshness="{}"), requests)
    assert [one.decision for one in outcomes] == [Decision.MISS, Decision.HIT, Decision.BYPASS, Decision.MISS]


def test_arms_have_entries_of_their_own_and_users_stay_in_theirs(tmp_path: Path) -> None:
    text = policies(
        freshness="{}", more=experiment().replace("weight: 1}", "weight: 50}").replace("weight: 0,", "weight: 50,")
    )
    requests = [asked(place * 0.1, user=f"u{place % 20}") for place in range(200)]
    replay, outcomes = replayed(tmp_path, text, requests)
    by_arm = {arm.arm: tally for arm, tally in replay.tallies.items()}
    assert by_arm.keys() == {"one", "two"}
    assert all(tally.decisions[Decision.MISS] == 1 for tally in by_arm.values())
    assert sum(tally.requests for tally in by_arm.values()) == len(outcomes) == 200


def test_latencies_vary_by_their_seed(tmp_path: Path) -> None:
    requests = [asked(place, f"/{place}") for place in range(50)]

    def latencies(name: str, seed: int) -> list[float]:
        (tmp_path / name).mkdir()
        model = LatencyModel(miss=0.2, sigma=0.5, seed=seed)
        return [one.latency for one in replayed(tmp_path / name, policies(), requests, latency=model)[1]]

    assert latencies("a", 1) == latencies("b", 1) != latencies("c", 2)
    assert len(set(latencies("d", 1))) > 40


def test_time_and_tasks_are_those_of_the_replay_alone(tmp_path: Path) -> None:
    replay, _ = replayed(tmp_path, policies(), [asked(0)], latency=AT_ONCE)
    assert replay.world.loop.now >= START
    assert not replay.world.loop.failures
