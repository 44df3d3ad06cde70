"""What was read from a lower tier, verified: ours, alive, within its residence, and purged by no rule."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from meshcache.engine.epochs import Epochs, born_of
from meshcache.engine.purges import ALIVE
from meshcache.engine.records import StoredResponse
from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.envelope import LARGE, BadEnvelope, unseal

if TYPE_CHECKING:
    from meshcache.decisions import TierName
    from meshcache.engine.purges import Verdict
    from meshcache.engine.records import Entry
    from meshcache.tiers.base import TierRead
    from meshcache.tiers.board import Board
    from meshcache.tiers.envelope import Envelope
    from meshcache.tiers.guarded import GuardedTier
    from meshcache.tiers.hooks import TierHooks
    from meshcache.tiers.purges import Purges
    from meshcache.tiers.signing import Keyring
    from meshcache.tiers.threads import Threads

CLOCK_SKEW: Final = 60.0
"""Seconds by which the clock of another writer may be ahead; what claims to be from later is not used."""
_PODS_APART: Final = 2.0
"""Seconds by which the clocks of pods usually agree: what another pod wrote so soon after an invalidation by this one
is not used here."""


class Opener:
    """What a stack opens its envelopes with. Large ones are verified in `threads`, so many bytes of them at a time."""

    def __init__(
        self,
        board: Board,
        keyring: Keyring,
        purges: Purges,
        hooks: TierHooks,
        threads: Threads,
        most_bytes: int,
    ) -> None:
        self._board = board
        self._keyring = keyring
        self._purges = purges
        self._hooks = hooks
        self._threads = threads
        self._opening = 0
        self._opening_bytes = most_bytes

    async def open(
        self,
        lower: GuardedTier,
        key: bytes,
        resource: bytes,
        read: TierRead,
        epochs: Epochs,
        residence: float,
        now: float,
        *,
        shared: bool,
    ) -> Envelope | None:
        """The envelope that was read, when it is ours, alive and within its `residence` (seconds); else None, counted.

        `shared` tells whether the tier is one that other pods write to as well.
        """
        value = read.value
        if value is None:
            return None
        self._hooks.moved("read", lower.name, len(value))
        try:
            envelope = await self._unsealed(value, key)
        except BadEnvelope as error:
            self._hooks.entry_refused(lower.name, error.reason)
            if not error.good_for_others:
                lower.delete(key)
            return None
        except TierError as error:
            self._hooks.tier_error(lower.name, error.kind)
            return None
        recent = envelope.written_at > self._board.bumped_at(resource) + _PODS_APART
        # The second comparison: an invalidation may have come while the tier was read.
        if (
            not epochs.spare(envelope.epoch, fleet_wide=shared, recent=recent)
            or self._board.epoch(resource) != epochs.board
        ):
            self._hooks.entry_refused(lower.name, "epoch")
            return None
        if not -CLOCK_SKEW <= now - envelope.written_at < residence:
            self._hooks.entry_refused(lower.name, "residence")
            return None
        return envelope

    async def rival(self, tier: TierName, entry: Entry, read: TierRead, *, shared: bool) -> StoredResponse | None:
        """What was read under the key of `entry`, which is about to be written there, if it is alive and of the same.

        Raises `TierError` when too much waits to be verified.
        """
        if read.value is None:
            return None
        try:
            envelope = await self._unsealed(read.value, entry.key)
        except BadEnvelope:
            return None
        epochs = Epochs(entry.epochs.board, read.epoch if shared else entry.epochs.fleet)
        stored = envelope.record
        if (
            not isinstance(stored, StoredResponse)
            or stored.key != entry.record.key
            or not epochs.spare(envelope.epoch, fleet_wide=shared, recent=True)
            or self.judge(tier, read, envelope, shared=shared) != ALIVE
        ):
            return None
        return stored

    async def _unsealed(self, value: bytes, key: bytes) -> Envelope:
        """Raises `BadEnvelope`, and `TierError` when too much waits already: reading is faster than verifying."""
        size = len(value)
        if size < LARGE:
            return unseal(value, storage_key=key, keyring=self._keyring)
        if self._opening + size > self._opening_bytes:
            raise TierError("too many large entries are being read", Trouble.BUSY)
        self._opening += size
        try:
            return await self._threads.run(partial(unseal, value, storage_key=key, keyring=self._keyring))
        finally:
            self._opening -= size

    def judge(self, tier: TierName, read: TierRead, envelope: Envelope, *, shared: bool) -> Verdict | None:
        """What the purge rules say of what was read from a lower tier; None, counted, when not all are known."""
        purges, record = self._purges, envelope.record
        if not purges.current() or (shared and not purges.knows(read.purges)):
            self._hooks.entry_refused(tier, "purge-unread")
            return None
        verdict = purges.verdict(born_of(envelope.epoch), record, shared=shared)
        if verdict.dead:
            self._hooks.entry_refused(tier, "purged")
        return verdict
