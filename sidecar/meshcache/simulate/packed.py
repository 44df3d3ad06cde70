"""Packed traces: told by how they begin, and unpacked as they are read."""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import re
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from meshcache.simulate.trace import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable

UNPACKING_ERRORS: Final = ("error", "LZMAError", "ZstdError")
"""Names of what the libraries raise for a packed file that is none: zlib has an `error`, zstandard a `ZstdError`."""

_GZIP, _BZIP2, _XZ, _ZIP = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"PK\x03\x04"
_ZSTD: Final = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
"""A frame of data, or one to be skipped, with which `pzstd` begins (RFC 8878 section 3.1)."""
_PIECE: Final = 1 << 10
"""Packed bytes at once: a block of zstd takes four, and makes 128 KiB of them."""


def unpacked(stream: io.BufferedReader, size: int) -> io.BufferedReader:
    """`stream` as it is, or what is packed in it; `size` is that of its buffer. Raises `TraceError`."""
    start = stream.peek(6)[:6]
    if start.startswith(_GZIP):
        return io.BufferedReader(cast("Any", gzip.GzipFile(fileobj=stream)), size)
    if start.startswith(_BZIP2) and start[3:4].isdigit():
        return io.BufferedReader(cast("Any", bz2.BZ2File(stream)), size)
    if start.startswith(_XZ):
        return io.BufferedReader(cast("Any", lzma.LZMAFile(stream)), size)
    if _ZSTD.match(start):
        return io.BufferedReader(Frames(stream, _zstd()), size)
    if start.startswith(_ZIP):
        raise TraceError("the trace is packed with zip: unpack it with `unzip -p FILE | meshcache simulate -`")
    return stream


class Unpacker(Protocol):
    """Unpacks one frame, as the objects of zlib and zstandard do."""

    @property
    def eof(self) -> bool:
        """Whether the frame has ended."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What came behind its end."""
        ...

    def decompress(self, data: bytes, /) -> bytes:
        """What the next bytes hold."""
        ...


class Frames(io.RawIOBase):
    """What is packed in all the frames of a stream, one after the other; one that is cut off is an `EOFError`.

    zstandard's own reader ends with the first frame, and takes the end of a file for that of its frame.
    """

    def __init__(self, inner: io.BufferedReader, new: Callable[[], Unpacker]) -> None:
        super().__init__()
        self._inner = inner
        self._new = new
        self._frame: Unpacker | None = None
        self._packed = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises `EOFError`, and what the library raises."""
        while not self._ready:
            self._packed = self._packed or self._inner.read(_PIECE)
            if not self._packed:
                if self._frame is not None:
                    raise EOFError("the file ends in the middle of what is packed")
                return 0
            frame = self._frame = self._frame or self._new()
            self._ready = memoryview(frame.decompress(self._packed))
            self._packed = b""
            if frame.eof:
                self._packed, self._frame = frame.unused_data, None
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count


def _zstd() -> Callable[[], Unpacker]:
    try:
        # Whoever has it has it for other reasons: this project does not need it.
        module = importlib.import_module("zstandard")
    except ImportError:
        raise TraceError(
            "the trace is packed with Zstandard: `pip install zstandard`, or unpack it with `zstd -dc FILE | "
            "meshcache simulate -`"
        ) from None
    return cast("Callable[[], Unpacker]", lambda: module.ZstdDecompressor().decompressobj())
