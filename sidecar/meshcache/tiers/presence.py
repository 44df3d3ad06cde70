"""What a tier of this pod can possibly hold: a filter that spares most misses the way to the disk.

A look-up in a file is done in a thread, which costs a miss more than everything else together. This map, shared by
the pod's workers, says for sure that a key was never written, or expired; else it says "perhaps".

It is an array of bytes, two of them for a key. A byte holds the bucket of time up to which something that falls on
it may live, so that the map forgets by itself and needs no counting. One byte is written by one store: processes
that write at the same time cannot tear it, and one that loses to another costs a hit, never an answer.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING, Final

from meshcache.tiers.mapping import allocate, map_shared

if TYPE_CHECKING:
    import mmap
    from pathlib import Path

BUCKET_SECONDS: Final = 6 * 3600
_VALUES: Final = 255
"""Values of a byte besides 0, which means that nothing was ever here. They go round: later is a matter of distance."""
_HORIZON: Final = 120
"""Buckets that an expiry may lie ahead (30 days): less than half of the circle, so that past and future differ."""
_SLOTS: Final = 1 << 22


class Presence:
    """The map at `path`, made when it is absent or of another size. Raises `OSError` when it cannot be.

    A map that was lost and made anew makes everything written before unreachable until it is written again.
    """

    def __init__(self, path: Path) -> None:
        self._map = _open(path)

    def add(self, key: bytes, ttl: float, now: float) -> None:
        """`key` (a digest) is about to be written, to live for `ttl` seconds from `now` (Unix seconds).

        What lives longer than 30 days is forgotten then: it costs a hit.
        """
        bucket = int(now // BUCKET_SECONDS)
        until = min(int((now + ttl) // BUCKET_SECONDS), bucket + _HORIZON)
        for slot in _slots(key):
            held = self._map[slot]
            # Another key may share the byte: the one that lives longer decides.
            if held == 0 or (until + 1 - held) % _VALUES < _VALUES - _HORIZON:
                self._map[slot] = until % _VALUES + 1

    def may_hold(self, key: bytes, now: float) -> bool:
        """False only when nothing can be stored under `key` at `now` (Unix seconds)."""
        held = self._map
        one, other = _slots(key)
        if not held[one]:
            # As a rule a miss is for what was never here.
            return False
        bucket = int(now // BUCKET_SECONDS)
        return all(held[slot] and (held[slot] - 1 - bucket) % _VALUES <= _HORIZON for slot in (one, other))

    def close(self) -> None:
        """Unmap it; it must not be used afterwards."""
        self._map.close()


def _slots(key: bytes) -> tuple[int, int]:
    # The lowest bits of two words: four bytes each, little endian.
    word = int.from_bytes(key[:8], "little")
    return word & (_SLOTS - 1), (word >> 32) & (_SLOTS - 1)


def _open(path: Path) -> mmap.mmap:
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            _create(path)
            continue
        try:
            if os.fstat(descriptor).st_size == _SLOTS:
                return map_shared(descriptor, _SLOTS)
        finally:
            os.close(descriptor)
        path.unlink(missing_ok=True)


def _create(path: Path) -> None:
    """Put an empty map at `path`, whole at once, unless another process has done so first."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        allocate(descriptor, _SLOTS)
        with contextlib.suppress(FileExistsError):
            os.link(scratch, path)
    finally:
        os.close(descriptor)
        scratch.unlink(missing_ok=True)
