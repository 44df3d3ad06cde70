"""Of several deciders never two decide, wherever each of them is stopped, and for however long."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from experiment_plans import HARM, HARMLESS, NOTHING, SPEC, Estimate, experiment, findings
from meshcache.experiment.findings import Findings
from meshcache.experiment.overlay import Adoption, Phase
from meshcache.experiment.plan import ABSENCE
from meshcache.experiment.state import Decided, Decision, Record
from meshcache.extproc.decider import EVERY, LEASE, SETTLING, Decider
from meshcache.policy.compiled import Experiment
from meshcache.tiers.decision_store import RETENTION, Stored, StoreError

OF = experiment(SPEC + "  onWin: promote\n")


class Gate:
    """Where a decider may be stopped."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Memory:
    """What the stores do, in the memory of this process. A decider may be stopped before and after each step of it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.records: dict[str, Record] = {}
        self.incarnation = "1"
        self.terms = 0
        self.token = ""
        self.until = 0.0
        self.accepted: list[tuple[str, Record]] = []
        self.away = False
        self.writing = ""
        """Who was the last to begin to write."""

    def as_seen_by(self, holder: str) -> Side:
        return Side(self, holder)


class Side:
    where = "memory"

    def __init__(self, memory: Memory, holder: str) -> None:
        self.memory = memory
        self.holder = holder

    async def _at(self, act: Callable[[], Any]) -> Any:
        await Gate()
        if self.memory.away:
            raise StoreError("memory: away")
        done = act()
        await Gate()
        return done

    async def lead(self, seconds: float) -> str | None:
        def act() -> str | None:
            memory, now = self.memory, self.memory.clock()
            mine = memory.token.endswith(self.holder)
            if not mine and now < memory.until:
                return None
            if not mine:
                memory.terms += 1
                memory.token = f"{memory.terms}-{self.holder}"
            memory.until = now + seconds
            return memory.token

        return await self._at(act)

    async def step_down(self) -> None:
        def act() -> None:
            if self.memory.token.endswith(self.holder):
                self.memory.until = 0.0

        await self._at(act)

    async def read(self) -> Stored:
        return await self._at(lambda: Stored(dict(self.memory.records), self.memory.incarnation))

    async def write(self, record: Record, token: str | None) -> bool:
        self.memory.writing = self.holder

        def act() -> bool:
            before = self.memory.records.get(record.name)
            if token not in (None, self.memory.token) or record.version != (before.version if before else 0) + 1:
                return False
            self.memory.records[record.name] = record
            self.memory.accepted.append((token or "", record))
            return True

        return await self._at(act)

    async def offer(self, records: Iterable[Record]) -> None:  # noqa: ARG002
        raise AssertionError("a decider offers nothing")

    async def forget(self, record: Record, token: str) -> bool:
        def act() -> bool:
            return token == self.memory.token and self.memory.records.pop(record.name, None) is not None

        return await self._at(act)

    async def wait(self, seconds: float) -> None:  # noqa: ARG002
        raise AssertionError("a decider does not wait")

    async def close(self) -> None: ...


class Seen:
    """What both find in the ledger."""

    def __init__(self) -> None:
        self.errors: Estimate = HARMLESS
        self.hits: Estimate = NOTHING
        self.requests = 0
        self.blind = False

    async def findings(self, experiment: Experiment, record: Record) -> Findings | None:  # noqa: ARG002
        await Gate()
        self.requests += 1
        return None if self.blind else findings(record, self.errors, hits=self.hits, requests=self.requests)


class Process:
    """A process with a decider, that goes on step by step."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.told: list[tuple[Record, tuple[Decision, ...]]] = []
        self.failed: list[str] = []
        self.decider = Decider(
            world.memory.as_seen_by(name),
            world.seen,
            decided=lambda record, decisions: self.told.append((record, decisions)),
            failed=lambda name, _error: self.failed.append(name),
            clock=world.clock,
            monotonic=world.clock,
        )
        self.looking: Coroutine[Any, Any, bool] | None = None
        self.next_look = 0.0

    def step(self) -> None:
        """Go on until the next place where it may be stopped."""
        if self.looking is None:
            if self.world.now < self.next_look:
                return
            self.looking = self.decider.look(self.world.snapshot)
            self.next_look = self.world.now + EVERY
        try:
            self.looking.send(None)
        except StopIteration:
            self.looking = None
        except StoreError:
            self.looking = None

    def look(self) -> None:
        self.next_look = 0.0
        self.step()
        while self.looking is not None:
            self.step()


class World:
    def __init__(self, processes: int = 2) -> None:
        self.now = 10_000.0
        self.memory = Memory(self.clock)
        self.seen = Seen()
        self.snapshot: Any = SimpleNamespace(
            experiments=(OF,), adoption=lambda experiment, arm: Adoption("r", "digest", f"{experiment}/{arm}".encode())
        )
        self.processes = [Process(self, f"p{number}") for number in range(processes)]

    def clock(self) -> float:
        return self.now

    @property
    def record(self) -> Record:
        return self.memory.records["e"]

    def go_on(self, seconds: float) -> None:
        """All processes, for so long."""
        until = self.now + seconds
        while self.now < until:
            for process in self.processes:
                process.look()
            self.now += EVERY


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 2)),
        st.tuples(st.just("step"), st.integers(0, 2)),
        st.tuples(st.just("step"), st.integers(0, 2)),
        st.tuples(st.just("time"), st.sampled_from([0.3, 1.0, LEASE, 20.0])),
        st.tuples(st.just("harm"), st.booleans()),
        st.tuples(st.just("better"), st.booleans()),
        st.tuples(st.just("blind"), st.booleans()),
        st.tuples(st.just("away"), st.booleans()),
    ),
    max_size=150,
)


@given(MOVES)
@settings(deadline=None)
def test_never_do_two_decide(moves: list[tuple[str, Any]]) -> None:
    world = World(3)
    for kind, what in moves:
        if kind == "step":
            world.processes[what].step()
        elif kind == "time":
            world.now += what
        elif kind == "harm":
            world.seen.errors = HARM if what else HARMLESS
        elif kind == "better":
            world.seen.hits = HARM if what else NOTHING
        elif kind == "blind":
            world.seen.blind = what
        else:
            world.memory.away = what
    world.memory.away = False
    # Whoever was stopped in the middle goes on where it was.
    for process in world.processes:
        while process.looking is not None:
            process.step()
    accepted = world.memory.accepted
    assert [record.version for _, record in accepted] == list(range(1, len(accepted) + 1))
    terms = [int(token.partition("-")[0]) for token, _ in accepted]
    assert terms == sorted(terms)
    # Each change was told by the one who made it, and nothing else was told.
    told = [record for process in world.processes for record, _ in process.told]
    assert sorted(record.version for record in told) == [record.version for _, record in accepted]
    ends = [record for _, record in accepted if record.phase in (Phase.ROLLED_BACK, Phase.PROMOTED)]
    assert len(ends) <= 1
    assert not any(process.failed for process in world.processes)
    # And they have not come to a halt either.
    world.seen.blind, world.seen.errors = False, HARM
    world.go_on(60.0)
    assert world.record.phase in (Phase.ROLLED_BACK, Phase.PROMOTED)


def test_one_who_was_stopped_between_looking_and_writing_writes_nothing() -> None:
    world = World()
    one, other = world.processes
    world.go_on(SETTLING + 8)
    assert world.record.phase is Phase.RUNNING
    assert one.decider.leads
    world.seen.errors = HARM
    world.go_on(OF.guardrails[0].hold - 1)
    # It finds the breach, is stopped before it can write that down, and meanwhile the breach is over.
    world.memory.writing = ""
    while not world.memory.writing:
        one.step()
        world.now += 0.05
    world.seen.errors = HARMLESS
    for _ in range(10):
        world.now += EVERY
        other.look()
    assert other.decider.leads
    versions = world.record.version
    one.look()
    assert world.record.version == versions
    assert world.record.phase is Phase.RUNNING
    one.look()
    assert not one.decider.leads


def test_nothing_is_decided_before_others_could_mend_a_store_that_has_lost_its_data() -> None:
    world = World(1)
    world.go_on(1.0)
    assert world.memory.accepted == []
    world.go_on(SETTLING + 1)
    before = world.record
    world.memory.records, world.memory.incarnation = {}, "2"
    world.go_on(1.0)
    assert world.memory.records == {}
    world.memory.records = {"e": before}
    world.go_on(SETTLING + 1)
    assert world.record.decisions[0] is before.decisions[0]


def test_an_experiment_that_cannot_be_judged_does_not_keep_the_others_from_it() -> None:
    world = World(1)
    other = experiment(SPEC.replace("90}", "80}"))
    world.snapshot.experiments = (OF, replace(other, name="f"))
    world.go_on(SETTLING + 8)
    real = world.seen.findings

    async def broken(experiment: Experiment, record: Record) -> Findings | None:
        if experiment.name == "e":
            raise ZeroDivisionError
        return await real(experiment, record)

    world.seen.findings = broken  # type: ignore[method-assign]
    world.seen.errors = HARM
    world.go_on(15.0)
    assert set(world.processes[0].failed) == {"e"}
    assert {name: record.phase for name, record in world.memory.records.items()} == {
        "e": Phase.RUNNING,
        "f": Phase.ROLLED_BACK,
    }


def test_what_is_promoted_keeps_its_entries_after_the_experiment() -> None:
    world = World(1)
    world.seen.hits = HARM
    world.go_on(SETTLING + 10)
    assert world.record.phase is Phase.PROMOTED
    assert world.record.adoption == Adoption("r", "digest", b"e/candidate")


def test_an_experiment_that_is_in_no_file_any_more_is_remembered_for_a_while() -> None:
    world = World(1)
    world.seen.errors = HARM
    world.go_on(30.0)
    assert world.record.phase is Phase.ROLLED_BACK
    there = world.snapshot.experiments
    world.snapshot.experiments = ()
    world.go_on(ABSENCE / 2)
    assert not world.record.absent
    world.go_on(ABSENCE)
    assert world.record.absent
    world.now += RETENTION / 2
    world.snapshot.experiments = there
    world.go_on(2.0)
    assert (world.record.phase, world.record.absent) == (Phase.ROLLED_BACK, 0.0)
    world.snapshot.experiments = ()
    world.go_on(ABSENCE + 5)
    world.now += RETENTION
    world.go_on(2.0)
    assert world.memory.records == {}


def test_the_whole_course_is_told_once() -> None:
    world = World()
    world.go_on(SETTLING + 8)
    world.seen.errors = HARM
    world.go_on(30.0)
    told = [decision.what for process in world.processes for _, decisions in process.told for decision in decisions]
    assert told == [Decided.STARTED, Decided.COUNTING, Decided.ROLLED_BACK]
