"""The grammar that header fields share: lists, tokens, numbers and dates (RFC 9110 section 5.6, RFC 9111 1.2.2).

Every parser here is total: whatever text it gets, it returns in linear time and raises nothing.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DELTA_SECONDS = 2**31
"""What a larger number of seconds is taken to be (RFC 9111 section 1.2.2)."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FORBIDDEN_IN_VALUE = re.compile(r"[\x00\r\n]|[^\x00-\xff]")
_LIST_MARKS = re.compile(r'[,"\\]')
_LIST_MARKS_NO_ESCAPE = re.compile(r'[,"]')

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LONG_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, start=1)}
# RFC 9111 section 4.2: no other zone may be believed in an expiration time, not even UTC.
_ZONE = "gmt"
_EARLIEST = -62_135_596_800  # 0001-01-01T00:00:00Z, the least that four digits and `datetime` can say
_LATEST = 253_402_300_799  # 9999-12-31T23:59:59Z


def is_token(text: str) -> bool:
    """Whether `text` is a token (RFC 9110 section 5.6.2), which is also what a field name must be (5.1)."""
    return _TOKEN.fullmatch(text) is not None


def is_field_value(text: str) -> bool:
    """Whether `text` may be sent as a field value (RFC 9110 section 5.5): no CR, LF or NUL, and one octet a character.

    Other control characters are let through, as the RFC allows; what Envoy hands on has none.
    """
    return _FORBIDDEN_IN_VALUE.search(text) is None


def are_fields(fields: Iterable[tuple[str, str]]) -> bool:
    """Whether all of these names and values may be sent as header fields."""
    names, values = [], []
    for name, value in fields:
        names.append(name)
        values.append(value)
    # All values at once: what one must not hold, it must not hold beside others either.
    return all(map(_TOKEN.fullmatch, names)) and is_field_value("".join(values))


def split_commas(value: str, *, escapes: bool = True) -> list[str]:
    """Split at the commas outside quoted strings and strip each part; empty parts are kept.

    A quote that is never closed quotes nothing: what follows it is split at every comma, so that it cannot hide
    the members after it. With `escapes` false a backslash is an ordinary character, as in entity tags.
    """
    if '"' not in value:
        return [part.strip(" \t") for part in value.split(",")]
    parts: list[str] = []
    start = 0
    opened = -1  # where the quoted string that we are in began, or -1
    escaped = -1  # the position that a backslash has taken the meaning from
    for mark in (_LIST_MARKS if escapes else _LIST_MARKS_NO_ESCAPE).finditer(value):
        at = mark.start()
        character = value[at]
        if opened >= 0:
            if at == escaped:
                continue
            if character == "\\":
                escaped = at + 1
            elif character == '"':
                opened = -1
        elif character == '"':
            opened = at
        elif character == ",":
            parts.append(value[start:at])
            start = at + 1
    if opened >= 0:
        first, *rest = value[opened:].split(",")
        parts.append(value[start:opened] + first)
        parts.extend(rest)
    else:
        parts.append(value[start:])
    return [part.strip(" \t") for part in parts]


def split_list(value: str, *, escapes: bool = True) -> list[str]:
    """The members of a comma-separated list, without the empty ones (RFC 9110 section 5.6.1.2).

    Quotes and backslashes stay as they are; see `split_commas` for broken quoting.
    """
    return [part for part in split_commas(value, escapes=escapes) if part]


def unquote(text: str) -> str | None:
    """The content of a whole quoted string (RFC 9110 section 5.6.4), or None when `text` is not exactly one."""
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return None
    inner = text[1:-1]
    if '"' not in inner and "\\" not in inner:
        return inner
    characters: list[str] = []
    literal = False
    for character in inner:
        if literal:
            characters.append(character)
            literal = False
        elif character == "\\":
            literal = True
        elif character == '"':
            return None
        else:
            characters.append(character)
    return None if literal else "".join(characters)


def delta_seconds(text: str) -> int | None:
    """A non-negative number of seconds, at most `MAX_DELTA_SECONDS`; None when `text` is not digits only."""
    if not (text.isascii() and text.isdigit()):
        return None
    if len(text) > 10:
        # Measured before conversion: `int` is slow on, and beyond a limit refuses, very long digit strings.
        text = text.lstrip("0") or "0"
        if len(text) > 10:
            return MAX_DELTA_SECONDS
    return min(int(text), MAX_DELTA_SECONDS)


def http_date(text: str, now: float) -> float | None:
    """Unix seconds of an HTTP-date in any of its three forms (RFC 9110 section 5.6.7), or None.

    Letters are matched without regard to case and no zone but `GMT` is known (RFC 9111 section 4.2); all else is
    strict. The name of the weekday must be one, though not the right one. A leap second counts as the second
    before it, the nearest time that is not later. Two dates joined by a comma are no date.

    `now` (Unix seconds) gives the century to RFC 850's two-digit years.
    """
    if not text.isascii():
        return None
    lowered = text.lower()
    if len(lowered) == 29 and lowered[3] == ",":
        return _imf_fixdate(lowered)
    if len(lowered) == 24 and lowered[3] == " ":
        return _asctime(lowered)
    return _rfc850(lowered, now)


def format_http_date(seconds: float) -> str:
    """`seconds` since the epoch as an IMF-fixdate, rounded down; beyond the years 1 to 9999 the nearest of them."""
    if not _EARLIEST <= seconds <= _LATEST:
        seconds = _LATEST if seconds > 0 else _EARLIEST
    moment = datetime.fromtimestamp(math.floor(seconds), UTC)
    day = _DAYS[moment.weekday()].capitalize()
    month = _MONTH_NAMES[moment.month - 1].capitalize()
    clock = f"{moment.hour:02}:{moment.minute:02}:{moment.second:02}"
    return f"{day}, {moment.day:02} {month} {moment.year:04} {clock} GMT"


@lru_cache(maxsize=1024)
def _imf_fixdate(text: str) -> float | None:
    """`sun, 06 nov 1994 08:49:37 gmt`, of 29 characters. Remembered, as stored dates are read at every look-up."""
    if text[:3] not in _DAYS or text[4] != " " or text[7] != " " or text[11] != " " or text[16] != " ":
        return None
    if text[25] != " " or text[26:] != _ZONE:
        return None
    return _moment(text[12:16], text[8:11], text[5:7], text[17:25])


def _asctime(text: str) -> float | None:
    """`sun nov  6 08:49:37 1994`, of 24 characters; the day of the month is padded with a space."""
    if text[:3] not in _DAYS or text[7] != " " or text[10] != " " or text[19] != " ":
        return None
    day = text[8:10]
    if day[0] == " ":
        day = "0" + day[1]
    return _moment(text[20:24], text[4:7], day, text[11:19])


def _rfc850(text: str, now: float) -> float | None:
    """`sunday, 06-nov-94 08:49:37 gmt`."""
    day_name, comma, rest = text.partition(", ")
    if not comma or day_name not in _LONG_DAYS or len(rest) != 22:
        return None
    if rest[2] != "-" or rest[6] != "-" or rest[9] != " " or rest[18] != " " or rest[19:] != _ZONE:
        return None
    two_digits = rest[7:9]
    if not two_digits.isdigit():
        return None
    # A time that seems to lie more than 50 years ahead is the latest one in the past with those two digits.
    horizon = datetime.fromtimestamp(max(_EARLIEST, min(now, _LATEST)), UTC).year + 50
    year = horizon - (horizon - int(two_digits)) % 100
    seconds = _moment(f"{year:04}", rest[3:6], rest[:2], rest[10:18])
    if year == horizon and seconds is not None:
        this_year = _moment(f"{year - 50:04}", rest[3:6], rest[:2], rest[10:18])
        if this_year is not None and this_year > now:
            return _moment(f"{year - 100:04}", rest[3:6], rest[:2], rest[10:18])
    return seconds


def _moment(year: str, month: str, day: str, clock: str) -> float | None:
    """Unix seconds of fields of fixed width (`clock` is `hh:mm:ss`), or None when one is not what it should be."""
    digits = year + day + clock[:2] + clock[3:5] + clock[6:]
    if not digits.isdigit() or clock[2] != ":" or clock[5] != ":" or month not in _MONTHS:
        return None
    second = int(clock[6:])
    if second > 60:
        return None
    try:
        moment = datetime(
            int(year), _MONTHS[month], int(day), int(clock[:2]), int(clock[3:5]), min(second, 59), tzinfo=UTC
        )
    except ValueError:
        return None
    return moment.timestamp()
