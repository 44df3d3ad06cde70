"""The writing of one record to the tiers: to memory at once, to those below in the background."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from meshcache.decisions import NoStoreReason, Stage, TierName
from meshcache.engine.epochs import UNKNOWN
from meshcache.engine.records import StoredResponse
from meshcache.tiers.envelope import LARGE, held_size, seal
from meshcache.tiers.guarded import Write
from meshcache.tiers.memory import HotEntry
from meshcache.tiers.places import in_chunks, residence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from meshcache.engine.records import Entry, Record
    from meshcache.tiers.base import Tier
    from meshcache.tiers.board import Board
    from meshcache.tiers.bodies import Bodies
    from meshcache.tiers.guarded import GuardedTier
    from meshcache.tiers.hooks import TierHooks
    from meshcache.tiers.memory import MemoryTier
    from meshcache.tiers.opening import Opener
    from meshcache.tiers.purges import Purges
    from meshcache.tiers.signing import Keyring
    from meshcache.tiers.threads import Threads


class Stored(msgspec.Struct, frozen=True):
    """What became of an entry that was to be stored."""

    tiers: tuple[TierName, ...]
    """Where it went."""
    refused: NoStoreReason | None = None
    """Why it went nowhere; None when it went somewhere."""


class Placer:
    """What a stack writes its records with. Belongs to one event loop."""

    def __init__(
        self,
        memory: MemoryTier,
        lower: Mapping[TierName, GuardedTier],
        board: Board,
        keyring: Keyring,
        purges: Purges,
        hooks: TierHooks,
        clock: Callable[[], float],
        bodies: Bodies,
        opener: Opener,
        threads: Threads,
    ) -> None:
        """Large records are sealed in `threads`."""
        self._memory = memory
        self._lower = lower
        self._board = board
        self._keyring = keyring
        self._purges = purges
        self._hooks = hooks
        self._clock = clock
        self._bodies = bodies
        self._opener = opener
        self._threads = threads
        self.closed = False
        """Whether nothing more is to be written."""

    def place(self, entry: Entry, tiers: Sequence[TierName], held: int) -> Stored:
        """Write `entry` to `tiers`; `held` is the memory that it takes while it waits for that, in bytes."""
        if entry.expires_in <= 0:
            return Stored((), NoStoreReason.NO_FRESHNESS)
        if self.closed or entry.epochs is UNKNOWN:
            return Stored((), NoStoreReason.NO_TIER)
        if entry.epochs.board != self._board.epoch(entry.resource):
            return Stored((), NoStoreReason.INVALIDATED)
        if self._is_purged(entry):
            return Stored((), NoStoreReason.PURGED)
        placed = []
        refused = NoStoreReason.NO_TIER
        for name in tiers:
            if name is TierName.HOT:
                reason = self._remember(entry)
            else:
                reason = self._write_later(self._lower[name], entry, held)
            if reason is None:
                placed.append(name)
            elif reason is NoStoreReason.NO_MEMORY:
                refused = reason
        return Stored(tuple(placed), None if placed else refused)

    def _remember(self, entry: Entry) -> NoStoreReason | None:
        held = HotEntry(
            entry.record,
            epoch=entry.epochs.board,
            stored_at=entry.now,
            expires_at=entry.now + residence(entry, TierName.HOT),
            born=entry.epochs.born,
            memo=entry.judgement,
        )
        return None if self._memory.put(entry.key, held, entry.now, entry.eviction) else NoStoreReason.NO_TIER

    def _write_later(self, lower: GuardedTier, entry: Entry, size: int) -> NoStoreReason | None:
        if not lower.tier.on_board and not entry.epochs.fleet:
            self._hooks.write_dropped(lower.name, "no-epoch")
            return NoStoreReason.NO_TIER
        write = Write(entry.key, size, partial(self._write, lower.tier, entry, size))
        self._bodies.supersede(lower.name, entry.key)
        if in_chunks(entry.record):
            offered = self._bodies.write_after(lower, write, entry.record, residence(entry, lower.name))
        else:
            offered = lower.offer(write)
        return None if offered else NoStoreReason.NO_MEMORY

    async def _write(self, tier: Tier, entry: Entry, size: int) -> bool:
        """Seal a record and put it into a lower tier; False when that has no point any more. Raises what it raises."""
        if entry.epochs.board != self._board.epoch(entry.resource):
            self._hooks.write_dropped(tier.name, "invalidated")
            return False
        if self._is_purged(entry):
            self._hooks.write_dropped(tier.name, "purged")
            return False
        if entry.yields_to is not None and await self._overtaken(tier, entry, entry.yields_to):
            self._hooks.write_dropped(tier.name, "overtaken")
            return False
        began = self._clock()
        sealing = partial(
            seal,
            entry.record,
            storage_key=entry.key,
            epoch=entry.epochs.sealed(),
            written_at=entry.now,
            keyring=self._keyring,
        )
        value = sealing() if size < LARGE else await self._threads.run(sealing)
        await tier.put(entry.key, value, residence(entry, tier.name))
        self._hooks.moved("written", tier.name, len(value))
        self._hooks.stage(Stage.STORE, self._clock() - began)
        return True

    def _is_purged(self, entry: Entry) -> bool:
        """Whether a rule in effect has killed `entry` before it is written."""
        return self._purges.verdict(entry.epochs.born, entry.record).dead

    async def _overtaken(self, tier: Tier, entry: Entry, yields_to: Callable[[StoredResponse], bool]) -> bool:
        """Whether another process has stored something meanwhile that is to stay; then memory forgets `entry` as well.

        Raises what the tier raises: where it cannot be read, it need not be written.
        """
        if tier.absent(entry.key):
            return False
        read = await tier.get(entry.key, entry.resource)
        rival = await self._opener.rival(tier.name, entry, read, shared=not tier.on_board)
        if rival is None or not yields_to(rival):
            return False
        in_memory = self._memory.peek(entry.key)
        if in_memory is not None and in_memory.record is entry.record:
            self._memory.delete(entry.key)
        return True


def sizes_of(record: Record) -> tuple[int, int, bool]:
    """Bytes that a record takes in memory while it waits to be written, and those that it is worth against a tier's
    largest object; and whether its body is in chunks.

    With chunks it is worth its body: what is beside it is little, and a limit in round numbers shall take a body of as
    many bytes. Else what it holds, without framing.
    """
    held = held_size(record)
    return (held, record.size, True) if in_chunks(record) else (held, held, False)
