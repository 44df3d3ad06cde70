"""How old a stored response is (RFC 9111 sections 4.2.3 and 5.1). All times are Unix seconds, all ages seconds."""

from __future__ import annotations

from meshcache.rfc.fields import delta_seconds


def age_value(field: str | None) -> float:
    """The seconds that an `age` field gives; 0 when it is absent or gives no number.

    Of several members, on one line or more, the first counts; a first one that is not a non-negative integer is
    ignored, and the others with it (section 5.1). Parameters, which structured fields would allow, say nothing.
    """
    if field is None:
        return 0.0
    first = field.partition(",")[0].partition(";")[0].strip(" \t")
    return float(delta_seconds(first) or 0)


def apparent_age(date: float | None, response_time: float) -> float:
    """How long before its arrival the response was made, by the origin's clock; 0 without a `date` (section 4.2.3)."""
    return 0.0 if date is None else max(0.0, response_time - date)


def corrected_initial_age(*, age: float, date: float | None, request_time: float, response_time: float) -> float:
    """The age that the response had when it arrived, the most cautious of two estimates (section 4.2.3).

    `age` is what its `age` field gave (`age_value`), `date` what its `date` field gave. The time on the way counts
    in full; a clock that was set back in between counts as no time.
    """
    response_delay = max(0.0, response_time - request_time)
    return max(apparent_age(date, response_time), max(0.0, age) + response_delay)


def current_age(*, initial_age: float, response_time: float, now: float) -> float:
    """The age at `now` of a response that arrived with `initial_age`, never negative (section 4.2.3)."""
    # Without `max`, which takes as long as all the rest: every hit asks twice.
    resident = now - response_time
    if resident < 0.0:
        resident = 0.0
    return resident + initial_age if initial_age > 0.0 else resident
