"""Answers whose body is read from chunks: begun only when the first of it is at hand, and never ended short."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from meshcache.engine.chunks import INLINE_BYTES
from meshcache.extproc import streamed
from meshcache.tiers.chunks import BodyLostError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from meshcache.engine.cache import Cache
    from meshcache.engine.flights import Flights
    from meshcache.engine.outcome import Answer
    from meshcache.extproc.streams import EnvoyStream
    from meshcache.tiers.body import Body


_PAUSE: Final = 0.01
"""Seconds between two looks for room among the answers that are on their way."""


class LargeAnswer:
    """An answer in pieces, of which the first is at hand. `send` or `abandon` must follow."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes, None], flights: Flights) -> None:
        self.lost = False
        """Whether the answer was broken off because a piece of it could not be read."""
        self._first = first
        self._rest = rest
        self._flights = flights

    async def send(self, head: bytes, stream: EnvoyStream) -> None:
        """Write its head and all of it.

        When a piece cannot be read, the stream is broken off, and with it the client's answer.
        """
        try:
            async with aclosing(self._rest):
                await stream.write(head)
                piece = self._first
                async for following in self._rest:
                    await stream.write(streamed.body(piece, end=False))
                    piece = following
                await stream.write(streamed.body(piece, end=True))
        except BodyLostError as error:
            self.lost = True
            # An error and no end: after a stream that ends well Envoy would wait, and the client with it.
            await stream.break_off(str(error))
        finally:
            self._flights.landed()

    async def abandon(self) -> None:
        """Nothing of it is sent."""
        self._flights.landed()
        await self._rest.aclose()


async def begin(cache: Cache, outcome: Answer, span: tuple[int, int]) -> LargeAnswer | Answer | None:
    """Begin with an answer to a request's headers: in pieces, or at once when it is short; None when it cannot be had.

    `span` is the outcome's. Waits for room: the caller bounds how long.
    """
    if span[1] <= INLINE_BYTES:
        return await whole(cache, outcome, span)
    while not cache.flights.take(span[1]):  # noqa: ASYNC110  room comes with time, and nothing tells
        # Many that have waited for one answer come at once.
        await asyncio.sleep(_PAUSE)
    pieces = _body(cache, outcome).read(*span)
    try:
        first = await anext(pieces)
    except BodyLostError:
        cache.flights.landed()
        return None
    except BaseException:
        cache.flights.landed()
        await pieces.aclose()
        raise
    return LargeAnswer(first, pieces, cache.flights)


async def whole(cache: Cache, outcome: Answer, span: tuple[int, int]) -> Answer | None:
    """The same answer with the bytes of its `span` in memory; None when they cannot be had."""
    try:
        async with aclosing(_body(cache, outcome).read(*span)) as pieces:
            return outcome.with_body(b"".join([piece async for piece in pieces]))
    except BodyLostError:
        return None


def _body(cache: Cache, outcome: Answer) -> Body:
    assert outcome.tier is not None  # noqa: S101 - what is in chunks was found in a tier
    return cache.stack.bodies.body(outcome.stored, outcome.tier)
