"""A small file that the worker processes of one pod share through memory: invalidation epochs, leases, shunned keys.

Epochs: a resource (by its id, a uniform digest) has one of `slots` 8-byte slots. Its epoch is the slot's word
combined with a base word that is drawn at random when the file is made, so that a lost board makes all that was
stored under it dead rather than undead. A bump writes a new random word with one aligned store; there is nothing
to lock.
Resources that share a slot are invalidated together, which costs hits and nothing else.

Purges: one word, the generation of the newest purge rule, so that no process answers by what it has without knowing it.

Times: beside its epoch, a bump leaves the time at which it was made, one for sixteen slots. A store that other pods
share hears of an invalidation later than the workers of this pod do; by the time they pass over what it gives until
then.

Leases: buckets of eight rows, checked and set under an advisory record lock of the bucket (fcntl), whose holder
only touches memory. Such locks do not exclude within a process, which is why a board belongs to one event loop.

Pulses: a process that calls `beat` has a row that tells when it last did. Its leases hold while its pulse goes, so that
those of a process that died, or does not get on, are free at once.

Shunned keys: a word for each, at a place that the key gives; two keys of one place displace each other, which costs
nothing but knowledge.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshcache.tiers.mapping import allocate, boot_id, map_shared

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Iterator
    from pathlib import Path

_MAGIC = b"MCBOARD\x00"
_VERSION = 3
_HEAD = struct.Struct("=8sIII4x")
_HEAD_BYTES = 64
_BASE_WORD = 3
"""Index of the base word: the header before it holds magic, version and sizes (24 bytes)."""
_BOOT_AT = 32
_PURGE_WORD = 6
"""Index of the generation of purges, behind the boot (bytes 32 to 48); 0 in a new file."""
_SLOTS_PER_TIME = 16
_ROW = struct.Struct("=QQd")
"""One lease: fingerprint of what is leased (0 for a free row), token of the holder, deadline on CLOCK_MONOTONIC."""
_ROWS_PER_BUCKET = 8
_BUCKET = struct.Struct("=" + "QQd" * _ROWS_PER_BUCKET)
_BUCKET_BYTES = 256
_RELEASE_TRIES = 50
_PULSE = struct.Struct("=Qd")
"""One process: a number of its own, and when it last called `beat`, on CLOCK_MONOTONIC."""
_PULSES = 256
"""Row 0 is never given: its number stands for a process without a pulse."""
BEAT: float = 0.25
"""Seconds from one `beat` to the next."""
_LAPSE = 1.5
"""Seconds without a beat after which a process's leases are free: longer than a sound event loop is ever busy."""
_SHUNNED = 8192
_MOST_SHUN = 60.0
_SHUN_TICKS = 4
"""Ticks of a second; a word has 24 bits for them, and they come round after 48 days."""
_TICKS = (1 << 24) - 1


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
        self._pulses_at = self._leases_at + _BUCKET_BYTES * lease_buckets
        self._shunned_at = self._pulses_at + _PULSES * _PULSE.size
        self._size = self._shunned_at + 8 * _SHUNNED
        self._pulse = 0
        """The row of this process's pulse; 0 without one."""
        self._number = secrets.randbits(24)
        self._leased = 0
        self._unreleased: list[Lease] = []
        """Leases that could not be given back yet."""
        try:
            self._open()
        except OSError as error:
            raise BoardError(f"{path}: {error.strerror or error}") from error

    def epoch(self, resource: bytes) -> bytes:
        """The invalidation epoch (8 bytes) of `resource`."""
        words = self._words
        # One aligned load: whole before or whole after a bump by another process, never torn.
        return (words[self._slot(resource)] ^ words[_BASE_WORD]).to_bytes(8, "little")

    def bump(self, resource: bytes, *, told: bool = False) -> None:
        """Give `resource` a new epoch, for every process at once: all that was stored for it is dead.

        `told`: it was the shared store that has told of the invalidation, so that nothing old is to be had from there.
        """
        slot = self._slot(resource)
        if not told:
            # The time first: who sees the new epoch sees it as well.
            self._times[(slot - _HEAD_BYTES // 8) // _SLOTS_PER_TIME] = self._wall_clock()
        self._words[slot] = secrets.randbits(64)

    def bump_all(self) -> None:
        """Give every resource a new epoch."""
        self._words[_BASE_WORD] = secrets.randbits(64)

    def bumped_at(self, resource: bytes) -> float:
        """Unix seconds of the last bump of `resource`, or of one that shares its place; 0 when there was none."""
        return self._times[(self._slot(resource) - _HEAD_BYTES // 8) // _SLOTS_PER_TIME]

    @property
    def purges(self) -> int:
        """The generation of the newest purge rule that everyone has to have applied; 0 where no log of them is kept."""
        return self._words[_PURGE_WORD]

    @purges.setter
    def purges(self, generation: int) -> None:
        """For the one process that writes the log, once the rule is in it."""
        self._words[_PURGE_WORD] = generation

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
            rows = _BUCKET.unpack_from(self._map, start)
            for at in range(0, 3 * _ROWS_PER_BUCKET, 3):
                owner = rows[at]
                if owner and self._is_held(rows[at + 1], rows[at + 2], now):
                    if owner == fingerprint:
                        return None
                elif free < 0:
                    free = start + 8 * at
            if free < 0:
                return None
            token = self._token()
            _ROW.pack_into(self._map, free, fingerprint, token, now + seconds)
            return Lease(key, token)

    def leased(self, key: bytes) -> bool:
        """Whether someone has the lease of `key`. It takes no lock, so the answer may be of a moment ago."""
        fingerprint = self._fingerprint(key)
        start = self._leases_at + (fingerprint & (self._buckets - 1)) * _BUCKET_BYTES
        now = self._clock()
        rows = _BUCKET.unpack_from(self._map, start)
        if fingerprint not in rows:
            return False
        return any(
            rows[at] == fingerprint and self._is_held(rows[at + 1], rows[at + 2], now)
            for at in range(0, 3 * _ROWS_PER_BUCKET, 3)
        )

    def release(self, lease: Lease) -> None:
        """Give a lease back. One that has run out and was taken by another is left alone.

        When another process does not let go of its place, since it is not running just now, `beat` gives it back.
        """
        if not self._give_back(lease):
            self._unreleased.append(lease)

    def _give_back(self, lease: Lease) -> bool:
        fingerprint = self._fingerprint(lease.key)
        start = self._leases_at + (fingerprint & (self._buckets - 1)) * _BUCKET_BYTES
        for _ in range(_RELEASE_TRIES):
            with self._locked(start) as mine:
                if not mine:
                    continue
                rows = _BUCKET.unpack_from(self._map, start)
                for at in range(0, 3 * _ROWS_PER_BUCKET, 3):
                    if rows[at] == fingerprint and rows[at + 1] == lease.token:
                        _ROW.pack_into(self._map, start + 8 * at, 0, 0, 0.0)
                return True
        return False

    def beat(self) -> None:
        """Show that this process gets on; to be called every `BEAT` seconds by one that is to have a pulse.

        Its leases from then on are free for others soon after it has stopped; those of one without a pulse when their
        time is up.
        """
        if self._unreleased:
            self._unreleased = [lease for lease in self._unreleased if not self._give_back(lease)]
        now = self._clock()
        if self._pulse:
            at = self._pulses_at + self._pulse * _PULSE.size
            number, _ = _PULSE.unpack_from(self._map, at)
            if number == self._number:
                _PULSE.pack_into(self._map, at, number, now)
                return
            # It was silent for so long that its row was given away, and its leases with it.
            self._pulse = 0
        with self._locked(self._pulses_at) as mine:
            if not mine:
                return
            for row in range(1, _PULSES):
                at = self._pulses_at + row * _PULSE.size
                _, last = _PULSE.unpack_from(self._map, at)
                if not now - 4 * _LAPSE < last <= now:
                    self._number = secrets.randbits(24)
                    _PULSE.pack_into(self._map, at, self._number, now)
                    self._pulse = row
                    return

    def shun(self, key: bytes, seconds: float) -> None:
        """Remember `key` as shunned for `seconds` (at most 60), for all processes, or until the place is needed."""
        place, mark = self._shun_place(key)
        until = int((self._clock() + min(seconds, _MOST_SHUN)) * _SHUN_TICKS) & _TICKS
        self._shuns[place] = mark | until

    def shunned(self, key: bytes) -> bool:
        """Whether `key` is shunned now."""
        place, mark = self._shun_place(key)
        word = self._shuns[place]
        if word & ~_TICKS != mark:
            return False
        left = ((word & _TICKS) - int(self._clock() * _SHUN_TICKS)) & _TICKS
        return 0 < left <= _MOST_SHUN * _SHUN_TICKS

    def readmit(self, key: bytes) -> None:
        """Shun `key` no longer."""
        place, mark = self._shun_place(key)
        if self._shuns[place] & ~_TICKS == mark:
            self._shuns[place] = 0

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
        old = (self._words, self._times, self._shuns, self._view, self._map, self._descriptor)
        try:
            self._open()
        except OSError:
            return False
        self._discard(*old)
        return True

    def close(self) -> None:
        """Unmap the file; the board must not be used afterwards."""
        self._discard(self._words, self._times, self._shuns, self._view, self._map, self._descriptor)

    def _slot(self, resource: bytes) -> int:
        return _HEAD_BYTES // 8 + (int.from_bytes(resource[:8], "little") & (self._slots - 1))

    @staticmethod
    def _fingerprint(key: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") or 1

    def _shun_place(self, key: bytes) -> tuple[int, int]:
        """Where the word of `key` is, and what stands in its upper 40 bits."""
        fingerprint = self._fingerprint(key)
        return fingerprint & (_SHUNNED - 1), fingerprint & ~_TICKS

    def _token(self) -> int:
        """A new token: the pulse's row (8 bits) and number (24), and a count; all at random without a pulse."""
        if not self._pulse:
            return secrets.randbits(56)
        self._leased = (self._leased + 1) & 0xFFFFFFFF
        return self._pulse << 56 | self._number << 32 | self._leased

    def _is_held(self, token: int, deadline: float, now: float) -> bool:
        """Whether a row of the leases that has an owner is in force."""
        # The second comparison guards against a deadline that no honest clock wrote.
        if not now < deadline < now + 86400.0:
            return False
        row = token >> 56
        if not row:
            return True
        number, last = _PULSE.unpack_from(self._map, self._pulses_at + row * _PULSE.size)
        return bool(number == (token >> 32) & 0xFFFFFF and abs(now - last) < _LAPSE)

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
        self._shuns = self._view[self._shunned_at : self._size].cast("Q")
        self._pulse = 0

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
        words: memoryview[int],
        times: memoryview[float],
        shuns: memoryview[int],
        view: memoryview,
        mapped: mmap.mmap,
        descriptor: int,
    ) -> None:
        words.release()
        times.release()
        shuns.release()
        view.release()
        mapped.close()
        os.close(descriptor)
