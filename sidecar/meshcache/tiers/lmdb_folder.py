"""Where an LMDB file lives that may be replaced while processes use it: blocking calls, for threads.

On disk: `current` names the generation in use and the machine's boot in which it was made; a generation is a
folder with one LMDB environment. A file that is damaged, was lost, or is from another boot (it is never synced, so
a crash of the machine may have torn it) is replaced by a fresh generation; processes notice by the files' identity.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from typing import TYPE_CHECKING

import lmdb

from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.mapping import boot_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_CURRENT = "current"
_FORM = "1"
FILLED = 0.75
"""Share of the map that entries may take. The rest is for pages that were freed and cannot be reused yet."""
_LOCK_PATIENCE = 2.0

DAMAGED = (
    lmdb.CorruptedError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.MapResizedError,  # all processes of a pod use the same size: no other has grown it
    lmdb.VersionMismatchError,
    lmdb.BadTxnError,
    lmdb.BadDbiError,
    lmdb.IncompatibleError,
    lmdb.CursorFullError,
)
"""Errors that only a fresh generation helps against."""


def give_up(path: Path) -> None:
    """Have whoever uses the file in the folder `path` next begin a fresh one: reading this one has killed a process.

    LMDB reads a mapped file, so that a damaged page can lead it to where no memory is.
    """
    with contextlib.suppress(OSError):
        (path / _CURRENT).unlink()


class Generation:
    """One open environment. Closed when it is retired and its last user has left."""

    def __init__(self, folder: Path, current: Path, map_size: int, announce: Callable[[], None] | None = None) -> None:
        """Raises `lmdb.Error` or `OSError`. Only creates in an empty folder.

        `announce` makes `current` name this generation, when it does not do so yet; called once all else is well.
        """
        self.token = folder.name
        self._data = folder / "data.mdb"
        self._current = current
        self.env = lmdb.open(
            os.fspath(folder),
            map_size=map_size,
            max_dbs=5,
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
            self.pooled = self.env.open_db(b"pooled")
            self.pools = self.env.open_db(b"pools")
            self.limit = int(map_size * FILLED)
            self.users = 0
            self.retired = False
            self._size = 0
            if announce is not None:
                announce()
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
        for database in (self.values, self.meta, self.order, self.pooled):
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


class LmdbFolder:
    """The folder with the generation in use. Raises `TierError`, `lmdb.Error` and `OSError`."""

    def __init__(self, path: Path, map_size: int) -> None:
        """`path` is made when absent; `map_size` in bytes."""
        self._path = path
        self._current = path / _CURRENT
        self._map_size = map_size
        self._boot = boot_id().hex()

    def open(self, condemned: str) -> Generation:
        """The generation in use, or a fresh one: when there is none, it is of no use, or its token is `condemned`."""
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._exclusive():
            generation = self._existing(condemned) or self._fresh()
            self._tidy(generation.token)
        return generation

    def _existing(self, condemned: str) -> Generation | None:
        try:
            form, token, boot = self._current.read_text("ascii").split()
        except (OSError, ValueError):
            return None
        folder = self._path / token
        sound = form == _FORM and boot == self._boot and token.isalnum()
        if not sound or token == condemned or not (folder / "data.mdb").is_file():
            return None
        try:
            return Generation(folder, self._current, self._map_size)
        except DAMAGED:
            return None

    def _fresh(self) -> Generation:
        token = secrets.token_hex(8)
        folder = self._path / token
        scratch = self._path / f"current.{token}"

        def announce() -> None:
            scratch.write_text(f"{_FORM} {token} {self._boot}\n", "ascii")
            scratch.replace(self._current)

        try:
            folder.mkdir(mode=0o700)
            return Generation(folder, self._current, self._map_size, announce)
        except BaseException:
            # On a disk that is full this happens again and again.
            with contextlib.suppress(OSError):
                scratch.unlink()
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _tidy(self, token: str) -> None:
        """Remove what is not of the generation `token`: earlier ones, and what processes that died left half made.

        Processes that still have an older generation open keep its pages until they notice.
        """
        for entry in list(self._path.iterdir()):
            if entry.is_dir() and entry.name != token:
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name.startswith("current."):
                with contextlib.suppress(OSError):
                    entry.unlink()

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
