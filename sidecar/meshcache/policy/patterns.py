"""Regular expressions of routes: RE2, so that no text takes more than linear time, and any number of them in one pass.

It is what Envoy does with its `safe_regex`: the syntax is RE2's, the whole text has to fit, and it is a text of bytes:
`.` is one byte. So are the texts of `message`, one character for each byte, and an expression beyond ASCII stands for
the bytes of its UTF-8.
"""

from __future__ import annotations

from functools import lru_cache
from time import thread_time_ns
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

_EVERY: Final = 8
"""One of so many calls is timed."""
_LOOKS: Final = 32
"""So many timed calls make a judgement."""
_SLOW: Final = 8_000
_SLOW_BYTE: Final = 20
"""Nanoseconds of processor time for a text, and for each of its bytes, above which a call is slow; an automaton whose
states are there takes a tenth."""

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


class _Part:
    """Some expressions of a set, and how long they take.

    An automaton that stands for many expressions at once has a state for each combination of them that a text can be
    in the middle of. Where they begin with different letters those are few; where all of them look for something
    anywhere in the text they are more than any memory holds, and each byte costs the work of making a state anew.
    """

    __slots__ = ("_calls", "_match", "_memory", "_slow", "first", "patterns")

    def __init__(self, patterns: tuple[str, ...], first: int, memory: int) -> None:
        """`first` is the number of the first one in the set. `memory`: bytes, or more if its program alone takes it."""
        self.patterns = patterns
        self.first = first
        self._calls = 0
        self._slow = 0
        while True:
            made = re2.Set.FullMatchSet(_options(memory))
            for pattern in patterns:
                made.Add(pattern.encode())
            try:
                made.Compile()
            except re2.error:
                # Each by itself has been checked: together they need more room.
                memory *= 2
                continue
            break
        self._memory = memory
        self._match: Callable[[bytes], list[int] | None] = made.Match

    def fitting(self, data: bytes) -> list[int]:
        """Which of its expressions fit, counted from 0."""
        self._calls += 1
        if self._calls % _EVERY:
            return self._match(data) or []
        began = thread_time_ns()
        found = self._match(data) or []
        if thread_time_ns() - began > _SLOW + _SLOW_BYTE * len(data):
            self._slow += 1
        return found

    def is_due(self) -> bool:
        """Whether it has been called so often that it can be judged."""
        return self._calls >= _EVERY * _LOOKS

    def is_slow(self) -> bool:
        """Whether so many of the calls since last time took too long that this is no accident, and two are faster."""
        slow, self._calls, self._slow = self._slow, 0, 0
        return slow > _LOOKS // 4 and len(self.patterns) > 1

    def halves(self) -> tuple[_Part, _Part]:
        """The same in two."""
        middle = len(self.patterns) // 2
        memory = max(self._memory // 2, _LEAST_MEMORY)
        return (
            _Part(self.patterns[:middle], self.first, memory),
            _Part(self.patterns[middle:], self.first + middle, memory),
        )


class PatternSet:
    """Several expressions that are tried on a text together, at the price of about one.

    Where one pass turns out to be slower than several, it is divided: see `_Part`.
    """

    __slots__ = ("_parts", "_patterns")

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        self._parts: list[_Part] = []

    def compile(self, memory: int) -> None:
        """Make it ready, within about `memory` bytes."""
        self._parts = [_Part(self._patterns, 0, memory)]

    @property
    def passes(self) -> int:
        """How often a text is read."""
        return len(self._parts)

    def fitting(self, text: str) -> list[int]:
        """Which of the expressions fit the whole of `text`, by their numbers."""
        try:
            data = text.encode("latin-1")
        except UnicodeEncodeError:
            return []
        parts = self._parts
        if len(parts) == 1:
            found = parts[0].fitting(data)
        else:
            found = [part.first + number for part in parts for number in part.fitting(data)]
        # All parts have been called equally often, so that one tells when it is time to look.
        if parts[0].is_due():
            self._parts = [one for part in parts for one in (part.halves() if part.is_slow() else (part,))]
        return found


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
