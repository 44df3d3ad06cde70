"""Times as logs write them, as Unix seconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from meshcache.simulate.trace import BEGINNING

_NUMBER: Final = re.compile(r"[0-9]{1,19}(?:\.[0-9]{0,12})?(?:[eE]\+?[0-9]{1,2})?", re.ASCII)
_OF_LOG: Final = re.compile(
    r"([0-9]{1,2})/([A-Za-z]{3})/([0-9]{4}):([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]{1,9})? ([-+])([0-9]{2})([0-9]{2})",
    re.ASCII,
)
FIRST_TIME: Final = 1e8
"""Unix seconds (of 1973) below which a time is counted from the beginning of its trace."""
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
        self._offset: float | None = None

    def seconds(self, text: str) -> float:
        """Unix seconds; `""` and `-` stand for no time. Raises `ValueError`."""
        if text in ("", "-"):
            # Put at the beginning of a trace without times, it would be years away from all others.
            if self._offset is not None:
                raise ValueError("no time, as lines before it have")
            when = BEGINNING + self._without / self._rate
            self._without += 1
            return when
        when = unix_seconds(text)
        if not 0.0 <= when < _LATEST:
            raise ValueError(f"{text!r} is no time")
        if self._offset is None:
            self._offset = 0.0 if when >= FIRST_TIME else BEGINNING
        elif not self._offset and when < FIRST_TIME:
            # Most often the 0 of a program that had none.
            raise ValueError(f"{text!r} is years before the lines before it")
        return when + self._offset


def unix_seconds(text: str) -> float:
    """A number of seconds, milliseconds, microseconds or nanoseconds, by its size; or a date: ISO 8601, or as logs
    have it.

    Raises `ValueError`.
    """
    if _NUMBER.fullmatch(text):
        return scaled(float(text))
    return _date(text)


def scaled(value: float) -> float:
    """Seconds, from what may as well be milli-, micro- or nanoseconds since 1970."""
    if value < _MILLISECONDS:
        return value
    for unit in (1e9, 1e6, 1e3):
        if value >= 1e8 * unit:
            return value / unit
    return value


@lru_cache(maxsize=1024)
def _date(text: str) -> float:
    bare = text[1:-1] if text[:1] == "[" and text[-1:] == "]" else text
    if _OF_LOG.fullmatch(bare):
        return common_log_time(bare)
    try:
        when = datetime.fromisoformat(bare)
    except ValueError:
        raise ValueError(
            f"{text[:40]!r} is no time: expected Unix seconds, or a date such as 2026-01-31T12:00:00Z"
        ) from None
    # A date that names no zone is taken for UTC: the same file gives the same result everywhere.
    return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()


@lru_cache(maxsize=1024)
def common_log_time(text: str) -> float:
    """`10/Oct/2000:13:55:36 -0700` of the common log format; or what `unix_seconds` takes, as logs are set up to write.

    Raises `ValueError`.
    """
    # By hand: `strptime` goes by the locale for the names of months, and takes ten times as long.
    found = _OF_LOG.fullmatch(text)
    if found is None:
        return unix_seconds(text)
    day, month, year, hour, minute, second, part, sign, zone_hours, zone_minutes = found.groups()
    if month not in _MONTHS:
        raise ValueError(f"{text!r} is no time of an access log")
    offset = (int(zone_hours) * 3600 + int(zone_minutes) * 60) * (-1 if sign == "-" else 1)
    when = datetime(int(year), _MONTHS[month], int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    return when.timestamp() - offset + float(part or 0)
