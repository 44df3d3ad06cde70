"""Regular expressions of routes: RE2, so that no text takes more than linear time, and any number of them in one pass.

It is what Envoy does with its `safe_regex`: the syntax is RE2's, the whole text has to fit, and it is a text of bytes:
`.` is one byte. So are the texts of `message`, one character for each byte, and an expression beyond ASCII stands for
the bytes of its UTF-8.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import re2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_PATTERN: Final = 1024
"""Most characters of one expression."""
MAX_PROGRAM: Final = 4096
"""Most instructions that one expression may be compiled to; `.{100}` has about 200."""
MAX_PROGRAMS: Final = 200_000
"""Most instructions of all expressions of a policy set together."""

_MEMORY: Final = 32 << 20
"""Bytes for the automata of all sets of one index together: they grow with the texts that come, up to here."""
_LEAST_MEMORY: Final = 256 << 10
_MOST_MEMORY: Final = 8 << 20

_HINTS: Final = (
    ("(?=", "RE2 has no look-ahead: name the path by prefix, or take a second match"),
    ("(?!", "RE2 has no look-ahead: a more specific route without policyRef takes requests out"),
    ("(?<", "RE2 has no look-behind"),
    ("invalid escape sequence: \\1", "RE2 has no references to groups"),
    ("bad repetition operator", "two repetitions in a row: put the first in (?:...)"),
    ("invalid repetition size", "RE2 repeats at most 1000 times"),
    ("no argument for repetition", "put .* for any text, or \\* for the sign itself"),
)


def _options(memory: int) -> re2.Options:
    options = re2.Options()
    options.max_mem = memory
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    return options


@lru_cache(maxsize=4096)
def check_pattern(pattern: str) -> int:
    """The number of instructions of `pattern`. Raises `ValueError` for what RE2 does not take or what is too large."""
    if not 0 < len(pattern) <= MAX_PATTERN:
        raise ValueError(f"a regular expression has 1 to {MAX_PATTERN} characters; write exact for one text alone")
    try:
        size: int = re2.compile(pattern.encode(), _options(_MOST_MEMORY)).programsize
    except re2.error as error:
        told = error.args[0]
        told = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
        hint = next((f"; {hint}" for mark, hint in _HINTS if mark in told), "")
        raise ValueError(f"not a regular expression of RE2: {told[:120]}{hint}") from None
    if size > MAX_PROGRAM:
        raise ValueError("the regular expression is too large once its repetitions are written out; say .* or [^/]*")
    return size


def literal_range(pattern: str) -> tuple[bytes, bytes] | None:
    """Texts between which everything that `pattern` fits lies, in the order of bytes; None when that is not known.

    The bounds need not fit themselves, and at most 64 bytes of each are told.
    """
    try:
        least, most = re2.compile(f"^(?:{pattern})$".encode(), _options(_MOST_MEMORY)).possiblematchrange(64)
    except re2.error:
        return None
    return (least, most) if least <= most else None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re2._Regexp:
    return re2.compile(pattern.encode(), _options(_MOST_MEMORY))


def fits(pattern: str, text: str) -> bool:
    """Whether the whole of `text` fits `pattern`: what a `PatternSet` of it alone says, for use now and then."""
    try:
        return _compiled(pattern).fullmatch(text.encode("latin-1")) is not None
    except UnicodeEncodeError:
        return False


def as_sent(text: str) -> str:
    """Text of a document as it stands in messages: one character for each byte of its UTF-8."""
    return text.encode().decode("latin-1")


class PatternSet:
    """Several expressions that are tried on a text together, at the price of about one."""

    __slots__ = ("_match", "_patterns")

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        self._match: Callable[[bytes], list[int] | None]

    def compile(self, memory: int) -> None:
        """Make it ready, within `memory` bytes or, if its program alone takes more, as many as that needs."""
        while True:
            made = re2.Set.FullMatchSet(_options(memory))
            for pattern in self._patterns:
                made.Add(pattern.encode())
            try:
                made.Compile()
            except re2.error:
                # Each by itself has been checked: together they need more room.
                memory *= 2
                continue
            self._match = made.Match
            return

    def fitting(self, text: str) -> list[int]:
        """Which of the expressions fit the whole of `text`, by their numbers."""
        try:
            data = text.encode("latin-1")
        except UnicodeEncodeError:
            return []
        return self._match(data) or []


class PatternSets:
    """All sets of one index: equal ones are made once, and together they stay within a bound of memory."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, ...], PatternSet] = {}

    def of(self, patterns: Sequence[str]) -> PatternSet:
        """The set of `patterns`, to be used after `compile`."""
        key = tuple(patterns)
        return self._made.setdefault(key, PatternSet(key))

    def compile(self) -> None:
        """Make all sets ready."""
        if self._made:
            memory = min(max(_MEMORY // len(self._made), _LEAST_MEMORY), _MOST_MEMORY)
            for one in self._made.values():
                one.compile(memory)
