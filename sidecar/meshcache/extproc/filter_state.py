"""What is known of the filters' batches, in one file that is replaced as a whole: `<data>/filters/state`.

The file says which batches have been taken, what all of them together hold, and what the last one changes in the books
of experiments. A batch is taken in the moment in which the file that knows of it takes the place of the one before.
The books are changed after that. Whoever begins anew gives them what the file says once more: where a process was
killed in the middle of storing, the rest is stored, and everything else has that value already, since nobody but the
process that holds the folder's lock writes into these books.

So a process may be killed at any instruction. A machine that loses power may have lost the newest batches, or have them
in the books alone, as is so with everything that experiments count.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "filters"
"""In the data folder."""
STATE: Final = "state"
MOST_WORKERS: Final = 4096
"""Filter workers that are remembered."""
KEPT: Final = 86400.0
"""Seconds after which a worker of which nothing has come is forgotten, and at a start a route."""
MOST_PLAIN: Final = 2000
"""Routes and arms whose counts are kept apart."""

_MAGIC: Final = b"MCFSTAT1"
_DIGEST_BYTES: Final = 16


class Worker(msgspec.Struct, array_like=True):
    """How far one filter worker's batches have been taken."""

    sequence: int
    seen: float
    """Unix seconds."""


class Plain(msgspec.Struct, array_like=True):
    """All requests of a route and arm that Envoy has dealt with by itself, those without a unit apart."""

    route: str
    arm: str
    fresh: int = 0
    stale: int = 0
    not_modified: int = 0
    body_bytes: int = 0
    age_ms: int = 0
    passed: int = 0
    seen: float = 0.0
    """When the last of them was told, in Unix seconds."""
    missing: str = ""
    """The experiment for which they carry no unit."""


class Change(msgspec.Struct, array_like=True):
    """What the last batch changes in one book; see `wasm.booked.Words`."""

    key: bytes
    """Of the epoch: `ledger.about`."""
    head: bytes
    """How the book begins: one of another form is left as it is."""
    words: bytes
    sample: bytes


class State(msgspec.Struct, array_like=True):
    """The file."""

    workers: dict[int, Worker] = {}
    plain: list[Plain] = []
    changes: list[Change] = []


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(State)


class StateFile:
    """The folder of the state, locked as long as this lives. Blocks; for one thread."""

    def __init__(self, data: Path) -> None:
        """`data` is the data folder. Raises `OSError`, `BlockingIOError` among them where another process has it."""
        folder = data / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / STATE
        self._next = folder / f"{STATE}.next"
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(self._lock)
            raise

    def read(self) -> State | None:
        """What was written last; None where it is no state, and an empty one where nothing was ever written."""
        try:
            body = self._path.read_bytes()
        except FileNotFoundError:
            return State()
        packed = body[len(_MAGIC) + _DIGEST_BYTES :]
        if body != _head(packed) + packed:
            return None
        try:
            return _decoder.decode(packed)
        except msgspec.DecodeError:
            return None

    def write(self, state: State) -> None:
        """Put `state` in the place of the one before, in one step. Raises `OSError`, and then that one stays."""
        packed = _encoder.encode(state)
        descriptor = os.open(self._next, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_head(packed))
            file.write(packed)
        os.replace(self._next, self._path)

    def close(self) -> None:
        """Let others have the folder."""
        with contextlib.suppress(OSError):
            os.close(self._lock)


def fresh(state: State | None, now: float, *, routes: bool = True) -> State:
    """`state` without what has been forgotten at `now`, Unix seconds; an empty one for None.

    With `routes` those of which nothing has come for long are as well: their metrics begin anew.
    """
    if state is None:
        return State()
    workers = {worker: known for worker, known in state.workers.items() if now - known.seen < KEPT}
    if len(workers) > MOST_WORKERS:
        newest = sorted(workers.items(), key=lambda one: one[1].seen, reverse=True)
        workers = dict(newest[:MOST_WORKERS])
    plain = [one for one in state.plain if now - one.seen < KEPT] if routes else state.plain
    return State(workers, plain, state.changes)


def _head(packed: bytes) -> bytes:
    return _MAGIC + blake2b(packed, digest_size=_DIGEST_BYTES).digest()
