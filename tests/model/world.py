"""The engine with all that is around it, in a time and on an event loop that a history moves.

Tiers below memory are dictionaries, so that nothing waits for a thread or a disk; the stack above them, the board, the
signed envelopes and the replies to Envoy are the real ones. A client sees what Envoy would be told to send him.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from cache_harness import HOST
from engine_doubles import CountingMeter
from meshcache.decisions import TierName
from meshcache.engine.cache import Cache
from meshcache.engine.outcome import Answer, Forward, Wait
from meshcache.engine.ports import RefreshError
from meshcache.engine.purge_state import Header, Step, generation
from meshcache.engine.purges import PurgeKind, Rule, parse_value
from meshcache.extproc import wire
from meshcache.message import Headers, Request, Response
from meshcache.tiers.board import Board
from meshcache.tiers.memory import MemoryTier
from meshcache.tiers.purge_log import LogWriter
from meshcache.tiers.purges import Purges
from meshcache.tiers.signing import Keyring
from meshcache.tiers.stack import TierStack
from model.around import AtOnce, SharedTier, Time, VirtualLoop, VirtualWaits
from model.flights import BrokenOffError, Flight, Reply, Stage, sent_by_cache
from policy_texts import SECRET

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from meshcache.engine.ports import RefreshRequest, TakeBody
    from meshcache.engine.storing.fill import CopyBudget
    from meshcache.policy.snapshot import Snapshot

INCARNATION = 7
PURGE_LOG = "purges.log"
TICK = 1 / 1024
"""Seconds between two requests: no two things happen at the same time."""
TURNS = 30
"""Turns of the loop after which everything that can go on without time or the origin has done so."""


class Worker:
    """One process's cache over the tiers that all share."""

    def __init__(self, world: World, number: int) -> None:
        self.number = number
        self.board = Board(
            world.folder / "board", slots=1 << 12, lease_buckets=16, clock=world.time.loop, wall_clock=world.time.wall
        )
        self.purges = Purges(
            self.board,
            world.folder / PURGE_LOG,
            on_silence=lambda: self.stack.memory.clear(),
            wall_clock=world.time.wall,
        )
        # Read at once, as everything here: how long a thread takes is not for the history to say.
        self.purges._threads = AtOnce()  # type: ignore[assignment]
        self.purges.load()
        self.stack = TierStack(
            MemoryTier(1 << 20),
            world.warm,
            world.cold,
            self.board,
            world.keyring,
            clock=world.time.loop,
            purges=self.purges,
        )
        self.meter = CountingMeter()
        self.tasks: set[asyncio.Task[None]] = set()
        self.cache = Cache(
            stack=self.stack,
            leases=self.board.leases,
            refresher=BackgroundOrigin(world, number),
            meter=self.meter,
            clock=world.time.wall,
            spawn=self._spawn,
            waits=VirtualWaits(world.loop),
            workers=len(world.worker_numbers),
            render=wire.render,
            copy_bytes=1 << 20,
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.add(asyncio.get_running_loop().create_task(work))


class BackgroundOrigin:
    """A `Refresher` whose requests are flights of the world, too."""

    def __init__(self, world: World, worker: int) -> None:
        self._world = world
        self._worker = worker

    async def receive(self, request: RefreshRequest, take: Callable[[Response], TakeBody]) -> Response:
        async with self._answer(request) as flight:
            reply = flight.reply
            assert reply is not None
            response = Response(reply.status, Headers(reply.fields), reply.from_origin)
            taking = take(response)
            response.complete = not reply.body
            await taking(reply.body[:1])
            await self._world.body_of(flight)
            await taking(reply.body[1:])
            return response

    async def fetch(
        self,
        request: RefreshRequest,
        limit: int,  # noqa: ARG002 - no body is so large
        budget: CopyBudget,  # noqa: ARG002 - nor do many come at once
        *,
        within: float | None = None,
    ) -> tuple[Response, bytes]:
        try:
            async with asyncio.timeout(within), self._answer(request) as flight:
                await self._world.body_of(flight)
                reply = flight.reply
                assert reply is not None
                return Response(reply.status, Headers(reply.fields), reply.from_origin, not reply.body), reply.body
        except TimeoutError:
            raise RefreshError("too slow") from None

    @asynccontextmanager
    async def _answer(self, request: RefreshRequest) -> AsyncIterator[Flight]:
        """The flight of a request whose answer's head has come."""
        world = self._world
        sent = Request("GET", request.authority, request.path, request.headers, request.scheme)
        flight = world.new_flight(sent, self._worker, background=True)
        flight.task = asyncio.current_task()
        try:
            await world.at_origin(flight, sent)
            yield flight
            flight.whole = True
        except BrokenOffError:
            raise RefreshError("not whole") from None
        finally:
            world.finished(flight)


class World:
    """Workers, tiers, time, and the flights that are under way."""

    def __init__(self, folder: Path, workers: int, origin: Callable[[Flight, Request], Reply]) -> None:
        self.folder = folder
        self.time = Time()
        self.events = 0
        self.keyring = Keyring([b"k" * 32], SECRET)
        self.origin = origin
        self.on_begin: Callable[[Flight], None] = lambda _: None
        self.on_head: Callable[[Flight], None] = lambda _: None
        self.on_finish: Callable[[Flight], None] = lambda _: None
        self.flights: list[Flight] = []
        self.board = Board(
            folder / "board", slots=1 << 12, lease_buckets=16, clock=self.time.loop, wall_clock=self.time.wall
        )
        self._purge_log = LogWriter(folder / PURGE_LOG)
        self._purge_log.replace(Header(INCARNATION), [])
        self._purged = 0
        self._publish()
        self.warm = SharedTier(TierName.WARM, self.time, self.board)
        self.cold = SharedTier(TierName.COLD, self.time, self.board)
        self._troubles: list[Exception] = []
        self.loop = VirtualLoop(self.time)
        self.worker_numbers = range(workers)
        self.workers = [Worker(self, number) for number in self.worker_numbers]

    # -- driven by the history -------------------------------------------------------------------------------------

    def install(self, snapshot: Snapshot) -> None:
        for worker in self.workers:
            worker.cache.install(snapshot)
        self.settle()

    def pass_time(self, seconds: float) -> None:
        self.time.now += seconds
        self.settle()

    def forget_memory(self, worker: int) -> None:
        self.workers[worker].stack.memory.clear()

    def purge(self, kind: PurgeKind, value: str, *, soft: bool, told: int) -> None:
        """A rule is in the pod's log, and the board says so: from here on it holds in every worker.

        The first `told` workers hear of it at once, the others when they look at the board.
        """
        self._purged += 1
        now = self.time.now
        rule = Rule(kind, parse_value(kind, value), soft, now, f"rule-{self._purged}")
        self._purge_log.append([Step(self._purged, rule, now)])
        self._publish()
        for worker in self.workers[:told]:
            self.loop.run_until_complete(worker.purges.catch_up())

    def all_know(self) -> bool:
        """Whether every worker has heard of every purge."""
        return all(worker.purges.generation == self.board.purges for worker in self.workers)

    def _publish(self) -> None:
        self.board.purges = generation(INCARNATION, self._purged)

    def begin(self, request: Request, worker: int, facts: Any) -> Flight:
        """Send a request; it goes as far as it gets without the origin."""
        self.time.now += TICK
        flight = self.new_flight(request, worker, facts=facts)
        flight.task = self.loop.create_task(self._client(flight, self.workers[worker]))
        self.settle()
        return flight

    def advance(self, flight: Flight) -> None:
        """The next part of the origin's answer comes."""
        self.time.now += TICK
        flight.go.set()
        self.settle()

    def cut(self, flight: Flight) -> None:
        """The origin's connection breaks before its body ends."""
        flight.cut = True
        self.advance(flight)

    def leave(self, flight: Flight) -> None:
        """The client goes away, and the stream with Envoy is reset."""
        assert flight.task is not None
        flight.left = True
        flight.task.cancel()
        self.settle()

    def settle(self) -> None:
        """Let everything go on that can."""
        for _ in range(2):
            self.loop.run_until_complete(self._turn())
            # Writes linger for some milliseconds of the loop's time before they are made.
            self.time.ahead += 0.05
        if self._troubles:
            raise self._troubles[0]
        for worker in self.workers:
            for task in [task for task in worker.tasks if task.done()]:
                worker.tasks.discard(task)
                task.result()

    async def _turn(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    def close(self) -> None:
        """End everything; raises what a background task raised. Nothing may be reserved for copies any more."""
        self.settle()
        assert not any(worker.tasks for worker in self.workers), "a refresh does not end"
        self.loop.run_until_complete(self._close())
        self.loop.close()
        assert [worker.cache.copies.used for worker in self.workers] == [0] * len(self.workers)

    async def _close(self) -> None:
        for worker in self.workers:
            await worker.stack.close()
            worker.board.close()
        self._purge_log.close()
        self.board.close()

    # -- what flights do ---------------------------------------------------------------------------------------------

    def event(self) -> int:
        self.events += 1
        return self.events

    def new_flight(self, request: Request, worker: int, *, background: bool = False, facts: Any = None) -> Flight:
        flight = Flight(request, self.time.now, self.event(), worker, background, facts)
        self.flights.append(flight)
        self.on_begin(flight)
        return flight

    def finished(self, flight: Flight) -> None:
        flight.finished = True
        self.flights.remove(flight)
        try:
            self.on_finish(flight)
        except Exception as error:
            self._troubles.append(error)

    async def at_origin(self, flight: Flight, sent: Request) -> Reply:
        """The head of the origin's answer, when the history lets it come."""
        flight.sent, flight.stage = sent, Stage.ASKED
        flight.asked_at, flight.asked_order = self.time.now, self.event()
        reply = flight.reply = self.origin(flight, sent)
        await flight.go.wait()
        flight.go.clear()
        flight.stage = Stage.HEAD
        flight.came, flight.came_order = self.time.now, self.event()
        self.on_head(flight)
        return reply

    async def body_of(self, flight: Flight) -> None:
        """The rest of it; raises `BrokenOffError` when it breaks off."""
        assert flight.reply is not None
        if flight.reply.body:
            await flight.go.wait()
        flight.stage = Stage.DONE
        if flight.cut:
            raise BrokenOffError

    async def _client(self, flight: Flight, worker: Worker) -> None:
        exchange = worker.cache.open(flight.request)
        try:
            outcome = exchange.start()
            if outcome is None:
                outcome = await exchange.search()
            if isinstance(outcome, Wait):
                outcome = await exchange.wait()
            if isinstance(outcome, Answer):
                flight.got = sent_by_cache(outcome, flight.request)
            else:
                await self._through_origin(flight, exchange, outcome)
            flight.whole = True
        except BrokenOffError:
            pass
        except Exception as error:
            self._troubles.append(error)
        except asyncio.CancelledError:
            if not flight.left:
                raise
        finally:
            exchange.close()
            self.finished(flight)

    async def _through_origin(self, flight: Flight, exchange: Any, forward: Forward) -> None:
        changed = {name for name, _ in forward.set_fields} | set(forward.remove_fields)
        fields = (*flight.request.headers.without(changed), *forward.set_fields)
        sent = Request(flight.request.method, HOST, flight.request.path, Headers(fields))
        reply = await self.at_origin(flight, sent)
        if not forward.watch:
            await self.body_of(flight)
            return
        head = Response(reply.status, Headers(reply.fields), reply.from_origin, complete=not reply.body)
        outcome = await exchange.on_response(head)
        if isinstance(outcome, Wait):
            outcome = await exchange.ask_anew()
        if isinstance(outcome, Answer):
            flight.got = sent_by_cache(outcome, flight.request)
            return
        if outcome.copy and len(reply.body) > 1:
            exchange.on_body(reply.body[:1])
        await self.body_of(flight)
        if outcome.copy:
            exchange.on_body(reply.body[1:])
            exchange.on_end()
