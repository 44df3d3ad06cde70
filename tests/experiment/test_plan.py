"""The course of an experiment: warm-up, stages, guardrails, verdicts, and what outlives what."""

from __future__ import annotations

from math import inf, nan

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiment_plans import HARM, HARMLESS, NOTHING, RAMP, SPEC, Estimate, estimate, experiment, findings
from meshcache.experiment.findings import Findings, alpha, mismatch_alpha
from meshcache.experiment.orders import Order, carry_out
from meshcache.experiment.overlay import Phase
from meshcache.experiment.plan import LONGEST_GAP, begin, leave, step
from meshcache.experiment.state import TERMINAL, Actor, Decided, Decision, Reason, Record, overlay_of
from meshcache.policy.compiled import Experiment

BASIC = experiment()
RAMPED = experiment(RAMP)
PROMOTING = experiment(SPEC + "  onWin: promote\n")
PAUSING = experiment(SPEC + "  onBreach: pause\n")
CHANGED = experiment(SPEC, "3m")


class Course:
    """An experiment that is looked at again and again."""

    def __init__(self, of: Experiment) -> None:
        self.of = of
        self.now = 1000.0
        self.record, self.decisions = begin(of, None, self.now)

    def look(self, after: float = 1.0, **found: object) -> tuple[Decision, ...]:
        self.now += after
        self.record, decisions = step(self.of, self.record, findings(self.record, **found), self.now)  # type: ignore[arg-type]
        self.decisions += decisions
        return decisions

    def warm(self) -> Course:
        self.look(self.of.warmup)
        assert self.record.phase is Phase.RUNNING
        return self


def test_the_warm_up_is_not_counted_and_its_counts_are_apart() -> None:
    course = Course(BASIC)
    first = course.record
    assert (first.phase, first.counting, first.weights) == (Phase.WARMING, False, (80, 10, 10))
    assert course.look(4.0, errors=HARM, latency=HARM) == ()
    assert course.record is first
    (decision,) = course.look(1.0, errors=HARM)
    assert (decision.what, decision.reason, decision.by) == (Decided.COUNTING, Reason.WARMED_UP, Actor.DECIDER)
    assert course.record.counting
    assert course.record.epoch > first.epoch


def test_a_breach_has_to_last_without_a_break() -> None:
    course = Course(BASIC).warm()
    requests = 100
    for _ in range(9):
        requests += 1
        assert course.look(errors=HARM, requests=requests) == ()
    assert course.look(errors=NOTHING, requests=requests) == ()
    assert not course.record.clocks
    for _ in range(10):
        requests += 1
        assert course.look(errors=HARM, requests=requests) == ()
    (decision,) = course.look(errors=HARM, requests=requests + 1)
    assert (decision.what, decision.reason) == (Decided.ROLLED_BACK, Reason.BREACHED)
    (evidence,) = decision.evidence
    assert (evidence.metric, evidence.low, evidence.allowed, evidence.seconds) == ("errorRate", 0.5, 0.01, 10.0)
    assert course.record.phase is Phase.ROLLED_BACK
    assert course.record.weights == (1, 0, 0)
    assert not course.record.counting


def test_a_breach_without_a_duration_is_acted_on_at_once() -> None:
    assert Course(BASIC).warm().look(latency=HARM)[0].what is Decided.ROLLED_BACK
    assert Course(PAUSING).warm().look(latency=HARM)[0].what is Decided.PAUSED


def test_a_breach_that_nothing_new_confirms_is_none() -> None:
    course = Course(BASIC).warm()
    for _ in range(60):
        assert course.look(errors=HARM, requests=77) == ()


def test_a_breach_that_nobody_looked_at_for_a_while_begins_anew() -> None:
    course = Course(BASIC).warm()
    course.look(errors=HARM, requests=1)
    assert course.look(LONGEST_GAP + 1, errors=HARM, requests=2) == ()
    assert course.look(9.0, errors=HARM, requests=3) == ()
    assert course.look(1.0, errors=HARM, requests=4)[0].what is Decided.ROLLED_BACK


def test_a_clock_that_was_set_back_delays_nothing_for_long() -> None:
    course = Course(BASIC)
    course.look(-3600.0)
    assert course.record.phase is Phase.WARMING
    course.warm()
    course.look(errors=HARM, requests=1)
    course.look(-3600.0, errors=HARM, requests=2)
    for requests in range(3, 13):
        assert course.record.phase is Phase.RUNNING
        course.look(errors=HARM, requests=requests)
    assert course.look(1.0, errors=HARM, requests=13)[0].what is Decided.ROLLED_BACK
    course = Course(RAMPED).warm()
    course.look(-3600.0)
    course.look(60.0)
    assert course.record.stage == 1


def test_the_clocks_of_two_machines_may_differ_a_little() -> None:
    course = Course(BASIC).warm()
    for requests in range(1, 11):
        course.look(errors=HARM, requests=requests)
    course.look(-2.0, errors=HARM, requests=11)
    assert course.look(3.0, errors=HARM, requests=12)[0].what is Decided.ROLLED_BACK


def test_the_clock_outlives_the_decider() -> None:
    course = Course(BASIC).warm()
    for requests in range(8):
        course.look(errors=HARM, requests=requests)
        # What another process reads is what was written, and that is not every look.
        course.record = msgspec.json.decode(msgspec.json.encode(course.record), type=Record)
    assert course.look(3.0, errors=HARM, requests=9)[0].what is Decided.ROLLED_BACK
    assert course.record.version < 8


@pytest.mark.parametrize("bad", [NOTHING, estimate(nan, 1.0), estimate(0.5, nan), estimate(-inf, inf), HARMLESS])
def test_what_the_data_do_not_tell_decides_nothing(bad: Estimate) -> None:
    course = Course(PROMOTING).warm()
    for _ in range(50):
        assert course.look(60.0, errors=bad, latency=bad, hits=NOTHING) == ()


def test_without_enough_units_nothing_is_decided() -> None:
    course = Course(PROMOTING).warm()
    assert course.look(errors=HARM, latency=HARM, hits=HARM, units=49) == ()
    assert course.look(latency=HARM, units=50)[0].what is Decided.ROLLED_BACK


def test_without_data_nothing_ever_happens() -> None:
    course = Course(RAMPED).warm()
    before = course.record
    for _ in range(100):
        course.now += 3600
        course.record, decisions = step(RAMPED, course.record, None, course.now)
        assert decisions == ()
        assert course.look(errors=NOTHING, latency=NOTHING, units=0, requests=0) == ()
    assert course.record is before


def test_counts_of_another_epoch_tell_nothing() -> None:
    course = Course(BASIC).warm()
    stale = findings(msgspec.structs.replace(course.record, epoch=course.record.epoch - 1), latency=HARM)
    assert step(BASIC, course.record, stale, course.now + 1) == (course.record, ())


def test_stages_follow_each_other_and_candidate_and_baseline_grow_together() -> None:
    course = Course(RAMPED)
    assert course.record.weights == (980_000, 10_000, 10_000)
    epochs = [course.record.epoch]
    course.warm()
    epochs.append(course.record.epoch)
    assert course.look(50.0) == ()
    assert course.look(10.0)[0].what is Decided.ADVANCED
    assert (course.record.stage, course.record.weights) == (1, (900_000, 50_000, 50_000))
    epochs.append(course.record.epoch)
    course.warm()
    assert course.look(120.0)[0].what is Decided.ADVANCED
    epochs.append(course.record.epoch)
    assert course.record.weights == (500_000, 250_000, 250_000)
    assert epochs == sorted(set(epochs))
    course.warm()
    assert course.look(10_000.0) == ()


def test_a_stage_goes_on_while_data_are_few_or_a_guardrail_is_in_breach() -> None:
    course = Course(RAMPED).warm()
    assert course.look(100.0, units=49) == ()
    assert course.look(errors=HARM, requests=1) == ()
    assert course.record.stage == 0
    assert course.look(errors=HARMLESS)[0].what is Decided.ADVANCED


def test_the_primary_metric_is_judged_in_the_last_stage_only() -> None:
    course = Course(RAMPED).warm()
    assert course.look(hits=HARM) == ()
    course.look(100.0)
    course.warm().look(200.0)
    course.warm()
    (won,) = course.look(hits=HARM)
    assert (won.what, won.reason) == (Decided.WON, Reason.BETTER)
    assert course.record.phase is Phase.RUNNING
    assert course.look(hits=HARM) == ()
    assert course.look(hits=estimate(-0.2, -0.1))[0].what is Decided.LOST


def test_a_better_candidate_is_promoted_when_that_is_wanted_and_the_last_stage_is_over() -> None:
    course = Course(PROMOTING).warm()
    assert course.look(hits=HARM)[0].what is Decided.PROMOTED
    assert (course.record.winner, course.record.weights) == ("candidate", (0, 1, 0))
    ramped = Course(experiment(SPEC + "  onWin: promote\n  ramp: [{weight: 5, for: 60s}]\n")).warm()
    assert ramped.look(hits=HARM)[0].what is Decided.WON
    assert ramped.look(60.0, hits=HARM)[0].what is Decided.PROMOTED


def test_a_mismatch_of_the_sample_ratio_pauses_and_voids_every_verdict() -> None:
    course = Course(PROMOTING).warm()
    (decision,) = course.look(mismatch=True, hits=HARM, latency=HARM)
    assert (decision.what, decision.reason) == (Decided.PAUSED, Reason.MISMATCH)
    weights = course.record.weights
    assert course.look(60.0, hits=HARM, latency=HARM) == ()
    assert course.record.weights == weights


def test_the_smallest_p_value_of_an_epoch_is_kept_in_the_record() -> None:
    course = Course(RAMPED).warm()
    version = course.record.version
    course.look(p_value=0.5)
    assert course.record.version == version
    course.look(p_value=0.05)
    assert (course.record.smallest_p, course.record.version) == (0.05, version + 1)
    course.look(p_value=0.01)
    assert course.record.smallest_p == 0.05
    course.look(60.0)
    assert (course.record.stage, course.record.smallest_p) == (1, 1.0)
    course.warm().look(mismatch=True, p_value=0.0001)
    assert (course.record.phase, course.record.smallest_p) == (Phase.PAUSED, 0.0001)


def test_the_confidence_is_divided() -> None:
    assert alpha(BASIC) == pytest.approx(0.05 / 3)
    assert alpha(RAMPED) == pytest.approx(0.05 / (2 * 3 + 1))
    assert mismatch_alpha(RAMPED) == pytest.approx(0.01 / 3)


def rolled_back() -> Course:
    course = Course(BASIC).warm()
    course.look(latency=HARM)
    assert course.record.phase is Phase.ROLLED_BACK
    return course


def test_applying_the_same_files_again_undoes_nothing() -> None:
    course = rolled_back()
    assert begin(experiment(), course.record, course.now + 1) == (course.record, ())


def test_another_text_is_another_experiment_and_the_same_text_gets_its_verdict_back() -> None:
    course = rolled_back()
    epoch = course.record.epoch
    record, (decision,) = begin(CHANGED, course.record, 2000.0)
    assert (record.phase, decision.what, decision.reason) == (Phase.WARMING, Decided.STARTED, Reason.CHANGED)
    assert record.epoch > epoch
    assert record.version == course.record.version + 1
    # A pod that has not the new files yet does not undo the rollback either.
    behind = overlay_of(BASIC, record)
    assert behind is not None
    assert (behind.phase, behind.weights, behind.counting) == (Phase.ROLLED_BACK, (1, 0, 0), False)
    again, (decision,) = begin(BASIC, record, 3000.0)
    assert (again.phase, decision.what, decision.reason) == (Phase.ROLLED_BACK, Decided.RESTORED, Reason.SAME_SPEC)
    assert again.version == record.version + 1


def test_an_object_that_was_made_anew_is_another_experiment() -> None:
    course = rolled_back()
    other = msgspec.structs.replace(course.record, uid="another")
    assert begin(BASIC, other, 2000.0)[0].phase is Phase.WARMING


def test_who_comes_back_soon_has_not_been_away() -> None:
    course = rolled_back()
    gone = leave(course.record, 2000.0)
    assert leave(gone, 2001.0) is gone
    back, decisions = begin(BASIC, gone, 90_000.0)
    assert (back.phase, back.absent, decisions) == (Phase.ROLLED_BACK, 0.0, ())

    running = Course(BASIC).warm().record
    soon, decisions = begin(BASIC, leave(running, 2000.0), 2030.0)
    assert (soon.phase, decisions) == (Phase.RUNNING, ())
    late, (decision,) = begin(BASIC, leave(running, 2000.0), 9000.0)
    assert (late.phase, decision.reason) == (Phase.WARMING, Reason.CAME_BACK)


def test_a_person_may_decide_otherwise() -> None:
    course = rolled_back()
    with pytest.raises(ValueError, match="e is RolledBack already"):
        carry_out(BASIC, course.record, Order.ROLLBACK, 2000.0, who="sam")
    record, (decision,) = carry_out(BASIC, course.record, Order.RESUME, 2000.0, who="sam", text="fixed the origin")
    assert (record.phase, record.stage) == (Phase.WARMING, 0)
    assert (decision.by, decision.who, decision.text) == (Actor.PERSON, "sam", "fixed the origin")
    with pytest.raises(ValueError, match="e is Warming already"):
        carry_out(BASIC, record, Order.RESUME, 2001.0, who="sam")
    promoted, _ = carry_out(BASIC, record, Order.PROMOTE, 2001.0, who="sam")
    assert (promoted.phase, promoted.winner, promoted.weights) == (Phase.PROMOTED, "candidate", (0, 1, 0))
    stopped, _ = carry_out(BASIC, promoted, Order.STOP, 2002.0, who="sam")
    assert (stopped.phase, stopped.winner, stopped.weights) == (Phase.STOPPED, "", (1, 0, 0))


def test_who_resumes_a_pause_goes_on_in_its_stage() -> None:
    course = Course(RAMPED).warm()
    course.look(100.0)
    course.warm().look(mismatch=True)
    record, _ = carry_out(RAMPED, course.record, Order.RESUME, course.now + 1, who="sam")
    assert (record.phase, record.stage, record.weights) == (Phase.WARMING, 1, course.record.weights)
    assert record.epoch > course.record.epoch


def test_whom_to_promote_is_clear_or_has_to_be_said() -> None:
    spec = SPEC[: SPEC.index("  primary")].replace(
        "weight: 10}]", "weight: 5}, {name: c, policyRef: {name: new}, weight: 5}]"
    )
    three = experiment(spec)
    record, _ = begin(three, None, 1.0)
    with pytest.raises(ValueError, match="name the arm to promote, one of control, candidate, c"):
        carry_out(three, record, Order.PROMOTE, 2.0, who="sam")
    with pytest.raises(ValueError, match="e has no arm d"):
        carry_out(three, record, Order.PROMOTE, 2.0, who="sam", arm="d")
    assert carry_out(three, record, Order.PROMOTE, 2.0, who="sam", arm="c")[0].winner == "c"


EXPERIMENTS = (BASIC, RAMPED, PROMOTING, PAUSING, CHANGED)
ESTIMATES = st.sampled_from([NOTHING, HARMLESS, HARM, estimate(-0.6, -0.5), estimate(-inf, inf), estimate(0.5, inf)])
LOOKS = st.tuples(
    st.just("look"),
    st.builds(
        lambda errors, latency, hits, units, requests, mismatch: {
            "errors": errors,
            "latency": latency,
            "hits": hits,
            "units": units,
            "requests": requests,
            "mismatch": mismatch,
        },
        ESTIMATES,
        ESTIMATES,
        ESTIMATES,
        st.sampled_from([0, 49, 50, 1000]),
        st.integers(0, 1000),
        st.sampled_from([False, False, False, True]),
    ),
)
EVENTS = st.one_of(
    LOOKS,
    LOOKS,
    LOOKS,
    st.tuples(st.just("blind"), st.none()),
    st.tuples(st.just("order"), st.sampled_from(list(Order))),
    st.tuples(st.just("files"), st.sampled_from(EXPERIMENTS)),
    st.tuples(st.just("away"), st.none()),
)


@given(
    first=st.sampled_from(EXPERIMENTS),
    events=st.lists(st.tuples(st.sampled_from([0.0, 0.5, 5.0, 70.0, 400.0, -3.0]), EVENTS), max_size=60),
)
@settings(deadline=None)
def test_laws_whatever_happens(first: Experiment, events: list[tuple[float, tuple[str, object]]]) -> None:
    now, of = 1000.0, first
    record, _ = begin(of, None, now)
    for after, (kind, what) in events:
        now += after
        before, was = record, of
        decisions: tuple[Decision, ...] = ()
        if kind == "look":
            record, decisions = step(of, record, findings(record, **what), now)  # type: ignore[arg-type]
        elif kind == "blind":
            record, decisions = step(of, record, None, now)
        elif kind == "files":
            of = what  # type: ignore[assignment]
            record, decisions = begin(of, record, now)
        elif kind == "away":
            record = leave(record, now)
        else:
            try:
                record, decisions = carry_out(of, record, what, now, who="sam")  # type: ignore[arg-type]
            except ValueError:
                assert record is before
        # A record that changes gets the next version, and one that does not is the same.
        assert record is before or record.version == before.version + 1
        assert record is not before or not decisions
        assert record.decisions[len(record.decisions) - len(decisions) :] == decisions
        # A verdict is final until a person or another text says otherwise.
        if before.phase in TERMINAL and kind in ("look", "blind", "away"):
            assert (record.phase, record.winner, record.weights) == (before.phase, before.winner, before.weights)
        if before.phase is not record.phase and kind in ("look", "blind"):
            assert before.phase in (Phase.WARMING, Phase.RUNNING)
        if kind == "files" and was is of and before.phase in TERMINAL:
            assert record.phase is before.phase
        # Counts are never mixed: other shares or another beginning of counting have another epoch.
        assert record.epoch >= before.epoch
        if record.counting and not (before.counting and before.weights == record.weights):
            assert record.epoch > before.epoch
        # Nothing is counted where nothing is compared.
        assert not record.counting or record.phase in (Phase.RUNNING, Phase.PAUSED)
        assert sum(record.weights) > 0
        if record.phase in TERMINAL:
            winner = record.winner if record.phase is Phase.PROMOTED else "control"
            assert [name for name, weight in zip(record.arms, record.weights, strict=True) if weight] == [winner]
        if record.phase is Phase.ROLLED_BACK and kind == "look":
            assert before.phase is Phase.ROLLED_BACK or of.on_breach == "rollback"
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=Record) == record
        assert msgspec.json.decode(msgspec.json.encode(record), type=Record) == record


@given(st.lists(LOOKS, max_size=30))
@settings(deadline=None)
def test_two_who_look_at_the_same_decide_the_same(looks: list[tuple[str, dict[str, object]]]) -> None:
    record, _ = begin(PROMOTING, None, 1000.0)
    now = 1000.0
    for _, look in looks:
        now += 5.0
        found: Findings = findings(record, **look)  # type: ignore[arg-type]
        one, other = step(PROMOTING, record, found, now), step(PROMOTING, record, found, now)
        assert one == other
        record = one[0]
