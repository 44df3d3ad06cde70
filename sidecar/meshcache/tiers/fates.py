"""What a sweep after a purge does with one stored value, and how a store shows its values to it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

from meshcache.tiers.envelope import Front, front_of

FRONT_BYTES: Final = 1024
"""Of a value are read first: as a rule all that stands in front of the record."""
HEAD_BYTES: Final = 64
"""Of a value that tell it from any other that may take its place: its signature among them."""


class Fate(Enum):
    """What becomes of a value."""

    SPARED = auto()
    MATCHED = auto()
    """It is counted, and stays."""
    CONDEMNED = auto()
    """It is counted, and goes."""


Judge = Callable[[bytes, bytes | memoryview], Fate]
"""Judges the value under a key by its first bytes; where they are fewer than `front_bytes` asks for, it is spared."""


class Visited(NamedTuple):
    """A part of a store that was shown."""

    matched: list[bytes]
    """Keys of those that were not spared, and had not expired."""
    last: bytes | None
    """Where to go on; None at the end."""


def front_bytes(start: bytes) -> int:
    """How many bytes of the value that begins with `start` its judge needs."""
    front = front_of(start)
    return front if isinstance(front, int) else 0


def is_private(start: bytes) -> bool:
    """Whether the value that begins with `start` is one person's, and with it the chunks of its body."""
    front = front_of(start)
    return isinstance(front, Front) and front.labels is not None and bool(front.labels.subject)
