"""A folder that several processes use as a bounded store of many values: blocking calls, for threads.

Plain files rather than an object-store client: the modification time holds the expiry, so that a sweep reads no file
(attributes are not to be had for local files there), a read is one open and one read (a third of the client's
time), and what is not a plain file (a pipe, a link) is refused rather than waited for.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshcache.engine.pools import COMMON, DIGEST_BYTES, UNDIVIDED
from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.envelope import private_chunks
from meshcache.tiers.fates import FRONT_BYTES, Fate, Judge, Visited, front_bytes, is_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from meshcache.engine.pools import Division

_SWEPT_TO = 0.75
"""Part of a pool's share down to which a sweep goes: room for what comes before the next."""
_SWEEP_AFTER = 1 / 32
"""Part of a pool's share that one process may write before it asks for a sweep: eight processes stay within."""
_SWEEP_LEAST = 1 / 1024
"""The same of `max_bytes`, at least: a sweep looks at every file, whoever it is for."""
_POOL_AT = 2 * DIGEST_BYTES - 4
"""Where in the name of a file its pool begins, behind what the names of the two folders have left of the digest."""
_SCRATCH = "tmp"
_SCRATCH_KEPT = 600.0
_FILE_OVERHEAD = 4096
"""A file takes whole blocks, and an inode."""


@dataclass(frozen=True, slots=True)
class Swept:
    """How many files a sweep removed."""

    expired: int
    evicted: int


class ObjectFolder:
    """One file for each storage key, at `ab/cd/<rest>` by its hex digits. Raises `TierError` only."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        """`path` is made when absent, at the first write."""
        self._path = os.fspath(path)
        self._max_bytes = max_bytes
        self.largest_value = max_bytes // 8
        self._division = UNDIVIDED
        self._written: dict[bytes, int] = {}
        """By pool, since this process last saw a sweep."""

    def divide(self, division: Division) -> None:
        """Keep every pool to its share from the next sweep on. From any thread."""
        self._division = division

    def takes(self, key: bytes, size: int) -> bool:
        """Whether a value of `size` bytes may be stored under `key`."""
        division = self._division
        return size <= min(self.largest_value, division.part(division.pool(key), self._max_bytes))

    def read(self, key: bytes, now: float) -> bytes | None:
        """The value under `key`, unless it has expired at `now` (Unix seconds)."""
        try:
            # Not to be led elsewhere by a link, nor to wait for the other end of a pipe.
            descriptor = os.open(self._file(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                return None
            raise _translated(error) from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_mtime <= now or status.st_size > self.largest_value:
                return None
            with os.fdopen(os.dup(descriptor), "rb", buffering=0) as file:
                return file.readall()
        except OSError as error:
            raise _translated(error) from error
        finally:
            os.close(descriptor)

    def write(self, key: bytes, value: bytes, expires_at: float) -> None:
        """Put `value` under `key` whole or not at all, until `expires_at` (Unix seconds).

        Not synced: after a crash of the machine a file may hold anything, which its signature tells.
        """
        target = self._file(key)
        scratch = os.path.join(self._path, _SCRATCH, secrets.token_hex(16))
        try:
            descriptor = self._create(scratch)
            try:
                with os.fdopen(descriptor, "wb", buffering=0) as file:
                    view = memoryview(value)
                    while view:
                        view = view[file.write(view) :]
                    os.utime(file.fileno(), (expires_at, expires_at))
                try:
                    os.replace(scratch, target)
                except FileNotFoundError:
                    self._make(os.path.dirname(target))
                    os.replace(scratch, target)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(scratch)
                raise
        except OSError as error:
            raise _translated(error) from error
        pool = self._division.pool(key)
        self._written[pool] = self._written.get(pool, 0) + len(value) + _FILE_OVERHEAD

    def keep(self, key: bytes, value: bytes, expires_at: float, now: float) -> bool:
        """As `write`, unless a value of that length is there at `now`: then it stays, and until `expires_at` at least.

        Whether it was written.
        """
        if self._prolonged(key, expires_at, now, size=len(value)):
            return False
        self.write(key, value, expires_at)
        return True

    def extend(self, keys: Sequence[bytes], expires_at: float, now: float) -> frozenset[bytes]:
        """Those of `keys` that are not there at `now`; the others are there until `expires_at` at least.

        Times are Unix seconds.
        """
        return frozenset(key for key in keys if not self._prolonged(key, expires_at, now))

    def _prolonged(self, key: bytes, expires_at: float, now: float, size: int | None = None) -> bool:
        """Whether a value, of `size` bytes if given, is there; it then stays until `expires_at` at least."""
        path = self._file(key)
        try:
            status = os.stat(path, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode) or status.st_mtime <= now or size not in (None, status.st_size):
                return False
            if status.st_mtime < expires_at:
                os.utime(path, (expires_at, expires_at), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _translated(error) from error
        return True

    def remove(self, key: bytes) -> None:
        """Forget `key`."""
        try:
            os.unlink(self._file(key))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            pass
        except OSError as error:
            raise _translated(error) from error

    def folders(self) -> list[str]:
        """The folders of the first level, for `visit`."""
        return [entry.name for entry in _listed(self._path) if len(entry.name) == 2]

    def visit(self, first: str, now: float, judge: Judge) -> Visited:
        """Show the values of one folder of the first level to `judge`; those that it condemns are removed."""
        matched: list[bytes] = []
        for second in _listed(os.path.join(self._path, first)):
            for entry in _listed(second.path) if second.is_dir(follow_symlinks=False) else ():
                try:
                    key = bytes.fromhex(first + second.name + entry.name)
                except ValueError:
                    continue
                fate, live, private = _shown(entry.path, key, now, judge)
                if live and fate is not Fate.SPARED:
                    matched.append(key)
                if fate is Fate.CONDEMNED:
                    with contextlib.suppress(TierError):
                        for chunk in private_chunks(self.read(key, 0.0) or b"") if private else ():
                            self.remove(chunk)
                    _unlinked(entry.path)
        return Visited(matched, None)

    def wants_sweep(self) -> bool:
        """Whether this process has written so much since it last saw a sweep that another is due."""
        division = self._division
        return any(
            written > max(division.part(pool, self._max_bytes) * _SWEEP_AFTER, self._max_bytes * _SWEEP_LEAST)
            for pool, written in list(self._written.items())
            if not pool or pool in division.arms
        )

    def sweep(self, now: float) -> Swept | None:
        """Remove what has expired at `now`, then what was written first until each pool keeps to its share with some
        room.

        None when another process is sweeping, which serves as well.
        """
        self._written = {}
        try:
            with self._sweeping() as mine:
                return self._sweep(now) if mine else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _translated(error) from error

    def _sweep(self, now: float) -> Swept:
        expired = evicted = 0
        division = self._division
        kept: dict[bytes, list[tuple[float, int, str]]] = {}
        for entry in self._files():
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            size = status.st_size + _FILE_OVERHEAD
            if status.st_mtime <= now:
                expired += _unlinked(entry.path)
            else:
                pool = division.pool(bytes(DIGEST_BYTES) + _hex(entry.name[_POOL_AT:])) if division.arms else COMMON
                kept.setdefault(pool, []).append((status.st_ctime, size, entry.path))
        for pool, files in kept.items():
            share = division.part(pool, self._max_bytes)
            total = sum(size for _, size, _ in files)
            if total <= share:
                continue
            files.sort()
            for _, size, path in files:
                if total <= share * _SWEPT_TO:
                    break
                evicted += _unlinked(path)
                total -= size
        self._sweep_scratch()
        return Swept(expired, evicted)

    def _sweep_scratch(self) -> None:
        """Remove what writers that were killed left half done."""
        before = time.time() - _SCRATCH_KEPT
        for entry in _listed(os.path.join(self._path, _SCRATCH)):
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_ctime < before:
                    os.unlink(entry.path)

    def _files(self) -> Iterator[os.DirEntry[str]]:
        for first in _listed(self._path):
            if len(first.name) == 2 and first.is_dir(follow_symlinks=False):
                for second in _listed(first.path):
                    if second.is_dir(follow_symlinks=False):
                        yield from _listed(second.path)

    def _file(self, key: bytes) -> str:
        name = key.hex()
        return os.path.join(self._path, name[:2], name[2:4], name[4:])

    def _create(self, scratch: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            return os.open(scratch, flags, 0o600)
        except FileNotFoundError:
            self._make(os.path.dirname(scratch))
            return os.open(scratch, flags, 0o600)

    def _make(self, folder: str) -> None:
        # Two steps: the mode is for the last folder only, and it is the first that keeps others out.
        os.makedirs(self._path, mode=0o700, exist_ok=True)
        os.makedirs(folder, mode=0o700, exist_ok=True)

    @contextlib.contextmanager
    def _sweeping(self) -> Iterator[bool]:
        """Be the one process that sweeps; False when there is one already. Given up by the system when it dies."""
        descriptor = os.open(os.path.join(self._path, "sweep.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)


def _shown(path: str, key: bytes, now: float, judge: Judge) -> tuple[Fate, bool, bool]:
    """What becomes of the file at `path`, whether its time is not over at `now`, and whether it is one person's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return Fate.SPARED, False, False
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Fate.SPARED, False, False
        start = os.pread(descriptor, FRONT_BYTES, 0)
        needed = front_bytes(start)
        if needed > len(start):
            start = os.pread(descriptor, needed, 0)
        return judge(key, start), status.st_mtime > now, is_private(start)
    except OSError:
        return Fate.SPARED, False, False
    finally:
        os.close(descriptor)


def _listed(path: str) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing when it is gone."""
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _hex(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError:
        return b""


def _unlinked(path: str) -> int:
    try:
        os.unlink(path)
    except OSError:
        return 0
    return 1


def _translated(error: OSError) -> TierError:
    kind = Trouble.IO
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        kind = Trouble.FULL
    elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        kind = Trouble.REFUSED
    return TierError(f"cold folder: {error.strerror}", kind)
