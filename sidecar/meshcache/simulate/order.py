"""A trace in the order of its times: logs are written when a request ends, and know whole seconds only."""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

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
    # Nearly all stand in their place: those wait in line, and only what is late is sorted.
    waiting: deque[TraceRequest] = deque()
    late: list[tuple[float, int, TraceRequest]] = []
    newest = released = float("-inf")
    append, popleft = waiting.append, waiting.popleft
    for number, request in enumerate(requests):
        when = request.time
        if when >= newest:
            newest = when
            append(request)
        elif when < released:
            raise TraceError(
                f"request {number + 1} of the trace is {newest - when:.0f} seconds older than one before it: "
                "sort the trace by time first"
            )
        else:
            heapq.heappush(late, (when, number, request))
        due = newest - WINDOW_SECONDS
        if late:
            while waiting[0].time <= due or (late and late[0][0] <= due) or len(waiting) + len(late) > MOST_HELD:
                first = _first(waiting, late)
                released = first.time
                yield first
            continue
        while (first := waiting[0]).time <= due or len(waiting) > MOST_HELD:
            popleft()
            released = first.time
            yield first
    while waiting or late:
        yield _first(waiting, late)


def _first(waiting: deque[TraceRequest], late: list[tuple[float, int, TraceRequest]]) -> TraceRequest:
    # Of one time, what waits in line came before what was late.
    if late and (not waiting or late[0][0] < waiting[0].time):
        return heapq.heappop(late)[2]
    return waiting.popleft()


def spread(requests: Iterable[TraceRequest]) -> Iterator[TraceRequest]:
    """The same, those of one whole second spread evenly over it, so that they do not seem to come at once.

    A log that knows more than seconds has requests of whole ones, too: those are spread up to the next request.
    """
    second: list[TraceRequest] = []
    for request in requests:
        if second and request.time != second[0].time:
            yield from _spread_out(second, request.time)
            second = []
        if second or request.time.is_integer():
            second.append(request)
        else:
            yield request
    yield from _spread_out(second, float("inf"))


def _spread_out(second: list[TraceRequest], following: float) -> Iterable[TraceRequest]:
    if len(second) < 2:
        return second
    apart = min(1.0, following - second[0].time) / len(second)
    return (replace(request, time=request.time + place * apart) for place, request in enumerate(second))
