"""Objects of a soak of the hot tier: many, of all sizes, some asked for far more often than others."""

from __future__ import annotations

from typing import Final

SMALLEST: Final = 64
LARGEST: Final = 48 << 10
TAGS: Final = 64


def rank(objects: int, share: float) -> int:
    """Which of so many objects is asked for by a random share: the first ones far more often than by zipf's law.

    A few percent are for what no longer has room, or never had: those cost most of the time. So does `hot_load.lua`.
    """
    return int(objects ** (share * share))


def size_of(number: int) -> int:
    """The length of object `number`: anything between `SMALLEST` and `LARGEST`, each order of magnitude as often."""
    share = (number * 2_654_435_761 % (1 << 32)) / (1 << 32)
    return int(SMALLEST * (LARGEST / SMALLEST) ** share)


def body_of(path: str, version: int) -> bytes:
    """What the origin has at `/hot/<number>` in this version: no two are the same anywhere in a row."""
    line = f"{path}#{version}\n".encode()
    size = max(size_of(int(path.rpartition("/")[2])), len(line))
    return (line * (size // len(line) + 1))[:size]


def version_in(path: str, body: bytes) -> int | None:
    """Of which version `body` is, whole and from its first byte to its last; None when it is none of that path."""
    first, _, _ = body.partition(b"\n")
    name, _, number = first.partition(b"#")
    if name.decode("latin-1") != path or not number.isdigit():
        return None
    return int(number) if body == body_of(path, int(number)) else None
