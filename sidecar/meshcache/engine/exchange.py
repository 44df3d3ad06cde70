"""One request from its headers to the end of its response: look-up, answer or forward, then store.

The order of calls is `start`, `search` when `start` could not decide from memory, `wait` when another request for the
same is ahead, `on_response` when the outcome is to be watched, `ask_anew` when that says to wait, `on_body` for each
chunk and `on_end` when the body is complete. `close` ends it early: what was copied so far is dropped, so that a
response cut off is never stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.engine.phases import request as asking
from meshcache.engine.phases.response import ResponsePhase
from meshcache.engine.phases.state import State

if TYPE_CHECKING:
    from meshcache.engine.account import Account
    from meshcache.engine.cache import Cache
    from meshcache.engine.judge import Judgement
    from meshcache.engine.outcome import Answer, Forward, Pass, Wait
    from meshcache.engine.ports import Spool
    from meshcache.message import Request, Response
    from meshcache.policy.snapshot import Selection


class Exchange:
    """The face of one request: what happens to it is decided in `phases`."""

    __slots__ = ("_response", "_state")

    def __init__(self, cache: Cache, request: Request) -> None:
        self._state = State(cache, request)
        self._response: ResponsePhase | None = None

    @property
    def request(self) -> Request:
        """The request, as the origin sees it."""
        return self._state.request

    @property
    def account(self) -> Account | None:
        """What the request shows of an experiment; None as long as it counts in none."""
        return self._state.account

    @property
    def selection(self) -> Selection | None:
        """Route, arm and policy of a request that is looked up; None before `start` and for one that is not."""
        lookup = self._state.lookup
        return None if lookup is None else lookup.selection

    @property
    def judgement(self) -> Judgement | None:
        """How its policy sees the best that is stored for the request; None when nothing is."""
        candidate = self._state.candidate
        return None if candidate is None else candidate.judgement

    # -- the request -------------------------------------------------------------------------------------------

    def start(self) -> Answer | Forward | Wait | None:
        """Decide without waiting; None when the lower tiers have to be asked."""
        return asking.start(self._state)

    async def search(self) -> Answer | Forward | Wait:
        """Decide with the lower tiers. To be called when `start` returned None."""
        return await asking.search(self._state)

    async def wait(self) -> Answer | Forward:
        """Decide once the request that is ahead has been answered, has failed, or has been waited for long enough."""
        return await asking.wait(self._state)

    def forward_unseen(self) -> Forward:
        """Give the look-up up: the request goes to the origin and its answer is not stored."""
        return asking.forward_unseen(self._state)

    def without_body(self) -> Forward:
        """The body of the answer that was decided upon cannot be read: the request goes to the origin."""
        return asking.without_body(self._state)

    # -- the response ------------------------------------------------------------------------------------------

    async def on_response(self, response: Response) -> Answer | Pass | Wait:
        """Decide what the client gets for the origin's (or Envoy's own) answer, and whether it is copied."""
        forward = self._state.forwarded
        assert forward is not None  # noqa: S101 - only forwarded requests have responses
        if self._response is not None:
            # A second head: the body before it belongs to no whole response.
            self.close()
        self._response = ResponsePhase(self._state, forward)
        return await self._response.on_head(response)

    async def ask_anew(self) -> Answer:
        """Have the origin give its whole answer. To be called when `on_response` returned `Wait`."""
        return await self._answering.ask_anew()

    def unanswered(self) -> Answer:
        """502: nobody has the right answer, or not in time."""
        return self._answering.unanswered()

    def on_body(self, chunk: bytes) -> None:
        """Copy one chunk of the response's body."""
        if self._response is not None:
            self._response.on_body(chunk)

    @property
    def behind(self) -> Spool | None:
        """What has room for more of the body only after a while: for who can wait before the next `on_body`."""
        return None if self._response is None else self._response.behind

    def on_end(self) -> None:
        """The body is complete: store the response."""
        if self._response is not None:
            self._response.on_end()

    def close(self) -> None:
        """The exchange is over, whether or not it was complete. Safe to call more than once."""
        if self._response is not None:
            self._response.close()
        self._state.close()

    @property
    def _answering(self) -> ResponsePhase:
        assert self._response is not None  # noqa: S101 - called after `on_response`
        return self._response
