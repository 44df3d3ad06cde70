"""The tiers joined: look-up in order, residence, epochs, promotion, writes in the background, invalidation."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from meshcache.decisions import Stage, TierName
from meshcache.engine.epochs import Epochs
from meshcache.engine.records import StoredResponse
from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.bodies import Bodies
from meshcache.tiers.guarded import GuardedTier
from meshcache.tiers.hooks import NoHooks, TierHooks
from meshcache.tiers.opening import CLOCK_SKEW, Opener
from meshcache.tiers.places import chosen_tiers, fitting_tiers, in_chunks, limits_of
from meshcache.tiers.placing import Placer, sizes_of
from meshcache.tiers.purges import Purges
from meshcache.tiers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from meshcache.engine.pools import Division
    from meshcache.engine.purge_state import Born
    from meshcache.engine.records import Entry, Record
    from meshcache.engine.storing.fill import CopyBudget
    from meshcache.policy.compiled import KeySpec, Tiers
    from meshcache.tiers.base import Tier
    from meshcache.tiers.board import Board
    from meshcache.tiers.memory import HotEntry, MemoryTier
    from meshcache.tiers.placing import Stored
    from meshcache.tiers.signing import Keyring
    from meshcache.tiers.spool import Spool

_BOARD_CHECK = 1.0
"""Seconds between two looks at whether the board's file is still the one that is mapped."""


class Found(msgspec.Struct, frozen=True):
    """What the lower tiers hold for a key."""

    record: Record | None
    """None for a miss."""
    tier: TierName | None
    """Where it was found; None for a miss."""
    epochs: Epochs
    """To be handed to `store` by whoever fills the miss or refreshes the record."""
    stale_since: float | None = None
    """Unix seconds at which a soft purge made it stale."""


class TierStack:
    """Hot, warm and cold as one store. Never raises anything but `CancelledError`; belongs to one event loop.

    `key` is always a storage key, `resource` a resource id (16 bytes), `now` Unix seconds.
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
        threads: Callable[[str, int], Threads] = Threads,
    ) -> None:
        """`clock` measures durations; `breaker_pause` is the first pause of a tier that keeps failing, in seconds.

        `purges` are the purge rules in effect; None for none ever.
        `queue_bytes` may wait to be written for each of warm and cold, `opening_bytes` of what was read to be verified.
        `threads` makes what runs calls that would block the event loop, by a name and a number.
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
        self._threads = threads("seal", 1)
        self._opener = Opener(board, keyring, self._purges, self._hooks, self._threads, opening_bytes)
        self.bodies = Bodies(self._lower, self._hooks, clock, threads=threads)
        """Bodies that are stored in chunks."""
        self._placer = Placer(
            memory,
            self._lower,
            board,
            keyring,
            self._purges,
            self._hooks,
            clock,
            self.bodies,
            self._opener,
            self._threads,
        )
        self._invalidating: set[asyncio.Task[None]] = set()
        self._board_checked = clock()
        self._closed = False

    def hot(self, key: bytes, resource: bytes, limits: Tiers, now: float) -> HotEntry | None:
        """The entry in memory, if no invalidation came since and its residence by the limits now in force lasts."""
        # Here too: a worker that answers from memory alone would never see that the others use another board.
        if self._clock() - self._board_checked >= _BOARD_CHECK:
            self._check_board()
        entry = self.memory.get(key, now)
        if entry is None:
            return None
        if entry.epoch != self._board.epoch(resource):
            self._hooks.entry_refused(TierName.HOT, "epoch")
        elif not -CLOCK_SKEW <= now - entry.stored_at < limits.hot.ttl:
            self._hooks.entry_refused(TierName.HOT, "residence")
        elif entry.checked == self._board.purges:
            return entry
        else:
            return self._outlived(key, entry)
        self.memory.delete(key)
        return None

    def divide(self, division: Division) -> None:
        """Give every pool its share of every tier from now on. From any thread."""
        self.memory.divide(division)
        for lower in self._lower.values():
            lower.tier.divide(division)

    def install_keying(self, specs: Iterable[KeySpec]) -> None:
        """Policies key a URI in these ways from now on; see `Purges.install`. From any thread."""
        self._purges.install(specs)

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
            bounds = limits_of(limits, name)
            began = self._clock()
            read = await lower.read(partial(lower.tier.get, key, resource), bounds.deadline)
            self._hooks.stage(Stage.WARM if name is TierName.WARM else Stage.COLD, self._clock() - began)
            if read is None:
                continue
            if lower is self._fleet:
                epochs = Epochs(epochs.board, read.epoch, born)
            shared = lower is self._fleet
            envelope = await self._opener.open(lower, key, resource, read, epochs, bounds.ttl, now, shared=shared)
            verdict = None if envelope is None else self._opener.judge(name, read, envelope, shared=shared)
            if envelope is None or verdict is None:
                continue
            record = envelope.record
            if verdict.dead:
                if in_chunks(record):
                    self.bodies.drop(record)
                continue
            if not in_chunks(record) or await self.bodies.whole(lower, key, record, bounds.deadline):
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
        held, size, chunked = sizes_of(entry.record)
        chosen = chosen_tiers(self._lower, entry.tiers, entry.limits, size, chunked=chunked)
        for name in entry.tiers:
            if name not in chosen:
                # It has been replaced there, too: an older one would be found first.
                self._delete_from(name, entry.key)
        return self._placer.place(entry, chosen, held)

    def promote(self, entry: Entry) -> Stored:
        """Copy a record that `find` found up to those of `entry.tiers` that take one of its size.

        `entry.expires_in` is what is left of the record's use, so that being popular never makes it live longer.
        """
        held, size, chunked = sizes_of(entry.record)
        return self._placer.place(
            entry, fitting_tiers(self._lower, entry.tiers, entry.limits, size, chunked=chunked), held
        )

    def delete(self, key: bytes, record: Record | None = None) -> None:
        """Forget `key`: in memory at once, in the lower tiers in the background, after writes of it under way.

        With the `record` that was found there, its chunks go as well, if they are nobody else's.
        """
        for name in TierName:
            self._delete_from(name, key)
        if in_chunks(record):
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
        pool: bytes,
        budget: CopyBudget,
    ) -> Spool | None:
        """Begin to store a body of `size` bytes or more in the tiers in which `store` will place its record.

        None when no tier takes as much. `expires_in` is as in an `Entry`, `owner` whose chunks they are, `pool`
        whose share they take.
        """

        def where(so_far: int) -> list[TierName]:
            return chosen_tiers(self._lower, tiers, limits, so_far, chunked=True)

        def ttl(name: TierName) -> float:
            return min(expires_in, limits_of(limits, name).ttl)

        if self._closed or not where(size):
            return None
        return self.bodies.spool(where, ttl, owner=owner, pool=pool, budget=budget, expected=size)

    def when_written(self, keys: Iterable[bytes], call: Callable[[], None]) -> None:
        """Call `call` when no write of any of `keys` waits or is under way in the lower tiers."""
        left = 1

        def one_less() -> None:
            nonlocal left
            left -= 1
            if not left:
                call()

        for key in keys:
            for name, lower in self._lower.items():
                left += 1
                self.bodies.when_offered(name, key, partial(lower.when_written, key, one_less))
        one_less()

    async def invalidate(self, resource: bytes) -> None:
        """Make everything stored for `resource` dead: here at once, in a store shared by a fleet very soon.

        The board is bumped before the first suspension, so that no task of this pod sees the old answer after this
        call has begun. The shared store follows in the background, and owes it until it is done.
        """
        # The board must be the one that the others look at, or will look at within `_BOARD_CHECK`.
        self._board.refresh()
        self._board.bump(resource)
        self._tell_fleet(resource)

    def _tell_fleet(self, resource: bytes) -> None:
        if self._fleet is None or self._closed:
            return
        task = asyncio.get_running_loop().create_task(self._invalidate_fleet(self._fleet, resource))
        self._invalidating.add(task)
        task.add_done_callback(self._invalidating.discard)

    def succeed(self, resource: bytes, before: Epochs) -> Epochs | None:
        """Invalidate as `invalidate` does, for an answer that is to take the place of all that was stored.

        Gives the epochs under which that is to be stored; None when another invalidation has come since `before` was
        read, which the answer may not have seen.
        """
        self._board.refresh()
        untouched = self._board.epoch(resource) == before.board
        self._board.bump(resource)
        after = Epochs(self._board.epoch(resource), born=before.born)
        self._tell_fleet(resource)
        return after if untouched else None

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
        self._closed = self._placer.closed = True
        for task in self._invalidating:
            task.cancel()
        await asyncio.gather(*self._invalidating, return_exceptions=True)
        await self.bodies.close()
        for lower in self._lower.values():
            await lower.close()
        await self._threads.close(1.0)
        await self._purges.close()
        self.memory.clear()

    def _outlived(self, key: bytes, entry: HotEntry) -> HotEntry | None:
        """`entry`, unless a purge rule that it was not yet compared with has killed it."""
        purges = self._purges
        if not purges.current():
            # It stays: when the rules are known, it may turn out to be none of theirs.
            self._hooks.entry_refused(TierName.HOT, "purge-unread")
            return None
        if entry.checked == purges.generation:
            return entry
        verdict = purges.verdict(entry.born, entry.record)
        if verdict.dead:
            self._hooks.entry_refused(TierName.HOT, "purged")
            self.memory.delete(key)
            return None
        if verdict.stale_since != entry.stale_since:
            entry.stale_since, entry.memo = verdict.stale_since, None
        entry.checked = purges.generation
        return entry

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
