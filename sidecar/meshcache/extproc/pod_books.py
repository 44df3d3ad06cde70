"""What the workers of this pod have counted, read from their files (`book_files`) and added up. Needs numpy.

Everything here blocks, and runs in one thread.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import time
from typing import TYPE_CHECKING, Final

from meshcache.experiment.counted import Counted, Folded, read
from meshcache.experiment.ledger import Layout, head, window_of
from meshcache.extproc.book_files import ABOUT, FOLDER, About, about_in
from meshcache.tiers.whole_file import replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

_FOLDED: Final = "folded"
_GRACE: Final = 1.0
"""Seconds after a window's end at which its requests have been counted by every worker."""
KEPT: Final = 30 * 86400.0
"""Seconds for which the last epoch of an experiment that has ended is kept."""
LINGER: Final = 600.0
"""Seconds for which an epoch is kept when a later one has begun."""


class PodBooks:
    """The books of one epoch of one experiment, of all workers of the pod that there ever were."""

    def __init__(self, folder: Path, about: About) -> None:
        """`folder` is named by what it is about; `about` is what stands in it. Raises `ValueError` for bad arms."""
        self.about = about
        self.key = bytes.fromhex(folder.name)
        self._folder = folder
        self._arms = len(about.arms)
        self._head = head(self._arms, self.key)
        self._size = Layout.of(self._arms).size
        self._mapped: dict[str, tuple[tuple[int, int], mmap.mmap]] = {}
        self._folded = self._kept()

    def read(self, now: float) -> Counted:
        """The sum of all books; windows that have closed at `now`, Unix seconds, are folded first."""
        views = [memoryview(mapped) for mapped in self._maps()]
        if self._folded.fold(views, window_of(now - _GRACE) - 1):
            # Where the disk is full, they are folded once more after a restart: from the ring, as far as it goes.
            with contextlib.suppress(OSError):
                replace_file(self._folder / _FOLDED, self._folded.dump(self.key), synced=False)
        found = Counted.none(self._arms)
        for view in views:
            found.add(read(view))
            view.release()
        found.sampled = self._folded.sampled.copy()
        return found

    def _maps(self) -> list[mmap.mmap]:
        """The files that are there now, mapped."""
        there = {}
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(".book") and not entry.name.startswith("."):
                    status = entry.stat(follow_symlinks=False)
                    there[entry.name] = status.st_dev, status.st_ino
        for name in [name for name, (identity, _) in self._mapped.items() if there.get(name) != identity]:
            del self._mapped[name]
        for name, identity in there.items():
            if name not in self._mapped:
                with contextlib.suppress(OSError, ValueError):
                    self._mapped[name] = identity, self._map(self._folder / name)
        return [mapped for _, mapped in self._mapped.values()]

    def _map(self, path: Path) -> mmap.mmap:
        """Raises `OSError`, and `ValueError` for a file of another form."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_size != self._size or os.pread(descriptor, len(self._head), 0) != self._head:
                raise ValueError("not a book of this form")
            return mmap.mmap(descriptor, self._size, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)

    def _kept(self) -> Folded:
        found = None
        with contextlib.suppress(OSError):
            found = Folded.load((self._folder / _FOLDED).read_bytes(), self._arms, self.key)
        return found or Folded.none(self._arms)


class Shelf:
    """All epochs of all experiments that this pod has counted."""

    def __init__(self, data: Path, clock: Callable[[], float] = time.time) -> None:
        """`data` is the data folder; `clock` gives Unix seconds."""
        self._folder = data / FOLDER
        self._clock = clock
        self._books: dict[bytes, PodBooks] = {}

    def read(self, key: bytes) -> tuple[About, Counted] | None:
        """What one epoch is about (`ledger.about`), and what the pod has counted of it; None when it has nothing."""
        books = self._books.get(key)
        if books is None:
            about = about_in(self._folder / key.hex())
            if about is None:
                return None
            books = self._books[key] = PodBooks(self._folder / key.hex(), about)
        return books.about, books.read(self._clock())

    def keys(self) -> list[bytes]:
        """The epochs that there is something of, the one begun last first."""
        return [key for _, key, _ in self._shelved()]

    def tidy(self, counted: Collection[bytes]) -> list[bytes]:
        """Remove what is no longer needed; returns what that was. `counted` are the epochs that are counted now.

        Of each experiment the newest epoch stays for `KEPT`, those before it for `LINGER` after its beginning.
        """
        now = self._clock()
        newest: dict[tuple[str, str], float] = {}
        gone = []
        for begun, key, about in self._shelved():
            later = newest.setdefault((about.experiment, about.uid), begun)
            kept = now - begun < KEPT if later == begun else now - later < LINGER
            if not kept and key not in counted:
                self._books.pop(key, None)
                shutil.rmtree(self._folder / key.hex(), ignore_errors=True)
                gone.append(key)
        return gone

    def close(self, keys: Collection[bytes]) -> None:
        """Unmap all but these."""
        for key in [key for key in self._books if key not in keys]:
            del self._books[key]

    def _shelved(self) -> list[tuple[float, bytes, About]]:
        """When each epoch was begun, its key, and what it is about; the newest first."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                about = about_in(self._folder / entry.name)
                with contextlib.suppress(OSError):
                    if about is not None:
                        begun = (self._folder / entry.name / ABOUT).stat().st_mtime
                        found.append((begun, bytes.fromhex(entry.name), about))
        return sorted(found, key=lambda one: (-one[0], -one[2].epoch))
