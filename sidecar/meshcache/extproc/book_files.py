"""The files that workers count experiments in: `<data>/ledger/<epoch of an experiment>/worker-<n>.book`.

What the filter in Envoy has counted is in `filters.book` beside them (`filter_numbers`). Each worker maps a file of its
own and adds to it in place (`experiment.ledger`), so that what has been counted is there whatever becomes of the
worker. Files are as long as they will ever be from the start, with all of their blocks: on a full disk one cannot be
made, and then the worker does not count, instead of being killed in the middle of a request.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import msgspec

from meshcache.experiment.ledger import HEAD_BYTES, Book, Layout, about, arms_of, head
from meshcache.tiers.mapping import allocate, map_shared
from meshcache.tiers.whole_file import replace_file

if TYPE_CHECKING:
    import mmap
    from collections.abc import Mapping

    from meshcache.experiment.exposure import CountedExperiment

FOLDER: Final = "ledger"
"""In the data folder."""
ABOUT: Final = "about.json"
ASIDE: Final = ".aside"
"""Behind the name of a file of another form."""
_FOLDER_MODE: Final = 0o700
_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class About(msgspec.Struct, frozen=True, rename="camel"):
    """What the files of a folder are about."""

    experiment: str
    uid: str
    spec_hash: str
    epoch: int
    arms: tuple[str, ...]


_decoder = msgspec.json.Decoder(About)


def id_of(counted: CountedExperiment) -> bytes:
    """See `experiment.ledger.about`."""
    return about(counted.experiment, counted.spec_hash, counted.epoch, counted.uid)


FILTERS_BOOK: Final = "filters.book"
"""The name of the file of what was answered in Envoy."""


def book_name(slot: int) -> str:
    """The name of a worker's file."""
    return f"worker-{slot}.book"


class BookFiles:
    """One worker's books. From any thread."""

    def __init__(self, data: Path, slot: int) -> None:
        """`data` is the data folder, `slot` the worker's number in its pod."""
        self._folder = data / FOLDER
        self._slot = slot
        # A request that began in an epoch is counted in it, and its book lives as long as such a request does.
        self._open: WeakValueDictionary[bytes, Book] = WeakValueDictionary()
        self._lock = threading.Lock()

    def held(self, counted: Mapping[str, CountedExperiment]) -> dict[str, Book]:
        """The books of these experiments that are open already, by experiment."""
        found = {name: self._open.get(id_of(one)) for name, one in counted.items()}
        return {name: book for name, book in found.items() if book is not None}

    def open(self, counted: Mapping[str, CountedExperiment]) -> tuple[dict[str, Book], dict[str, str]]:
        """The books of these experiments, and why there is none, by experiment. Blocks."""
        books: dict[str, Book] = {}
        failures: dict[str, str] = {}
        with self._lock:
            for name, one in counted.items():
                key = id_of(one)
                book = self._open.get(key)
                try:
                    books[name] = self._open[key] = self._opened(one, key) if book is None else book
                except (OSError, ValueError) as error:
                    failures[name] = str(error)
        return books, failures

    def _opened(self, counted: CountedExperiment, key: bytes) -> Book:
        mapped = open_book(self._folder / key.hex(), counted, key, book_name(self._slot))
        return Book(memoryview(mapped), secrets.randbits(64))


def open_book(folder: Path, counted: CountedExperiment, key: bytes, name: str) -> mmap.mmap:
    """The book `name` in the folder of `counted`, made where there is none of this form, and mapped.

    As long as the map lives, nobody else may open it. Blocks; raises `OSError`, and `ValueError` for bad arms.
    """
    folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    told = msgspec.json.encode(About(counted.experiment, counted.uid, counted.spec_hash, counted.epoch, counted.arms))
    if not _holds(folder / ABOUT, told):
        # Also where power has gone before it was on disk: without it nobody would read what is counted.
        replace_file(folder / ABOUT, told, synced=False)
    arms = len(counted.arms)
    begins, size = head(arms, key), Layout.of(arms).size
    return _locked(_book(folder / name, begins, size), size)


def reopen_book(path: Path, begins: bytes) -> mmap.mmap | None:
    """The book at `path` as `open_book` gives it, if there is one that begins so. Blocks; raises `OSError`."""
    arms = arms_of(begins)
    if arms is None:
        return None
    size = Layout.of(arms).size
    try:
        descriptor = _there(path, begins, size)
    except FileNotFoundError:
        return None
    return None if descriptor is None else _locked(descriptor, size)


def about_in(folder: Path) -> About | None:
    """What stands in a folder of the ledger; None for any other."""
    try:
        found = _decoder.decode((folder / ABOUT).read_bytes())
        Layout.of(len(found.arms))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, ValueError):
        return None
    key = about(found.experiment, found.spec_hash, found.epoch, found.uid)
    return found if folder.name == key.hex() else None


def _locked(descriptor: int, size: int) -> mmap.mmap:
    """The file in memory; `descriptor` is closed. Two processes must never count into one file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return map_shared(descriptor, size)
    finally:
        os.close(descriptor)


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False


def _book(path: Path, begins: bytes, size: int) -> int:
    """A descriptor of the book at `path`, made where there is none of this form. Raises `OSError`."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = _there(path, begins, size)
        if descriptor is not None:
            return descriptor
        path.rename(path.with_name(path.name + ASIDE))
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(scratch, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        allocate(descriptor, size)
        os.pwrite(descriptor, begins, 0)
        scratch.rename(path)
    except BaseException:
        os.close(descriptor)
        scratch.unlink(missing_ok=True)
        raise
    return descriptor


def _there(path: Path, begins: bytes, size: int) -> int | None:
    """A descriptor of the file at `path`; None when it is a book of another form. Raises `OSError`."""
    descriptor = os.open(path, _FLAGS)
    if os.fstat(descriptor).st_size == size and os.pread(descriptor, HEAD_BYTES, 0) == begins:
        return descriptor
    os.close(descriptor)
    return None
