"""The files in which the filters' counts are kept: see `filter_state` for how nothing is lost and nothing doubled.

Everything here blocks, and runs in one thread.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import TYPE_CHECKING, Final

from meshcache.experiment.exposure import CountedExperiment
from meshcache.extproc.book_files import FILTERS_BOOK, FOLDER, about_in, id_of, open_book, reopen_book
from meshcache.extproc.filter_state import MOST_PLAIN, Change, Plain, State, StateFile, Worker, fresh
from meshcache.observe.metrics import OTHER
from meshcache.wasm.booked import Words

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Mapping, Sequence

    from meshcache.wasm.numbers import Batch, PlainCounts

_MOST_OPEN: Final = 16
"""Books that are kept mapped."""


class _Mapped:
    """A book that is open, and which file it is: its folder may be removed behind our back."""

    def __init__(self, path: Path, mapped: mmap.mmap) -> None:
        self.mapped = mapped
        self._path = path
        self._identity = _identity(path)

    @property
    def there(self) -> bool:
        """Whether what is stored in it will be read."""
        return self._identity is not None and self._identity == _identity(self._path)


class FilterBooks:
    """What has been taken of the filters' batches. First `begin`; at last `close`."""

    def __init__(self, data: Path, clock: Callable[[], float]) -> None:
        """`data` is the data folder; `clock` gives Unix seconds."""
        self._data = data
        self._clock = clock
        self._file: StateFile | None = None
        self._state = State()
        self._open: dict[bytes, _Mapped] = {}
        self.totals: tuple[Plain, ...] = ()
        """By route and arm; replaced as a whole, for readers in other threads."""
        self.damaged = False
        """Whether what was known has been lost."""
        self.unbooked: dict[str, int] = {}
        """Hits that went into no book, by experiment, since the epoch is not known here. Replaced as a whole."""

    def begin(self) -> StateFile:
        """Read what was taken before, and store once more what the last batch changes. Raises `OSError`."""
        if self._file is not None:
            return self._file
        file = StateFile(self._data)
        try:
            found = file.read()
            state = fresh(found, self._clock())
            for change in state.changes:
                self._store_again(change)
        except BaseException:
            file.close()
            raise
        self._file, self._state, self.damaged = file, state, found is None
        self.totals = tuple(state.plain)
        return file

    def take(self, batch: Batch, counted: Mapping[bytes, CountedExperiment]) -> bool:
        """Take a batch; False for one that had been taken before.

        `counted` are the epochs that are counted now, by `book_files.id_of`. Raises `OSError`, and then nothing of it
        was taken.
        """
        file = self.begin()
        known = self._state.workers.get(batch.worker)
        if known is not None and batch.sequence <= known.sequence:
            return False
        now = self._clock()
        unbooked = dict(self.unbooked)
        books: dict[bytes, Words] = {}
        for counts in batch.counted:
            words = self._words(books, counts.tag.counted, counted)
            if words is None:
                experiment = counts.tag.counted.experiment
                unbooked[experiment] = unbooked.get(experiment, 0) + sum(row.requests for row in counts.rows)
            else:
                words.add(counts, now, random.random)
        changes = {key: Change(key, words.head, *words.changes()) for key, words in books.items()}
        state = State(
            workers={**self._state.workers, batch.worker: Worker(batch.sequence, now)},
            plain=_added(self._state.plain, batch.plain, now),
            changes=list(changes.values()),
        )
        state = fresh(state, now, routes=False)
        file.write(state)
        # From here on it was taken: whatever happens, a successor stores the changes.
        self._state = state
        for key, words in books.items():
            words.store(changes[key].words, changes[key].sample)
        self.totals = tuple(state.plain)
        self.unbooked = unbooked
        return True

    def close(self) -> None:
        """Let others have the files."""
        self._open.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _words(
        self, books: dict[bytes, Words], named: CountedExperiment, counted: Mapping[bytes, CountedExperiment]
    ) -> Words | None:
        """The book of an epoch, among `books` afterwards; None where it is not known, or has other arms."""
        key = id_of(named)
        words = books.get(key)
        if words is None:
            found = counted.get(key) or self._earlier(key)
            if found is None or found.arms != named.arms:
                return None
            words = books[key] = Words(memoryview(self._mapped(key, found)))
        return words

    def _earlier(self, key: bytes) -> CountedExperiment | None:
        """An epoch that is over, and whose books are still kept."""
        found = about_in(self._folder(key))
        if found is None:
            return None
        return CountedExperiment(found.experiment, found.spec_hash, found.epoch, found.arms, found.uid)

    def _mapped(self, key: bytes, counted: CountedExperiment) -> mmap.mmap:
        held = self._open.pop(key, None)
        if held is None or not held.there:
            folder = self._folder(key)
            # Before it is opened anew, or its own lock would be in the way.
            held = None
            held = _Mapped(folder / FILTERS_BOOK, open_book(folder, counted, key, FILTERS_BOOK))
        # The one used last is the last.
        self._open[key] = held
        while len(self._open) > _MOST_OPEN:
            del self._open[next(iter(self._open))]
        return held.mapped

    def _store_again(self, change: Change) -> None:
        mapped = reopen_book(self._folder(change.key) / FILTERS_BOOK, change.head)
        if mapped is not None:
            # A book that has been made anew since, by another release, is of another form.
            with contextlib.suppress(ValueError):
                Words(memoryview(mapped)).store(change.words, change.sample)

    def _folder(self, key: bytes) -> Path:
        return self._data / FOLDER / key.hex()


def _added(plain: Sequence[Plain], counts: Sequence[PlainCounts], now: float) -> list[Plain]:
    """Totals with more counts; those beyond the bound are one."""
    found = {(one.route, one.arm, one.missing): one for one in plain}
    for more in counts:
        place = more.tag.route, more.tag.arm, more.tag.missing
        if place not in found and len(found) >= MOST_PLAIN:
            place = OTHER, OTHER, ""
        route, arm, missing = place
        before = found.get(place) or Plain(route, arm)
        found[place] = Plain(
            route,
            arm,
            before.fresh + more.fresh,
            before.stale + more.stale,
            before.not_modified + more.not_modified,
            before.body_bytes + more.body_bytes,
            before.age_ms + more.age_ms,
            before.passed + more.passed,
            now,
            missing,
        )
    return list(found.values())


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
