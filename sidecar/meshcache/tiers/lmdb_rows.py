"""The rows of an LMDB file in one transaction: values with their expiry, in order of it, and what each pool takes.

Sub-databases: `values` (key to envelope), `meta` (key to expiry and size), `order` (expiry and key, to nothing) for
entries of the common pool, `pooled` (pool, expiry and digest, to nothing) for those of arms; `pools` (pool to the bytes
that it takes).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from meshcache.engine.pools import DIGEST_BYTES, pool_of

if TYPE_CHECKING:
    import lmdb

    from meshcache.tiers.lmdb_folder import Generation

META: Final = struct.Struct(">QI")
"""Expiry in Unix milliseconds, size in bytes."""
_TAKEN: Final = struct.Struct(">Q")
_COMMON_ROW: Final = b"common"
"""Stands for the common pool in `pools`."""
_FILLED: Final = 0.45
"""Part of a page of small values that holds any, after many have come and gone. Measured, as is the next."""
_BESIDE: Final = 230
"""Bytes of pages that an entry takes beside its value."""


def entry_cost(size: int, page: int) -> int:
    """About as many bytes of pages, of `page` bytes each, as an entry of `size` bytes takes."""
    if size > page // 2 - 64:
        # It has pages of its own.
        return _BESIDE + -(-(size + 16) // page) * page
    return _BESIDE + min(int((size + 40) / _FILLED), page * 3 // 4)


class Rows:
    """One transaction's view. What it has changed of `pools` is written by `settle`, which must come last."""

    def __init__(self, held: Generation, txn: lmdb.Transaction) -> None:
        self._held = held
        self._txn = txn
        self._taken: dict[bytes, int] = {}
        self._arms: set[bytes] | None = None
        self._order: lmdb.Cursor | None = None
        self._pooled: lmdb.Cursor | None = None

    def expiry(self, key: bytes) -> int:
        """Unix milliseconds; 0 for what is not there."""
        meta = self._txn.get(key, db=self._held.meta)
        return 0 if meta is None or len(meta) != META.size else int(META.unpack(meta)[0])

    def size(self, key: bytes) -> int:
        """Bytes of what is there under `key`."""
        return int(META.unpack(self._txn.get(key, bytes(META.size), db=self._held.meta))[1])

    def put(self, key: bytes, value: bytes, expiry: int) -> None:
        """Store what is not there."""
        txn, held = self._txn, self._held
        txn.put(key, value, db=held.values)
        txn.put(key, META.pack(expiry, len(value)), db=held.meta)
        self._list(key, expiry)
        self._take(pool_of(key), self.cost(len(value)))

    def forget(self, key: bytes) -> None:
        """Remove what may be there."""
        meta = self._txn.pop(key, db=self._held.meta)
        if meta is not None:
            self._gone(key, meta)

    def prolong(self, key: bytes, until: int) -> None:
        """Make what is there stay until `until` (Unix milliseconds)."""
        expiry, size = META.unpack(self._txn.get(key, b"", db=self._held.meta))
        self._unlist(key, expiry)
        self._txn.put(key, META.pack(until, size), db=self._held.meta)
        self._list(key, until)

    def pools(self) -> list[bytes]:
        """The arms that have entries here."""
        if self._arms is None:
            with self._txn.cursor(db=self._held.pools) as cursor:
                self._arms = {bytes(pool) for pool in cursor.iternext(keys=True, values=False)} - {_COMMON_ROW}
            self._arms.update(filter(None, self._taken))
        return [pool for pool in self._arms if self.taken(pool)]

    def taken(self, pool: bytes) -> int:
        """Bytes that a pool's entries take: estimated, by `cost`."""
        if pool not in self._taken:
            found = self._txn.get(pool or _COMMON_ROW, db=self._held.pools)
            if found is not None and len(found) == _TAKEN.size:
                self._taken[pool] = _TAKEN.unpack(found)[0]
            else:
                # Of a file from before there were pools, everything is in the common one.
                self._taken[pool] = 0 if pool else self.used()
        return self._taken[pool]

    def used(self) -> int:
        """Bytes of the pages that hold entries."""
        return self._held.used(self._txn)

    def cost(self, size: int) -> int:
        """About as many bytes of pages as an entry of `size` bytes takes."""
        return entry_cost(size, self._held.page)

    def first(self, pool: bytes) -> tuple[int, bytes] | None:
        """Expiry and key of the entry of a pool that expires first."""
        if pool:
            cursor = self._pooled = self._pooled or self._txn.cursor(db=self._held.pooled)
        else:
            cursor = self._order = self._order or self._txn.cursor(db=self._held.order)
        if not (cursor.set_range(pool) if pool else cursor.first()):
            return None
        row = bytes(cursor.key())
        if not row.startswith(pool):
            return None
        at = len(pool) + 8
        return int.from_bytes(row[len(pool) : at], "big"), row[at:] + pool

    def drop(self, expiry: int, key: bytes) -> None:
        """Remove what `first` has found."""
        meta = self._txn.get(key, db=self._held.meta)
        if meta is None or meta[:8] != expiry.to_bytes(8, "big"):
            # A row that leads nowhere.
            self._unlist(key, expiry)
        if meta is not None:
            meta = bytes(meta)
            self._txn.delete(key, db=self._held.meta)
            self._gone(key, meta)

    def settle(self) -> None:
        """Write what the pools take by now."""
        for pool, taken in self._taken.items():
            if taken or not pool:
                self._txn.put(pool or _COMMON_ROW, _TAKEN.pack(taken), db=self._held.pools)
            else:
                self._txn.delete(pool, db=self._held.pools)

    def _gone(self, key: bytes, meta: bytes | memoryview) -> None:
        expiry, size = META.unpack(meta) if len(meta) == META.size else (0, 0)
        self._unlist(key, expiry)
        self._txn.delete(key, db=self._held.values)
        self._take(pool_of(key), -self.cost(size))

    def _take(self, pool: bytes, more: int) -> None:
        self._taken[pool] = max(0, self.taken(pool) + more)
        if pool and self._arms is not None:
            self._arms.add(pool)

    def _list(self, key: bytes, expiry: int) -> None:
        self._txn.put(_row(key, expiry), b"", db=self._held.pooled if pool_of(key) else self._held.order)

    def _unlist(self, key: bytes, expiry: int) -> None:
        self._txn.delete(_row(key, expiry), db=self._held.pooled if pool_of(key) else self._held.order)


def _row(key: bytes, expiry: int) -> bytes:
    return pool_of(key) + expiry.to_bytes(8, "big") + key[:DIGEST_BYTES]
