"""An origin, and time, that do what a test says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from meshcache.engine.ports import RefreshError
from meshcache.message import Headers, Request, Response
from meshcache.rfc.fields import format_http_date

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshcache.engine.ports import RefreshRequest, TakeBody
    from meshcache.engine.storing.fill import CopyBudget

START = 1_700_000_000.0


class Clock:
    """Wall and monotonic time that a test moves."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Reply:
    """What the origin answers."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    from_origin: bool = True
    cut_off: bool = False
    """The connection breaks before the end of the body."""


def _nothing(_: Request) -> Reply:
    return Reply(404, (), b"nothing here")


class Origin:
    """Answers by path; validates by `etag`. Remembers what it was asked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._replies: dict[str, Callable[[Request], Reply]] = {}
        self.asked: list[Request] = []

    def says(
        self,
        path: str,
        body: bytes = b"body",
        *,
        status: int = 200,
        cache_control: str | None = None,
        headers: Mapping[str, str] | tuple[tuple[str, str], ...] = (),
        from_origin: bool = True,
        cut_off: bool = False,
    ) -> None:
        """From now on `path` is answered by this."""
        given = tuple(headers.items()) if not isinstance(headers, tuple) else headers
        if cache_control is not None:
            given = (("cache-control", cache_control), *given)
        reply = Reply(status, given, body, from_origin, cut_off)
        self.does(path, lambda request: self._conditional(request, reply))

    def does(self, path: str, answer: Callable[[Request], Reply]) -> None:
        """From now on `path` is answered by what `answer` returns."""
        self._replies[path] = answer

    def ask(self, request: Request) -> Reply:
        """Answer, with a `date`."""
        self.asked.append(request)
        reply = self._replies.get(request.path, _nothing)(request)
        if reply.from_origin and not any(name == "date" for name, _ in reply.headers):
            reply = replace(reply, headers=(*reply.headers, ("date", format_http_date(self._clock.now))))
        return reply

    @property
    def times(self) -> int:
        """How often it was asked."""
        return len(self.asked)

    @staticmethod
    def _conditional(request: Request, reply: Reply) -> Reply:
        etag = dict(reply.headers).get("etag")
        if reply.status == 200 and etag is not None and request.headers.get("if-none-match") == etag:
            return Reply(304, reply.headers)
        return reply


class OriginRefresher:
    """A `Refresher` that asks the same origin, when the test lets it."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self.asked: list[Request] = []
        self.fails = False
        self.may_go = asyncio.Event()
        self.may_go.set()
        self._arrivals = asyncio.Semaphore(0)

    async def receive(self, request: RefreshRequest, take: Callable[[Response], TakeBody]) -> Response:
        reply = await self._ask(request, None)
        response = Response(reply.status, Headers(reply.headers))
        taking = take(response)
        response.complete = not reply.body
        for at in range(0, len(reply.body), 1 << 16):
            if not await taking(reply.body[at : at + (1 << 16)]):
                break
        if reply.cut_off:
            raise RefreshError("not whole")
        return response

    async def fetch(
        self, request: RefreshRequest, limit: int, budget: CopyBudget, *, within: float | None = None
    ) -> tuple[Response, bytes]:
        reply = await self._ask(request, within)
        if reply.cut_off or len(reply.body) > min(limit, budget.limit - budget.used):
            raise RefreshError("not whole")
        return Response(reply.status, Headers(reply.headers), complete=not reply.body), reply.body

    async def _ask(self, request: RefreshRequest, within: float | None) -> Reply:
        sent = Request("GET", request.authority, request.path, request.headers, request.scheme, cluster=request.cluster)
        self.asked.append(sent)
        self._arrivals.release()
        try:
            async with asyncio.timeout(within):
                await self.may_go.wait()
        except TimeoutError as error:
            raise RefreshError("too slow") from error
        if self.fails:
            raise RefreshError("the test says so")
        return self._origin.ask(sent)

    async def asked_for(self, number: int) -> None:
        """Return when it was asked `number` times since the last call."""
        async with asyncio.timeout(10):
            for _ in range(number):
                await self._arrivals.acquire()


def by_field(*names: str, vary: str | None = None) -> Callable[[Request], Reply]:
    """An origin whose answer says what it saw in these fields, and names them in `vary`."""

    def answer(request: Request) -> Reply:
        seen = ",".join(f"{name}={request.headers.get(name)}" for name in names)
        return Reply(200, (("vary", vary or ", ".join(names)), ("cache-control", "max-age=60")), seen.encode())

    return answer
