"""One line of the log for each finished request, when that is asked for; without it nothing here runs.

A line says what was decided and how long it took. Of what the client sent there is the method and the path up to its
query: no header field, no query, nothing of a body.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from meshcache.extproc import streamed, wire
from meshcache.extproc.conversation import ExternalProcessor
from meshcache.extproc.metering import EngineMeter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from structlog.typing import FilteringBoundLogger

    from meshcache.engine.cache import Cache
    from meshcache.engine.outcome import Answer
    from meshcache.extproc.filter_marks import FilterMarks
    from meshcache.extproc.streams import EnvoyStream
    from meshcache.message import Field, Request, Response

LONGEST: Final = 512
"""Characters of a path, or of a method, that a line shows."""
_AS_IS: Final = "".join(chr(code) for code in range(0x21, 0x7F))
_UNDECIDED: Final = (None, "", "", "", "")
"""After a fault, when the request went on without the cache."""


class _Line:
    """What becomes known of a request while its stream lasts."""

    __slots__ = ("decided", "request", "status")

    def __init__(self) -> None:
        self.request: Request | None = None
        self.status: int | None = None
        self.decided: tuple[str | None, str, str, str, str] = _UNDECIDED


_LINE: ContextVar[_Line | None] = ContextVar("line of the request log", default=None)
# Each stream is led by a task, and so in a context, of its own.


class LoggedMeter(EngineMeter):
    """The engine's meter, which also notes on the line of the request what was decided."""

    def request(self, decision: str, reason: str, tier: str, route: str, arm: str) -> None:
        """See `Meter`."""
        super().request(decision, reason, tier, route, arm)
        line = _LINE.get()
        if line is not None:
            line.decided = (decision, reason, tier, route, arm)


class LoggingProcessor(ExternalProcessor):
    """An `ExternalProcessor` whose every request ends as a line; its cache's meter is a `LoggedMeter`."""

    def __init__(
        self,
        cache: Cache,
        *,
        on_error: Callable[[str, Exception], None],
        lookup_timeout: float,
        log: FilteringBoundLogger,
        marks: FilterMarks | None = None,
    ) -> None:
        super().__init__(cache, on_error=on_error, lookup_timeout=lookup_timeout, edge=_ListeningEdge(), marks=marks)
        self._log = log

    async def converse(self, stream: EnvoyStream) -> None:
        """See `ExternalProcessor`."""
        line = _Line()
        token = _LINE.set(line)
        began = time.perf_counter()
        try:
            await super().converse(stream)
        finally:
            _LINE.reset(token)
            if line.request is not None:
                self._write(line, line.request, time.perf_counter() - began)

    def _write(self, line: _Line, request: Request, seconds: float) -> None:
        decision, reason, tier, route, arm = line.decided
        self._log.info(
            "request",
            method=_shown(request.method),
            path=_shown(request.path.partition("?")[0].partition("#")[0]),
            status=line.status,
            decision=decision,
            reason=reason,
            tier=tier,
            route=route,
            arm=arm,
            seconds=round(seconds, 6),
        )


class _ListeningEdge:
    """`wire`, as far as a stream needs it, with notes of what passes."""

    def request_of(self, message: Any) -> Request:
        request = wire.request_of(message)
        if (line := _LINE.get()) is not None:
            line.request = request
        return request

    def response_of(self, message: Any) -> Response:
        response = wire.response_of(message)
        if (line := _LINE.get()) is not None:
            line.status = response.status
        return response

    def answer(self, outcome: Answer, mark: Field | None = None) -> bytes:
        if (line := _LINE.get()) is not None:
            line.status = outcome.status
        return wire.answer(outcome, mark)

    def head(self, outcome: Answer, length: int, *, end: bool = False) -> bytes:
        if (line := _LINE.get()) is not None:
            line.status = outcome.status
        return streamed.head(outcome, length, end=end)

    def in_place(self, outcome: Answer, names: Iterable[str]) -> bytes:
        if (line := _LINE.get()) is not None:
            line.status = outcome.status
        return wire.in_place(outcome, names)


def _shown(text: str) -> str:
    """`text` without what could act on a terminal, and of bounded length."""
    return quote(text[:LONGEST], safe=_AS_IS, errors="replace")
