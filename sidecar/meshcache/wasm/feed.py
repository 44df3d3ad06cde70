"""What the feed answers to a filter's poll: what to drop, how far that goes, and a new plan if there is one.

All numbers are little endian:

    "MCF1" | u16 format | u64 generation | u32 labels | labels * u64 | u32 plan length | plan

`labels` is 0xFFFFFFFF, with none behind it, where everything is to be dropped; a plan of no length means that the one
which is in force stays.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

MAGIC: Final = b"MCF1"
FORMAT: Final = 1
EVERYTHING: Final = 0xFFFFFFFF
MOST_LABELS: Final = 4096
"""In one answer: where there are more, everything is dropped."""

_HEAD: Final = struct.Struct("<4sHQI")
_LENGTH: Final = struct.Struct("<I")


class News(NamedTuple):
    """The contents of one answer."""

    generation: int
    """Of the newest of what is dropped: the next poll names it."""
    labels: tuple[int, ...] | None
    """None for everything."""
    plan: bytes = b""
    """Empty when the one in force stays."""


def encode(generation: int, labels: Sequence[int] | None, plan: bytes = b"") -> bytes:
    """The body of an answer."""
    if labels is not None and len(labels) > MOST_LABELS:
        labels = None
    count = EVERYTHING if labels is None else len(labels)
    listed = b"" if labels is None else struct.pack(f"<{count}Q", *labels)
    return b"".join(
        (_HEAD.pack(MAGIC, FORMAT, generation, count), listed, _LENGTH.pack(len(plan)), plan),
    )


def decode(body: bytes) -> News:
    """What `encode` was given. Raises `ValueError` for anything else."""
    try:
        magic, form, generation, count = _HEAD.unpack_from(body)
        if magic != MAGIC or form != FORMAT:
            raise ValueError("not an answer of the feed in this format")
        at = _HEAD.size
        labels: tuple[int, ...] | None = None
        if count != EVERYTHING:
            if count > MOST_LABELS:
                raise ValueError(f"{count} labels, more than {MOST_LABELS}")
            labels = struct.unpack_from(f"<{count}Q", body, at)
            at += 8 * count
        (length,) = _LENGTH.unpack_from(body, at)
    except struct.error as error:
        raise ValueError(f"cut off: {error}") from error
    plan = body[at + _LENGTH.size :]
    if len(plan) != length:
        raise ValueError(f"a plan of {length} bytes is announced, {len(plan)} are there")
    return News(generation, labels, plan)
