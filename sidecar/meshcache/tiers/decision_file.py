"""Decisions about experiments in a file of the data folder: where no store is shared, and a copy where one is.

The file is replaced as a whole, so that whoever reads it sees one state; whoever changes it holds a lock meanwhile.
The lock file holds the end of the lease, which is renewed every second and need not outlive the machine.

A disk that is full, or that takes no writes any more, keeps nobody from a rollback: what it does not take is held in
memory, counts as written for this process, and is written as soon as the disk takes it. Should another process have
written meanwhile, that counts instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import secrets
import time
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from meshcache.tiers.decision_store import Stored, StoreError, decoded, encoded
from meshcache.tiers.whole_file import replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from meshcache.experiment.state import Record

FILE_NAME: Final = "experiments.json"
"""In the data folder."""
ASIDE: Final = ".broken"
"""Behind the name of a file that held something else."""
_POLL: Final = 0.1
_PATIENCE: Final = 2.0
"""Seconds to wait for the lock."""
_RETRY: Final = 0.005
_UNWRITABLE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""What a disk says that takes no more for now."""

_Mark = tuple[int, int, int]


class _Contents(msgspec.Struct):
    """The file. Unknown fields are of a newer release and are left out."""

    incarnation: str = ""
    leader: str = ""
    """The token of who leads, or led last."""
    terms: int = 0
    """How often the leader has changed."""
    records: dict[str, msgspec.Raw] = {}
    """One that this release does not understand stays as it is until something else is decided."""

    def record(self, name: str) -> Record | None:
        """The record of that name."""
        found = self.records.get(name)
        return None if found is None else decoded(found)

    def put(self, record: Record) -> None:
        """Put `record` in its place."""
        self.records[record.name] = msgspec.Raw(encoded(record))

    def all(self) -> dict[str, Record]:
        """The records that this release understands."""
        return {name: record for name, value in self.records.items() if (record := decoded(value)) is not None}


Answer = TypeVar("Answer")


class DecisionFile:
    """Implements `DecisionStore`. Reading and writing happens in threads."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        set_aside: Callable[[Path], None] = lambda _path: None,
        unsaved: Callable[[OSError | None], None] = lambda _error: None,
    ) -> None:
        """`set_aside` is told where a file is now that held no decisions, but something else; `unsaved` why what is
        decided is held in memory, and None as soon as it is on disk."""
        self.where = str(path)
        self._set_aside = set_aside
        self._unsaved = unsaved
        self._held: tuple[bytes, _Mark] | None = None
        """What the disk has not taken, and the mark of what is there instead."""
        self._holds = 0
        self._path = path
        self._lock_path = path.with_name(f"{path.name}.lock")
        self._clock = clock
        self._holder = secrets.token_hex(8)
        self._read_at: _Mark = (0, 0, 0)
        self._stored = Stored({})

    @property
    def holds(self) -> bool:
        """Whether something is not on disk yet."""
        return self._held is not None

    def load(self) -> dict[str, Record]:
        """The records. Blocks; raises `StoreError`. A file that is not there holds none."""
        return self._contents().all()

    def keep(self, records: Mapping[str, Record]) -> None:
        """Hold just `records`, as a copy of what is in a store that is shared. Blocks. Raises `StoreError`."""

        def change(contents: _Contents, _lock: int) -> None:
            contents.records = {name: msgspec.Raw(encoded(record)) for name, record in records.items()}

        self._change(change)

    async def lead(self, seconds: float) -> str | None:
        """See `DecisionStore`."""

        def change(contents: _Contents, lock: int) -> str | None:
            now, until = self._clock(), _read_end(lock)
            mine = contents.leader.endswith(f"-{self._holder}")
            # An end that is farther away than any lease lasts was written by another clock.
            if not mine and now < until <= now + seconds:
                return None
            if not mine:
                contents.terms += 1
                contents.leader = f"{contents.terms}-{self._holder}"
            _write_end(lock, now + seconds)
            return contents.leader

        return await self._changed(change)

    async def step_down(self) -> None:
        """See `DecisionStore`."""

        def change(contents: _Contents, lock: int) -> None:
            if contents.leader.endswith(f"-{self._holder}"):
                _write_end(lock, 0.0)

        await self._changed(change)

    async def read(self) -> Stored:
        """See `DecisionStore`."""
        mark = self._mark()
        if mark != self._read_at or not mark[0]:
            contents = await asyncio.to_thread(self._contents)
            self._read_at, self._stored = mark, Stored(contents.all(), contents.incarnation)
        return self._stored

    async def write(self, record: Record, token: str | None) -> bool:
        """See `DecisionStore`."""

        def change(contents: _Contents, _lock: int) -> bool:
            before = contents.record(record.name)
            if token not in (None, contents.leader) or (before.version if before else 0) != record.version - 1:
                return False
            contents.put(record)
            return True

        return await self._changed(change)

    async def offer(self, records: Iterable[Record]) -> None:
        """See `DecisionStore`."""
        offered = list(records)

        def change(contents: _Contents, _lock: int) -> None:
            for record in offered:
                before = contents.record(record.name)
                if before is None or before.version < record.version:
                    contents.put(record)

        await self._changed(change)

    async def forget(self, record: Record, token: str) -> bool:
        """See `DecisionStore`."""

        def change(contents: _Contents, _lock: int) -> bool:
            before = contents.record(record.name)
            if token != contents.leader or before is None or before.version != record.version:
                return False
            del contents.records[record.name]
            return True

        return await self._changed(change)

    async def wait(self, seconds: float) -> None:
        """See `DecisionStore`."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(min(_POLL, seconds))
            if self._mark() != self._read_at:
                return

    async def close(self) -> None:
        """See `DecisionStore`."""

    def _mark(self) -> _Mark:
        return (*self._mark_on_disk()[:2], self._holds)

    def _mark_on_disk(self) -> _Mark:
        with contextlib.suppress(OSError):
            found = self._path.stat()
            return found.st_ino, found.st_mtime_ns, found.st_size
        return 0, 0, 0

    async def _changed(self, change: Callable[[_Contents, int], Answer]) -> Answer:
        return await asyncio.to_thread(self._change, change)

    def _change(self, change: Callable[[_Contents, int], Answer]) -> Answer:
        """What `change` makes of the contents takes their place. Raises `StoreError`."""
        try:
            with self._locked() as lock:
                contents = self._load()
                before = msgspec.json.encode(contents)
                answer = change(contents, lock)
                if not contents.incarnation:
                    contents.incarnation = secrets.token_hex(8)
                after = msgspec.json.encode(contents)
                if after != before or self._held is not None:
                    self._save(after)
                return answer
        except OSError as error:
            raise StoreError(f"{self.where} cannot be written: {error.strerror}") from error

    def _save(self, body: bytes) -> None:
        """Put `body` in the file, or hold it until the disk takes it. For who holds the lock; raises `OSError`."""
        try:
            replace_file(self._path, body)
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            if self._held is None:
                self._unsaved(error)
            if self._held is None or self._held[0] != body:
                self._held = body, self._mark_on_disk()
                self._holds += 1
        else:
            self._let_go()

    def _let_go(self) -> None:
        if self._held is not None:
            self._held = None
            self._holds += 1
            self._unsaved(None)

    def _contents(self) -> _Contents:
        """What the file holds. Raises `StoreError` where that cannot be said: it is not the same as nothing."""
        try:
            found = self._read()
            if found is None:
                with self._locked():
                    found = self._load()
        except OSError as error:
            raise StoreError(f"{self.where} cannot be read: {error.strerror}") from error
        return found

    def _load(self) -> _Contents:
        """The same for who holds the lock; what is no file of ours is set aside. Raises `OSError`."""
        found = self._read()
        if found is None:
            # Kept for people: the decisions in it may be all that there is of them.
            aside = self._path.with_name(f"{self._path.name}{ASIDE}")
            os.replace(self._path, aside)
            self._set_aside(aside)
            found = _Contents()
        return found

    def _read(self) -> _Contents | None:
        """None for a file that holds something else. Raises `OSError`."""
        held = self._held
        if held is not None:
            if held[1] == self._mark_on_disk():
                return msgspec.json.decode(held[0], type=_Contents)
            self._let_go()
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Contents)
        except FileNotFoundError:
            return _Contents()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        try:
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            descriptor = os.open(self._lock_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            until = time.monotonic() + _PATIENCE
            while not _taken(descriptor):
                # Whoever holds it may have been stopped.
                if time.monotonic() > until:
                    raise StoreError(f"{self.where}: another process keeps it locked")
                time.sleep(_RETRY)
            yield descriptor
        finally:
            os.close(descriptor)


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_end(lock: int) -> float:
    try:
        return float(os.pread(lock, 32, 0))
    except ValueError:
        return 0.0


def _write_end(lock: int, end: float) -> None:
    # Where it cannot be written, the one that leads still knows itself by its token.
    with contextlib.suppress(OSError):
        os.pwrite(lock, f"{end:<31.3f}\n".encode("ascii"), 0)
