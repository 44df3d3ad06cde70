"""Which invalidations a record has outlived: the epochs under which it was asked for, and whether they still hold."""

from __future__ import annotations

import msgspec

from meshcache.engine.purge_state import UNBORN, Born

EPOCH_BYTES = 8
"""Length of an invalidation epoch, of a board as of a fleet-wide store."""
_BORN_BYTES = 16


class Epochs(msgspec.Struct, frozen=True):
    """The epochs of one resource, read before the origin was asked.

    They are sealed into what is stored. An invalidation changes them, so that a fill which began before it is
    dead wherever it is written, and whenever.
    """

    board: bytes
    """Of the board that the processes of this pod share (8 bytes)."""
    fleet: bytes = b""
    """Of a warm store that other machines share too (8 bytes); empty when there is none, or it did not answer."""
    born: Born = UNBORN
    """The newest purge rules that were in effect."""

    def sealed(self) -> bytes:
        """As it goes into an envelope: board, two times 8 bytes of birth (big endian), fleet."""
        pod, fleet = self.born
        return self.board + pod.to_bytes(8, "big") + fleet.to_bytes(8, "big") + self.fleet

    def spare(self, sealed: bytes, *, fleet_wide: bool, recent: bool) -> bool:
        """Whether an envelope with the epoch `sealed` is alive under these epochs, which were read just now.

        `fleet_wide` tells whether it comes from the shared store itself. There, other pods write under boards of
        their own, and only the fleet's epoch counts, for what was written under this pod's board as it is or is
        `recent`: written after any invalidation by this pod, of which the store may not have heard yet. In a tier of
        this pod both count; the fleet's only if the store told it: while it is away, this pod's own copies may be
        used, for as long as they are fresh.
        """
        board, fleet = sealed[:EPOCH_BYTES], sealed[EPOCH_BYTES + _BORN_BYTES :]
        if fleet_wide:
            return bool(self.fleet) and fleet == self.fleet and (recent or board == self.board)
        return board == self.board and (not self.fleet or fleet == self.fleet)


def born_of(sealed: bytes) -> Born:
    """When what was sealed under these epochs was born."""
    words = sealed[EPOCH_BYTES : EPOCH_BYTES + _BORN_BYTES]
    return int.from_bytes(words[:8], "big"), int.from_bytes(words[8:], "big")


UNKNOWN = Epochs(b"")
"""Of a look-up that did not come to its end. Equal to no epoch that a board gives: nothing is stored under it."""
