"""The lines of a trace: bounded in length, and the bad ones counted rather than fatal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST: Final = 1 << 16
"""Bytes of a line; the rest of a longer one is not read as another."""
_SHOWN: Final = 5
_LONGEST_REASON: Final = 120


@dataclass
class BadLines:
    """What of a trace could not be read."""

    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)
    """Number and reason of the first few: of lines, or of records."""

    def add(self, number: int, reason: str) -> None:
        """One more."""
        self.count += 1
        if len(self.first) < _SHOWN:
            self.first.append((number, reason[:_LONGEST_REASON]))


def text_lines(stream: BinaryIO, bad: BadLines) -> Iterator[tuple[int, str]]:
    """Number and text of each line that is not empty, without its end."""
    number = 0
    while line := stream.readline(LONGEST + 1):
        number += 1
        if len(line) > LONGEST:
            bad.add(number, f"longer than {LONGEST} bytes")
            while line and not line.endswith(b"\n"):
                line = stream.readline(LONGEST)
            continue
        # A character for each byte, as the cache sees a URL.
        text = line.decode("latin-1").strip("\r\n")
        if text and not text.isspace():
            yield number, text
