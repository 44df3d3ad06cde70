"""An LMDB file that several processes use as a bounded cache: blocking calls, for threads.

A file that is damaged or lost is replaced by a fresh one (`lmdb_folder.py`).
What is in it, `lmdb_rows.py` tells.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import lmdb

from meshcache.engine.pools import COMMON, UNDIVIDED
from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.envelope import private_chunks
from meshcache.tiers.fates import HEAD_BYTES, Fate, Judge, Visited
from meshcache.tiers.lmdb_folder import DAMAGED, FILLED, LmdbFolder
from meshcache.tiers.lmdb_rows import META, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from meshcache.engine.pools import Division
    from meshcache.tiers.lmdb_folder import Generation

SMALLEST_MAP = 4 << 20
_TOUCHED = b"touched"
"""A row of `meta` that only makes a transaction a transaction; no key is as short."""
_PURGE_PER_BATCH = 64
_EVICT_PER_BATCH = 4096
_YIELD_PER_WRITE = 256
"""Entries that a pool above its share gives up at most when something is written to it."""
_READER_CHECK_EVERY = 30.0

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True, slots=True)
class Operation:
    """A change to one key: a value to store until `expires_at` (Unix seconds), or None to forget it."""

    key: bytes
    value: bytes | None = None
    expires_at: float = 0.0
    keep: bool = False
    """The value is the only one that the key may have: what is there stays, and longer where it has to."""


@dataclass(slots=True)
class Outcome:
    """What became of a batch."""

    errors: list[TierError | None]
    """One for each operation; None when it was done."""
    expired: int = 0
    """Entries that left because their time was over."""
    evicted: int = 0
    """Entries that left for want of room."""
    kept: set[bytes] = field(default_factory=set)
    """Keys of what was to be kept and was there already."""


class LmdbFile:
    """A bounded map from storage keys to values with expiry. Every call blocks and may raise `TierError` only.

    Any number of threads may read while one writes; several processes may use the same folder.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        """`max_bytes` bounds the file; at least 4 MiB."""
        if max_bytes < SMALLEST_MAP:
            raise ValueError(f"max_bytes is {max_bytes}, must be at least {SMALLEST_MAP}")
        map_size = max_bytes // 65536 * 65536
        self._folder = LmdbFolder(path, map_size)
        self._entry_bytes = int(map_size * FILLED)
        self._division = UNDIVIDED
        self._lock = threading.Lock()
        self._generation: Generation | None = None
        self._condemned = ""
        self._readers_checked = time.monotonic()
        self.largest_value = map_size // 8

    def divide(self, division: Division) -> None:
        """Keep every pool to its share from now on. From any thread; every process does so for what it writes."""
        self._division = division

    def takes(self, key: bytes, size: int) -> bool:
        """Whether a value of `size` bytes may be stored under `key`."""
        division = self._division
        return size <= min(self.largest_value, division.part(division.pool(key), self._entry_bytes))

    def open(self) -> None:
        """Make or open the file now rather than at the first use."""
        with self._using():
            pass

    def read(self, key: bytes, now: float) -> bytes | None:
        """The value under `key`, unless it has expired at `now` (Unix seconds)."""
        with self._using() as held, held.env.begin(buffers=True) as txn:
            meta = txn.get(key, db=held.meta)
            if meta is None or len(meta) != META.size or META.unpack(meta)[0] <= now * 1000:
                return None
            value = txn.get(key, db=held.values)
            return None if value is None else bytes(value)

    def extend(self, keys: Sequence[bytes], expires_at: float, now: float) -> frozenset[bytes]:
        """Those of `keys` that are not there at `now`; the others are there until `expires_at` at least.

        Times are Unix seconds.
        """
        until = int(expires_at * 1000)
        with self._using() as held:
            with held.env.begin() as txn:
                found = {key: Rows(held, txn).expiry(key) for key in keys}
            if any(now * 1000 < expiry < until for expiry in found.values()):
                with held.env.begin(write=True) as txn:
                    rows = Rows(held, txn)
                    # Again: some may have gone in between.
                    found = {key: rows.expiry(key) for key in keys}
                    for key, expiry in found.items():
                        if now * 1000 < expiry < until:
                            rows.prolong(key, until)
            return frozenset(key for key, expiry in found.items() if expiry <= now * 1000)

    def apply(self, batch: Sequence[Operation], now: float) -> Outcome:
        """Make all changes of `batch` in one transaction, or, if they do not fit together, one by one."""
        outcome = Outcome([None] * len(batch))
        with self._using() as held:
            self._check_readers(held)
            try:
                self._commit(held, batch, now, outcome)
            except lmdb.MapFullError:
                outcome = Outcome([None] * len(batch))
                for index, operation in enumerate(batch):
                    outcome.errors[index] = self._apply_alone(held, operation, now, outcome)
        return outcome

    def visit(self, after: bytes, most: int, now: float, judge: Judge) -> Visited:
        """Show up to `most` values behind the key `after` to `judge`; those that it condemns are removed."""
        seen = b""
        count = 0
        matched: list[bytes] = []
        condemned: list[tuple[bytes, bytes]] = []
        with self._using() as held:
            with held.env.begin(buffers=True) as txn, txn.cursor(db=held.values) as cursor:
                more = cursor.set_range(after + b"\0")
                while more and count < most:
                    seen, value = bytes(cursor.key()), cursor.value()
                    fate = judge(seen, value)
                    if fate is not Fate.SPARED:
                        meta = txn.get(seen, db=held.meta)
                        if meta is not None and len(meta) == META.size and META.unpack(meta)[0] > now * 1000:
                            matched.append(seen)
                        if fate is Fate.CONDEMNED:
                            condemned.append((seen, bytes(value[:HEAD_BYTES])))
                    count += 1
                    more = cursor.next()
            if condemned:
                with held.env.begin(write=True, buffers=True) as txn:
                    rows = Rows(held, txn)
                    for key, head in condemned:
                        there = txn.get(key, db=held.values)
                        # Another may have taken its place meanwhile.
                        if there is not None and there[:HEAD_BYTES] == head:
                            for gone in (*private_chunks(there), key):
                                rows.forget(gone)
                    rows.settle()
        return Visited(matched, seen if more else None)

    def close(self) -> None:
        """Close the file. Calls under way end first; later ones would open it again."""
        with self._lock:
            self._retire()

    def _apply_alone(self, held: Generation, operation: Operation, now: float, outcome: Outcome) -> TierError | None:
        """Make one change; when the map is full, or too torn for a run of pages as long, make room first."""
        size = len(operation.value or b"")
        for room in (0, 4 * size + held.limit // 10, held.limit):
            if room:
                held.env.reader_check()
                with held.env.begin(write=True) as txn:
                    rows = Rows(held, txn)
                    self._make_room(held, rows, room, now, outcome)
                    rows.settle()
                # Pages freed by one transaction can be used again by the second after it.
                with held.env.begin(write=True) as txn:
                    txn.put(_TOUCHED, secrets.token_bytes(8), db=held.meta)
            with contextlib.suppress(lmdb.MapFullError):
                self._commit(held, (operation,), now, outcome)
                return None
        return TierError("the warm file has no room", Trouble.FULL)

    def _commit(self, held: Generation, batch: Sequence[Operation], now: float, outcome: Outcome) -> None:
        expired, evicted = outcome.expired, outcome.evicted
        try:
            with held.env.begin(write=True) as txn:
                rows = Rows(held, txn)
                self._purge(rows, now, outcome)
                for operation in batch:
                    if operation.keep and self._kept(rows, operation, now):
                        outcome.kept.add(operation.key)
                        continue
                    rows.forget(operation.key)
                    if operation.value is None:
                        continue
                    size = len(operation.value)
                    self._keep_share(held, rows, operation.key, size, now, outcome)
                    self._make_room(held, rows, size + 4 * held.page, now, outcome)
                    rows.put(operation.key, operation.value, int(operation.expires_at * 1000))
                rows.settle()
        except lmdb.Error:
            # The transaction was undone, and with it what it had evicted.
            outcome.expired, outcome.evicted = expired, evicted
            raise

    def _kept(self, rows: Rows, operation: Operation, now: float) -> bool:
        """Whether what is to be kept is there already; it is made to stay as long as it is to."""
        expiry = rows.expiry(operation.key)
        if operation.value is None or expiry <= now * 1000 or rows.size(operation.key) != len(operation.value):
            return False
        until = int(operation.expires_at * 1000)
        if expiry < until:
            rows.prolong(operation.key, until)
        return True

    def _purge(self, rows: Rows, now: float, outcome: Outcome) -> None:
        """Remove a few entries whose time is over, so that no transaction takes long and none are left for long."""
        left = _PURGE_PER_BATCH
        for pool in (COMMON, *rows.pools()):
            while left and (found := rows.first(pool)) is not None and found[0] <= now * 1000:
                rows.drop(*found)
                outcome.expired += 1
                left -= 1

    def _keep_share(self, held: Generation, rows: Rows, key: bytes, size: int, now: float, outcome: Outcome) -> None:
        """Keep the pool of what is about to come to its share.

        One whose share has become smaller gives way in steps: a transaction keeps all other writers waiting.
        """
        division = self._division
        if not division.arms:
            return
        pool = division.pool(key)
        most = division.part(pool, held.limit) - rows.cost(size)
        for _ in range(_YIELD_PER_WRITE):
            if self._taken(rows, division, pool) <= most or not self._evict(rows, division, pool, now, outcome):
                return

    def _make_room(self, held: Generation, rows: Rows, need: int, now: float, outcome: Outcome) -> None:
        """Evict until there is room for `need` bytes: from the pool that has most in proportion to its share."""
        if rows.used() + need <= held.limit:
            return
        division = self._division

        def above(pool: bytes) -> float:
            return self._taken(rows, division, pool) / (division.part(pool, held.limit) or 1)

        for _ in range(_EVICT_PER_BATCH):
            pools = sorted((COMMON, *division.arms), key=above, reverse=True) if division.arms else [COMMON]
            if not any(self._evict(rows, division, pool, now, outcome) for pool in pools):
                return
            if rows.used() + need <= held.limit:
                return

    @staticmethod
    def _members(rows: Rows, division: Division, pool: bytes) -> list[bytes]:
        """A pool, and with the common one all that live off it."""
        return [pool] if pool else [COMMON, *(other for other in rows.pools() if other not in division.arms)]

    def _taken(self, rows: Rows, division: Division, pool: bytes) -> int:
        return sum(map(rows.taken, self._members(rows, division, pool)))

    def _evict(self, rows: Rows, division: Division, pool: bytes, now: float, outcome: Outcome) -> bool:
        """Drop what expires first of a pool's entries; False when there are none."""
        found = min(filter(None, map(rows.first, self._members(rows, division, pool))), default=None)
        if found is None:
            return False
        rows.drop(*found)
        if found[0] <= now * 1000:
            outcome.expired += 1
        else:
            outcome.evicted += 1
        return True

    def _check_readers(self, held: Generation) -> None:
        """Free the slots of readers that were killed: the pages they saw could never be used again."""
        if time.monotonic() - self._readers_checked > _READER_CHECK_EVERY:
            self._readers_checked = time.monotonic()
            held.env.reader_check()

    @contextlib.contextmanager
    def _using(self) -> Iterator[Generation]:
        """The generation in use, kept open for the length of the block; its errors become `TierError`."""
        try:
            with self._lock:
                held = self._generation
                if held is None or not held.stands():
                    self._retire()
                    held = self._generation = self._folder.open(self._condemned)
                held.users += 1
        except (OSError, lmdb.Error) as error:
            raise _translated(error) from error
        try:
            yield held
        except (OSError, lmdb.Error) as error:
            if isinstance(error, DAMAGED):
                self._condemn(held)
            raise _translated(error) from error
        finally:
            with self._lock:
                held.users -= 1
                if held.retired and not held.users:
                    held.env.close()

    def _condemn(self, held: Generation) -> None:
        with self._lock:
            self._condemned = held.token
            if self._generation is held:
                self._retire()

    def _retire(self) -> None:
        held, self._generation = self._generation, None
        if held is not None:
            held.retired = True
            if not held.users:
                held.env.close()


def _translated(error: OSError | lmdb.Error) -> TierError:
    kind = Trouble.IO
    if isinstance(error, DAMAGED):
        kind = Trouble.CORRUPT
    elif isinstance(error, lmdb.MapFullError | lmdb.DiskError | lmdb.TxnFullError):
        kind = Trouble.FULL
    elif isinstance(error, lmdb.ReadersFullError):
        kind = Trouble.BUSY
    elif isinstance(error, PermissionError | lmdb.ReadonlyError):
        kind = Trouble.REFUSED
    elif isinstance(error, OSError) and error.errno in _FULL:
        kind = Trouble.FULL
    return TierError(f"warm file: {error}", kind)
