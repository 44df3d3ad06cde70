"""What has been decided about an experiment, on top of its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from meshcache.experiment.assignment import AssignedBy
from meshcache.experiment.exposure import CountedExperiment
from meshcache.experiment.overlay import Adoption, Overlay, Phase
from meshcache.message import Headers, Request
from meshcache.policy.snapshot import namespace

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshcache.policy.snapshot import Selection, Snapshot

    Compile = Callable[..., Snapshot]

CONFIG = """
kind: CacheConfig
metadata: {name: c}
spec: {trust: {canaryHeader: {from: [any]}}}
"""
ROUTE = """
---
kind: CacheRoute
metadata: {name: r}
spec: {match: [{path: {prefix: /}}], policyRef: {name: %s}}
"""
EXPERIMENT = """
---
kind: CacheExperiment
metadata: {name: e}
spec:
  routeRef: {name: r}
  unit: [{header: x-user-id}]
  arms:
    - {name: control, policyRef: {name: old}, weight: 80}
    - {name: candidate, policyRef: {name: new}, weight: 10, force: [{header: x-canary, exact: v2}]}
    - {name: baseline, policyRef: {name: old}, weight: 10}
"""
NEW = """
---
kind: CachePolicy
metadata: {name: new}
spec: {freshness: {defaultTtl: 2m}}
"""
JUDGED = "  compare: {candidate: candidate, against: baseline}\n"


@pytest.fixture
def snapshot(compiled: Compile) -> Snapshot:
    return compiled(CONFIG + ROUTE % "old" + EXPERIMENT + JUDGED + NEW, policies=("old",))


def overlay(snapshot: Snapshot, phase: Phase = Phase.RUNNING, **more: object) -> Overlay:
    given: dict[str, object] = {"weights": (0, 1, 1), "epoch": 3, "counting": True} | more
    found = Overlay("e", snapshot.experiments[0].spec_hash, phase, (1, 0, 0), 0, False)
    return msgspec.structs.replace(found, **given)


def ask(snapshot: Snapshot, user: str = "7", canary: str = "") -> Selection:
    fields = [("x-user-id", user)] if user else []
    return snapshot.select(Request("GET", "h", "/", Headers(fields + ([("x-canary", canary)] if canary else []))))


def arms(snapshot: Snapshot) -> set[str]:
    return {ask(snapshot, str(user)).arm for user in range(200)}


def test_without_a_decision_the_file_holds_and_nothing_is_counted(snapshot: Snapshot) -> None:
    assert snapshot.weights == {"e": (80, 10, 10)}
    assert snapshot.overlays == {}
    assert snapshot.counted == {}
    assert ask(snapshot).exposures == ()
    assert arms(snapshot) == {"control", "candidate", "baseline"}


@pytest.mark.parametrize("phase", [Phase.WARMING, Phase.RUNNING, Phase.PAUSED])
def test_weights_in_force(snapshot: Snapshot, phase: Phase) -> None:
    found = snapshot.with_overlays({"e": overlay(snapshot, phase)})
    assert arms(found) == {"candidate", "baseline"}
    assert found.weights == {"e": (0, 1, 1)}
    # The set that others still go by is as it was.
    assert arms(snapshot) == {"control", "candidate", "baseline"}
    # Those who had one of the arms that grow stay in it.
    assert all(ask(found, str(n)).arm == arm for n in range(200) if (arm := ask(snapshot, str(n)).arm) != "control")


def test_what_counts_is_said_with_the_unit(snapshot: Snapshot) -> None:
    found = snapshot.with_overlays({"e": overlay(snapshot)})
    assert found.counted == {
        "e": CountedExperiment("e", snapshot.experiments[0].spec_hash, 3, ("control", "candidate", "baseline"), "e")
    }
    (one,) = ask(found).exposures
    assert (one.experiment, len(one.unit)) == ("e", 16)
    assert snapshot.experiments[0].arms[one.arm].name == ask(found).arm
    assert ask(found).exposures == ask(found).exposures
    assert ask(found, "8").exposures[0].unit != one.unit
    assert ask(found, "").exposures == ()
    assert ask(found, canary="v2").exposures == ()
    quiet = snapshot.with_overlays({"e": overlay(snapshot, counting=False)})
    assert ask(quiet).exposures == ()
    assert quiet.counted == {}


def test_rolled_back_everybody_is_on_control(snapshot: Snapshot) -> None:
    found = snapshot.with_overlays({"e": overlay(snapshot, Phase.ROLLED_BACK)})
    assert arms(found) == {"control"}
    assert ask(found, canary="v2").arm == "control"
    assert ask(found).how is AssignedBy.DECIDED
    assert ask(found, "").how is AssignedBy.DECIDED
    assert ask(found).exposures == ()
    assert found.weights == {"e": (1, 0, 0)}
    assert found.counted == {}


def test_stopped_forced_requests_still_get_their_arm(snapshot: Snapshot) -> None:
    found = snapshot.with_overlays({"e": overlay(snapshot, Phase.STOPPED)})
    assert arms(found) == {"control"}
    assert ask(found, canary="v2").how is AssignedBy.FORCED
    assert ask(found, canary="v2").arm == "candidate"


def test_promoted_everybody_is_on_the_winner_where_it_keeps_its_entries(snapshot: Snapshot) -> None:
    found = snapshot.with_overlays({"e": overlay(snapshot, Phase.PROMOTED, winner="candidate")})
    assert arms(found) == {"candidate"}
    assert ask(found).namespace == ask(snapshot, canary="v2").namespace
    assert found.weights == {"e": (0, 1, 0)}


@pytest.mark.parametrize(
    "more",
    [
        {"spec_hash": "another"},
        {"weights": (1, 1)},
        {"weights": (0, 0, 0)},
        {"weights": (2, -1, 0)},
        {"phase": Phase.PROMOTED, "winner": "nobody"},
    ],
)
def test_what_is_not_about_the_file_in_force_does_not_bind(snapshot: Snapshot, more: dict[str, object]) -> None:
    found = snapshot.with_overlays({"e": msgspec.structs.replace(overlay(snapshot), **more)})
    assert found.overlays == {}
    assert found.weights == {"e": (80, 10, 10)}


def test_a_decision_on_the_next_text_does_not_undo_that_on_this_one(snapshot: Snapshot) -> None:
    back = snapshot.with_overlays({"e": overlay(snapshot, Phase.ROLLED_BACK)})
    ahead = back.with_overlays({"e": msgspec.structs.replace(overlay(snapshot), spec_hash="of the next")})
    assert arms(ahead) == {"control"}
    assert arms(back.with_overlays({})) == {"control", "candidate", "baseline"}


def test_a_ramp_begins_with_its_first_stage(compiled: Compile) -> None:
    text = (
        CONFIG + ROUTE % "old" + EXPERIMENT + JUDGED + "  ramp: [{weight: 0.5%, for: 1h}, {weight: 20, for: 1h}]" + NEW
    )
    found = compiled(text, policies=("old",))
    assert found.weights == {"e": (990_000, 5_000, 5_000)}


def test_the_winner_keeps_its_entries_when_the_route_gets_its_policy(snapshot: Snapshot, compiled: Compile) -> None:
    adopted = snapshot.adoption("e", "candidate")
    assert adopted is not None
    assert snapshot.adoption("e", "nobody") is None
    assert snapshot.adoption("f", "candidate") is None
    # Under another name, too: it is what the policy says that has won.
    after = compiled(CONFIG + ROUTE % "won" + NEW.replace("new", "won"))
    assert ask(after).namespace == namespace("r")
    assert ask(after.with_overlays({}, [adopted])).namespace == ask(snapshot, canary="v2").namespace
    other = compiled(CONFIG + ROUTE % "old", policies=("old",))
    assert ask(other.with_overlays({}, [adopted])).namespace == namespace("r")
    assert adopted == Adoption("r", after.policies["won"].digest, ask(snapshot, canary="v2").namespace)
