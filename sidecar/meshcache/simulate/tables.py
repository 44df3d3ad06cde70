"""Traces with a column for each part of a request, and traces of mere keys."""

from __future__ import annotations

import csv
import struct
from operator import itemgetter
from typing import TYPE_CHECKING, BinaryIO, Final

from meshcache.rfc.fields import is_token
from meshcache.simulate.fields import HEADER_PREFIX, NAMES, places, request_of
from meshcache.simulate.lines import BadLines, text_lines
from meshcache.simulate.stamps import Stamps
from meshcache.simulate.trace import BEGINNING, TraceError, TraceRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORD: Final = struct.Struct("<IQIq")
"""One request of libCacheSim's oracleGeneral: Unix seconds, object, bytes, and when it is asked for next."""
_AT_ONCE: Final = 4096
_FIRST_TIME: Final = 1e8


def read_table(stream: BinaryIO, host: str, bad: BadLines, *, separator: str, rate: float) -> Iterator[TraceRequest]:
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


def _rows(stream: BinaryIO, separator: str, bad: BadLines) -> Iterator[tuple[int, list[str]]]:
    numbered = text_lines(stream, bad)
    if separator == "\t":
        # No quotes: a quotation mark in a URL is one.
        yield from ((number, text.split("\t")) for number, text in numbered)
        return
    for number, text in numbered:
        try:
            yield number, cells(text)
        except csv.Error as error:
            bad.add(number, str(error))


def cells(line: str) -> list[str]:
    """The fields of a line of CSV. Raises `csv.Error`."""
    # Line by line, since else one quotation mark that is not closed would take all lines up to the next one with it.
    return next(csv.reader((line,), strict=True))


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
                offset = 0.0 if when >= _FIRST_TIME else BEGINNING
            yield TraceRequest(when + offset, f"/{name}", size, host=host)
        if whole < len(block):
            bad.add(number + 1, "the last record is cut off")
