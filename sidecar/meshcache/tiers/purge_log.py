"""A pod's log of purge rules: one file in the data folder, written by the supervisor, read by its workers.

A head, then one record after the other: length and CRC-32 (4 bytes each, big endian), then msgpack of a `Step`. Each
append is synced before anyone acts on it. A record that is cut off or damaged ends the log for readers; whether what is
missing was ever in effect tells the generation on the board.
All calls block: they are for threads, or for the start.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from meshcache.engine.purge_state import Header, Step

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FILE_NAME: Final = "purges.log"
"""In the data folder."""
_MAGIC: Final = b"MCPURGE1"
_RECORD: Final = struct.Struct(">II")
_LONGEST_RECORD: Final = 1 << 20

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_head_decoder = msgspec.msgpack.Decoder(Header)
_step_decoder = msgspec.msgpack.Decoder(Step)


@dataclass(frozen=True, slots=True)
class News:
    """What a reader has found since it last looked."""

    header: Header | None
    """Of another file than before: what was read of that one is void, and `steps` are all there are. None for the same
    file."""
    steps: tuple[Step, ...]


class LogReader:
    """Reads the log at `path` from where it stopped, or from the start when another file has taken its place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = b""
        """What the file begins with: no other file does, as each has a mark of its own. An inode may be used again."""
        self._offset = 0

    @property
    def offset(self) -> int:
        """Bytes of the file that were read and are sound."""
        return self._offset

    def read(self) -> News:
        """What is new. Raises `OSError`, and `ValueError` for a file that is no log."""
        with self._path.open("rb") as file:
            again = bool(self._start) and file.read(len(self._start)) == self._start
            file.seek(self._offset if again else 0)
            data = file.read()
        header = None
        at = 0
        start = self._start
        if not again:
            found = _record(data, len(_MAGIC)) if data.startswith(_MAGIC) else None
            if found is None:
                raise ValueError(f"{self._path}: not a log of purges")
            payload, at = found
            header = _decoded(_head_decoder, payload)
            if header is None:
                raise ValueError(f"{self._path}: the head of the log is damaged")
            start = data[:at]
        steps = []
        while (found := _record(data, at)) is not None:
            step = _decoded(_step_decoder, found[0])
            if step is None:
                break
            steps.append(step)
            at = found[1]
        self._offset = at if not again else self._offset + at
        self._start = start
        return News(header, tuple(steps))


class LogWriter:
    """The one writer of the log at `path`. All calls may raise `OSError`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self.size = 0
        """Bytes of the file."""

    def resume(self, offset: int) -> None:
        """Go on with the file that is there, after its first `offset` bytes, which are all that is sound."""
        self.close()
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        os.ftruncate(self._descriptor, offset)
        self.size = offset

    def replace(self, header: Header, steps: Iterable[Step]) -> None:
        """Put a new log in the place of the old one, whole or not at all."""
        marked = msgspec.structs.replace(header, mark=secrets.randbits(63))
        data = b"".join([_MAGIC, _packed(marked), *map(_packed, steps)])
        scratch = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _write(descriptor, data)
            os.fsync(descriptor)
            os.replace(scratch, self._path)
        except BaseException:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(scratch)
            raise
        self.close()
        self._descriptor, self.size = descriptor, len(data)
        _sync_folder(self._path.parent)

    def append(self, steps: Iterable[Step]) -> None:
        """Add steps; they are on the disk when this returns. When it raises, none of them is in the log."""
        if self._descriptor < 0:
            raise FileNotFoundError(f"{self._path}: there is no log")
        data = b"".join(map(_packed, steps))
        try:
            os.lseek(self._descriptor, self.size, os.SEEK_SET)
            _write(self._descriptor, data)
            os.fsync(self._descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size)
            raise
        self.size += len(data)

    def stands(self) -> bool:
        """Whether the file at the path is still the one that is written to."""
        try:
            there, mine = os.stat(self._path), os.fstat(self._descriptor)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino) and mine.st_size >= self.size

    def remove(self) -> None:
        """Remove the log, so that nobody takes it for a whole one."""
        self.close()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        _sync_folder(self._path.parent)

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _packed(value: Header | Step) -> bytes:
    payload = _encoder.encode(value)
    return _RECORD.pack(len(payload), zlib.crc32(payload)) + payload


def _record(data: bytes, at: int) -> tuple[bytes, int] | None:
    """The payload of the record at `at`, and where the next one begins; None when there is no sound one."""
    if len(data) < at + _RECORD.size:
        return None
    length, checksum = _RECORD.unpack_from(data, at)
    start = at + _RECORD.size
    payload = data[start : start + length]
    if not length or length > _LONGEST_RECORD or len(payload) < length or zlib.crc32(payload) != checksum:
        return None
    return payload, start + length


def _decoded(decoder: msgspec.msgpack.Decoder[T], payload: bytes) -> T | None:
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, ValueError):
        return None


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
