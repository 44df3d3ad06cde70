"""The file behind a board: how it is laid out, made, mapped, and replaced when another one stands at its path.

One after the other: a header, a word for each slot, a time for sixteen slots, buckets of leases, pulses, shunned keys.
What they are for is told by `board` and `board_leases`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
from typing import TYPE_CHECKING, Any

from meshcache.tiers.mapping import allocate, boot_id, map_shared

if TYPE_CHECKING:
    import mmap
    from pathlib import Path

_MAGIC = b"MCBOARD\x00"
_VERSION = 3
_HEAD = struct.Struct("=8sIII4x")
HEAD_BYTES = 64
BASE_WORD = 3
"""Index of the base word: the header before it holds magic, version and sizes (24 bytes)."""
_BOOT_AT = 32
PURGE_WORD = 6
"""Index of the generation of purges, behind the boot (bytes 32 to 48); 0 in a new file."""
SLOTS_PER_TIME = 16
BUCKET_BYTES = 256
PULSE = struct.Struct("=Qd")
"""One process: a number of its own, and when it last called `beat`, on CLOCK_MONOTONIC."""
PULSES = 256
"""Row 0 is never given: its number stands for a process without a pulse."""
SHUNNED = 8192


class BoardFile:
    """The file at `path`, mapped; made when it is absent, of another form, or from before the machine's last start."""

    def __init__(self, path: Path, *, slots: int, buckets: int) -> None:
        """`slots` (16 or more) and `buckets` are powers of two. Raises `OSError`."""
        self.path = path
        self.slots = slots
        self.buckets = buckets
        times_at = HEAD_BYTES + 8 * slots
        self.leases_at = times_at + 8 * (slots // SLOTS_PER_TIME)
        self.pulses_at = self.leases_at + BUCKET_BYTES * buckets
        shunned_at = self.pulses_at + PULSES * PULSE.size
        self._size = shunned_at + 8 * SHUNNED
        self._times_at, self._shunned_at = times_at, shunned_at
        self._open()

    def refresh(self) -> bool:
        """Map the file anew if another one stands at its path, or none; whether it was replaced.

        On failure the old map stays, whole, and the next call tries again.
        """
        try:
            found = self.path.stat()
        except OSError:
            found = None
        if found is not None and (found.st_dev, found.st_ino) == self._identity:
            return False
        views, mapped, descriptor = (self.words, self.times, self.shuns, self._view), self.map, self.descriptor
        try:
            self._open()
        except OSError:
            return False
        _discard(views, mapped, descriptor)
        return True

    def close(self) -> None:
        """Unmap the file."""
        _discard((self.words, self.times, self.shuns, self._view), self.map, self.descriptor)

    def _open(self) -> None:
        boot = boot_id()
        for _ in range(100):
            descriptor = self._open_existing(boot)
            if descriptor is not None:
                break
            self._create(boot)
        else:
            raise OSError(f"{self.path}: cannot be made")
        try:
            status = os.fstat(descriptor)
            mapped = map_shared(descriptor, self._size)
        except OSError:
            os.close(descriptor)
            raise
        # Only now, and all of it: a board that is half of one file and half of another would never be noticed.
        self.descriptor = descriptor
        self._identity = (status.st_dev, status.st_ino)
        self.map = mapped
        self._view = memoryview(mapped)
        self.words = self._view[: self._times_at].cast("Q")
        self.times = self._view[self._times_at : self.leases_at].cast("d")
        self.shuns = self._view[self._shunned_at : self._size].cast("Q")

    def _open_existing(self, boot: bytes) -> int | None:
        """A descriptor of the file at the path if it is a board of this form and this boot."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            sound = self._is_sound(descriptor, boot)
            if not sound:
                # Move aside only what was judged: another process may have put a good one there in the meantime.
                judged, there = os.fstat(descriptor), self.path.stat()
                if (judged.st_dev, judged.st_ino) == (there.st_dev, there.st_ino):
                    self.path.unlink()
        except FileNotFoundError:
            sound = False
        except OSError:
            os.close(descriptor)
            raise
        if sound:
            return descriptor
        os.close(descriptor)
        return None

    def _is_sound(self, descriptor: int, boot: bytes) -> bool:
        head = os.pread(descriptor, HEAD_BYTES, 0)
        return (
            os.fstat(descriptor).st_size == self._size
            and head[: _HEAD.size] == _HEAD.pack(_MAGIC, _VERSION, self.slots, self.buckets)
            and head[_BOOT_AT : _BOOT_AT + len(boot)] == boot
        )

    def _create(self, boot: bytes) -> None:
        """Put a new board at the path, whole at once, unless another process has done so first."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            allocate(descriptor, self._size)
            head = _HEAD.pack(_MAGIC, _VERSION, self.slots, self.buckets) + secrets.token_bytes(8) + boot
            os.pwrite(descriptor, head, 0)
            with contextlib.suppress(FileExistsError):
                os.link(scratch, self.path)
        finally:
            os.close(descriptor)
            scratch.unlink(missing_ok=True)


def _discard(views: tuple[memoryview[Any], ...], mapped: mmap.mmap, descriptor: int) -> None:
    for view in views:
        view.release()
    mapped.close()
    os.close(descriptor)
