"""A trace's file: opened, unpacked, its format told by what is in it."""

from __future__ import annotations

import codecs
import contextlib
import io
import re
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from meshcache.simulate.lines import BadLines
from meshcache.simulate.logs import COMMON, ENVOY, read_common, read_envoy, read_json
from meshcache.simulate.order import in_order, spread
from meshcache.simulate.packed import UNPACKING_ERRORS, unpacked
from meshcache.simulate.tables import RECORD, TAB, is_table, lacks_header, read_keys, read_oracle, read_table
from meshcache.simulate.trace import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from meshcache.simulate.trace import TraceRequest

_SNIFFED: Final = 1 << 16
_UTF_16_AND_32: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
DEFAULT_HOST: Final = "localhost"
DEFAULT_RATE: Final = 100.0
"""Requests a second of a trace without times."""


class Format(StrEnum):
    """How a trace is written."""

    COMMON = "common"
    """Access logs in the common or the combined format."""
    ENVOY = "envoy"
    JSON = "json"
    CSV = "csv"
    TSV = "tsv"
    ORACLE = "oracle"
    """libCacheSim's oracleGeneral."""
    KEYS = "keys"


@dataclass
class Trace:
    """A trace that is being read."""

    format: Format
    stream: BinaryIO
    """Unpacked, from its beginning."""
    bad: BadLines = field(default_factory=BadLines)
    position: Callable[[], int] = lambda: 0
    """How many bytes of the file have been read."""
    size: int | None = None
    """Bytes of the file; None where they are not known."""

    def requests(self, host: str = DEFAULT_HOST, rate: float = DEFAULT_RATE) -> Iterator[TraceRequest]:
        """Its requests by time. `host` and `rate` (a second) stand in for what a trace does not say.

        Raises `TraceError` when it is no trace after all.
        """
        readers: dict[Format, Callable[..., Iterator[TraceRequest]]] = {
            Format.COMMON: read_common,
            Format.ENVOY: read_envoy,
            Format.JSON: partial(read_json, rate=rate),
            Format.CSV: partial(read_table, rate=rate),
            Format.TSV: partial(read_table, separator=TAB, rate=rate),
            Format.ORACLE: read_oracle,
            Format.KEYS: partial(read_keys, rate=rate),
        }
        with _readable():
            made = readers[self.format](self.stream, host, self.bad)
            yield from made if self.format is Format.KEYS else spread(in_order(made))


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Whatever ends the reading of a file is a `TraceError`."""
    try:
        yield
    except (OSError, EOFError) as error:
        raise TraceError(f"the trace cannot be read to its end: {error}") from error
    except Exception as error:
        if type(error).__name__ in UNPACKING_ERRORS:
            raise TraceError(f"the trace cannot be unpacked: {error}") from error
        raise


@contextlib.contextmanager
def open_trace(path: Path, asked: Format | None = None) -> Iterator[Trace]:
    """The trace at `path`, `-` for standard input; unpacked where it is gzip or Zstandard.

    Raises `TraceError` when it cannot be read or its format is not known; `asked` is the format where that is given.
    """
    with contextlib.ExitStack() as closing:
        try:
            raw = _standard_input() if str(path) == "-" else closing.enter_context(path.open("rb"))
            size = None if str(path) == "-" else path.stat().st_size
            counted = _Counted(raw)
            stream = unpacked(io.BufferedReader(counted, _SNIFFED), _SNIFFED)
        except OSError as error:
            raise TraceError(f"{path}: {error.strerror or error}") from error
        with _readable():
            start = stream.peek(_SNIFFED)
            form = asked or recognised(start, path)
            if form is not Format.ORACLE and start.startswith(codecs.BOM_UTF8):
                # Spreadsheets begin their tables with it; left there, it would be a part of the first name or key.
                stream.read(len(codecs.BOM_UTF8))
        yield Trace(form, stream, position=lambda: counted.count, size=size)


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise TraceError("-: standard input is closed")
    return sys.stdin.buffer


class _Counted(io.RawIOBase):
    """A stream that tells how far it was read."""

    def __init__(self, inner: BinaryIO) -> None:
        super().__init__()
        self._inner = inner
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._inner.read(len(buffer))
        buffer[: len(data)] = data
        self.count += len(data)
        return len(data)


def recognised(start: bytes, path: Path) -> Format:
    """The format of a trace that begins like this. Raises `TraceError`."""
    if start.startswith(_UTF_16_AND_32):
        raise TraceError(f"{path}: is UTF-16 or UTF-32; turn it into UTF-8: `iconv -f UTF-16 -t UTF-8 FILE`")
    if b"\0" in start:
        if _is_oracle(start):
            return Format.ORACLE
        raise TraceError(f"{path}: is no text, and no trace in libCacheSim's oracleGeneral format")
    lines = [line for line in start.decode("utf-8-sig", "replace").split("\n") if line.strip()][:20]
    if not lines:
        raise TraceError(f"{path}: the trace is empty")
    if len(lines) > 1 and len(start) >= _SNIFFED:
        lines = lines[:-1] or lines
    first = lines[0].strip("\r")
    if first.lstrip().startswith("{"):
        return Format.JSON
    if _ARRAY.match("".join(lines)):
        raise TraceError(f"{path}: is an array of JSON; write one object a line: `jq -c '.[]' FILE`")
    for form, pattern in ((Format.COMMON, COMMON), (Format.ENVOY, ENVOY)):
        if any(pattern.match(line) for line in lines):
            return form
    if is_table(lines, TAB):
        return Format.TSV
    if is_table(lines):
        return Format.CSV
    if lacks_header(lines):
        raise TraceError(
            f"{path}: looks like a table whose first line does not name its columns: put such a line in front, for "
            "example time,url,status,bytes (or say `--format keys` if each line is a key)"
        )
    if all(len(line.split()) == 1 for line in lines):
        return Format.KEYS
    raise TraceError(f"{path}: the trace's format is not known; name it with --format ({', '.join(Format)})")


_ARRAY: Final = re.compile(r"\s*\[\s*\{")


def _is_oracle(start: bytes) -> bool:
    """Whether records of 24 bytes make sense: times that do not go back."""
    whole = len(start) - len(start) % RECORD.size
    times = [record[0] for record in RECORD.iter_unpack(start[:whole])]
    return bool(times) and all(one <= next_ for one, next_ in pairwise(times))
