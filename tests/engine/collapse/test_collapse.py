"""The state machine of request collapsing, alone: time moves when a test says so."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from meshcache.engine.collapse.herd import Herd, Member, State, Verdict, Word
from meshcache.engine.collapse.herds import LONGEST_HOLD, SPACING, Herds

KEY = b"k"


class Handle:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class Box:
    """A signal that is looked at, not waited for."""

    def __init__(self) -> None:
        self.words: list[Word] = []

    def set(self, value: Word) -> None:
        self.words.append(value)

    async def wait(self) -> Word:
        return self.words[0]


class Time:
    """`Waits` under a test's hand."""

    def __init__(self) -> None:
        self.at = 0.0
        self.calls: list[tuple[float, int, Handle]] = []
        self.count = 0

    def now(self) -> float:
        return self.at

    def later(self, seconds: float, call: Callable[[], None]) -> Handle:
        handle = Handle(call)
        self.count += 1
        heapq.heappush(self.calls, (self.at + seconds, self.count, handle))
        return handle

    async def sleep(self, _: float) -> None:
        raise AssertionError

    def signal(self) -> Any:
        return Box()

    def pass_by(self, seconds: float) -> None:
        end = self.at + seconds
        while self.calls and self.calls[0][0] <= end:
            self.at, _, handle = heapq.heappop(self.calls)
            if handle.call is not None:
                handle.call()
        self.at = end


class Bench:
    """Herds, and what their members were told."""

    def __init__(self, slots: int = 2) -> None:
        self.time = Time()
        self.settled: list[Herd] = []
        self.herds = Herds(slots=slots, waits=self.time, settle=self.settled.append)

    def join(
        self,
        patience: float = 10.0,
        *,
        fits: bool = True,
        stands_in: bool = False,
        whole: bool = True,
        key: bytes = KEY,
    ) -> Member:
        member = self.herds.join(key, patience, lambda _: fits, lambda: stands_in, whole=whole)
        assert member is not None
        return member

    def crowd(self, number: int, patience: float = 10.0) -> tuple[Member, list[Member]]:
        return self.join(patience), [self.join(patience) for _ in range(number)]


def told(member: Member) -> Verdict | None:
    words = member.signal.words if isinstance(member.signal, Box) else []
    assert len(words) <= 1
    return words[0].verdict if words else None


def verdicts(members: list[Member]) -> list[Verdict | None]:
    return [told(member) for member in members]


@pytest.fixture
def bench() -> Bench:
    return Bench()


ANSWER: Any = object()


def test_the_first_leads_and_the_others_get_its_answer(bench: Bench) -> None:
    leader, followers = bench.crowd(50)
    assert not leader.waits
    assert all(member.waits for member in followers)
    leader.head_came()
    assert verdicts(followers) == [None] * 50
    leader.shared(ANSWER)
    assert verdicts(followers) == [Verdict.ANSWERED] * 50
    assert followers[0].signal is not None
    assert followers[0].signal.words[0].candidate is ANSWER  # type: ignore[attr-defined]
    assert len(bench.herds) == 0
    assert bench.settled[0].answered


def test_keys_do_not_wait_for_each_other(bench: Bench) -> None:
    bench.join()
    assert not bench.join(key=b"other").waits


def test_after_an_answer_the_next_request_begins_anew(bench: Bench) -> None:
    bench.join().shared(ANSWER)
    assert not bench.join().waits


def test_one_takes_over_from_a_leader_that_leaves(bench: Bench) -> None:
    leader, followers = bench.crowd(3)
    leader.leave()
    assert verdicts(followers) == [Verdict.TAKE_OVER, None, None]
    followers[0].leave()
    assert verdicts(followers) == [Verdict.TAKE_OVER, Verdict.TAKE_OVER, None]
    followers[1].shared(ANSWER)
    assert told(followers[2]) is Verdict.ANSWERED


def test_one_that_asks_for_the_whole_takes_over_from_one_that_holds_it(bench: Bench) -> None:
    leader = bench.join(whole=False)
    others = [bench.join(whole=whole) for whole in (False, True, False, True)]
    leader.held()
    assert verdicts(others) == [None, Verdict.TAKE_OVER, None, None]
    others[1].leave()
    assert verdicts(others) == [Verdict.TAKE_OVER, Verdict.TAKE_OVER, None, None]
    others[0].held()
    assert told(others[3]) is Verdict.TAKE_OVER
    others[3].shared(ANSWER)
    assert told(others[2]) is Verdict.ANSWERED
    assert len(bench.herds) == 0


def test_where_nobody_asks_for_the_whole_all_are_released(bench: Bench) -> None:
    leader = bench.join(whole=False)
    others = [bench.join(whole=False) for _ in range(3)]
    leader.held()
    assert verdicts(others) == [Verdict.RELEASED, Verdict.RELEASED, None]
    others[0].held()
    assert told(others[2]) is Verdict.RELEASED
    for one in others:
        one.held()
    assert len(bench.herds) == 0


def test_a_follower_that_leaves_is_not_chosen(bench: Bench) -> None:
    leader, followers = bench.crowd(3)
    followers[0].leave()
    leader.leave()
    assert verdicts(followers) == [None, Verdict.TAKE_OVER, None]


def test_after_two_failures_each_finds_out_by_itself(bench: Bench) -> None:
    leader, followers = bench.crowd(5)
    leader.failed()
    assert verdicts(followers) == [Verdict.TAKE_OVER, *[None] * 4]
    followers[0].failed()
    assert verdicts(followers[1:]) == [Verdict.RELEASED, Verdict.RELEASED, None, None]


def test_what_is_stale_stands_in_when_the_leader_fails(bench: Bench) -> None:
    leader, stale, other = bench.join(), bench.join(stands_in=True), bench.join()
    leader.failed()
    assert verdicts([stale, other]) == [Verdict.FAILED, Verdict.TAKE_OVER]


def test_an_answer_that_is_not_for_sharing_releases_a_few_at_a_time(bench: Bench) -> None:
    leader, followers = bench.crowd(5)
    leader.unshared()
    assert verdicts(followers) == [Verdict.RELEASED, Verdict.RELEASED, None, None, None]
    followers[1].unshared()
    assert verdicts(followers[2:]) == [Verdict.RELEASED, None, None]
    followers[0].failed()
    assert verdicts(followers[3:]) == [Verdict.RELEASED, None]
    followers[2].leave()
    assert told(followers[4]) is Verdict.RELEASED


def test_of_those_released_the_next_goes_at_the_head_of_an_answer(bench: Bench) -> None:
    leader, followers = bench.crowd(4)
    leader.unshared()
    followers[0].head_came()
    assert verdicts(followers) == [Verdict.RELEASED] * 3 + [None]
    followers[0].head_came()
    assert told(followers[3]) is None
    followers[0].shared(ANSWER)
    assert told(followers[3]) is Verdict.ANSWERED


def test_a_released_one_that_does_not_get_on_gives_its_place_to_the_next(bench: Bench) -> None:
    leader, followers = bench.crowd(4)
    leader.unshared()
    bench.time.pass_by(LONGEST_HOLD + 0.01)
    assert verdicts(followers) == [Verdict.RELEASED] * 4


@pytest.mark.parametrize("number", [100, 500, 3000])
def test_all_have_gone_when_the_first_one_has_waited_enough_and_never_as_a_herd(number: int) -> None:
    bench = Bench(slots=8)
    leader, followers = bench.crowd(number)
    bench.time.pass_by(1.0)
    leader.unshared()
    gone = []
    for _ in range(90):
        bench.time.pass_by(0.1)
        gone.append(sum(verdict is not None for verdict in verdicts(followers)))
    assert gone[-1] == number
    steps = [after - before for before, after in zip([0, *gone], gone, strict=False)]
    assert max(steps) <= max(2 * number / 90 + 16, 30)


@pytest.mark.parametrize("number", [1, 3, 100, 500])
def test_when_the_leader_is_slow_they_go_one_after_the_other(number: int) -> None:
    bench = Bench(slots=8)
    leader, followers = bench.crowd(number)
    bench.time.pass_by(10.0 - number * SPACING - 0.01)
    assert verdicts(followers) == [None] * number
    most = before = 0
    while None in verdicts(followers):
        bench.time.pass_by(0.01)
        gone = sum(verdict is Verdict.RELEASED for verdict in verdicts(followers))
        most, before = max(most, gone - before), gone
    assert bench.time.now() <= 10.01
    assert most <= 3
    assert not leader.waits
    assert leader.state is State.ASKING


def test_the_answer_of_a_slow_leader_reaches_those_that_still_wait(bench: Bench) -> None:
    leader, followers = bench.crowd(2, patience=1.0)
    bench.time.pass_by(0.9925)
    assert verdicts(followers) == [None, Verdict.RELEASED]
    leader.shared(ANSWER)
    assert told(followers[0]) is Verdict.ANSWERED


def test_the_answer_of_one_whose_time_was_up_is_as_good_as_the_leaders(bench: Bench) -> None:
    leader, followers = bench.crowd(2, patience=1.0)
    bench.time.pass_by(0.9925)
    followers[1].shared(ANSWER)
    assert told(followers[0]) is Verdict.ANSWERED
    leader.shared(ANSWER)
    leader.leave()
    assert len(bench.herds) == 0


def test_those_for_whom_the_answer_is_not_are_released(bench: Bench) -> None:
    leader = bench.join()
    followers = [bench.join(fits=number == 0) for number in range(5)]
    leader.shared(ANSWER)
    assert verdicts(followers) == [Verdict.ANSWERED, Verdict.RELEASED, Verdict.RELEASED, None, None]


def test_who_would_lead_waits_first_in_the_queue_for_another_process(bench: Bench) -> None:
    leader, followers = bench.crowd(2)
    herd = leader.herd
    bench.herds.follow(herd)
    assert leader.waits
    followers.append(bench.join())
    assert verdicts([leader, *followers]) == [None] * 4
    bench.herds.lead(herd)
    assert verdicts([leader, *followers]) == [Verdict.TAKE_OVER, None, None, None]
    leader.shared(ANSWER)
    assert verdicts(followers) == [Verdict.ANSWERED] * 3


def test_another_process_that_never_gets_on_is_not_waited_for_too_long(bench: Bench) -> None:
    leader, followers = bench.crowd(2)
    bench.herds.follow(leader.herd)
    bench.time.pass_by(10.0)
    assert verdicts([leader, *followers]) == [Verdict.RELEASED] * 3
    assert leader.herd.closed


def test_another_process_tells_that_there_is_nothing_to_share(bench: Bench) -> None:
    leader, followers = bench.crowd(2)
    bench.herds.follow(leader.herd)
    bench.herds.open(leader.herd)
    assert verdicts([leader, *followers]) == [Verdict.RELEASED, Verdict.RELEASED, None]


def test_a_herd_from_which_all_have_gone_has_ended(bench: Bench) -> None:
    leader, followers = bench.crowd(2)
    bench.herds.follow(leader.herd)
    for member in (*followers, leader):
        member.leave()
    assert leader.herd.closed
    assert bench.settled == [leader.herd]
    bench.herds.lead(leader.herd)
    bench.herds.follow(leader.herd)
    bench.herds.open(leader.herd)
    assert not bench.join().waits


def test_more_than_may_wait_go_by_themselves(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshcache.engine.collapse.herds.MOST_WAITING", 2)
    bench.crowd(2)
    assert bench.herds.join(KEY, 1.0, lambda _: True, lambda: False) is None


class Histories(RuleBasedStateMachine):
    """Any interleaving of what can happen: nobody is stranded, told twice, or sent as one of a herd."""

    SLOTS = 3

    @initialize()
    def begin(self) -> None:
        self.bench = Bench(slots=self.SLOTS)
        self.members: list[Member] = []
        self.left: set[Member] = set()

    @rule(
        patience=st.sampled_from([0.5, 2.0, 10.0]),
        fits=st.booleans(),
        stands_in=st.booleans(),
        whole=st.booleans(),
        key=st.sampled_from([b"a", b"b"]),
        number=st.integers(1, 5),
    )
    def join(self, patience: float, fits: bool, stands_in: bool, whole: bool, key: bytes, number: int) -> None:
        for _ in range(number):
            self.members.append(self.bench.join(patience, fits=fits, stands_in=stands_in, whole=whole, key=key))

    @rule(data=st.data(), what=st.sampled_from(["head_came", "shared", "unshared", "held", "failed", "leave"]))
    def report(self, data: st.DataObject, what: str) -> None:
        asking = [member for member in self.members if not member.waits or what == "leave"]
        if asking:
            member = data.draw(st.sampled_from(asking))
            if member.waits:
                self.left.add(member)
            getattr(member, what)(*([ANSWER] if what == "shared" else []))

    @rule(data=st.data(), what=st.sampled_from(["follow", "lead", "open"]))
    def another_process(self, data: st.DataObject, what: str) -> None:
        if self.members:
            member = data.draw(st.sampled_from(self.members))
            getattr(self.bench.herds, what)(member.herd)

    @rule(seconds=st.sampled_from([0.001, 0.01, 0.3, 1.0, 5.0]))
    def wait(self, seconds: float) -> None:
        self.bench.time.pass_by(seconds)

    @invariant()
    def nobody_is_stranded(self) -> None:
        now = self.bench.time.now()
        for member in self.members:
            if member.waits:
                assert now < member.deadline or member.herd.timer_at <= now, "told in time"
                assert told(member) is None
                assert member in member.herd.waiting
                assert not member.herd.closed
                assert member.herd.timer is not None
                assert member.herd.timer_at <= min(one.due for one in member.herd.waiting)
            elif isinstance(member.signal, Box) and member not in self.left:
                assert told(member) is not None, "whoever does not wait has been told"
        for herd in self.bench.herds._herds.values():
            assert herd.waiting or herd.asking
            if herd.waiting and not herd.remote:
                assert herd.asking, "someone asks while others wait"
            assert len(herd.asking) <= (self.SLOTS if herd.open else 1)
            if herd.open and herd.waiting:
                assert len(herd.asking) == self.SLOTS

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.time.pass_by(11.0)
            assert not any(member.waits for member in self.members)
            for member in self.members:
                member.leave()
            assert len(self.bench.herds) == 0
            assert all(herd.closed for herd in {member.herd for member in self.members})


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
