"""Objects of a soak of the hot tier: many, of all sizes, some asked for far more often than others."""

from __future__ import annotations

from typing import Final

SMALLEST: Final = 64
LARGEST: Final = 48 << 10
TAGS: Final = 64
STEP: Final = 50
"""By how many ranks what is popular moves on with each round."""


def number_of(share: float, objects: int, moved: int) -> int:
    """Which of so many objects is asked for by a random `share` from 0 up to 1, so many ranks on.

    Every fourth request or so is for the first of them, half of all for the first four, and one in `r` ** 0.5 for what
    has a rank above `r`: nearly all find what is in memory, and all the time some ask for what is not, or never will be
    again. So does `hot_load.lua`.
    """
    return (int((1 - share) ** -2) - 1 + moved) % objects


def size_of(number: int, version: int) -> int:
    """The length of a version of object `number`: from `SMALLEST` to `LARGEST`, half of them below 350 bytes."""
    share = ((number + 31 * version) * 2_654_435_761 % (1 << 32)) / (1 << 32)
    return int(SMALLEST * (LARGEST / SMALLEST) ** (share * share))


def body_of(path: str, version: int) -> bytes:
    """What the origin has at `/hot/<number>` in this version: no two are the same anywhere in a row."""
    line = f"{path}#{version}\n".encode()
    size = max(size_of(int(path.rpartition("/")[2]), version), len(line))
    return (line * (size // len(line) + 1))[:size]


def version_in(path: str, body: bytes) -> int | None:
    """Of which version `body` is, whole and from its first byte to its last; None when it is none of that path."""
    first, _, _ = body.partition(b"\n")
    name, _, number = first.partition(b"#")
    if name.decode("latin-1") != path or not number.isdigit():
        return None
    return int(number) if body == body_of(path, int(number)) else None
