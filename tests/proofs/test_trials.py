"""Short forms of `make proofs PARTS=aa,verdicts`: few experiments, few requests."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from meshcache.experiment.overlay import Phase
from meshcache.experiment.state import Decided
from proofs.alike import SCENARIO, alike
from proofs.verdicts import WORSE, policies_of, verdict
from proofs.virtual import Traffic, Trial


@pytest.mark.slow
def test_arms_of_one_policy_are_rarely_called_different() -> None:
    found = [alike(SCENARIO, 4_000, seed) for seed in range(2)]
    assert min(one.looks for one in found) >= 15
    assert min(one.units for one in found) >= 50
    # Each happens in at most 5 % of experiments.
    assert sum(len(one.different) for one in found) <= 1
    assert not any(one.fired for one in found)


def impatient(name: str) -> str:
    text = policies_of(name).replace("for: 1m", "for: 5s").replace("warmup: 30s", "warmup: 2s")
    return text.replace("minUnits: 200", "minUnits: 60")


TRAFFIC = Traffic(users=1_500, activity=0.3, keys=100, rate=300.0)


def test_a_slower_candidate_is_rolled_back() -> None:
    with Trial(impatient("slow"), TRAFFIC, 1, worse=WORSE["slow"]) as one:
        for _ in one.run(9_000, 100):
            pass
        found = verdict(one, Decided.ROLLED_BACK)
    assert (found.right, found.metric) == (True, "latencyMean"), found
    assert found.units >= 60
    # The guardrail's seconds, and what it took to be sure of a breach.
    assert 5 <= found.seconds < 20
    candidate, baseline = found.values
    assert candidate is not None
    assert baseline is not None
    assert candidate - baseline == pytest.approx(0.1, abs=0.03)


def test_after_a_rollback_everybody_is_on_control() -> None:
    """Of a candidate that fails always."""
    with Trial(
        impatient("failing"), TRAFFIC, 1, worse=lambda arm, seen, _draw: (seen[0], seen[1] or arm == "candidate")
    ) as one:
        for _ in one.run(6_000, 100):
            pass
        assert [decision.what for decision in one.decisions] == [
            Decided.STARTED,
            Decided.COUNTING,
            Decided.ROLLED_BACK,
        ]
        assert one.record.phase is Phase.ROLLED_BACK
        first, *rest = (structs.replace(asked, time=asked.time + 100) for asked in TRAFFIC.requests(500, 2))
        # By then what was under way has come to its end.
        one.replay.feed(first)
        before = {arm: tally.requests for arm, tally in one.replay.tallies.items()}
        for asked in rest:
            one.replay.feed(asked)
        after = {arm.arm: tally.requests - before[arm] for arm, tally in one.replay.tallies.items()}
        assert after["control"] >= 450
        assert after["baseline"] == after["candidate"] == 0


def test_some_users_ask_far_more_than_others_and_for_their_own_favourites() -> None:
    asked = list(Traffic(users=500, rate=100.0).requests(20_000, 1))
    by_user: dict[str, list[str]] = {}
    for one in asked:
        by_user.setdefault(one.user, []).append(one.path)
    busy = sorted(by_user, key=lambda user: -len(by_user[user]))
    assert len(by_user[busy[0]]) > 5 * len(by_user[busy[100]])
    first, second = (by_user[user] for user in busy[:2])
    favourites = sorted(set(first), key=lambda path: -first.count(path))[:5]
    assert sum(map(first.count, favourites)) / len(first) > 1.3 * sum(map(second.count, favourites)) / len(second)
    assert asked[-1].time - asked[0].time == pytest.approx(200, rel=0.1)
    assert sum(one.status == 503 for one in asked) / len(asked) == pytest.approx(0.005, abs=0.003)
    assert list(replace(Traffic(users=500), rate=100.0).requests(50, 1)) == list(
        Traffic(users=500, rate=100.0).requests(50, 1)
    )
