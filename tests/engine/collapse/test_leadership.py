"""Which process asks the origin: leases of the pod and of the fleet under the herds of one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import pytest

from cache_origin import Clock
from engine_doubles import CountingMeter
from lease_doubles import PodLeases, Pods
from meshcache.engine.collapse.herd import Member, State, Verdict
from meshcache.engine.collapse.leadership import LEASE_SECONDS, SHUN_SECONDS, Leadership
from meshcache.engine.ports import FleetLease
from meshcache.extproc.waits import LoopWaits

KEY = b"k"
ANSWER: Any = object()


class Process:
    """One worker's leadership; what it spawns is kept."""

    def __init__(self, pod: PodLeases, fleet: Pods | None = None) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.meter = CountingMeter()
        self.unwritten: list[Callable[[], None]] | None = None
        self.leadership = Leadership(
            leases=pod,
            fleet=fleet,
            spawn=self._spawn,
            waits=LoopWaits(),
            meter=self.meter,
            when_written=self._when_written,
            workers=2,
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.add(asyncio.get_running_loop().create_task(work))

    def _when_written(self, _: Sequence[bytes], call: Callable[[], None]) -> None:
        if self.unwritten is None:
            call()
        else:
            self.unwritten.append(call)

    async def join(self, patience: float = 5.0) -> Member:
        member = self.leadership.join(KEY, patience, lambda _: True, lambda: False)
        assert member is not None
        if not member.waits:
            await self.leadership.confirm(member)
        return member

    async def settled(self) -> None:
        async with asyncio.timeout(5):
            await asyncio.gather(*self.tasks)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pod(clock: Clock) -> PodLeases:
    return PodLeases(clock)


@pytest.fixture
def fleet(clock: Clock) -> Pods:
    return Pods(clock)


@pytest.fixture
async def workers(pod: PodLeases) -> AsyncIterator[tuple[Process, Process]]:
    """Two of one pod."""
    both = Process(pod), Process(pod)
    yield both
    for worker in both:
        await worker.settled()


@pytest.fixture
async def pods(clock: Clock, fleet: Pods) -> AsyncIterator[tuple[Process, Process]]:
    """Of two pods one worker each."""
    both = Process(PodLeases(clock), fleet), Process(PodLeases(clock), fleet)
    yield both
    for worker in both:
        await worker.settled()


@pytest.fixture(params=["workers", "pods"])
async def pair(
    request: pytest.FixtureRequest, workers: tuple[Process, Process], pods: tuple[Process, Process]
) -> tuple[Process, Process]:
    return workers if request.param == "workers" else pods


async def word(member: Member) -> Verdict:
    async with asyncio.timeout(20):
        return (await member.word()).verdict


async def test_one_leads_and_the_other_takes_over(pair: tuple[Process, Process]) -> None:
    one, two = pair
    leader = await one.join()
    waiting = [await two.join() for _ in range(3)]
    assert not leader.waits
    assert all(member.waits for member in waiting)
    await asyncio.sleep(0.2)
    assert all(member.waits for member in waiting)
    leader.leave()
    assert await word(waiting[0]) is Verdict.TAKE_OVER
    assert waiting[1].waits
    waiting[0].shared(ANSWER)
    assert await word(waiting[1]) is Verdict.ANSWERED
    assert await word(waiting[2]) is Verdict.ANSWERED


async def test_what_is_not_for_sharing_is_told_to_the_other(pair: tuple[Process, Process]) -> None:
    one, two = pair
    leader = await one.join()
    waiting = await two.join()
    one.leadership.shun(KEY, SHUN_SECONDS)
    leader.unshared()
    assert await word(waiting) is Verdict.RELEASED
    assert two.leadership.join(KEY, 1.0, lambda _: True, lambda: False) is None
    assert two.meter.collapses == {"hit-for-miss": 1}
    waiting.leave()


async def test_the_lease_is_held_until_the_answer_can_be_found(
    workers: tuple[Process, Process], pod: PodLeases
) -> None:
    one, _ = workers
    one.unwritten = []
    leader = await one.join()
    leader.shared(ANSWER, (b"storage",))
    assert pod.leased(KEY)
    (written,) = one.unwritten
    written()
    assert not pod.leased(KEY)


async def test_a_leader_that_takes_for_ever_does_not_keep_the_others_for_ever(
    workers: tuple[Process, Process], clock: Clock
) -> None:
    one, two = workers
    await one.join()
    waiting = await two.join()
    clock.pass_by(LEASE_SECONDS)
    assert await word(waiting) is Verdict.TAKE_OVER
    waiting.leave()


async def test_who_was_stopped_at_the_place_of_a_lease_is_waited_for(
    workers: tuple[Process, Process], pod: PodLeases
) -> None:
    """As the kernel does with a process on a busy machine, in the middle of anything."""
    _, two = workers
    pod.stopped = True
    waiting = await two.join()
    assert waiting.waits
    pod.stopped = False
    lease = pod.lease(KEY, LEASE_SECONDS)
    assert lease is not None
    await asyncio.sleep(0.1)
    assert waiting.waits
    pod.release(lease)
    assert await word(waiting) is Verdict.TAKE_OVER
    waiting.leave()


async def test_who_is_gone_from_there_at_the_very_next_look_is_waited_for_too(clock: Clock) -> None:
    """Tried so often in vain, the lease could be had now: nothing says that there is no room for it."""

    class Passing(PodLeases):
        tries = 0

        def lease(self, key: bytes, seconds: float) -> FleetLease | None:
            self.tries += 1
            return None if self.tries <= 5 else super().lease(key, seconds)

    pod = Passing(clock)
    worker = Process(pod)
    member = await worker.join()
    assert member.waits
    assert await word(member) is Verdict.TAKE_OVER
    assert pod.leased(KEY)
    member.leave()
    await worker.settled()


async def test_without_room_for_a_lease_nobody_waits(clock: Clock) -> None:
    class Full(PodLeases):
        def lease(self, key: bytes, seconds: float) -> FleetLease | None:  # noqa: ARG002 - the port's signature
            return None

        def has_room(self, key: bytes) -> bool:  # noqa: ARG002
            return False

    worker = Process(Full(clock))
    member = await worker.join()
    assert not member.waits
    member.leave()
    await worker.settled()


async def test_who_stays_at_the_place_of_a_lease_is_not_waited_for_long(
    workers: tuple[Process, Process], pod: PodLeases
) -> None:
    _, two = workers
    pod.stopped = True
    waiting = await two.join(patience=60.0)
    assert waiting.waits
    assert await word(waiting) is Verdict.TAKE_OVER
    waiting.leave()


async def test_those_of_another_process_leave_and_nothing_is_kept(
    pods: tuple[Process, Process], fleet: Pods, clock: Clock
) -> None:
    one, two = pods
    leader = await one.join()
    waiting = await two.join()
    waiting.leave()
    leader.leave()
    for process in pods:
        await process.settled()
    assert fleet.lease(KEY, 1.0) is not None, "nobody has it"
    clock.pass_by(1.0)
    assert not (await two.join()).waits


async def test_a_request_that_is_cancelled_while_the_fleet_is_asked(clock: Clock) -> None:
    class SlowFleet(Pods):
        async def acquire(self, key: bytes, seconds: float) -> FleetLease | None:
            await asyncio.sleep(0.1)
            return await super().acquire(key, seconds)

    process = Process(PodLeases(clock), SlowFleet(clock))
    asking = asyncio.ensure_future(process.join())
    await asyncio.sleep(0.02)
    second = process.leadership.join(KEY, 5.0, lambda _: True, lambda: False)
    assert second is not None
    assert second.waits
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    leader = next(iter(second.herd.asking))
    leader.leave()
    assert await word(second) is Verdict.TAKE_OVER
    await process.leadership.confirm(second)
    assert second.state is State.ASKING
    assert second.herd.fleet is not None
    second.leave()
    await process.settled()


async def test_a_fleet_that_has_no_time_for_a_herd_that_has_gone(clock: Clock, fleet: Pods) -> None:
    process = Process(PodLeases(clock), fleet)
    member = process.leadership.join(KEY, 5.0, lambda _: True, lambda: False)
    assert member is not None
    confirming = asyncio.ensure_future(process.leadership.confirm(member))
    await asyncio.sleep(0)
    member.leave()
    await confirming
    await process.settled()
    assert fleet.lease(KEY, 1.0) is not None, "what came too late was given back"


async def test_without_a_fleet_nobody_is_asked(workers: tuple[Process, Process]) -> None:
    assert not workers[0].leadership.asks_others
    leader = await workers[0].join()
    assert leader.herd.fleet is None
    leader.leave()
