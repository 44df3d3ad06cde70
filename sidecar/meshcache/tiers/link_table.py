"""What experiments with several kinds of units remember of them, in a file that all workers of a pod map.

A header of 64 bytes, then buckets of 256: five entries each, found by the digest of the unit. An entry is

    unit (16 bytes)  unit in whose place it is used (16)  when it was made (4, Unix seconds)
    when it was last seen (4: hours of Unix time, twice, and one more if a stronger unit uses it)  checksum (8)

all but the last-seen word under the checksum. Writers take no locks: of two that write one entry at once, one wins or
neither does, and what is torn fails its checksum and is not there. Where a bucket is full, the entry that has not been
seen for longest goes. Nothing here tells who a unit is: the digests are keyed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from xxhash import xxh3_64_intdigest

from meshcache.tiers.mapping import allocate, map_shared

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILE_NAME: Final = "links"
BUCKETS: Final = 1 << 16
"""16 MiB: some 300,000 units."""

_HEAD: Final = struct.Struct("=8sII")
_MAGIC: Final = b"MCLINKS\x00"
_VERSION: Final = 1
_HEAD_BYTES: Final = 64
_BUCKET_BYTES: Final = 256
_ENTRY: Final = struct.Struct("=16s16sIIQ")
_SEEN: Final = struct.Struct("=I")
_SEEN_AT: Final = 36
_WAYS: Final = _BUCKET_BYTES // _ENTRY.size
_HELD: Final = _WAYS * _ENTRY.size
"""Bytes of a bucket that hold entries."""
_CHECKED: Final = 36
"""Bytes of an entry that the checksum covers."""
_SEED: Final = 0x6C696E6B73
_HOUR: Final = 3600


class Link(NamedTuple):
    """One entry."""

    unit: bytes
    used: bytes
    """The unit in whose place it is used."""
    taken: bool
    """Whether a stronger unit uses it, too."""
    made: int
    """Unix seconds."""


class LinkTable:
    """Implements `experiment.links.Links`. Made when it is opened first; belongs to any number of processes."""

    def __init__(self, path: Path, *, buckets: int = BUCKETS, clock: Callable[[], float] = time.time) -> None:
        """Opens nothing yet. `buckets` is a power of two; `clock` gives Unix seconds."""
        self._path = path
        self._buckets = buckets
        self._size = _HEAD_BYTES + _BUCKET_BYTES * buckets
        self._clock = clock
        self._map: memoryview | None = None
        self.on_new: Callable[[Link], None] = lambda _link: None
        """Told of what this process has put in."""

    def open(self) -> None:
        """Map the file, made if it is absent or of another form. Blocks; raises `OSError`. Safe to call twice."""
        if self._map is not None:
            return
        descriptor = self._descriptor()
        try:
            self._map = memoryview(map_shared(descriptor, self._size))
        finally:
            os.close(descriptor)

    def open_existing(self) -> bool:
        """Map the file if it is there, and in the right form; whether it is. Raises `OSError`."""
        if self._map is None and self._is_sound():
            self.open()
        return self._map is not None

    def close(self) -> None:
        """Find nothing any more. The map goes with the process."""
        self._map = None

    def find(self, unit: bytes) -> tuple[bytes, bool] | None:
        """See `Links`."""
        found = self._entry(unit)
        if found is None:
            return None
        table, at, (_, used, _, seen, _) = found
        hours = int(self._clock()) // _HOUR
        if seen >> 1 != hours:
            _SEEN.pack_into(table, at + _SEEN_AT, hours << 1 | seen & 1)
        return used, bool(seen & 1)

    def put(self, unit: bytes, used: bytes, *, taken: bool) -> None:
        """See `Links`."""
        made = int(self._clock())
        before = self.link(unit)
        if before is not None and before.used == used:
            # When it was made is what counts among pods: it is as old as before.
            made = before.made
        link = Link(unit, used, taken, made)
        if self._write(link):
            self.on_new(link)

    def reader(self) -> LinkReader:
        """The same for who only asks."""
        return LinkReader(self)

    def merge(self, link: Link) -> bool:
        """Take over what another pod has put in; whether that says more than what is here.

        The older counts, and a unit that is taken anywhere is taken: in all pods alike, whatever they hear first.
        """
        before = self.link(link.unit)
        if before is not None:
            made, used = min((before.made, before.used), (link.made, link.used))
            link = Link(link.unit, used, before.taken or link.taken, made)
            if link == before:
                return False
        return self._write(link)

    def link(self, unit: bytes) -> Link | None:
        """All that is known of a unit."""
        found = self._entry(unit)
        if found is None:
            return None
        _, used, made, seen, _ = found[2]
        return Link(unit, used, bool(seen & 1), made)

    def _entry(self, unit: bytes) -> tuple[memoryview, int, tuple[bytes, bytes, int, int, int]] | None:
        """Where the entry of a unit is in the table, in bytes, and what it holds."""
        table = self._map
        if table is None:
            return None
        at = self._at(unit)
        bucket = bytes(table[at : at + _HELD])
        place = self._place(bucket, unit)
        return None if place is None else (table, at + place, _ENTRY.unpack_from(bucket, place))

    def _at(self, unit: bytes) -> int:
        return _HEAD_BYTES + _BUCKET_BYTES * (int.from_bytes(unit[-4:], "big") & (self._buckets - 1))

    def _place(self, bucket: bytes, unit: bytes) -> int | None:
        """Where in its bucket a unit is, in bytes."""
        place = bucket.find(unit)
        while place >= 0:
            if place % _ENTRY.size == 0 and _sound(bucket, place):
                return place
            place = bucket.find(unit, place + 1)
        return None

    def _write(self, link: Link) -> bool:
        table = self._map
        if table is None or len(link.unit) != 16 or len(link.used) != 16:
            return False
        at = self._at(link.unit)
        bucket = bytes(table[at : at + _HELD])
        place = self._place(bucket, link.unit)
        if place is None:
            # What is empty or torn was never seen.
            place = min(
                (way * _ENTRY.size for way in range(_WAYS)),
                key=lambda way: _SEEN.unpack_from(bucket, way + _SEEN_AT)[0] if _sound(bucket, way) else -1,
            )
        seen = int(self._clock()) // _HOUR << 1 | link.taken
        entry = bytearray(_ENTRY.pack(link.unit, link.used, link.made, seen, 0))
        _ENTRY.pack_into(entry, 0, link.unit, link.used, link.made, seen, _checksum(entry, 0))
        table[at + place : at + place + _ENTRY.size] = entry
        return True

    def _descriptor(self) -> int:
        if not self._is_sound():
            self._create()
        return os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)

    def _is_sound(self) -> bool:
        try:
            with self._path.open("rb") as file:
                head = file.read(_HEAD.size)
                return os.fstat(file.fileno()).st_size == self._size and head == self._head()
        except FileNotFoundError:
            return False

    def _head(self) -> bytes:
        return _HEAD.pack(_MAGIC, _VERSION, self._buckets)

    def _create(self) -> None:
        """Put a new table at the path, whole at once, unless another process has just done so."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            allocate(descriptor, self._size)
            os.pwrite(descriptor, self._head(), 0)
            if self._path.exists() and not self._is_sound():
                self._path.unlink(missing_ok=True)
            with contextlib.suppress(FileExistsError):
                os.link(scratch, self._path)
        finally:
            os.close(descriptor)
            scratch.unlink(missing_ok=True)


class LinkReader:
    """Implements `experiment.links.Links` without remembering anything."""

    def __init__(self, table: LinkTable) -> None:
        self._table = table

    def find(self, unit: bytes) -> tuple[bytes, bool] | None:
        """See `Links`."""
        link = self._table.link(unit)
        return None if link is None else (link.used, link.taken)

    def put(self, unit: bytes, used: bytes, *, taken: bool) -> None:
        """Forgotten at once."""


def _checksum(entry: bytes | bytearray, place: int) -> int:
    return xxh3_64_intdigest(bytes(entry[place : place + _CHECKED]), _SEED)


def _sound(bucket: bytes, place: int) -> bool:
    stored: int = _ENTRY.unpack_from(bucket, place)[4]
    return stored == _checksum(bucket, place)
