"""A cache on real tiers with an origin that does what a test says: what a client gets, without Envoy.

    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s}")) as rig:
        rig.origin.says("/a", body=b"one", cache_control="max-age=10")
        first = await rig.get("/a")
        rig.clock.pass_by(5)
        assert (await rig.get("/a")).decision == "hit"

`Rig.send` stops when the origin has been asked, so that a test can do something before the answer arrives.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from cache_origin import Clock, Origin, OriginRefresher, Reply
from engine_doubles import CountingMeter, SlowTier
from lease_doubles import PodLeases, Pods
from meshcache.engine.cache import Cache
from meshcache.engine.outcome import Answer, Forward, Wait
from meshcache.extproc import wire
from meshcache.extproc.waits import LoopWaits
from meshcache.message import Headers, Peer, Request, Response
from meshcache.tiers.board import Board
from meshcache.tiers.hooks import NoHooks
from meshcache.tiers.lmdb import LmdbTier
from meshcache.tiers.memory import MemoryTier
from meshcache.tiers.objects import ObjectTier
from meshcache.tiers.presence import Presence
from meshcache.tiers.signing import Keyring
from meshcache.tiers.stack import TierStack
from policy_texts import SECRET, compiled

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping
    from pathlib import Path

    from meshcache.engine.exchange import Exchange
    from meshcache.engine.outcome import Pass
    from meshcache.message import Token

HOST = "example.com"


@dataclass
class Got:
    """What the client gets, and how it came about."""

    status: int
    headers: Headers
    body: bytes
    decision: str
    reason: str = ""
    tier: str = ""
    complete: bool = True
    stored: bool = False
    """Whether the cache said that it is storing this."""

    @property
    def age(self) -> int:
        return int(self.headers.get("age") or 0)


@dataclass
class Sent:
    """A request at the origin, whose answer has not come back yet."""

    worker: Worker
    exchange: Exchange
    request: Request
    forward: Forward
    reply: Reply
    chunk: int = 1 << 16
    origin_request: Request = field(init=False)

    async def finish(self) -> Got:
        """Let the origin's answer come in."""
        try:
            return await self._finish()
        finally:
            self.exchange.close()

    async def _finish(self) -> Got:
        reply, forward = self.reply, self.forward
        body = b"" if self.request.method == "HEAD" or reply.status in (204, 304) else reply.body
        if not forward.watch:
            return Got(reply.status, Headers(reply.headers), body, str(forward.decision), str(forward.reason))
        head = Response(reply.status, Headers(reply.headers), reply.from_origin, complete=not body)
        outcome = await self.exchange.on_response(head)
        if isinstance(outcome, Wait):
            outcome = await self.exchange.ask_anew()
        if isinstance(outcome, Answer):
            return await _answered(self.worker, outcome, self.request)
        if outcome.copy:
            assert body, "a response without a body is not to be copied"
            for at in range(0, len(body), self.chunk):
                if reply.cut_off and at + self.chunk >= len(body):
                    break
                self.exchange.on_body(body[at : at + self.chunk])
                await self._at_leisure()
            if not reply.cut_off:
                self.exchange.on_end()
        return self._passed(outcome, body)

    async def _at_leisure(self) -> None:
        """An origin that is no faster than the stores."""
        behind = self.exchange.behind
        if behind is not None:
            await behind.has_room()

    def _passed(self, outcome: Pass, body: bytes) -> Got:
        headers = Headers(self.reply.headers).without({"cache-status"})
        return Got(
            status=self.reply.status,
            headers=Headers((*headers, ("cache-status", outcome.cache_status))),
            body=body,
            decision=str(self.forward.decision),
            reason=str(self.forward.reason),
            complete=not self.reply.cut_off,
            stored="; stored" in outcome.cache_status,
        )


async def _answered(worker: Worker, answer: Answer, request: Request) -> Got:
    span = answer.span
    if span is not None and request.method != "HEAD":
        assert answer.tier is not None
        pieces = worker.stack.bodies.body(answer.stored, answer.tier).read(*span)
        answer = answer.with_body(b"".join([piece async for piece in pieces]))
    stored = answer.stored
    if answer.rendered is not None:
        assert answer.rendered == wire.render(stored)
    empty = answer.not_modified or request.method == "HEAD"
    cookies = (("set-cookie", cookie) for cookie in answer.cookies)
    status, fields, body = (304 if answer.not_modified else stored.status), stored.fields, stored.body
    if answer.excerpt is not None:
        assert not empty
        status, fields, body = answer.excerpt.status, answer.excerpt.fields, answer.excerpt.body
    age = () if answer.age is None else (("age", str(answer.age)),)
    return Got(
        status=status,
        headers=Headers((*fields, *age, ("cache-status", answer.cache_status), *cookies)),
        body=b"" if empty else body,
        decision=str(answer.decision),
        tier=str(answer.tier),
    )


class Worker:
    """One process's cache: memory of its own over the tiers that all share."""

    def __init__(self, rig: Rig, *, hot_bytes: int, copy_bytes: int) -> None:
        self._rig = rig
        self.board = Board(rig.path / "board", slots=1 << 16, lease_buckets=16, clock=rig.clock, wall_clock=rig.clock)
        self.memory = MemoryTier(hot_bytes)
        self.stack = TierStack(self.memory, rig.warm, rig.cold, self.board, rig.keyring, NoHooks())
        self.meter = CountingMeter()
        self.refresher = OriginRefresher(rig.origin)
        self.tasks: set[asyncio.Task[None]] = set()
        self.cache = Cache(
            stack=self.stack,
            leases=self.board.leases if rig.fleet is None else PodLeases(rig.clock),
            fleet=rig.fleet,
            refresher=self.refresher,
            meter=self.meter,
            clock=rig.clock,
            spawn=self._spawn,
            waits=LoopWaits(),
            workers=rig.count,
            render=wire.render,
            copy_bytes=copy_bytes,
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.add(asyncio.get_running_loop().create_task(work))

    async def settle(self) -> None:
        """Let refreshes and writes in the background come to their end; raises what one of them raised."""
        while pending := {task for task in self.tasks if not task.done()}:
            await asyncio.wait(pending)
        for task in self.tasks:
            task.result()
        self.tasks.clear()
        assert await self.stack.drain(5)


class Rig:
    """Workers, tiers, clock and origin together. At its end nothing may still be reserved for copies."""

    def __init__(
        self,
        path: Path,
        text: str,
        *,
        workers: int = 1,
        hot_bytes: int = 8 << 20,
        warm_bytes: int = 64 << 20,
        cold_bytes: int = 64 << 20,
        copy_bytes: int = 64 << 20,
        lookup_timeout: float = 10.0,
        pods: bool = False,
        refresh_clusters: Iterable[str] | None = None,
    ) -> None:
        """With `pods` each worker is a pod of its own as far as leases go, and what they share is `fleet`."""
        self.path = path
        self.clock = Clock()
        self.origin = Origin(self.clock)
        self.fleet = Pods(self.clock) if pods else None
        self.keyring = Keyring([b"k" * 32], SECRET)
        self._text = text
        self._refresh_clusters = refresh_clusters
        self._stores = (warm_bytes, cold_bytes)
        self._sizes = {"hot_bytes": hot_bytes, "copy_bytes": copy_bytes}
        self.count = workers
        self._lookup_timeout = lookup_timeout

    async def __aenter__(self) -> Self:
        self.board = Board(
            self.path / "board", slots=1 << 16, lease_buckets=16, clock=self.clock, wall_clock=self.clock
        )
        # As a worker has them.
        presences = [Presence(self.path / f"{name}.presence") for name in ("warm", "cold")]
        warm = LmdbTier(self.path / "warm", self._stores[0], self.board, presence=presences[0], wall_clock=self.clock)
        cold = ObjectTier(self.path / "cold", self._stores[1], self.board, presence=presences[1], wall_clock=self.clock)
        self.warm, self.cold = SlowTier(warm), SlowTier(cold)
        self.workers = [Worker(self, **self._sizes) for _ in range(self.count)]
        self.install(self._text)
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        for worker in self.workers:
            worker.refresher.may_go.set()
        await self.settle()
        for worker in self.workers:
            await worker.stack.close()
            worker.board.close()
        self.board.close()
        if error is None:
            assert [worker.cache.copies.used for worker in self.workers] == [0] * len(self.workers)

    # The first worker's parts, since most tests need no other.

    @property
    def meter(self) -> CountingMeter:
        return self.workers[0].meter

    @property
    def refresher(self) -> OriginRefresher:
        return self.workers[0].refresher

    @property
    def cache(self) -> Cache:
        return self.workers[0].cache

    def install(self, text: str) -> None:
        """Put policies in force in every worker."""
        snapshot = compiled(text, refresh_clusters=self._refresh_clusters)
        for worker in self.workers:
            worker.cache.install(snapshot)

    async def settle(self) -> None:
        for worker in self.workers:
            await worker.settle()

    def forget_memory(self) -> None:
        """Empty the process memory of every worker, as a restart would."""
        for worker in self.workers:
            worker.memory.clear()

    async def get(self, path: str = "/a", headers: Mapping[str, str] | None = None, **more: Any) -> Got:
        return await self.ask("GET", path, headers, **more)

    async def ask(self, method: str, path: str = "/a", headers: Mapping[str, str] | None = None, **more: Any) -> Got:
        """The whole way of one request; the writes that it caused are waited for."""
        outcome = await self.send(method, path, headers, **more)
        got = await outcome.finish() if isinstance(outcome, Sent) else outcome
        await asyncio.sleep(0)  # what was spawned begins
        await self.workers[more.get("worker", 0)].stack.drain(5)
        return got

    async def send(
        self,
        method: str,
        path: str = "/a",
        headers: Mapping[str, str] | None = None,
        *,
        worker: int = 0,
        authority: str = HOST,
        scheme: str = "http",
        peer: Peer | None = None,
        cluster: str = "",
        complete: bool = True,
        tokens: tuple[Token, ...] = (),
        chunk: int = 1 << 16,
    ) -> Got | Sent:
        """Send a request as far as the origin; the answer itself when none was needed from there.

        One that has to wait for another does so here. Cancelled, it is a client that leaves.
        """
        fields = Headers((headers or {}).items())
        request = Request(method, authority, path, fields, scheme, peer or Peer(), cluster, complete, tokens)
        used = self.workers[worker]
        exchange = used.cache.open(request)
        try:
            outcome = exchange.start()
            if outcome is None:
                outcome = await self._search(exchange)
            if isinstance(outcome, Wait):
                async with asyncio.timeout(outcome.seconds + 1.0):
                    outcome = await exchange.wait()
        except BaseException:
            exchange.close()
            raise
        if isinstance(outcome, Answer):
            return await _answered(used, outcome, request)
        assert isinstance(outcome, Forward)
        changed = {name for name, _ in outcome.set_fields} | set(outcome.remove_fields)
        sent = replace(request, headers=Headers((*fields.without(changed), *outcome.set_fields)))
        return Sent(used, exchange, request, outcome, self.origin.ask(sent), chunk)

    async def forwarded(self, method: str, path: str = "/a", **more: Any) -> Sent:
        """The same for a request that has to reach the origin."""
        outcome = await self.send(method, path, **more)
        assert isinstance(outcome, Sent)
        return outcome

    async def _search(self, exchange: Exchange) -> Answer | Forward | Wait:
        try:
            async with asyncio.timeout(self._lookup_timeout):
                return await exchange.search()
        except TimeoutError:
            return exchange.forward_unseen()
