"""An LMDB file that several processes use as a bounded cache: blocking calls, for threads.

On disk: `current` names the generation in use and the machine's boot in which it was made; a generation is a
folder with one LMDB environment. A file that is damaged, was lost, or is from another boot (it is never synced, so
a crash of the machine may have torn it) is replaced by a fresh generation; processes notice by the files' identity.
Three sub-databases: `values` (key to envelope), `meta` (key to expiry and size), `order` (expiry and key, to nothing).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import struct
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import lmdb

from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.board import boot_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SMALLEST_MAP = 4 << 20
_FORM = "1"
_META = struct.Struct(">QI")
"""Expiry in Unix milliseconds, size in bytes."""
_TOUCHED = b"touched"
"""A row of `meta` that only makes a transaction a transaction; no key is as short."""
_FILLED = 0.75
"""Share of the map that entries may take. The rest is for pages that were freed and cannot be reused yet."""
_PURGE_PER_BATCH = 64
_EVICT_PER_BATCH = 4096
_LOCK_PATIENCE = 2.0
_READER_CHECK_EVERY = 30.0

_DAMAGED = (
    lmdb.CorruptedError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
    lmdb.BadTxnError,
    lmdb.BadDbiError,
    lmdb.IncompatibleError,
    lmdb.CursorFullError,
)


@dataclass(frozen=True, slots=True)
class Operation:
    """A change to one key: a value to store until `expires_at` (Unix seconds), or None to forget it."""

    key: bytes
    value: bytes | None = None
    expires_at: float = 0.0


@dataclass(slots=True)
class Outcome:
    """What became of a batch."""

    errors: list[TierError | None]
    """One for each operation; None when it was done."""
    expired: int = 0
    """Entries that left because their time was over."""
    evicted: int = 0
    """Entries that left for want of room."""


class _Generation:
    """One open environment. Closed when it is retired and its last user has left."""

    def __init__(self, folder: Path, current: Path, map_size: int) -> None:
        """Raises `lmdb.Error` or `OSError`. Only creates in an empty folder."""
        self.token = folder.name
        self._data = folder / "data.mdb"
        self._current = current
        self.env = lmdb.open(
            os.fspath(folder),
            map_size=map_size,
            max_dbs=3,
            max_readers=1024,
            sync=False,
            metasync=False,
            readahead=False,
            meminit=False,
            mode=0o600,
        )
        try:
            self.env.reader_check()
            self.page = int(self.env.stat()["psize"])
            # Pages past the end of a file that was cut short would kill the process that reads them.
            if os.stat(self._data).st_size < self._pages_used() * self.page:
                raise lmdb.CorruptedError("file is shorter than its pages")
            self.values = self.env.open_db(b"values")
            self.meta = self.env.open_db(b"meta")
            self.order = self.env.open_db(b"order")
            self.limit = int(map_size * _FILLED)
            self.users = 0
            self.retired = False
            self._size = 0
            self.identity = self._look()
        except BaseException:
            self.env.close()
            raise

    def stands(self) -> bool:
        """Whether the files at the paths are still those that are open, none of them cut short."""
        try:
            return self._look() == self.identity
        except OSError:
            return False

    def used(self, txn: lmdb.Transaction) -> int:
        """Bytes of the pages that hold entries."""
        pages = 0
        for database in (self.values, self.meta, self.order):
            stat = txn.stat(database)
            pages += stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return pages * self.page

    def _pages_used(self) -> int:
        # A new file has two pages from the start, and counts from zero.
        info = self.env.info()
        return int(info["last_pgno"]) + 1 if info["last_txnid"] else 0

    def _look(self) -> tuple[int, ...]:
        data, current = os.stat(self._data), os.stat(self._current)
        if data.st_size < self._size:
            raise OSError("cut short")
        self._size = data.st_size
        return (data.st_dev, data.st_ino, current.st_dev, current.st_ino, current.st_mtime_ns)


class LmdbFile:
    """A bounded map from 32-byte keys to values with expiry. Every call blocks and may raise `TierError` only.

    Any number of threads may read while one writes; several processes may use the same folder.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        """`max_bytes` bounds the file; at least 4 MiB."""
        if max_bytes < SMALLEST_MAP:
            raise ValueError(f"max_bytes is {max_bytes}, must be at least {SMALLEST_MAP}")
        self._path = path
        self._current = path / "current"
        self._map_size = max_bytes // 65536 * 65536
        self._lock = threading.Lock()
        self._generation: _Generation | None = None
        self._condemned = ""
        self._boot = boot_id().hex()
        self._readers_checked = time.monotonic()
        self.largest_value = self._map_size // 8

    def open(self) -> None:
        """Make or open the file now rather than at the first use."""
        with self._using():
            pass

    def read(self, key: bytes, now: float) -> bytes | None:
        """The value under `key`, unless it has expired at `now` (Unix seconds)."""
        with self._using() as held, held.env.begin(buffers=True) as txn:
            meta = txn.get(key, db=held.meta)
            if meta is None or len(meta) != _META.size or _META.unpack(meta)[0] <= now * 1000:
                return None
            value = txn.get(key, db=held.values)
            return None if value is None else bytes(value)

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

    def close(self) -> None:
        """Close the file. Calls under way end first; later ones would open it again."""
        with self._lock:
            self._retire()

    def _apply_alone(self, held: _Generation, operation: Operation, now: float, outcome: Outcome) -> TierError | None:
        """Make one change; when the map is full, or too torn for a run of pages as long, make room first."""
        size = len(operation.value or b"")
        for room in (0, 4 * size + held.limit // 10, held.limit):
            if room:
                held.env.reader_check()
                with held.env.begin(write=True) as txn:
                    self._make_room(held, txn, room, now, outcome)
                # Pages freed by one transaction can be used again by the second after it.
                with held.env.begin(write=True) as txn:
                    txn.put(_TOUCHED, secrets.token_bytes(8), db=held.meta)
            with contextlib.suppress(lmdb.MapFullError):
                self._commit(held, (operation,), now, outcome)
                return None
        return TierError("the warm file has no room", Trouble.FULL)

    def _commit(self, held: _Generation, batch: Sequence[Operation], now: float, outcome: Outcome) -> None:
        expired, evicted = outcome.expired, outcome.evicted
        try:
            with held.env.begin(write=True) as txn:
                outcome.expired += self._purge(held, txn, now)
                for operation in batch:
                    self._forget(held, txn, operation.key)
                    if operation.value is None:
                        continue
                    self._make_room(held, txn, len(operation.value) + 4 * held.page, now, outcome)
                    expiry = int(operation.expires_at * 1000)
                    txn.put(operation.key, operation.value, db=held.values)
                    txn.put(operation.key, _META.pack(expiry, len(operation.value)), db=held.meta)
                    txn.put(expiry.to_bytes(8, "big") + operation.key, b"", db=held.order)
        except lmdb.Error:
            # The transaction was undone, and with it what it had evicted.
            outcome.expired, outcome.evicted = expired, evicted
            raise

    def _forget(self, held: _Generation, txn: lmdb.Transaction, key: bytes) -> None:
        meta = txn.pop(key, db=held.meta)
        if meta is not None:
            txn.delete(bytes(meta[:8]) + key, db=held.order)
            txn.delete(key, db=held.values)

    def _purge(self, held: _Generation, txn: lmdb.Transaction, now: float) -> int:
        """Remove a few entries whose time is over, so that no transaction takes long and none are left for long."""
        gone = 0
        for row in self._oldest(held, txn, _PURGE_PER_BATCH):
            if int.from_bytes(row[:8], "big") > now * 1000:
                break
            self._drop(held, txn, row)
            gone += 1
        return gone

    def _make_room(self, held: _Generation, txn: lmdb.Transaction, need: int, now: float, outcome: Outcome) -> None:
        if held.used(txn) + need <= held.limit:
            return
        # The order begins with what has expired, and goes on with what will expire first.
        for row in self._oldest(held, txn, _EVICT_PER_BATCH):
            self._drop(held, txn, row)
            if int.from_bytes(row[:8], "big") <= now * 1000:
                outcome.expired += 1
            else:
                outcome.evicted += 1
            if held.used(txn) + need <= held.limit:
                return

    @staticmethod
    def _oldest(held: _Generation, txn: lmdb.Transaction, limit: int) -> Iterator[bytes]:
        """Rows of the order, first to expire first; each may be dropped before the next is asked for."""
        with txn.cursor(db=held.order) as cursor:
            for _ in range(limit):
                if not cursor.first():
                    return
                yield bytes(cursor.key())

    @staticmethod
    def _drop(held: _Generation, txn: lmdb.Transaction, row: bytes) -> None:
        key = row[8:]
        txn.delete(row, db=held.order)
        txn.delete(key, db=held.meta)
        txn.delete(key, db=held.values)

    def _check_readers(self, held: _Generation) -> None:
        """Free the slots of readers that were killed: the pages they saw could never be used again."""
        if time.monotonic() - self._readers_checked > _READER_CHECK_EVERY:
            self._readers_checked = time.monotonic()
            held.env.reader_check()

    @contextlib.contextmanager
    def _using(self) -> Iterator[_Generation]:
        """The generation in use, kept open for the length of the block; its errors become `TierError`."""
        try:
            with self._lock:
                held = self._generation
                if held is None or not held.stands():
                    held = self._reopen()
                held.users += 1
        except (OSError, lmdb.Error) as error:
            raise _translated(error) from error
        try:
            yield held
        except (OSError, lmdb.Error) as error:
            if isinstance(error, _DAMAGED):
                self._condemn(held)
            raise _translated(error) from error
        finally:
            with self._lock:
                held.users -= 1
                if held.retired and not held.users:
                    held.env.close()

    def _condemn(self, held: _Generation) -> None:
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

    def _reopen(self) -> _Generation:
        self._retire()
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._exclusive():
            generation = self._existing() or self._fresh()
        self._generation = generation
        return generation

    def _existing(self) -> _Generation | None:
        try:
            form, token, boot = self._current.read_text("ascii").split()
        except (OSError, ValueError):
            return None
        folder = self._path / token
        sound = form == _FORM and boot == self._boot and token != self._condemned and token.isalnum()
        if not sound or not (folder / "data.mdb").is_file():
            return None
        try:
            return _Generation(folder, self._current, self._map_size)
        except _DAMAGED:
            return None

    def _fresh(self) -> _Generation:
        token = secrets.token_hex(8)
        scratch = self._path / f"current.{token}"
        (self._path / token).mkdir(mode=0o700)
        scratch.write_text(f"{_FORM} {token} {self._boot}\n", "ascii")
        scratch.replace(self._current)
        generation = _Generation(self._path / token, self._current, self._map_size)
        # Processes that still have an older generation open keep its pages until they notice.
        for entry in list(self._path.iterdir()):
            if entry.is_dir() and entry.name != token:
                shutil.rmtree(entry, ignore_errors=True)
        return generation

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Be the only process that opens or replaces the file. Given up by the system when its holder dies."""
        descriptor = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + _LOCK_PATIENCE
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise TierError("the warm file is being opened by another process", Trouble.BUSY) from None
                    time.sleep(0.01)
            yield
        finally:
            os.close(descriptor)


def _translated(error: OSError | lmdb.Error) -> TierError:
    kind = Trouble.IO
    if isinstance(error, _DAMAGED):
        kind = Trouble.CORRUPT
    elif isinstance(error, lmdb.MapFullError | lmdb.DiskError | lmdb.TxnFullError):
        kind = Trouble.FULL
    elif isinstance(error, lmdb.ReadersFullError):
        kind = Trouble.BUSY
    elif isinstance(error, PermissionError | lmdb.ReadonlyError):
        kind = Trouble.REFUSED
    return TierError(f"warm file: {error}", kind)
