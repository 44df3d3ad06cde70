"""The stream that logs go to: whatever becomes of it, who writes to it goes on, and soon."""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import TextIO

_AT_ONCE: Final = select.PIPE_BUF
"""Bytes for which a pipe has room when it says that it has some (pipe(7))."""
_PATIENCE: Final = 0.1
"""Seconds in which a reader may make room; who has taken longer is not waited for until there is some."""
_SHARE: Final = 0.1
"""The share of the time that is spent so at most: a slow reader is not to slow down who writes, either."""


class LogStream(io.TextIOBase):
    """Text to `stream`. Nothing is raised, and nobody waits for a reader that has stopped reading: what it does not
    take is lost, and told as a number of lines once it takes some again.

    A pipe has two ends. With its reader gone, a full disk behind a file, or a collector that stands still, a sidecar
    that failed or waited would take the requests with it.
    """

    def __init__(self, stream: TextIO | None) -> None:
        """None stands for a stream that was closed before the start."""
        self._stream = stream
        self._descriptor: int | None = None
        self._step = 0
        """Bytes in one write; 0: all."""
        self._lost = 0
        self._stalled = False
        self._patience = _PATIENCE
        """What is left of it at the time `_patient_at`, in seconds."""
        self._patient_at = 0.0
        self._cut = False
        """Whether what was written last is not a whole line."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            descriptor = stream.fileno() if stream is not None else -1
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                self._step = _AT_ONCE
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLOUT)
            self._descriptor = descriptor

    def writable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def isatty(self) -> bool:
        """See `io.IOBase`."""
        with contextlib.suppress(OSError, ValueError):
            return self._stream is not None and self._stream.isatty()
        return False

    def write(self, text: str) -> int:
        """See `io.TextIOBase`. Lines at once, so that those of several processes do not mix."""
        if self._lost:
            told = f'{{"lines": {self._lost}, "level": "warning", "message": "lines of this log were lost"}}\n'
            told = "\n" + told if self._cut else told
            if not self._put(told):
                self._lost += 1
                return len(text)
            self._lost = 0
        self._lost += not self._put(text)
        return len(text)

    def flush(self) -> None:
        """See `io.IOBase`. Nothing is held back here."""

    def _put(self, text: str) -> bool:
        try:
            if self._descriptor is None:
                if self._stream is not None:
                    self._stream.write(text)
                    self._stream.flush()
                return True
            data = memoryview(text.encode("utf-8", "backslashreplace"))
            while data:
                if not self._has_room():
                    return False
                data = data[os.write(self._descriptor, data[: self._step or len(data)]) :]
                self._cut = bool(data)
        except (OSError, ValueError):
            return False
        return True

    def _has_room(self) -> bool:
        """Whether a piece can be written at once, after some patience where that is due. Raises `OSError`."""
        if self._poll.poll(0):
            self._stalled = False
            return True
        if self._stalled:
            return False
        began = time.monotonic()
        patience = min(_PATIENCE, self._patience + _SHARE * (began - self._patient_at))
        self._stalled = not self._poll.poll(1000 * patience)
        self._patient_at = time.monotonic()
        self._patience = max(0.0, patience - (self._patient_at - began))
        return not self._stalled


def open_standard_streams() -> None:
    """Have something behind the descriptors 0, 1 and 2, where they were closed when this process was started.

    Else the next file or socket that is opened becomes standard error, and what is told there is written into it.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            os.set_inheritable(descriptor, True)
        if getattr(sys, name) is None and name != "stdin":
            # Not closed with it: the descriptor is to stay.
            stream = open(descriptor, mode, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
