"""A small file that the worker processes of one pod share through memory: invalidation epochs, leases, shunned keys.

Epochs: a resource (by its id, a uniform digest) has one of `slots` 8-byte slots. Its epoch is the slot's word
combined with a base word that is drawn at random when the file is made, so that a lost board makes all that was
stored under it dead rather than undead. A bump writes a new random word with one aligned store; there is nothing
to lock.
Resources that share a slot are invalidated together, which costs hits and nothing else.

Purges: one word, the generation of the newest purge rule, so that no process answers by what it has without knowing it.

Times: beside its epoch, a bump leaves the time at which it was made, one for sixteen slots. A store that other pods
share hears of an invalidation later than the workers of this pod do; by the time they pass over what it gives until
then.

The leases, pulses and shunned keys are in `board_leases`, the file itself in `board_file`.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Final

from meshcache.tiers.board_file import BASE_WORD, HEAD_BYTES, PURGE_WORD, SLOTS_PER_TIME, BoardFile
from meshcache.tiers.board_leases import BoardLeases

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_FIRST_SLOT: Final = HEAD_BYTES // 8
"""The word at which the epochs begin."""


class BoardError(Exception):
    """The file cannot be made or mapped. One line, names the file."""


class Board:
    """The board at `path`, made when it is absent, of another form, or from before the machine's last start.

    After a crash of the machine the file may lack bumps that were never written to disk, and monotonic deadlines
    mean nothing any more: a board from another boot is replaced, so everything that was stored under it is dead.
    """

    def __init__(
        self,
        path: Path,
        *,
        slots: int = 1 << 20,
        lease_buckets: int = 1 << 10,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`slots` (16 or more) and `lease_buckets` are powers of two; the file takes 8.5 and 256 bytes for each."""
        if slots & (slots - 1) or lease_buckets & (lease_buckets - 1):
            raise ValueError("slots and lease_buckets must be powers of two")
        try:
            self._file = BoardFile(path, slots=slots, buckets=lease_buckets)
        except OSError as error:
            raise BoardError(f"{path}: {error.strerror or error}") from error
        self.path = path
        self._mask = slots - 1
        self._wall_clock = wall_clock
        self.leases = BoardLeases(self._file, clock)
        self._look()

    def _look(self) -> None:
        """Take the words of the file that is mapped now: they are looked at for every hit."""
        self._words, self._times = self._file.words, self._file.times

    def epoch(self, resource: bytes) -> bytes:
        """The invalidation epoch (8 bytes) of `resource`."""
        words = self._words
        # The slot as `_slot` has it, without a call: this is asked for every hit.
        slot = _FIRST_SLOT + (int.from_bytes(resource[:8], "little") & self._mask)
        # One aligned load: whole before or whole after a bump by another process, never torn.
        return (words[slot] ^ words[BASE_WORD]).to_bytes(8, "little")

    def bump(self, resource: bytes, *, told: bool = False) -> None:
        """Give `resource` a new epoch, for every process at once: all that was stored for it is dead.

        `told`: it was the shared store that has told of the invalidation, so that nothing old is to be had from there.
        """
        slot = self._slot(resource)
        if not told:
            # The time first: who sees the new epoch sees it as well.
            self._times[(slot - _FIRST_SLOT) // SLOTS_PER_TIME] = self._wall_clock()
        self._words[slot] = secrets.randbits(64)

    def bump_all(self) -> None:
        """Give every resource a new epoch."""
        self._words[BASE_WORD] = secrets.randbits(64)

    def bumped_at(self, resource: bytes) -> float:
        """Unix seconds of the last bump of `resource`, or of one that shares its place; 0 when there was none."""
        return self._times[(self._slot(resource) - _FIRST_SLOT) // SLOTS_PER_TIME]

    @property
    def purges(self) -> int:
        """The generation of the newest purge rule that everyone has to have applied; 0 where no log of them is kept."""
        return self._words[PURGE_WORD]

    @purges.setter
    def purges(self, generation: int) -> None:
        """For the one process that writes the log, once the rule is in it."""
        self._words[PURGE_WORD] = generation

    def refresh(self) -> bool:
        """Map the file anew if another one stands at its path, or none; to be called now and then.

        Processes that map different files would not see each other's bumps. Returns whether it was replaced;
        then every epoch has changed. On failure the old map stays, whole, and the next call tries again.
        """
        if not self._file.refresh():
            return False
        self._look()
        self.leases.renew()
        return True

    def close(self) -> None:
        """Unmap the file; the board must not be used afterwards."""
        self._file.close()

    def _slot(self, resource: bytes) -> int:
        return _FIRST_SLOT + (int.from_bytes(resource[:8], "little") & self._mask)
