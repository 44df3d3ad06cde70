"""The tiers joined: look-up in order, residence, epochs, promotion, writes in the background, invalidation."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from meshcache.decisions import NoStoreReason, Stage, TierName
from meshcache.engine.epochs import UNKNOWN, Epochs, born_of
from meshcache.engine.purges import ALIVE, DEAD, Verdict
from meshcache.engine.records import StoredResponse
from meshcache.tiers.base import TierError, TierRead, Trouble
from meshcache.tiers.bodies import Bodies
from meshcache.tiers.envelope import LARGE, BadEnvelope, Envelope, held_size, record_size, seal, unseal
from meshcache.tiers.guarded import GuardedTier, Write
from meshcache.tiers.hooks import NoHooks, TierHooks
from meshcache.tiers.memory import HotEntry
from meshcache.tiers.purges import Purges
from meshcache.tiers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeGuard

    from meshcache.engine.fill import CopyBudget
    from meshcache.engine.purge_state import Born
    from meshcache.engine.records import Entry, Record
    from meshcache.policy.compiled import TierLimits, Tiers
    from meshcache.tiers.base import Tier
    from meshcache.tiers.board import Board
    from meshcache.tiers.memory import MemoryTier
    from meshcache.tiers.signing import Keyring
    from meshcache.tiers.spool import Spool

_CLOCK_SKEW = 60.0
"""Seconds by which the clock of another writer may be ahead; what claims to be from later is not used."""
_PODS_APART = 2.0
"""Seconds by which the clocks of pods usually agree: what another pod wrote so soon after an invalidation by this one
is not used here."""
_BOARD_CHECK = 1.0
"""Seconds between two looks at whether the board's file is still the one that is mapped."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the lower tiers hold for a key."""

    record: Record | None
    """None for a miss."""
    tier: TierName | None
    """Where it was found; None for a miss."""
    epochs: Epochs
    """To be handed to `store` by whoever fills the miss or refreshes the record."""
    stale_since: float | None = None
    """Unix seconds at which a soft purge made it stale."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of an entry that was to be stored."""

    tiers: tuple[TierName, ...]
    """Where it went."""
    refused: NoStoreReason | None = None
    """Why it went nowhere; None when it went somewhere."""


class TierStack:
    """Hot, warm and cold as one store. Never raises anything but `CancelledError`; belongs to one event loop.

    `key` is always a storage key (32 bytes), `resource` a resource id (16 bytes), `now` Unix seconds.
    Failures are counted through the hooks; to the caller they are misses.
    """

    def __init__(
        self,
        memory: MemoryTier,
        warm: Tier | None,
        cold: Tier | None,
        board: Board,
        keyring: Keyring,
        hooks: TierHooks | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        purges: Purges | None = None,
        breaker_pause: float = 0.5,
        queue_bytes: int = 64 << 20,
        opening_bytes: int = 128 << 20,
    ) -> None:
        """`clock` measures durations; `breaker_pause` is the first pause of a tier that keeps failing, in seconds.

        `purges` are the purge rules in effect; None for none ever.
        `queue_bytes` may wait to be written for each of warm and cold, `opening_bytes` of what was read to be verified.
        """
        self.memory = memory
        self._board = board
        self._purges = Purges(board) if purges is None else purges
        self._keyring = keyring
        self._hooks: TierHooks = hooks if hooks is not None else NoHooks()
        self._clock = clock
        self._lower = {
            tier.name: GuardedTier(tier, self._hooks, clock=clock, first_pause=breaker_pause, queue_bytes=queue_bytes)
            for tier in (warm, cold)
            if tier is not None
        }
        self._fleet = next((lower for lower in self._lower.values() if not lower.tier.on_board), None)
        self._threads = Threads("seal", 1)
        self.bodies = Bodies(self._lower, self._hooks, clock)
        """Bodies that are stored in chunks."""
        self._invalidating: set[asyncio.Task[None]] = set()
        self._opening = 0
        self._opening_bytes = opening_bytes
        self._board_checked = clock()
        self._closed = False

    def hot(self, key: bytes, resource: bytes, limits: Tiers, now: float) -> HotEntry | None:
        """The entry in memory, if no invalidation came since and its residence by the limits now in force lasts."""
        # Here too: a worker that answers from memory alone would never see that the others use another board.
        self._check_board()
        entry = self.memory.get(key, now)
        if entry is None:
            return None
        if entry.epoch != self._board.epoch(resource):
            self._hooks.entry_refused(TierName.HOT, "epoch")
        elif not -_CLOCK_SKEW <= now - entry.stored_at < limits.hot.ttl:
            self._hooks.entry_refused(TierName.HOT, "residence")
        elif entry.checked == self._board.purges:
            return entry
        else:
            return self._outlived(key, entry)
        self.memory.delete(key)
        return None

    @property
    def born(self) -> Born:
        """When something that is asked for now is born."""
        return self._purges.born

    def purged(self, born: Born, stored: StoredResponse) -> bool:
        """Whether a purge has killed what had outlived all rules up to `born`; also while that cannot be told."""
        return not self._purges.current() or self._purges.verdict(born, stored).dead

    def attach(self, key: bytes, entry: HotEntry, rendered: bytes, now: float) -> None:
        """Keep a serialised reply beside an entry in memory, within the budget."""
        self.memory.attach(key, entry, rendered, now)

    async def find(self, key: bytes, resource: bytes, limits: Tiers, now: float) -> Found:
        """Look in warm, then in cold; on a miss the result has no record, but always the epochs for `store`."""
        self._check_board()
        # All of it is read before the origin is asked.
        born = self._purges.born
        epochs = Epochs(self._board.epoch(resource), born=born)
        for name, lower in self._lower.items():
            if lower.tier.absent(key):
                continue
            bounds = _limits(limits, name)
            began = self._clock()
            read = await lower.read(partial(lower.tier.get, key, resource), bounds.deadline)
            self._hooks.stage(Stage.WARM if name is TierName.WARM else Stage.COLD, self._clock() - began)
            if read is None:
                continue
            if lower is self._fleet:
                epochs = Epochs(epochs.board, read.epoch, born)
            envelope = await self._opened(lower, key, resource, read, epochs, bounds, now)
            if envelope is None:
                continue
            verdict = self._judged(lower, read, envelope)
            if verdict.dead:
                continue
            record = envelope.record
            if not _in_chunks(record) or await self.bodies.whole(lower, key, record, bounds.deadline):
                return Found(record, name, epochs, verdict.stale_since)
        return Found(None, None, epochs)

    def nowhere(self, keys: Iterable[bytes], resource: bytes) -> Epochs | None:
        """The epochs, as `find` gives them, when no lower tier can hold any of `keys`; None when it takes `find`."""
        for lower in self._lower.values():
            for key in keys:
                if not lower.tier.absent(key):
                    return None
        self._check_board()
        return Epochs(self._board.epoch(resource), born=self._purges.born)

    def near(self, key: bytes) -> bool:
        """Whether a lower tier of this pod may hold `key`; never waits. What a fleet shares would have to be asked."""
        return any(lower.tier.on_board and not lower.tier.absent(key) for lower in self._lower.values())

    def store(self, entry: Entry) -> Stored:
        """Store a record: in memory at once, in the lower tiers in the background.

        If none of `entry.tiers` takes a record of its size, the next lower one that does gets it. It goes nowhere when
        an invalidation or a purge came since its epochs were read (`invalidated`, `purged`), its use is over
        (`no-freshness`), too many writes wait (`no-memory`), or no tier takes it (`no-tier`).
        """
        size = record_size(entry.record)
        chosen = self._chosen(entry.tiers, entry.limits, size, in_chunks=_in_chunks(entry.record))
        for name in entry.tiers:
            if name not in chosen:
                # It has been replaced there, too: an older one would be found first.
                self._delete_from(name, entry.key)
        return self._place(entry, chosen)

    def promote(self, entry: Entry) -> Stored:
        """Copy a record that `find` found up to those of `entry.tiers` that take one of its size.

        `entry.expires_in` is what is left of the record's use, so that being popular never makes it live longer.
        """
        in_chunks = _in_chunks(entry.record)
        return self._place(
            entry, self._fitting(entry.tiers, entry.limits, record_size(entry.record), in_chunks=in_chunks)
        )

    def delete(self, key: bytes, record: Record | None = None) -> None:
        """Forget `key`: in memory at once, in the lower tiers in the background, after writes of it under way.

        With the `record` that was found there, its chunks go as well, if they are nobody else's.
        """
        for name in _ORDER:
            self._delete_from(name, key)
        if _in_chunks(record):
            self.bodies.drop(record)

    def _delete_from(self, name: TierName, key: bytes) -> None:
        if name is TierName.HOT:
            self.memory.delete(key)
        elif (lower := self._lower.get(name)) is not None:
            self.bodies.supersede(name, key)
            lower.withdraw(key)
            lower.delete(key)

    def spool(
        self,
        tiers: Sequence[TierName],
        limits: Tiers,
        *,
        size: int,
        expires_in: float,
        owner: bytes,
        budget: CopyBudget,
    ) -> Spool | None:
        """Begin to store a body of `size` bytes or more in the tiers in which `store` will place its record.

        None when no tier takes as much. `expires_in` is as in an `Entry`, `owner` whose chunks they are.
        """

        def where(so_far: int) -> list[TierName]:
            return self._chosen(tiers, limits, so_far, in_chunks=True)

        def ttl(name: TierName) -> float:
            return min(expires_in, _limits(limits, name).ttl)

        if self._closed or not where(size):
            return None
        return self.bodies.spool(where, ttl, owner=owner, budget=budget, expected=size)

    def when_written(self, keys: Iterable[bytes], call: Callable[[], None]) -> None:
        """Call `call` when no write of any of `keys` waits or is under way in the lower tiers."""
        left = 1

        def one_less() -> None:
            nonlocal left
            left -= 1
            if not left:
                call()

        for key in keys:
            for lower in self._lower.values():
                left += 1
                lower.when_written(key, one_less)
        one_less()

    async def invalidate(self, resource: bytes) -> None:
        """Make everything stored for `resource` dead: here at once, in a store shared by a fleet very soon.

        The board is bumped before the first suspension, so that no task of this pod sees the old answer after this
        call has begun. The shared store follows in the background, and owes it until it is done.
        """
        # The board must be the one that the others look at, or will look at within `_BOARD_CHECK`.
        self._board.refresh()
        self._board.bump(resource)
        if self._fleet is None or self._closed:
            return
        task = asyncio.get_running_loop().create_task(self._invalidate_fleet(self._fleet, resource))
        self._invalidating.add(task)
        task.add_done_callback(self._invalidating.discard)

    async def drain(self, patience: float) -> bool:
        """Wait up to `patience` seconds for writes and invalidations under way; whether all of them ended."""
        try:
            async with asyncio.timeout(patience):
                # In this order: what is copied leads to writes.
                await self.bodies.drain()
                for lower in self._lower.values():
                    await lower.drain()
                while self._invalidating:
                    await asyncio.wait(set(self._invalidating))
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Give up what still waits (see `drain`) and close the tiers. The board is its owner's."""
        self._closed = True
        for task in self._invalidating:
            task.cancel()
        await asyncio.gather(*self._invalidating, return_exceptions=True)
        await self.bodies.close()
        for lower in self._lower.values():
            await lower.close()
        await self._threads.close(1.0)
        await self._purges.close()
        self.memory.clear()

    def _chosen(self, tiers: Sequence[TierName], limits: Tiers, size: int, *, in_chunks: bool) -> list[TierName]:
        """Those of `tiers` that take a record of `size` bytes, or else the next lower one that does."""
        chosen = self._fitting(tiers, limits, size, in_chunks=in_chunks)
        if not chosen and tiers:
            lowest = max(_ORDER.index(name) for name in tiers)
            chosen = self._fitting(_ORDER[lowest + 1 :], limits, size, in_chunks=in_chunks)[:1]
        return chosen

    def _fitting(self, tiers: Iterable[TierName], limits: Tiers, size: int, *, in_chunks: bool) -> list[TierName]:
        """Those of `tiers` that are there and take a record of `size` bytes. Memory takes none with chunks."""
        return [
            name
            for name in tiers
            if (name in self._lower or (name is TierName.HOT and not in_chunks))
            and size <= _limits(limits, name).max_object_bytes
        ]

    def _place(self, entry: Entry, tiers: Sequence[TierName]) -> Stored:
        if entry.expires_in <= 0:
            return Stored((), NoStoreReason.NO_FRESHNESS)
        if self._closed or entry.epochs is UNKNOWN:
            return Stored((), NoStoreReason.NO_TIER)
        if entry.epochs.board != self._board.epoch(entry.resource):
            return Stored((), NoStoreReason.INVALIDATED)
        if self._is_purged(entry):
            return Stored((), NoStoreReason.PURGED)
        placed = []
        refused = NoStoreReason.NO_TIER
        for name in tiers:
            reason = self._remember(entry) if name is TierName.HOT else self._write_later(self._lower[name], entry)
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
            expires_at=entry.now + _residence(entry, TierName.HOT),
            rendered=entry.rendered,
            born=entry.epochs.born,
        )
        return None if self.memory.put(entry.key, held, entry.now, entry.eviction) else NoStoreReason.NO_TIER

    def _write_later(self, lower: GuardedTier, entry: Entry) -> NoStoreReason | None:
        if lower is self._fleet and not entry.epochs.fleet:
            self._hooks.write_dropped(lower.name, "no-epoch")
            return NoStoreReason.NO_TIER
        size = held_size(entry.record)
        write = Write(entry.key, size, partial(self._write, lower.tier, entry, size))
        self.bodies.supersede(lower.name, entry.key)
        if _in_chunks(entry.record):
            offered = self.bodies.write_after(lower, write, entry.record, _residence(entry, lower.name))
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
        await tier.put(entry.key, value, _residence(entry, tier.name))
        self._hooks.moved("written", tier.name, len(value))
        self._hooks.stage(Stage.STORE, self._clock() - began)
        return True

    def _outlived(self, key: bytes, entry: HotEntry) -> HotEntry | None:
        """`entry`, unless a purge rule that it was not yet compared with has killed it."""
        purges = self._purges
        if not purges.current():
            # It stays: when the rules are known, it may turn out to be none of theirs.
            self._hooks.entry_refused(TierName.HOT, "purge-unread")
            return None
        if entry.checked == purges.generation:
            return entry
        record = entry.record
        if isinstance(record, StoredResponse):
            verdict = purges.verdict(entry.born, record)
            if verdict.dead:
                self._hooks.entry_refused(TierName.HOT, "purged")
                self.memory.delete(key)
                return None
            if verdict.stale_since != entry.stale_since:
                entry.stale_since, entry.memo = verdict.stale_since, None
        entry.checked = purges.generation
        return entry

    def _judged(self, lower: GuardedTier, read: TierRead, envelope: Envelope) -> Verdict:
        """What the purge rules say of what was read from a lower tier."""
        purges, record, shared = self._purges, envelope.record, lower is self._fleet
        if not purges.current() or (shared and not purges.knows(read.purges)):
            self._hooks.entry_refused(lower.name, "purge-unread")
            return DEAD
        if not isinstance(record, StoredResponse):
            return ALIVE
        verdict = purges.verdict(born_of(envelope.epoch), record, shared=shared)
        if verdict.dead:
            self._hooks.entry_refused(lower.name, "purged")
        return verdict

    def _is_purged(self, entry: Entry) -> bool:
        """Whether a rule in effect has killed `entry` before it is written."""
        record = entry.record
        return isinstance(record, StoredResponse) and self._purges.verdict(entry.epochs.born, record).dead

    async def _opened(
        self,
        lower: GuardedTier,
        key: bytes,
        resource: bytes,
        read: TierRead,
        epochs: Epochs,
        bounds: TierLimits,
        now: float,
    ) -> Envelope | None:
        """The envelope that was read, when it is ours, alive and within its residence; else None, counted."""
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
            not epochs.spare(envelope.epoch, fleet_wide=lower is self._fleet, recent=recent)
            or self._board.epoch(resource) != epochs.board
        ):
            self._hooks.entry_refused(lower.name, "epoch")
            return None
        if not -_CLOCK_SKEW <= now - envelope.written_at < bounds.ttl:
            self._hooks.entry_refused(lower.name, "residence")
            return None
        return envelope

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

    async def _invalidate_fleet(self, fleet: GuardedTier, resource: bytes) -> None:
        # Past the breaker on purpose: the tier must hear of it in any case, to remember it.
        try:
            await fleet.tier.invalidate(resource)
        except TierError as error:
            self._hooks.tier_error(fleet.name, error.kind)
        except Exception:
            self._hooks.tier_error(fleet.name, Trouble.INTERNAL)

    def _check_board(self) -> None:
        now = self._clock()
        if now - self._board_checked >= _BOARD_CHECK:
            self._board_checked = now
            self._board.refresh()


_ORDER = tuple(TierName)


def _in_chunks(record: Record | None) -> TypeGuard[StoredResponse]:
    return isinstance(record, StoredResponse) and bool(record.chunks)


def _residence(entry: Entry, name: TierName) -> float:
    """For how many seconds `entry` stays in the tier `name`."""
    return min(entry.expires_in, _limits(entry.limits, name).ttl)


def _limits(limits: Tiers, name: TierName) -> TierLimits:
    match name:
        case TierName.HOT:
            return limits.hot
        case TierName.WARM:
            return limits.warm
        case TierName.COLD:
            return limits.cold
