"""One ext_proc stream: the messages of one HTTP request, from its headers to the end of its response.

Whatever goes wrong here, the request goes on: each step has a reply that changes nothing, and that is what Envoy
gets when the engine fails.

A stream ends after the last reply that matters, or when Envoy resets it, which cancels the conversation.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from meshcache.decisions import Decision, Stage
from meshcache.engine.outcome import Answer, Forward, Pass, Wait
from meshcache.extproc import large as large_answers
from meshcache.extproc import wire
from meshcache.extproc.bounds import room
from meshcache.extproc.filter_marks import FilterMarks
from meshcache.extproc.pacing import Pace
from meshcache.extproc.streamed import is_head_alone, said
from meshcache.wasm.marks import ASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from meshcache.engine.account import Account
    from meshcache.engine.cache import Cache
    from meshcache.engine.exchange import Exchange
    from meshcache.engine.outcome import Forward
    from meshcache.extproc.large import LargeAnswer
    from meshcache.extproc.streams import EnvoyStream
    from meshcache.message import Field, Request, Response

_PASS: dict[str | None, bytes] = {
    "request_headers": wire.PASS_REQUEST,
    "request_body": wire.PASS_REQUEST_BODY,
    "request_trailers": wire.PASS_REQUEST_TRAILERS,
    "response_headers": wire.PASS_RESPONSE,
    "response_body": wire.PASS_RESPONSE_BODY,
    "response_trailers": wire.PASS_RESPONSE_TRAILERS,
}
"""For each kind of message, the reply that changes nothing."""


_LONGEST_LENGTH: Final = 12
"""Digits of a `content-length`."""
_LEAST_PATIENCE: Final = 0.02
"""Seconds for the first chunk of an answer, however long the look-up took."""
HEAD_START: Final = 0.05
"""Seconds by which a look-up ends before Envoy gives up. What `envoy.timeouts` adds to the deadlines is twice that."""
_SHORTEST_LOOKUP: Final = 0.15
"""Seconds that a look-up may take even where the deadlines of all tiers are shorter together."""


def rest_of(account: Account, response: Response, *, copied: bool = False) -> wire.See:
    """How much of a response is to be seen for its request to be counted; what its head shows is taken down.

    The bytes of a body that nobody copies are those that its head announces; without that, they have to be seen.
    """
    account.failed(failed=response.status >= 500)
    if response.complete or response.status == 101:
        return wire.See.NOTHING
    if copied:
        return wire.See.BODY
    announced = (response.headers.get("content-length") or "") if response.from_origin else "0"
    if not announced.isdecimal() or len(announced) > _LONGEST_LENGTH:
        return wire.See.BODY
    account.received(int(announced))
    return wire.See.END


class Edge(Protocol):
    """Makes values of Envoy's messages and a message of an answer: `wire`, or one that listens to it."""

    def request_of(self, message: Any) -> Request:
        """The request that a `request_headers` message describes."""
        ...

    def response_of(self, message: Any) -> Response:
        """The response head that a `response_headers` message describes."""
        ...

    def answer(self, outcome: Answer, mark: Field | None = None) -> bytes:
        """The reply that answers the client; `mark` is for the filter in Envoy."""
        ...

    def head(self, outcome: Answer, length: int, *, end: bool = False) -> bytes:
        """The reply that begins an answer in pieces, of `length` bytes together; `end` when none follow."""
        ...

    def in_place(self, outcome: Answer, names: Iterable[str]) -> bytes:
        """The reply that makes the origin's head, with fields of these names, that of an answer without a body."""
        ...


class ExternalProcessor:
    """The gRPC service: one `converse` for each stream.

    `on_error` is told of every exception that the engine let out, with the stage in which it happened.
    `lookup_timeout` is how many seconds Envoy waits for a reply: a look-up as a whole, however many reads it takes and
    whatever deadlines the policies have by now, ends before. It also ends when the tiers' deadlines are over.
    """

    def __init__(
        self,
        cache: Cache,
        *,
        on_error: Callable[[str, Exception], None],
        lookup_timeout: float,
        edge: Edge = wire,
        marks: FilterMarks | None = None,
    ) -> None:
        self._cache = cache
        self._marks = FilterMarks() if marks is None else marks
        self._edge = edge
        self._on_error = on_error
        self._longest_lookup = max(lookup_timeout - HEAD_START, lookup_timeout / 2)

    async def converse(self, stream: EnvoyStream) -> None:
        """Answer the messages of one stream until nothing more of it matters. It is cancelled when Envoy resets it."""
        message: Any = await stream.read()
        if message is None:
            return
        if not message.HasField("request_headers"):
            # A local reply can begin a stream in the response phase: there is no request to judge it by.
            await stream.write(_PASS.get(message.WhichOneof("request"), wire.PASS_REQUEST))
            return
        began = time.perf_counter()
        try:
            request = self._edge.request_of(message)
            if marked := ASK in request.headers.names:
                self._marks.take(request)
            exchange = self._cache.open(request)
        except Exception as error:
            self._on_error("request", error)
            await stream.write(wire.PASS_REQUEST)
            return
        try:
            await self._lead(exchange, began, stream, marked=marked)
        finally:
            # However it ends, and once: what the request has shown of an experiment.
            if exchange.account is not None:
                exchange.account.settle(time.perf_counter() - began)

    async def _lead(self, exchange: Exchange, began: float, stream: EnvoyStream, *, marked: bool) -> None:
        """Answer a stream that has begun with a request, at `began` by `time.perf_counter`.

        `marked` tells that it came with a mark of the filter in Envoy.
        """
        since = began
        waited = False
        large: LargeAnswer | None = None
        try:
            outcome = exchange.start()
            if outcome is None:
                outcome = await self._search(exchange)
            if isinstance(outcome, Wait):
                waited = True
                self._cache.meter.stage(Stage.LOOKUP, time.perf_counter() - began)
                since = time.perf_counter() + outcome.seconds
                outcome = await self._wait(exchange, outcome.seconds, stream)
            if isinstance(outcome, Answer) and (span := outcome.span) is not None:
                reply, outcome, large = await self._large(exchange, outcome, span, since)
            elif not isinstance(outcome, Answer):
                reply = wire.forward(outcome, marked=marked)
            elif is_head_alone(outcome, exchange.request.method):
                # Without a mark: the filter in Envoy has no way to answer so.
                reply = self._edge.head(outcome, 0, end=True)
            else:
                reply = self._edge.answer(outcome, self._mark(exchange, outcome) if marked else None)
            if not waited and outcome.decision is not Decision.BYPASS:
                self._cache.meter.stage(Stage.LOOKUP, time.perf_counter() - began)
            account = exchange.account
            if account is not None:
                account.decided(outcome)
        except Exception as error:
            self._on_error("request", error)
            exchange.close()
            if large is not None:
                await large.abandon()
            if exchange.account is not None:
                exchange.account.forwarded()
            await self._let_go(exchange.account, stream, marked=marked)
            return
        except asyncio.CancelledError:
            # The client has left: others may wait for what this request was to bring.
            exchange.close()
            raise
        if large is not None:
            try:
                await large.send(reply, stream)
            finally:
                if large.lost and account is not None:
                    account.failed()
            return
        if isinstance(outcome, Answer):
            await stream.write(reply)
            return
        if not outcome.watch:
            await self._let_go(account, stream, marked=marked)
            return
        try:
            await stream.write(reply)
            await self._response(exchange, stream)
        finally:
            exchange.close()

    async def _large(
        self, exchange: Exchange, outcome: Answer, span: tuple[int, int], since: float
    ) -> tuple[bytes, Answer | Forward, LargeAnswer | None]:
        """Begin with an answer out of chunks: the reply that it is, or what sends it; or a reply without it.

        `since` is when its look-up began, at the latest, by `time.perf_counter`.
        """
        if exchange.request.method == "HEAD":
            return self._edge.head(outcome, span[1], end=True), outcome, None
        # First: whatever goes wrong with it, nothing has begun.
        head = self._edge.head(outcome, span[1])
        begun = None
        until = since + self._patience
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(_LEAST_PATIENCE, until - time.perf_counter())):
                begun = await large_answers.begin(self._cache, outcome, span)
        if begun is None:
            forward = exchange.without_body()
            return wire.forward(forward), forward, None
        if isinstance(begun, Answer):
            return self._edge.answer(begun), begun, None
        return head, outcome, begun

    async def _wait(self, exchange: Exchange, seconds: float, stream: EnvoyStream) -> Answer | Forward:
        """What becomes of a request that another one is ahead of; Envoy is told that this takes a while."""
        began = time.perf_counter()
        bound = seconds + self._patience
        await stream.write(wire.hold(bound + HEAD_START))
        try:
            async with asyncio.timeout(bound):
                return await exchange.wait()
        except TimeoutError:
            return exchange.forward_unseen()
        finally:
            self._cache.meter.stage(Stage.COLLAPSE, time.perf_counter() - began)

    @property
    def _patience(self) -> float:
        """Seconds for which a look-up may go on, under the policies now in force."""
        snapshot = self._cache.snapshot
        budget = 0.0 if snapshot is None else snapshot.lookup_budget()
        return min(self._longest_lookup, max(_SHORTEST_LOOKUP, budget + HEAD_START))

    async def _search(self, exchange: Exchange) -> Answer | Forward | Wait:
        try:
            async with asyncio.timeout(self._patience):
                return await exchange.search()
        except TimeoutError:
            return exchange.forward_unseen()

    def _mark(self, exchange: Exchange, outcome: Answer | Pass) -> Field | None:
        """What the filter in Envoy is told with a reply, if it has asked."""
        marks, ask = self._marks, exchange.request.asked
        if isinstance(outcome, Pass) and outcome.invalid is not None:
            return marks.drop(ask, outcome.invalid)
        return marks.keep(ask, outcome.grant)

    async def _let_go(self, account: Account | None, stream: EnvoyStream, *, marked: bool) -> None:
        """Let the request go to the origin; if it counts, what comes of it is seen, and nothing is done with that."""
        if account is None:
            await stream.write(wire.PASS_MARKED_REQUEST if marked else wire.PASS_REQUEST)
            return
        await stream.write(wire.WATCH_MARKED_REQUEST if marked else wire.WATCH_REQUEST)
        while True:
            message: Any = await stream.read()
            if message is None:
                return
            kind = message.WhichOneof("request")
            reply, last = _PASS.get(kind, wire.PASS_REQUEST), kind == "response_trailers"
            if kind == "response_headers":
                see = rest_of(account, self._edge.response_of(message))
                reply, last = wire.UNCHANGED[see], see is wire.See.NOTHING
            elif kind == "response_body":
                account.received(len(message.response_body.body))
                last = message.response_body.end_of_stream
            await stream.write(reply)
            if last:
                return

    async def _response(self, exchange: Exchange, stream: EnvoyStream) -> None:
        pace = Pace(self._longest_lookup)
        while True:
            message: Any = await stream.read()
            if message is None:
                return
            kind = message.WhichOneof("request")
            try:
                reply, last = await self._step(exchange, kind, message, stream, pace)
            except Exception as error:
                self._on_error(kind or "unknown", error)
                exchange.close()
                reply, last = _PASS.get(kind, wire.PASS_RESPONSE), kind == "response_headers"
                if last and exchange.account is not None:
                    see = rest_of(exchange.account, self._edge.response_of(message))
                    reply, last = wire.UNCHANGED[see], see is wire.See.NOTHING
            try:
                await stream.write(reply)
            finally:
                # The client need not wait for the response to be stored, and if he leaves now it is complete still.
                if last and kind != "response_headers":
                    self._end(exchange, kind)
            if last:
                return

    async def _answer_late(self, exchange: Exchange, outcome: Answer) -> bytes:
        """The reply that answers in place of the origin: whole, for Envoy takes no answer in pieces any more."""
        span = outcome.span
        if span is None or exchange.request.method == "HEAD":
            return self._edge.answer(outcome)
        whole = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                whole = await large_answers.whole(self._cache, outcome, span)
        if whole is not None:
            return self._edge.answer(whole)
        if exchange.account is not None:
            exchange.account.failed()
        return wire.PASS_RESPONSE if outcome.decision is Decision.STALE_IF_ERROR else wire.UNAVAILABLE

    def _end(self, exchange: Exchange, kind: str | None) -> None:
        try:
            exchange.on_end()
        except Exception as error:
            self._on_error(kind or "unknown", error)

    async def _ask_anew(self, exchange: Exchange, seconds: float, stream: EnvoyStream) -> Answer:
        """What the origin says when it is asked once more; Envoy is told that this takes a while."""
        await stream.write(wire.hold(seconds + HEAD_START))
        try:
            async with asyncio.timeout(seconds):
                return await exchange.ask_anew()
        except TimeoutError:
            return exchange.unanswered()

    async def _step(
        self, exchange: Exchange, kind: str | None, message: Any, stream: EnvoyStream, pace: Pace
    ) -> tuple[bytes, bool]:
        """The reply to one message of the response phase, and whether nothing more of the stream matters."""
        if kind == "response_body":
            part = message.response_body
            if exchange.account is not None:
                exchange.account.received(len(part.body))
            exchange.on_body(part.body)
            if (behind := exchange.behind) is not None and not part.end_of_stream:
                # Envoy sends no more of the body, and soon reads no more of it, until this chunk is answered.
                await pace.keep(behind, len(part.body))
            return wire.PASS_RESPONSE_BODY, part.end_of_stream
        if kind == "response_headers":
            response = self._edge.response_of(message)
            outcome = await exchange.on_response(response)
            if isinstance(outcome, Wait):
                outcome = await self._ask_anew(exchange, outcome.seconds, stream)
            account = exchange.account
            if isinstance(outcome, Answer):
                if account is not None:
                    account.decided(outcome)
                if (
                    response.complete
                    and is_head_alone(outcome, exchange.request.method)
                    and room(message.response_headers, said(outcome, outcome.stored.length).items())
                ):
                    # No answer in pieces is taken any more; but the head that is there may become another one.
                    return self._edge.in_place(outcome, response.headers.names), True
                return await self._answer_late(exchange, outcome), True
            see = wire.See.NOTHING
            if account is not None:
                see = rest_of(account, response, copied=outcome.copy)
            elif outcome.copy:
                see = wire.See.BODY
            mark = None if exchange.request.asked is None else self._mark(exchange, outcome)
            status = ("cache-status", outcome.cache_status)
            if mark is not None and not room(message.response_headers, (status, mark)):
                # The filter keeps nothing then, or drops more than it had to: the client gets what he would without it.
                mark = None
            if mark is not None or room(message.response_headers, (status,)):
                return wire.pass_on(outcome, see, mark), see is wire.See.NOTHING
            return wire.UNCHANGED[see], see is wire.See.NOTHING
        if kind == "response_trailers":
            # Trailers end a body whose last chunk did not say so.
            return wire.PASS_RESPONSE_TRAILERS, True
        return _PASS.get(kind, wire.PASS_REQUEST), False
