"""How values stand in a plan: little endian, everything with its length in front."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import TypeVar

    T = TypeVar("T")


class TooLargeError(Exception):
    """Something is larger than the format can say."""


class Writer:
    """Bytes that grow."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def u8(self, value: int) -> None:
        """Raises `TooLargeError` for what does not fit, as all of these."""
        self._pack("<B", value)

    def u16(self, value: int) -> None:
        """Two bytes."""
        self._pack("<H", value)

    def u32(self, value: int) -> None:
        """Four bytes."""
        self._pack("<I", value)

    def u64(self, value: int) -> None:
        """Eight bytes."""
        self._pack("<Q", value)

    def f64(self, value: float) -> None:
        """Eight bytes (IEEE 754)."""
        self._pack("<d", value)

    def raw(self, data: bytes) -> None:
        """Bytes whose number the reader knows."""
        self._parts.append(data)

    def text(self, data: bytes) -> None:
        """Bytes behind their number, two bytes."""
        self.u16(len(data))
        self._parts.append(data)

    def each(self, items: Collection[T], write: Callable[[T], None], *, wide: bool = False) -> None:
        """So many items, behind their number in two bytes, four where it is `wide`."""
        (self.u32 if wide else self.u16)(len(items))
        for item in items:
            write(item)

    def done(self) -> bytes:
        """All of it."""
        return b"".join(self._parts)

    def _pack(self, form: str, value: float) -> None:
        try:
            self._parts.append(struct.pack(form, value))
        except (struct.error, OverflowError) as error:
            raise TooLargeError(str(error)) from error
