"""What the processes of one pod agree on by their board: who does something, who is alive, which keys are shunned.

Leases: buckets of eight rows, checked and set under an advisory record lock of the bucket (fcntl), whose holder
only touches memory. Such locks do not exclude within a process, which is why a board belongs to one event loop.
A row that is free may be a mark: when its lease was given back, an answer was stored. It goes when the row is needed.

Pulses: a process that calls `beat` has a row that tells when it last did. Its leases hold while its pulse goes, so that
those of a process that died, or does not get on, are free at once.

Shunned keys: a word for each, at a place that the key gives; two keys of one place displace each other, which costs
nothing but knowledge.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import secrets
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from meshcache.tiers.board_file import BUCKET_BYTES, PULSE, PULSES, SHUNNED

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshcache.tiers.board_file import BoardFile

_ROW = struct.Struct("=QQd")
"""One lease: fingerprint of what is leased (0 for a free row), token of the holder, deadline on CLOCK_MONOTONIC.

In a mark the deadline is the time at which it was made, made negative.
"""
_ROWS_PER_BUCKET = 8
_BUCKET = struct.Struct("=" + "QQd" * _ROWS_PER_BUCKET)
_OWN_MARK, _UNUSED, _MARK_OF_ANOTHER = range(3)
"""Rows that may be taken, in the order in which they are."""
_RELEASE_TRIES = 50
MARKED: Final = 5.0
"""Seconds for which a mark tells that an answer was stored: longer than a look-up takes, or a busy event loop."""
BEAT: float = 0.25
"""Seconds from one `beat` to the next."""
_LAPSE = 1.5
"""Seconds without a beat after which a process's leases are free: longer than a sound event loop is ever busy."""
_MOST_SHUN = 60.0
_SHUN_TICKS = 4
"""Ticks of a second; a word has 24 bits for them, and they come round after 48 days."""
_TICKS = (1 << 24) - 1


class Lease(NamedTuple):
    """Proof of holding a lease: what `release` needs."""

    key: bytes
    token: int
    answered: float = math.inf
    """Seconds since the one before was given back with an answer stored; infinite where that is not known."""


class BoardLeases:
    """The part of a board that is for `PodLeases`."""

    def __init__(self, file: BoardFile, clock: Callable[[], float]) -> None:
        """`clock` is CLOCK_MONOTONIC, which all processes of the machine share."""
        self._file = file
        self._clock = clock
        self._pulse = 0
        """The row of this process's pulse; 0 without one."""
        self._number = secrets.randbits(24)
        self._leased = 0
        self._unreleased: list[tuple[Lease, bool]] = []
        """Leases that could not be given back yet, and whether they are to leave a mark."""

    def renew(self) -> None:
        """The file is another one: what this process had in it is gone."""
        self._pulse = 0

    def lease(self, key: bytes, seconds: float) -> Lease | None:
        """Take the lease of `key` (a resource id, a storage key) for `seconds`, or None while someone has it.

        None also when its bucket is full or is being changed at this very moment: better no refresh than two.
        """
        fingerprint = self._fingerprint(key)
        start = self._file.leases_at + (fingerprint & (self._file.buckets - 1)) * BUCKET_BYTES
        if not self._lock(start):
            return None
        try:
            now = self._clock()
            free, worth, answered = -1, _MARK_OF_ANOTHER + 1, math.inf
            rows = _BUCKET.unpack_from(self._file.map, start)
            for at in range(0, 3 * _ROWS_PER_BUCKET, 3):
                owner, deadline = rows[at], rows[at + 2]
                if owner and self._is_held(rows[at + 1], deadline, now):
                    if owner == fingerprint:
                        return None
                    continue
                age = now + deadline if owner and deadline < 0.0 else math.inf
                kind = _UNUSED if not 0.0 <= age < MARKED else _MARK_OF_ANOTHER
                if kind is _MARK_OF_ANOTHER and owner == fingerprint:
                    kind, answered = _OWN_MARK, age
                if kind < worth:
                    free, worth = start + 8 * at, kind
            if free < 0:
                return None
            token = self._token()
            _ROW.pack_into(self._file.map, free, fingerprint, token, now + seconds)
            return Lease(key, token, answered)
        finally:
            self._unlock(start)

    def leased(self, key: bytes) -> bool:
        """Whether someone has the lease of `key`. It takes no lock, so the answer may be of a moment ago."""
        fingerprint = self._fingerprint(key)
        start = self._file.leases_at + (fingerprint & (self._file.buckets - 1)) * BUCKET_BYTES
        now = self._clock()
        rows = _BUCKET.unpack_from(self._file.map, start)
        if fingerprint not in rows:
            return False
        return any(
            rows[at] == fingerprint and self._is_held(rows[at + 1], rows[at + 2], now)
            for at in range(0, 3 * _ROWS_PER_BUCKET, 3)
        )

    def has_room(self, key: bytes) -> bool:
        """Whether not all rows that a lease of `key` could have are others'. As `leased`, of a moment ago."""
        start = self._file.leases_at + (self._fingerprint(key) & (self._file.buckets - 1)) * BUCKET_BYTES
        now = self._clock()
        rows = _BUCKET.unpack_from(self._file.map, start)
        return not all(
            rows[at] and self._is_held(rows[at + 1], rows[at + 2], now) for at in range(0, 3 * _ROWS_PER_BUCKET, 3)
        )

    def release(self, lease: Lease, *, answered: bool = False) -> None:
        """Give a lease back; one that has run out and was taken by another is left alone.

        With `answered` a mark tells whoever takes it next within some seconds that an answer is stored.
        When another process does not let go of its place, since it is not running just now, `beat` gives it back.
        """
        if not self._give_back(lease, answered):
            self._unreleased.append((lease, answered))

    def _give_back(self, lease: Lease, answered: bool) -> bool:
        fingerprint = self._fingerprint(lease.key)
        start = self._file.leases_at + (fingerprint & (self._file.buckets - 1)) * BUCKET_BYTES
        for _ in range(_RELEASE_TRIES):
            if not self._lock(start):
                continue
            try:
                rows = _BUCKET.unpack_from(self._file.map, start)
                for at in range(0, 3 * _ROWS_PER_BUCKET, 3):
                    if rows[at] == fingerprint and rows[at + 1] == lease.token:
                        row = (fingerprint, 0, -self._clock()) if answered else (0, 0, 0.0)
                        _ROW.pack_into(self._file.map, start + 8 * at, *row)
                return True
            finally:
                self._unlock(start)
        return False

    def beat(self) -> None:
        """Show that this process gets on; to be called every `BEAT` seconds by one that is to have a pulse.

        Its leases from then on are free for others soon after it has stopped; those of one without a pulse when their
        time is up.
        """
        if self._unreleased:
            self._unreleased = [owed for owed in self._unreleased if not self._give_back(*owed)]
        now = self._clock()
        if self._pulse:
            at = self._file.pulses_at + self._pulse * PULSE.size
            number, _ = PULSE.unpack_from(self._file.map, at)
            if number == self._number:
                PULSE.pack_into(self._file.map, at, number, now)
                return
            # It was silent for so long that its row was given away, and its leases with it.
            self._pulse = 0
        if not self._lock(self._file.pulses_at):
            return
        try:
            for row in range(1, PULSES):
                at = self._file.pulses_at + row * PULSE.size
                _, last = PULSE.unpack_from(self._file.map, at)
                if not now - 4 * _LAPSE < last <= now:
                    self._number = secrets.randbits(24)
                    PULSE.pack_into(self._file.map, at, self._number, now)
                    self._pulse = row
                    return
        finally:
            self._unlock(self._file.pulses_at)

    def shun(self, key: bytes, seconds: float) -> None:
        """Remember `key` as shunned for `seconds` (at most 60), for all processes, or until the place is needed."""
        place, mark = self._shun_place(key)
        until = int((self._clock() + min(seconds, _MOST_SHUN)) * _SHUN_TICKS) & _TICKS
        self._file.shuns[place] = mark | until

    def shunned(self, key: bytes) -> bool:
        """Whether `key` is shunned now."""
        place, mark = self._shun_place(key)
        word = self._file.shuns[place]
        if word & ~_TICKS != mark:
            return False
        left = ((word & _TICKS) - int(self._clock() * _SHUN_TICKS)) & _TICKS
        return 0 < left <= _MOST_SHUN * _SHUN_TICKS

    def readmit(self, key: bytes) -> None:
        """Shun `key` no longer."""
        place, mark = self._shun_place(key)
        if self._file.shuns[place] & ~_TICKS == mark:
            self._file.shuns[place] = 0

    @staticmethod
    @lru_cache(maxsize=256)
    def _fingerprint(key: bytes) -> int:
        # Remembered, as a request asks several times about its key.
        return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") or 1

    def _shun_place(self, key: bytes) -> tuple[int, int]:
        """Where the word of `key` is, and what stands in its upper 40 bits."""
        fingerprint = self._fingerprint(key)
        return fingerprint & (SHUNNED - 1), fingerprint & ~_TICKS

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
        number, last = PULSE.unpack_from(self._file.map, self._file.pulses_at + row * PULSE.size)
        return bool(number == (token >> 32) & 0xFFFFFF and abs(now - last) < _LAPSE)

    def _lock(self, start: int) -> bool:
        """Take the record lock of the bucket at `start`; False when another process has it. Never waits."""
        try:
            fcntl.lockf(self._file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, BUCKET_BYTES, start)
        except OSError:
            return False
        return True

    def _unlock(self, start: int) -> None:
        fcntl.lockf(self._file.descriptor, fcntl.LOCK_UN, BUCKET_BYTES, start)
