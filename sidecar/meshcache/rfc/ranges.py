"""Range requests (RFC 9110 section 14): which bytes of a representation a client wants, and how an answer says it.

Every parser here is total: whatever text it gets, it returns in linear time and raises nothing. Positions count bytes
from 0, and both ends of a range belong to it, as on the wire.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from meshcache.message import Headers
from meshcache.rfc.entity_tag import parse_entity_tag, strong_match
from meshcache.rfc.fields import http_date, split_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshcache.message import Field

MOST_RANGES: Final = 64
"""Ranges in one request; whoever asks for more gets the whole (RFC 9110 section 17.15). Readers of large documents
that fetch them page by page stay below."""

PART_OVERHEAD: Final = 120
"""Bytes that one more part of a multipart answer costs at least: its delimiter and header fields. A gap smaller than
that is cheaper to send than to leave out (RFC 9110 section 15.3.7.2)."""

CLOCKS_AGREE_AFTER: Final = 60.0
"""Seconds by which `date` must be later than `last-modified` for the latter to be a strong validator (RFC 9110 section
8.8.2.2): within them the two clocks, or two versions of one second, might be taken for one."""

_UNIT = "bytes"
_LONGEST_NUMBER = 18  # digits; no representation is that large, and `int` is slow on very long strings
_RANGE = re.compile(r"([0-9]*)-([0-9]*)")
_CONTENT_RANGE = re.compile(r"([0-9]+)-([0-9]+)/([0-9]+|\*)")


class RangeSpec(NamedTuple):
    """One member of a `range` field, before the length of the representation is known."""

    first: int | None
    """None for a suffix: the last `last` bytes."""
    last: int | None
    """None for all bytes from `first` on."""


class ByteRange(NamedTuple):
    """Bytes of a representation that are there: `first` is at most `last`."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """How many bytes it holds."""
        return self.last - self.first + 1


class ContentRange(NamedTuple):
    """What a `content-range` field says of the content beside it."""

    first: int
    last: int
    total: int | None
    """Bytes of the whole representation; None when the sender does not know."""


def parse_range(value: str | None) -> tuple[RangeSpec, ...] | None:
    """The ranges that a `range` field asks for, in its order; None when the field is absent or to be ignored.

    Ignored are other units than bytes (unit names know no case), a field with an invalid member, and one with more than
    `MOST_RANGES` members (RFC 9110 section 14.2).
    """
    if value is None:
        return None
    unit, equals, listed = value.partition("=")
    if not equals or unit.lower() != _UNIT:
        return None
    if listed.count(",") >= MOST_RANGES:
        return None
    specs = []
    for member in split_list(listed):
        found = _RANGE.fullmatch(member)
        if found is None:
            return None
        first, last = _position(found[1]), _position(found[2])
        if first is None and last is None:
            return None
        if first is not None and last is not None and last < first:
            return None
        specs.append(RangeSpec(first, last))
    return tuple(specs) or None


def satisfiable(specs: Iterable[RangeSpec], length: int) -> list[ByteRange]:
    """Which bytes of a representation of `length` bytes the ranges stand for, in their order (RFC 9110 14.1.2).

    Those that begin past its end are left out; nothing is left when none can be satisfied.
    """
    found = []
    for first, last in specs:
        if first is None:
            size = min(last or 0, length)
            if size:
                found.append(ByteRange(length - size, length - 1))
        elif first < length:
            found.append(ByteRange(first, length - 1 if last is None else min(last, length - 1)))
    return found


def coalesced(ranges: Sequence[ByteRange], gap: int = PART_OVERHEAD) -> list[ByteRange]:
    """The same bytes in fewer ranges: those that overlap, or lie less than `gap` bytes apart, become one.

    Each stands where the first of its parts stood, so that the client's order is kept (RFC 9110 section 15.3.7.2).
    With a gap of 1, nothing is added to what the ranges hold.
    """
    if len(ranges) < 2:
        return list(ranges)
    by_place = sorted(range(len(ranges)), key=lambda index: ranges[index])
    merged: list[tuple[int, ByteRange]] = []
    for index in by_place:
        here = ranges[index]
        if merged and here.first - merged[-1][1].last <= gap:
            turn, before = merged[-1]
            merged[-1] = (min(turn, index), ByteRange(before.first, max(before.last, here.last)))
        else:
            merged.append((index, here))
    return [found for _, found in sorted(merged)]


def parse_content_range(value: str | None) -> ContentRange | None:
    """What a `content-range` field says, or None when it is absent, of another unit, of an answer without content
    (`bytes */10`), or invalid: its end before its beginning or past the end of the whole (RFC 9110 section 14.4).
    """
    if value is None:
        return None
    unit, _, said = value.strip(" \t").partition(" ")
    found = _CONTENT_RANGE.fullmatch(said.strip(" \t"))
    if unit.lower() != _UNIT or found is None or max(map(len, found.groups())) > _LONGEST_NUMBER:
        return None
    first, last = int(found[1]), int(found[2])
    total = None if found[3] == "*" else int(found[3])
    if last < first or (total is not None and total <= last):
        return None
    return ContentRange(first, last, total)


def format_content_range(first: int, last: int, total: int | None) -> str:
    """The `content-range` of bytes `first` to `last` of `total` (None: not known)."""
    return f"bytes {first}-{last}/{'*' if total is None else total}"


def format_unsatisfied(total: int) -> str:
    """The `content-range` of a 416: how many bytes there are."""
    return f"bytes */{total}"


def strong_validator(fields: Iterable[Field], *, response_time: float) -> Field | None:
    """The field that names a representation byte for byte: a strong `etag`, or a `last-modified` that is strong.

    None when there is neither. With an `etag` that is weak or none, `last-modified` does not count: the origin itself
    says that equal bytes are not promised.
    """
    headers = Headers(fields)
    etag = headers.get("etag")
    if etag is not None:
        parsed = parse_entity_tag(etag)
        return None if parsed is None or parsed.weak else ("etag", etag)
    last_modified = headers.get("last-modified")
    if last_modified is None or not _strong_date(last_modified, headers.get("date"), response_time):
        return None
    return "last-modified", last_modified


def if_range_holds(if_range: str | None, fields: Iterable[Field], *, response_time: float) -> bool:
    """Whether the client's parts are of the representation with these stored fields (RFC 9110 section 13.1.5).

    So it is without the field. Entity tags are compared strongly; a date must equal `last-modified` letter by letter,
    and that must be a strong validator.
    """
    if if_range is None:
        return True
    headers = Headers(fields)
    tag = parse_entity_tag(if_range)
    if tag is not None:
        stored = parse_entity_tag(headers.get("etag"))
        return stored is not None and strong_match(tag, stored)
    return if_range == headers.get("last-modified") and _strong_date(if_range, headers.get("date"), response_time)


def _strong_date(last_modified: str, date: str | None, response_time: float) -> bool:
    modified = http_date(last_modified, response_time)
    made = None if date is None else http_date(date, response_time)
    return modified is not None and made is not None and made - modified >= CLOCKS_AGREE_AFTER


def _position(digits: str) -> int | None:
    if not digits:
        return None
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= _LONGEST_NUMBER else 10**_LONGEST_NUMBER
