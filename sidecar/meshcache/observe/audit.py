"""The audit log: a JSON line for each purge and each change of policies, in a file of bounded size.

Whoever writes to it sees to it that no secret is in a line, and no name of a person but as a keyed hash.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

FILE_NAME: Final = "audit.log"
"""In the data folder."""
MOST_BYTES: Final = 16 << 20
OLDER_FILES: Final = 3
"""`audit.log.1` is the newest of them."""


class AuditLog:
    """Appends lines to the file at `path`. Calls block for a moment; they may come from any thread."""

    def __init__(
        self, path: Path, *, on_failure: Callable[[OSError], None] = lambda _error: None, most_bytes: int = MOST_BYTES
    ) -> None:
        """`on_failure` is told of a line that could not be written."""
        self._path = path
        self._on_failure = on_failure
        self._most_bytes = most_bytes
        self._lock = threading.Lock()

    def append(self, action: str, fields: Mapping[str, Any]) -> None:
        """Add a line: the time, what was done, and `fields`, in this order."""
        record = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "action": action, **fields}
        line = (json.dumps(record, ensure_ascii=True, default=str) + "\n").encode("ascii")
        with self._lock:
            try:
                self._write(line)
            except OSError as error:
                self._on_failure(error)

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_size + len(line) > self._most_bytes:
                self._rotate()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            view = memoryview(line)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _rotate(self) -> None:
        for number in range(OLDER_FILES, 0, -1):
            younger = self._path if number == 1 else self._older(number - 1)
            with contextlib.suppress(FileNotFoundError):
                younger.replace(self._older(number))

    def _older(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
