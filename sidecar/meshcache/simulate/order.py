"""A trace in the order of its times: logs are written when a request ends, and know whole seconds only."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from meshcache.simulate.trace import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from meshcache.simulate.trace import TraceRequest

WINDOW_SECONDS: Final = 300.0
MOST_HELD: Final = 200_000


def in_order(requests: Iterable[TraceRequest]) -> Iterator[TraceRequest]:
    """The same by time; those of one time stay as they are.

    One that stands up to 300 seconds behind its place is put there. Raises `TraceError` for one further behind.
    """
    held: list[tuple[float, int, TraceRequest]] = []
    newest = released = float("-inf")
    for number, request in enumerate(requests):
        when = request.time
        if when >= newest:
            newest = when
        elif when < released:
            raise TraceError(
                f"request {number + 1} of the trace is {newest - when:.0f} seconds older than one before it: "
                "sort the trace by time first"
            )
        heapq.heappush(held, (when, number, request))
        while held and (held[0][0] <= newest - WINDOW_SECONDS or len(held) > MOST_HELD):
            released, _, first = heapq.heappop(held)
            yield first
    while held:
        yield heapq.heappop(held)[2]


def spread(requests: Iterable[TraceRequest]) -> Iterator[TraceRequest]:
    """The same, those of one whole second spread evenly over it, so that they do not seem to come at once."""
    second: list[TraceRequest] = []
    for request in requests:
        if second and request.time != second[0].time:
            yield from _spread_out(second)
            second = []
        second.append(request)
    yield from _spread_out(second)


def _spread_out(second: list[TraceRequest]) -> Iterable[TraceRequest]:
    if len(second) < 2 or not second[0].time.is_integer():
        return second
    return (request._replace(time=request.time + place / len(second)) for place, request in enumerate(second))
