"""Times as logs write them, as Unix seconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

_NUMBER: Final = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,12})?", re.ASCII)
_MILLISECONDS: Final = 1e11
"""From here on a number cannot be seconds."""
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), start=1
    )
}


def unix_seconds(text: str) -> float:
    """A number of seconds, milliseconds, microseconds or nanoseconds, by its size, or a date (ISO 8601).

    Raises `ValueError`.
    """
    if _NUMBER.fullmatch(text):
        return scaled(float(text))
    return _iso(text)


def scaled(value: float) -> float:
    """Seconds, from what may as well be milli-, micro- or nanoseconds since 1970."""
    if value < _MILLISECONDS:
        return value
    for unit in (1e9, 1e6, 1e3):
        if value >= 1e8 * unit:
            return value / unit
    return value


@lru_cache(maxsize=1024)
def _iso(text: str) -> float:
    when = datetime.fromisoformat(text)
    # A date that names no zone is taken for UTC: the same file gives the same result everywhere.
    return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()


@lru_cache(maxsize=1024)
def common_log_time(text: str) -> float:
    """`10/Oct/2000:13:55:36 -0700` of the common log format. Raises `ValueError`."""
    # By hand: `strptime` goes by the locale for the names of months, and takes ten times as long.
    day, month, rest = text.split("/", 2)
    year, hour, minute, second_and_zone = rest.split(":", 3)
    second, zone = second_and_zone.split(" ", 1)
    if len(zone) != 5 or zone[0] not in "+-" or month not in _MONTHS:
        raise ValueError(f"{text!r} is no time of an access log")
    offset = (int(zone[1:3]) * 3600 + int(zone[3:5]) * 60) * (-1 if zone[0] == "-" else 1)
    when = datetime(int(year), _MONTHS[month], int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    return when.timestamp() - offset
