"""Traces with a column for each part of a request, and traces of mere keys."""

from __future__ import annotations

import csv
import re
import struct
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, BinaryIO, Final

from meshcache.rfc.fields import is_token
from meshcache.simulate.fields import HEADER_PREFIX, NAMES, places, request_of
from meshcache.simulate.lines import BadLines, text_lines
from meshcache.simulate.stamps import FIRST_TIME, Stamps
from meshcache.simulate.trace import BEGINNING, TraceError, TraceRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RECORD: Final = struct.Struct("<IQIq")
"""One request of libCacheSim's oracleGeneral: Unix seconds, object, bytes, and when it is asked for next."""
_AT_ONCE: Final = 4096
_NUMBER: Final = re.compile(r"[0-9]{1,19}(?:\.[0-9]{0,12})?", re.ASCII)


TAB: Final = "\t"
_SEPARATORS: Final = (",", ";", "|", TAB)
_NAMED_SEPARATOR: Final = re.compile(r"sep=(.)", re.IGNORECASE)
"""The line in front of all others by which a spreadsheet tells its separator."""


def is_table(lines: Sequence[str], separator: str = "") -> bool:
    """Whether a trace that begins with `lines` is a table with named columns."""
    chosen, skipped = _separator_of(lines, separator)
    if len(lines) <= skipped:
        return False
    header = lines[skipped].strip("\r")
    if separator and separator not in header:
        return False
    return _is_header(_names(header, chosen))


def lacks_header(lines: Sequence[str]) -> bool:
    """Whether a trace that begins with `lines` seems to be a table whose columns have no names."""
    for separator in _SEPARATORS:
        rows = [line.strip().split(separator) for line in lines]
        widths = {len(row) for row in rows}
        if len(rows) < 2 or len(widths) > 1 or widths == {1}:
            continue
        if any(all(_NUMBER.fullmatch(cell.strip(' "')) for cell in column) for column in zip(*rows, strict=True)):
            return True
    return False


def _separator_of(lines: Sequence[str], asked: str) -> tuple[str, int]:
    """What separates the columns of a table that begins so, and how many lines are before their names."""
    if asked:
        return asked, 0
    told = _NAMED_SEPARATOR.fullmatch(lines[0].strip("\r")) if lines else None
    if told is not None:
        return told[1], 1
    header = lines[0].strip("\r") if lines else ""
    return max(_SEPARATORS, key=lambda one: _fit(_names(header, one))), 0


def _fit(names: list[str]) -> tuple[bool, int]:
    """How much like a line of names it is: one of them that of the URL, and many known."""
    named = places(names).keys()
    return bool(named & {"target", "request"}), len(named)


def _is_header(names: list[str]) -> bool:
    target, known = _fit(names)
    # With two other names it is a table, too: that none is that of the URL is told when it is read.
    return target or known > 1


def _names(header: str, separator: str) -> list[str]:
    try:
        return cells(header, separator)
    except csv.Error:
        return []


def read_table(
    stream: BinaryIO, host: str, bad: BadLines, *, separator: str = "", rate: float
) -> Iterator[TraceRequest]:
    """A table whose first line names its columns. Without times `rate` requests come in a second."""
    rows = _rows(stream, separator, bad)
    try:
        _, names = next(rows)
    except StopIteration:
        return
    where = places(names)
    if "target" not in where and "request" not in where:
        raise TraceError(
            f"the first line of the trace names no column for the URL: {', '.join(names)[:120]}; "
            "expected one of url, path, uri, key"
        )
    extra = [
        (name.strip().lower().removeprefix(HEADER_PREFIX), place)
        for place, name in enumerate(names)
        if name.strip().lower().startswith(HEADER_PREFIX)
    ]
    if wrong := [name for name, _ in extra if not is_token(name)]:
        raise TraceError(f"the trace has a column for a header field that cannot be: {wrong[0]!r}")
    # What has no column is read from one more, which is empty.
    pick = itemgetter(*(where.get(part, len(names)) for part in NAMES))
    stamps = Stamps(rate)
    for number, row in rows:
        if len(row) != len(names):
            bad.add(number, f"{len(row)} columns instead of {len(names)}")
            continue
        fields = tuple((name, row[place]) for name, place in extra if row[place]) if extra else ()
        try:
            row.append("")
            yield request_of(*pick(row), host=host, stamps=stamps, fields=fields)
        except ValueError as error:
            bad.add(number, str(error))


def _rows(stream: BinaryIO, asked: str, bad: BadLines) -> Iterator[tuple[int, list[str]]]:
    """Number and columns of each line, beginning with that of the names."""
    numbered = text_lines(stream, bad)
    first = list(islice(numbered, 1))
    separator, skipped = _separator_of([text for _, text in first], asked)
    numbered = chain(first[skipped:], numbered)
    if asked == TAB and not any(text.startswith('"') for _, text in first):
        # No quotes: a quotation mark in a URL is one.
        yield from ((number, text.split(TAB)) for number, text in numbered)
        return
    for number, text in numbered:
        try:
            yield number, cells(text, separator)
        except csv.Error as error:
            bad.add(number, str(error))


def cells(line: str, separator: str = ",") -> list[str]:
    """The fields of a line of CSV, without blanks around them. Raises `csv.Error`."""
    # Line by line, since else one quotation mark that is not closed would take all lines up to the next one with it.
    row = next(csv.reader((line,), delimiter=separator, skipinitialspace=True, strict=True))
    return [cell.strip(" ") for cell in row] if " " in line else row


def read_keys(stream: BinaryIO, host: str, bad: BadLines, *, rate: float) -> Iterator[TraceRequest]:
    """One key a line, `rate` of them in a second."""
    for count, (_, text) in enumerate(text_lines(stream, bad)):
        yield TraceRequest(BEGINNING + count / rate, f"/{text.strip(' ')}", host=host)


def read_oracle(stream: BinaryIO, host: str, bad: BadLines) -> Iterator[TraceRequest]:
    """libCacheSim's oracleGeneral: records of 24 bytes."""
    number = 0
    offset: float | None = None
    while block := stream.read(RECORD.size * _AT_ONCE):
        while len(block) % RECORD.size and (more := stream.read(RECORD.size - len(block) % RECORD.size)):
            block += more
        whole = len(block) - len(block) % RECORD.size
        for when, name, size, _ in RECORD.iter_unpack(block[:whole]):
            number += 1
            if offset is None:
                offset = 0.0 if when >= FIRST_TIME else BEGINNING
            yield TraceRequest(when + offset, f"/{name}", size, host=host)
        if whole < len(block):
            bad.add(number + 1, "the last record is cut off")
