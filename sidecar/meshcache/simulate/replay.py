"""The replay of a trace against one policy set: each request goes the way that it goes through a worker.

`extproc.conversation` is the model: `start`, `search` and `wait` until the engine has decided, then the origin's
answer, head, body and end. What takes time there takes the time of the latency model here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from meshcache.engine.outcome import Answer, Forward, Wait
from meshcache.engine.ports import RefreshError
from meshcache.message import Peer, Request
from meshcache.simulate.loop import drive
from meshcache.simulate.origin import body_of
from meshcache.simulate.tally import CONFIRMED, Arm, Outcome, SimulationMeter, Tally, Timeline
from meshcache.simulate.world import World

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from meshcache.decisions import Decision, TierName
    from meshcache.engine.exchange import Exchange
    from meshcache.engine.ports import RefreshRequest, Renderer, TakeBody
    from meshcache.engine.storing.fill import CopyBudget
    from meshcache.message import Response
    from meshcache.policy.snapshot import Snapshot
    from meshcache.simulate.callers import Callers
    from meshcache.simulate.latency import LatencyModel
    from meshcache.simulate.loop import VirtualLoop
    from meshcache.simulate.origin import Origin
    from meshcache.simulate.trace import TraceRequest
    from meshcache.simulate.world import Sizes

_PEER = Peer("127.0.0.1")
_FINISH_SECONDS = 120.0
"""Of virtual time, for what is under way when the trace ends."""


class Replay:
    """One policy set's cache, fed with requests in order of time. Use as a context manager."""

    def __init__(
        self,
        folder: Path,
        snapshot: Snapshot,
        sizes: Sizes,
        *,
        start: float,
        origin: Origin,
        latency: LatencyModel,
        callers: Callers,
        render: Renderer,
    ) -> None:
        """`folder` is for a small file of its own; `start` is the time of the first request, in Unix seconds.

        `origin` is told of each request before this is.
        """
        self.meter = SimulationMeter()
        self._origin = origin
        self._callers = callers
        self._sample = latency.sampler()
        self._observers: list[Callable[[TraceRequest, Outcome], None]] = []
        self.world = World(
            folder,
            snapshot,
            sizes,
            start=start,
            meter=self.meter,
            refresher=self._refresher,
            render=render,
        )
        self._loop = self.world.loop
        self._open = self.world.cache.open
        self._miss, self._hit = latency.miss, latency.hit
        self.tallies: dict[Arm, Tally] = {}
        self._by_namespace: dict[bytes, Tally] = {}
        self.timeline = Timeline(start)
        self.refresh_requests = 0
        self.refresh_bytes = 0

    def observe(self, observer: Callable[[TraceRequest, Outcome], None]) -> None:
        """Tell `observer` of every request as it ends."""
        self._observers.append(observer)

    def feed(self, asked: TraceRequest) -> None:
        """One more request, no earlier than the last. Its time has come when this returns; its answer may be due."""
        with self._loop.running():
            self.take(asked)

    def take(self, asked: TraceRequest) -> None:
        """The same for who has this replay's loop running: to set it for each request takes a microsecond."""
        loop = self._loop
        loop.advance(asked.time)
        fields, tokens = self._callers.of(asked)
        request = Request(asked.method, asked.host, asked.path, fields, "http", _PEER, "", True, tokens)
        exchange = self._open(request)
        outcome = exchange.start()
        if isinstance(outcome, Answer) and (outcome.span is None or outcome.tier is None):
            self._answered(asked, exchange, outcome, loop.now)
        elif isinstance(outcome, Forward):
            loop.call_later(self._sample(self._miss), self._arrived, asked, exchange, outcome, loop.now)
        else:
            loop.create_task(self._converse(asked, exchange, outcome, loop.now))
            loop.advance(asked.time)

    def finish(self) -> None:
        """Let what is under way come to its end, and give everything back. Raises what the engine let out, if so."""
        loop = self._loop
        with loop.running():
            loop.settle(_FINISH_SECONDS)
            self.world.close()
        for failure in loop.failures:
            error = failure.get("exception")
            if isinstance(error, Exception):
                raise error

    # -- one request -------------------------------------------------------------------------------------------

    async def _converse(
        self, asked: TraceRequest, exchange: Exchange, outcome: Answer | Wait | None, began: float
    ) -> None:
        """Lead a request that has to wait, or whose body has to be read, to its answer or to the origin."""
        try:
            decided: Answer | Forward | Wait = await exchange.search() if outcome is None else outcome
            if isinstance(decided, Wait):
                decided = await exchange.wait()
            if isinstance(decided, Answer):
                if await self._readable(decided):
                    self._answered(asked, exchange, decided, began)
                    exchange.close()
                    return
                decided = exchange.without_body()
        except BaseException:
            exchange.close()
            raise
        self._loop.call_later(self._sample(self._miss), self._arrived, asked, exchange, decided, began)

    async def _readable(self, answer: Answer) -> bool:
        """Whether a body in chunks can be sent: each chunk is read, as it would be for the client."""
        span = answer.span
        if span is None or answer.tier is None:
            return True
        flights = self.world.cache.flights
        if not flights.take(answer.size):
            return False
        try:
            async for _ in self.world.stack.bodies.body(answer.stored, answer.tier).read(*span):
                pass
        finally:
            flights.landed()
        return True

    def _arrived(self, asked: TraceRequest, exchange: Exchange, forward: Forward, began: float) -> None:
        """The origin's answer is here."""
        validator = None
        for name, value in forward.set_fields:
            if name == "if-none-match":
                validator = value
        response = self._origin.answer(asked, validator, self._loop.now)
        if forward.watch:
            drive(self._loop, self._respond(asked, exchange, forward, response, began))
        else:
            self._passed(asked, exchange, forward, response, began)
            exchange.close()

    async def _respond(
        self, asked: TraceRequest, exchange: Exchange, forward: Forward, response: Response, began: float
    ) -> None:
        try:
            outcome = await exchange.on_response(response)
            if isinstance(outcome, Wait):
                outcome = await exchange.ask_anew()
            if isinstance(outcome, Answer):
                self._answered(asked, exchange, outcome, began, response)
                return
            if outcome.copy:
                for part in body_of(asked):
                    exchange.on_body(part)
                exchange.on_end()
            self._passed(asked, exchange, forward, response, began)
        finally:
            exchange.close()

    def _answered(
        self, asked: TraceRequest, exchange: Exchange, answer: Answer, began: float, response: Response | None = None
    ) -> None:
        """The client is answered from what is stored; with a `response`, after the origin was asked."""
        tier, stored, decision, age = answer.tier, answer.stored, answer.decision, answer.age
        latency = self._loop.now - began
        if tier is not None and response is None:
            latency += self._sample(self._hit[tier])
        stale_for = 0.0
        if age is not None and decision not in CONFIRMED:
            judgement = exchange.judgement
            if judgement is not None and age > judgement.lifetime:
                stale_for = age - judgement.lifetime
        self._note(
            asked,
            exchange,
            decision,
            tier,
            0 if asked.method == "HEAD" else answer.size,
            latency,
            response is not None,
            0 if response is None or response.complete else asked.size,
            stale_for,
            tier is not None and stored.length != asked.size,
            stored.status >= 500 and not answer.not_modified,
        )

    def _passed(
        self, asked: TraceRequest, exchange: Exchange, forward: Forward, response: Response, began: float
    ) -> None:
        """The client gets what the origin has sent."""
        size = 0 if response.complete else asked.size
        latency, error = self._loop.now - began, response.status >= 500
        self._note(asked, exchange, forward.decision, None, size, latency, True, size, 0.0, False, error)

    def _note(
        self,
        asked: TraceRequest,
        exchange: Exchange,
        decision: Decision,
        tier: TierName | None,
        size: int,
        latency: float,
        asked_origin: bool,
        sent: int,
        stale_for: float,
        outdated: bool,
        error: bool,
    ) -> None:
        """Count a request that has its answer."""
        selection = exchange.selection
        name = b"" if selection is None else selection.namespace
        try:
            tally = self._by_namespace[name]
        except KeyError:
            tally = self._by_namespace[name] = self.tallies.setdefault(Arm.of(selection), Tally())
        tally.add(decision, tier, size, latency, asked_origin, sent, stale_for, outdated, error)
        self.timeline.add(asked.time, tier is not None and not asked_origin)
        if self._observers:
            outcome = Outcome(decision, tier, size, latency, asked_origin, stale_for, outdated, error)
            for observer in self._observers:
                observer(asked, outcome)

    # -- background --------------------------------------------------------------------------------------------

    def _refresher(self, loop: VirtualLoop) -> _Refresher:
        return _Refresher(self, loop)

    async def _refresh(self, request: RefreshRequest, loop: VirtualLoop) -> tuple[TraceRequest, Response]:
        self.refresh_requests += 1
        await asyncio.sleep(self._sample(self._miss))
        known = self._origin.known(request.authority, request.path)
        if known is None:
            raise RefreshError("the trace does not know it")
        response = self._origin.answer(known, request.headers.get("if-none-match"), loop.now)
        if not response.complete:
            self.refresh_bytes += known.size
        return known, response


class _Refresher:
    """Implements `engine.ports.Refresher`."""

    def __init__(self, replay: Replay, loop: VirtualLoop) -> None:
        self._replay = replay
        self._loop = loop

    async def receive(self, request: RefreshRequest, take: Callable[[Response], TakeBody]) -> Response:
        known, response = await self._replay._refresh(request, self._loop)
        taking = take(response)
        if not response.complete:
            for part in body_of(known):
                if not await taking(part):
                    break
        return response

    async def fetch(
        self, request: RefreshRequest, limit: int, budget: CopyBudget, *, within: float | None = None
    ) -> tuple[Response, bytes]:
        try:
            async with asyncio.timeout(within):
                known, response = await self._replay._refresh(request, self._loop)
        except TimeoutError as error:
            raise RefreshError("too slow") from error
        if known.size > min(limit, budget.limit - budget.used):
            raise RefreshError("too large")
        return response, b"" if response.complete else b"".join(body_of(known))
