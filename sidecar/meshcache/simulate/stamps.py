"""Times as logs write them, as Unix seconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from meshcache.simulate.trace import BEGINNING

_NUMBER: Final = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,12})?", re.ASCII)
_OF_LOG: Final = re.compile(
    r"([0-9]{1,2})/([A-Za-z]{3})/([0-9]{4}):([0-9]{2}):([0-9]{2}):([0-9]{2}) ([-+])([0-9]{2})([0-9]{2})", re.ASCII
)
_MILLISECONDS: Final = 1e11
"""From here on a number cannot be seconds."""
_LATEST: Final = 1e11
"""Unix seconds beyond which no trace was recorded."""
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), start=1
    )
}


class Stamps:
    """When the requests of a trace came: as their lines say, or `rate` of them in a second where no line says."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._without = 0
        self._told = False

    def seconds(self, text: str) -> float:
        """Unix seconds; `""` and `-` stand for no time. Raises `ValueError`."""
        if text in ("", "-"):
            # Put at the beginning of a trace without times, it would be years away from all others.
            if self._told:
                raise ValueError("no time, as lines before it have")
            when = BEGINNING + self._without / self._rate
            self._without += 1
            return when
        when = unix_seconds(text)
        if not 0.0 <= when < _LATEST:
            raise ValueError(f"{text!r} is no time")
        self._told = True
        return when


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
    found = _OF_LOG.fullmatch(text)
    if found is None or found[2] not in _MONTHS:
        raise ValueError(f"{text!r} is no time of an access log")
    day, month, year, hour, minute, second, sign, zone_hours, zone_minutes = found.groups()
    offset = (int(zone_hours) * 3600 + int(zone_minutes) * 60) * (-1 if sign == "-" else 1)
    when = datetime(int(year), _MONTHS[month], int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    return when.timestamp() - offset
