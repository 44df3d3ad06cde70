"""What the rules say of entries of this pod and of others."""

from __future__ import annotations

from purge_helpers import response

from meshcache.engine.purge_state import Header, PurgeState, Step, generation
from meshcache.engine.purges import ALIVE, DEAD, Keying, PurgeKind, Rule, Verdict

OWN, OTHER = 7, 8


def rule(tag: str, *, soft: bool = False, uid: str = "", at: float = 10.0) -> Rule:
    return Rule(PurgeKind.TAG, tag, soft, at, uid or tag)


def state(*steps: Step, **header: int) -> PurgeState:
    made = PurgeState(Header(OWN, **header), Keying())
    for step in steps:
        made.apply(step)
    return made


def own(number: int, fleet: int = 0):
    return generation(OWN, number), fleet


def other(number: int, fleet: int):
    return generation(OTHER, number), fleet


TAGGED = response(tags=("t",))


def test_what_was_born_before_a_rule_and_matches_it_is_dead():
    found = state(Step(1, rule("t"), 10.0), Step(2, rule("u"), 10.0))
    assert found.born == own(2)
    for shared in (False, True):
        assert found.verdict(own(0), TAGGED, shared=shared) is DEAD
        assert found.verdict(own(1), TAGGED, shared=shared) == ALIVE
        assert found.verdict(own(0), response(tags=("v",)), shared=shared) == ALIVE


def test_a_soft_rule_makes_stale():
    found = state(Step(1, rule("t", soft=True), 12.0))
    assert found.verdict(own(0), TAGGED, shared=False) == Verdict(stale_since=10.0)
    ahead = state(Step(1, rule("t", soft=True, at=99.0), 12.0))
    assert ahead.verdict(own(0), TAGGED, shared=False) == Verdict(stale_since=12.0), "not from a time to come"


def test_steps_are_applied_once_and_in_order():
    found = state(Step(2, rule("t"), 10.0), Step(1, rule("u"), 10.0))
    assert found.number == 2
    assert found.verdict(own(1), response(tags=("u",)), shared=False) == ALIVE


def test_entries_of_other_pods_are_judged_by_the_fleets_log():
    found = state(Step(1, rule("t"), 10.0, 50, read=50))
    assert found.born == own(1, 50)
    assert found.verdict(other(999, 49), TAGGED, shared=True) is DEAD
    assert found.verdict(other(0, 50), TAGGED, shared=True) == ALIVE
    assert found.verdict(other(999, 99), TAGGED, shared=False) is DEAD, "in a tier of this pod there are none"


def test_a_rule_that_is_owed_to_the_fleet_concerns_whatever_another_pod_has_written():
    found = state(Step(1, rule("t"), 10.0), Step(2, rule("u"), 10.0, 60, read=60))
    assert list(found.owed) == ["t"]
    assert found.verdict(other(0, 60), TAGGED, shared=True) is DEAD
    assert found.verdict(own(1), TAGGED, shared=True) == ALIVE
    found.apply(Step(3, None, 11.0, 70, "t", read=70))
    assert not found.owed
    assert found.verdict(other(0, 60), TAGGED, shared=True) is DEAD
    assert found.verdict(other(0, 70), TAGGED, shared=True) == ALIVE
    assert found.born == own(3, 70)


def test_an_owed_soft_rule_does_not_hide_a_hard_one():
    found = state(Step(1, rule("t"), 10.0, 50, read=50), Step(2, rule("t", soft=True, uid="s"), 10.0))
    assert found.verdict(other(0, 49), TAGGED, shared=True) is DEAD
    assert found.verdict(other(0, 50), TAGGED, shared=True) == Verdict(stale_since=10.0)


def test_rules_that_were_forgotten_leave_floors():
    found = state(number=5, floor=3, fleet=40, shared_floor=30)
    assert found.verdict(own(2), TAGGED, shared=False) is DEAD
    assert found.verdict(own(3), TAGGED, shared=False) == ALIVE
    assert found.verdict(other(9, 29), TAGGED, shared=True) is DEAD
    assert found.verdict(other(9, 30), TAGGED, shared=True) == ALIVE


def test_a_log_that_was_lost_kills_all_that_is_shared_and_nothing_else():
    lost = Rule(PurgeKind.LOST, "", False, 10.0, "lost")
    found = state(Step(1, lost, 10.0, 50, read=50))
    assert found.verdict(own(0), TAGGED, shared=False) == ALIVE
    assert found.verdict(own(0), TAGGED, shared=True) is DEAD
    assert found.verdict(own(1), TAGGED, shared=True) == ALIVE
    assert found.verdict(other(0, 49), TAGGED, shared=True) is DEAD
    assert found.verdict(other(0, 50), TAGGED, shared=True) == ALIVE
