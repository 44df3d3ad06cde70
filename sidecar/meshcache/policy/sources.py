"""Where policy documents come from: files given by name, and a folder that is watched by its contents."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from watchfiles import awatch

from meshcache.policy.documents import MAX_FILE_BYTES, MAX_FILES, Documents
from meshcache.policy.errors import PolicyError, PolicyErrors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

_POLL = 0.4
"""Seconds between two readings when nothing is notified: inotify misses bind mounts, network folders and swaps."""
_SETTLE = 0.03
"""Seconds between two readings that must agree before a change counts, so that a file half written is rarely seen."""
_SETTLE_TRIES = 6
"""A folder that never comes to rest is taken as it is after so many readings."""
_REFILL = 0.4
"""Seconds for which a file that is empty now, or gone, and was not before, may be one that is being written."""


def shown(path: str | Path) -> str:
    """`path` as text for people, logs and other processes: a file's name may hold bytes that are no UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def read_files(paths: Iterable[str | Path]) -> Documents:
    """The policy files at `paths`: folders stand for the `*.yaml` and `*.yml` in them, `-` for standard input. Nothing
    is raised: what cannot be read is among the `problems` of the result.
    """
    problems: list[PolicyError] = []
    names: dict[str, None] = {}
    for path in map(Path, paths):
        try:
            inside = _policy_files(path) if path.is_dir() else [path]
        except OSError as error:
            problems.append(_unreadable(shown(path), error))
            continue
        names.update(dict.fromkeys(map(str, inside)))
    if len(names) > MAX_FILES:
        problems.append(PolicyError(shown(next(iter(names))), 0, 0, "", f"more than {MAX_FILES} policy files"))
        names = {}
    files: list[tuple[str, str]] = []
    for name in names:
        found = _read_standard_input() if name == "-" and not Path(name).exists() else _read(name)
        if isinstance(found, PolicyError):
            problems.append(found)
        else:
            files.append((shown(name), found))
    return Documents.of(files, problems)


def _policy_files(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [
            folder / entry.name
            for entry in sorted(entries, key=lambda entry: entry.name)
            # Hidden: editors' swap files, and the `..data` and `..2024_…` folders of a mounted ConfigMap.
            if entry.name.endswith((".yaml", ".yml")) and not entry.name.startswith(".") and not _is_folder(entry)
        ]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # Links that lead nowhere, say: what cannot be told is told when it is read, and by its own name.
        return False


def _read(path: str) -> str | PolicyError:
    name = shown(path)
    try:
        # Non-blocking, so that a named pipe is refused instead of waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return PolicyError(name, 0, 0, "", "not a file or a folder")
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        return _unreadable(name, error)
    return _text(name, data)


def _read_standard_input() -> str | PolicyError:
    if sys.stdin is None:
        return PolicyError("-", 0, 0, "", "standard input is closed")
    try:
        return _text("-", sys.stdin.buffer.read(MAX_FILE_BYTES + 1))
    except OSError as error:
        return _unreadable("-", error)


def _text(name: str, data: bytes) -> str | PolicyError:
    if len(data) > MAX_FILE_BYTES:
        return PolicyError(name, 0, 0, "", f"larger than {MAX_FILE_BYTES} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        hint = "it is UTF-16: save it as UTF-8" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else ""
        return PolicyError(name, line, column, "", "not valid UTF-8 text", hint)


def _unreadable(name: str, error: OSError) -> PolicyError:
    return PolicyError(name, 0, 0, "", f"cannot be read: {error.strerror or error}")


def _filled(documents: Documents) -> frozenset[str]:
    return frozenset(name for name, text in documents.files if text and not text.isspace())


class FolderSource:
    """A folder of policy files, read as one set.

    A file that cannot be read refuses the set: half of the policies is not what anyone meant. The folder may vanish
    and come back. An empty folder is a set in which nothing is cached.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._digest: str | None = None
        self._filled: frozenset[str] = frozenset()
        """The files of the set before that held something."""

    def read(self) -> Documents:
        """The set as it is now. Raises `PolicyErrors` when the folder or a file cannot be read."""
        documents = self._snapshot()
        self._remember(documents)
        if documents.problems:
            raise PolicyErrors(documents.problems)
        return documents

    def _snapshot(self) -> Documents:
        try:
            if stat.S_ISDIR(self.path.stat().st_mode):
                return read_files([self.path])
            problem = PolicyError(shown(self.path), 0, 0, "", "not a folder")
        except (FileNotFoundError, NotADirectoryError):
            problem = PolicyError(shown(self.path), 0, 0, "", "there is no such folder")
        except OSError as error:
            problem = _unreadable(shown(self.path), error)
        return Documents.of([], [problem])

    async def changes(self) -> AsyncIterator[Documents]:
        """Each set whose contents differ from the one before (at first: from what `read` has returned).

        A set that cannot be read comes too, once, with `problems` that make the compiler refuse it. Never raises, and
        ends only when it is closed or cancelled. Contents are compared, never times: the swap of a mounted ConfigMap
        can leave those as they were.
        """
        touched = asyncio.Event()
        watcher = asyncio.create_task(self._watch(touched))
        try:
            while True:
                documents = await asyncio.to_thread(self._snapshot)
                if documents.digest != self._digest:
                    documents = await self._settled(documents)
                if documents.digest != self._digest:
                    self._remember(documents)
                    yield documents
                # Not `wait_for`: on Python 3.11 that loses a cancellation which comes together with the event.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_POLL):
                        await touched.wait()
                touched.clear()
        finally:
            watcher.cancel()
            # However it ends: an error of its own must not take the place of a cancellation.
            await asyncio.gather(watcher, return_exceptions=True)

    async def _settled(self, documents: Documents) -> Documents:
        refilled_by = time.monotonic() + _REFILL
        tries = 0
        while True:
            await asyncio.sleep(_SETTLE)
            again = await asyncio.to_thread(self._snapshot)
            rests = again.digest == documents.digest
            documents = again
            tries += 1
            # Who saves a file empties it first, or moves it away, and may take a while until it is there again.
            whole = self._filled <= _filled(documents) or time.monotonic() >= refilled_by
            if whole and (rests or tries >= _SETTLE_TRIES):
                return documents

    def _remember(self, documents: Documents) -> None:
        self._digest = documents.digest
        self._filled = _filled(documents)

    async def _watch(self, touched: asyncio.Event) -> None:
        """Set `touched` when the system notifies of a change; the poll covers whatever goes unnoticed here."""
        while True:
            # The folder may be missing, the limit of watches reached, the name none that can be watched: polling alone
            # has to do for now.
            with contextlib.suppress(Exception):
                stop = asyncio.Event()
                guard = asyncio.create_task(self._replaced(stop))
                try:
                    async for _ in awatch(self.path, stop_event=stop, recursive=False, debounce=200, step=20):
                        touched.set()
                finally:
                    guard.cancel()
            await asyncio.sleep(_POLL)

    async def _replaced(self, stop: asyncio.Event) -> None:
        """Set `stop` when another folder has taken the place of the one that is watched."""
        watched = self._identity()
        while not stop.is_set():
            await asyncio.sleep(_POLL)
            if self._identity() != watched:
                stop.set()

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return (found.st_dev, found.st_ino)


_LABEL_LINE = re.compile(r'([^=\s]+)="((?:[^"\\]|\\.)*)"')


def read_pod_labels(path: str | Path) -> dict[str, str]:
    """The pod's labels from a file of the downward API: one `name="value"` a line. Empty when there is no such file."""
    try:
        text = Path(path).read_text("utf-8", "replace")
    except OSError:
        return {}
    # Values are quoted as Go does it; a label's value holds nothing that would need more than these two escapes.
    return {
        found[1]: found[2].replace('\\"', '"').replace("\\\\", "\\")
        for line in text.splitlines()
        if (found := _LABEL_LINE.fullmatch(line.strip())) is not None
    }
