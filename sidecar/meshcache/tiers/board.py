"""A small file that the worker processes of one pod share through memory: invalidation epochs and leases.

Epochs: a resource (by its id, a uniform digest) has one of `slots` 8-byte slots. Its epoch is the slot's word
combined with a base word that is drawn at random when the file is made, so that a lost board makes all that was
stored under it dead rather than undead. A bump writes a new random word with one aligned store; there is nothing
to lock.
Resources that share a slot are invalidated together, which costs hits and nothing else.

Times: beside its epoch, a bump leaves the time at which it was made, one for sixteen slots. A store that other pods
share hears of an invalidation later than the workers of this pod do; by the time they pass over what it gives until
then.

Leases: buckets of eight rows, checked and set under an advisory record lock of the bucket (fcntl), whose holder
only touches memory. Such locks do not exclude within a process, which is why a board belongs to one event loop.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
import secrets
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_MAGIC = b"MCBOARD\x00"
_VERSION = 2
_HEAD = struct.Struct("=8sIII4x")
_HEAD_BYTES = 64
_BASE_WORD = 3
"""Index of the base word: the header before it holds magic, version and sizes (24 bytes)."""
_BOOT_AT = 32
_SLOTS_PER_TIME = 16
_ROW = struct.Struct("=QQd")
"""One lease: fingerprint of what is leased (0 for a free row), token of the holder, deadline on CLOCK_MONOTONIC."""
_ROWS_PER_BUCKET = 8
_BUCKET_BYTES = 256
_RELEASE_TRIES = 50


class BoardError(Exception):
    """The file cannot be made or mapped. One line, names the file."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Proof of holding a lease: what `release` needs."""

    key: bytes
    token: int


class Board:
    """The board at `path`, made when it is absent, of another form, or from before the machine's last start.

    After a crash of the machine the file may lack bumps that were never written to disk, and monotonic deadlines
    mean nothing any more: a board from another boot is replaced, so everything that was stored under it is dead.
    """

    def __init__(
        self,
        path: Path,
        *,
        slots: int = 1 << 20,
        lease_buckets: int = 1 << 10,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`slots` (16 or more) and `lease_buckets` are powers of two; the file takes 8.5 and 256 bytes for each."""
        if slots & (slots - 1) or lease_buckets & (lease_buckets - 1):
            raise ValueError("slots and lease_buckets must be powers of two")
        self._path = path
        self._slots = slots
        self._buckets = lease_buckets
        self._clock = clock
        self._wall_clock = wall_clock
        self._times_at = _HEAD_BYTES + 8 * slots
        self._leases_at = self._times_at + 8 * (slots // _SLOTS_PER_TIME)
        self._size = self._leases_at + _BUCKET_BYTES * lease_buckets
        try:
            self._open()
        except OSError as error:
            raise BoardError(f"{path}: {error.strerror or error}") from error

    def epoch(self, resource: bytes) -> bytes:
        """The invalidation epoch (8 bytes) of `resource`."""
        words = self._words
        # One aligned load: whole before or whole after a bump by another process, never torn.
        return (words[self._slot(resource)] ^ words[_BASE_WORD]).to_bytes(8, "little")

    def bump(self, resource: bytes) -> None:
        """Give `resource` a new epoch, for every process at once: all that was stored for it is dead."""
        slot = self._slot(resource)
        # The time first: who sees the new epoch sees it as well.
        self._times[(slot - _HEAD_BYTES // 8) // _SLOTS_PER_TIME] = self._wall_clock()
        self._words[slot] = secrets.randbits(64)

    def bumped_at(self, resource: bytes) -> float:
        """Unix seconds of the last bump of `resource`, or of one that shares its place; 0 when there was none."""
        return self._times[(self._slot(resource) - _HEAD_BYTES // 8) // _SLOTS_PER_TIME]

    def lease(self, key: bytes, seconds: float) -> Lease | None:
        """Take the lease of `key` (a resource id, a storage key) for `seconds`, or None while someone has it.

        None also when its bucket is full or is being changed at this very moment: better no refresh than two.
        """
        fingerprint = self._fingerprint(key)
        start = self._leases_at + (fingerprint & (self._buckets - 1)) * _BUCKET_BYTES
        with self._locked(start) as mine:
            if not mine:
                return None
            now = self._clock()
            free = -1
            for at in range(start, start + _ROWS_PER_BUCKET * _ROW.size, _ROW.size):
                owner, _, deadline = _ROW.unpack_from(self._map, at)
                # The second comparison guards against a deadline that no honest clock wrote.
                held = owner != 0 and now < deadline < now + 86400.0
                if held and owner == fingerprint:
                    return None
                if not held and free < 0:
                    free = at
            if free < 0:
                return None
            token = secrets.randbits(64)
            _ROW.pack_into(self._map, free, fingerprint, token, now + seconds)
            return Lease(key, token)

    def release(self, lease: Lease) -> None:
        """Give a lease back. One that has run out and was taken by another is left alone."""
        fingerprint = self._fingerprint(lease.key)
        start = self._leases_at + (fingerprint & (self._buckets - 1)) * _BUCKET_BYTES
        for _ in range(_RELEASE_TRIES):
            with self._locked(start) as mine:
                if not mine:
                    continue
                for at in range(start, start + _ROWS_PER_BUCKET * _ROW.size, _ROW.size):
                    owner, token, _ = _ROW.unpack_from(self._map, at)
                    if owner == fingerprint and token == lease.token:
                        _ROW.pack_into(self._map, at, 0, 0, 0.0)
                return
        # Whoever has the bucket locked does not let go (a stopped process): the lease runs out by itself.

    def refresh(self) -> bool:
        """Map the file anew if another one stands at its path, or none; to be called now and then.

        Processes that map different files would not see each other's bumps. Returns whether it was replaced;
        then every epoch has changed. On failure the old map stays, whole, and the next call tries again.
        """
        try:
            found = self._path.stat()
        except OSError:
            found = None
        if found is not None and (found.st_dev, found.st_ino) == self._identity:
            return False
        old = (self._words, self._times, self._view, self._map, self._descriptor)
        try:
            self._open()
        except OSError:
            return False
        self._discard(*old)
        return True

    def close(self) -> None:
        """Unmap the file; the board must not be used afterwards."""
        self._discard(self._words, self._times, self._view, self._map, self._descriptor)

    def _slot(self, resource: bytes) -> int:
        return _HEAD_BYTES // 8 + (int.from_bytes(resource[:8], "little") & (self._slots - 1))

    @staticmethod
    def _fingerprint(key: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") or 1

    @contextlib.contextmanager
    def _locked(self, start: int) -> Iterator[bool]:
        """Hold the record lock of the bucket at `start`; False when another process has it. Never waits."""
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _BUCKET_BYTES, start)
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, _BUCKET_BYTES, start)

    def _open(self) -> None:
        boot = boot_id()
        for _ in range(100):
            descriptor = self._open_existing(boot)
            if descriptor is not None:
                break
            self._create(boot)
        else:
            raise OSError(f"{self._path}: cannot be made")
        try:
            status = os.fstat(descriptor)
            mapped = map_shared(descriptor, self._size)
        except OSError:
            os.close(descriptor)
            raise
        # Only now, and all of it: a board that is half of one file and half of another would never be noticed.
        self._descriptor = descriptor
        self._identity = (status.st_dev, status.st_ino)
        self._map = mapped
        self._view = memoryview(mapped)
        self._words = self._view[: self._times_at].cast("Q")
        self._times = self._view[self._times_at : self._leases_at].cast("d")

    def _open_existing(self, boot: bytes) -> int | None:
        """A descriptor of the file at the path if it is a board of this form and this boot."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            sound = self._is_sound(descriptor, boot)
            if not sound:
                # Move aside only what was judged: another process may have put a good one there in the meantime.
                judged, there = os.fstat(descriptor), self._path.stat()
                if (judged.st_dev, judged.st_ino) == (there.st_dev, there.st_ino):
                    self._path.unlink()
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
        head = os.pread(descriptor, _HEAD_BYTES, 0)
        return (
            os.fstat(descriptor).st_size == self._size
            and head[: _HEAD.size] == _HEAD.pack(_MAGIC, _VERSION, self._slots, self._buckets)
            and head[_BOOT_AT : _BOOT_AT + len(boot)] == boot
        )

    def _create(self, boot: bytes) -> None:
        """Put a new board at the path, whole at once, unless another process has done so first."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            allocate(descriptor, self._size)
            head = _HEAD.pack(_MAGIC, _VERSION, self._slots, self._buckets) + secrets.token_bytes(8) + boot
            os.pwrite(descriptor, head, 0)
            with contextlib.suppress(FileExistsError):
                os.link(scratch, self._path)
        finally:
            os.close(descriptor)
            scratch.unlink(missing_ok=True)

    @staticmethod
    def _discard(
        words: memoryview[int], times: memoryview[float], view: memoryview, mapped: mmap.mmap, descriptor: int
    ) -> None:
        words.release()
        times.release()
        view.release()
        mapped.close()
        os.close(descriptor)


def allocate(descriptor: int, size: int) -> None:
    """Make the empty file behind `descriptor` `size` bytes long, all of them on the disk. Raises `OSError`.

    A file with holes will not do for a memory map: on a full disk, the first write into a hole kills the process
    (SIGBUS) instead of failing.
    """
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        # A file system that cannot promise space, with a C library that does not write it out instead.
        os.truncate(descriptor, size)


def map_shared(descriptor: int, size: int) -> mmap.mmap:
    """The first `size` bytes of a file in memory, shared with whoever else maps it. Raises `OSError`."""
    try:
        # In memory from the start: a page's first use would stop the event loop.
        return mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    except ValueError as error:
        # The file is shorter than it was a moment ago.
        raise OSError(errno.EIO, str(error)) from error


def boot_id() -> bytes:
    """16 bytes that differ from one start of the machine to the next; zeroes where the system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return hashlib.blake2b(file.read(64).strip(), digest_size=16).digest()
    except OSError:
        return bytes(16)
