"""The hot tier: entries of this process, bounded by the bytes they really take."""

from __future__ import annotations

from collections import OrderedDict
from itertools import chain
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from meshcache.engine.pools import COMMON, DIGEST_BYTES, POOL_BYTES, UNDIVIDED
from meshcache.engine.purge_state import UNBORN
from meshcache.engine.records import StoredResponse, VariantIndex
from meshcache.eviction.lru import LruOrder
from meshcache.eviction.ttl import TtlOrder

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshcache.engine.pools import Division
    from meshcache.engine.purge_state import Born
    from meshcache.engine.records import Record
    from meshcache.eviction.base import EvictionOrder
    from meshcache.policy.compiled import Eviction

_STEP: Final = 32
"""Entries that a pool whose share has become smaller gives up at most, each time something is stored."""


class HotEntry:
    """One record in memory with what its users keep beside it."""

    __slots__ = (
        "born",
        "checked",
        "epoch",
        "expires_at",
        "hits",
        "memo",
        "record",
        "rendered",
        "size",
        "stale_since",
        "stored_at",
    )

    def __init__(
        self,
        record: Record,
        *,
        epoch: bytes,
        stored_at: float,
        expires_at: float,
        rendered: bytes | None = None,
        born: Born = UNBORN,
        memo: Any = None,
    ) -> None:
        self.record = record
        self.epoch = epoch
        """Board epoch of the resource when the record was asked for; another one now means that it is dead."""
        self.stored_at = stored_at
        """Unix seconds at which it came into memory."""
        self.expires_at = expires_at
        """Unix seconds at which its residence ends, by the limits in force when it was stored."""
        self.rendered = rendered
        """The serialised reply, ready to be sent. Set it through `MemoryTier.attach`, which counts it."""
        self.hits = 0
        """Free for the engine: how often it has answered since it came into memory."""
        self.born = born
        """Which purge rules were in effect when the record was asked for."""
        self.checked = born[0]
        """The generation of the newest purge rule that it is known to have outlived."""
        self.stale_since: float | None = None
        """Unix seconds at which a soft purge made it stale."""
        self.memo = memo
        """Free for the engine: a judgement that it need not repeat. Small, not counted."""
        self.size = entry_size(self)
        """Bytes it counts for."""


def _share(container: Any) -> int:
    """Bytes of a filled container that fall on one of its slots, measured on one of 4096."""
    return -(-getsizeof(container) // 4096)


# What one entry costs beside its objects: its slots in the table of entries, in the order's sizes and in the
# order itself, and the floats and the integers it holds. Those of its birth are all entries' of that time.
_SLOTS = _share(dict.fromkeys(range(4096))) * 2 + _share(OrderedDict.fromkeys(range(4096)))
# The key of the table is a digest with or without a pool, the epoch has 8 bytes.
_KEY = getsizeof(bytes(DIGEST_BYTES + POOL_BYTES))
_OVERHEAD = _SLOTS + 2 * getsizeof(0.0) + 2 * getsizeof(1 << 30) + _KEY + getsizeof(bytes(8))
_PAIR = getsizeof((None, None))
_TIMES = 3 * getsizeof(0.0)


def entry_size(entry: HotEntry) -> int:
    """Bytes that an entry takes: every object it alone holds, by `sys.getsizeof`, and its place in the tables.

    Strings that entries happen to share (interned field names) are counted for each: the sum never falls short.
    """
    record = entry.record
    size = _OVERHEAD + getsizeof(entry) + getsizeof(record) + getsizeof(record.key)
    if entry.rendered is not None:
        size += getsizeof(entry.rendered)
    match record:
        case StoredResponse():
            size += getsizeof(record.body) + getsizeof(record.uri) + getsizeof(record.subject) + _TIMES
            size += getsizeof(record.fields) + len(record.fields) * _PAIR
            size += sum(map(getsizeof, chain.from_iterable(record.fields)))
            if record.selecting:
                size += getsizeof(record.selecting) + len(record.selecting) * _PAIR
                size += sum(map(getsizeof, chain.from_iterable(record.selecting)))
            if record.tags:
                size += getsizeof(record.tags) + sum(map(getsizeof, record.tags))
        case VariantIndex():
            size += getsizeof(record.field_sets)
            for names in record.field_sets:
                size += getsizeof(names) + sum(map(getsizeof, names))
            size += getsizeof(record.subject)
            if record.tags:
                size += getsizeof(record.tags) + sum(map(getsizeof, record.tags))
    return size


class PoolUse(NamedTuple):
    """What a pool takes."""

    pool: bytes
    bytes: int
    budget: int
    """Bytes that it may take."""
    entries: int
    evicted: int
    """How many entries have left it for want of room so far."""


class _Pool:
    """One share of the budget, in two orders (`lru`, `ttl`), of which neither can starve the other."""

    __slots__ = ("budget", "evicted", "excess", "heir", "lru", "ttl")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        """Bytes."""
        self.excess = 0
        """Bytes above it that are borne until they have been given up, step by step; its share was larger before."""
        self.evicted = 0
        self.heir: _Pool | None = None
        """The pool to which its entries move; None while it has a share, or is to be given up."""
        self.lru = LruOrder()
        self.ttl = TtlOrder()

    @property
    def used(self) -> int:
        """Bytes."""
        return self.lru.bytes + self.ttl.bytes

    def order(self, eviction: Eviction) -> EvictionOrder:
        """Where an entry of a policy with this `eviction` is."""
        return self.ttl if eviction == "ttl" else self.lru

    def victim(self, now: float) -> bytes | None:
        """What goes next: what has expired, else the victim of the order that holds more; None when it is empty."""
        order = self.lru if self.lru.bytes >= self.ttl.bytes else self.ttl
        return self.ttl.expired(now) or order.victim()


class MemoryTier:
    """Entries by storage key, in a pool for each share of one budget.

    A pool above its share gives up its own entries and nobody else's. After a change of the shares, one that has less
    now gives way in steps, while others fill theirs, so that neither is the budget exceeded nor the event loop held up.
    Not safe between threads, save for `divide`: it belongs to one event loop.
    """

    __slots__ = ("_budget", "_division", "_entries", "_given", "_on_evict", "_pools", "_uneven")

    def __init__(self, budget_bytes: int, on_evict: Callable[[str], None] = lambda _: None) -> None:
        """`on_evict` is called with `expired` or `capacity` for every entry that goes without being asked to."""
        self._budget = budget_bytes
        self._on_evict = on_evict
        self._entries: dict[bytes, tuple[HotEntry, EvictionOrder]] = {}
        self._division = self._given = UNDIVIDED
        self._pools = {COMMON: _Pool(budget_bytes)}
        """Those that have a share; and those that have none any more, until they are empty."""
        self._uneven = False
        """Whether one of them has more than its share."""

    @property
    def used_bytes(self) -> int:
        """Bytes that all entries take."""
        # Each entry that comes asks for it.
        used = 0
        for pool in self._pools.values():
            used += pool.used
        return used

    @property
    def budget_bytes(self) -> int:
        """Bytes that all entries may take."""
        return self._budget

    def __len__(self) -> int:
        return len(self._entries)

    def divide(self, division: Division) -> None:
        """Divide the budget like this from the next `put` on. From any thread."""
        self._given = division

    def pools(self) -> list[PoolUse]:
        """What each pool takes that has a share."""
        self._settle()
        return [
            PoolUse(name, pool.used, pool.budget, len(pool.lru) + len(pool.ttl), pool.evicted)
            for name, pool in self._pools.items()
            if pool.budget
        ]

    def get(self, key: bytes, now: float) -> HotEntry | None:
        """The entry under `key` whose residence has not ended at `now` (Unix seconds), which counts as a use."""
        held = self._entries.get(key)
        if held is None:
            return None
        entry, order = held
        if entry.expires_at <= now:
            self._drop(key, "expired")
            return None
        order.touch(key)
        return entry

    def peek(self, key: bytes) -> HotEntry | None:
        """The entry under `key`, whether or not its residence has ended; this is no use of it."""
        held = self._entries.get(key)
        return None if held is None else held[0]

    def put(self, key: bytes, entry: HotEntry, now: float, eviction: Eviction = "lru") -> bool:
        """Store `entry` in the pool of `key`, replacing what is under it, and evict what no longer fits.

        False, and nothing is kept under `key`, when the entry alone exceeds its pool's share or has expired.
        """
        self.delete(key)
        self._settle()
        pool = self._pools[self._division.pool(key)]
        if entry.size > pool.budget or entry.expires_at <= now:
            return False
        order = pool.order(eviction)
        self._entries[key] = (entry, order)
        order.add(key, entry.size, entry.expires_at)
        self._shrink(pool, now)
        return True

    def attach(self, key: bytes, entry: HotEntry, rendered: bytes, now: float) -> None:
        """Keep the serialised reply `rendered` with `entry`, counted against the share of its pool.

        The entry itself may have left in the meantime, or be the one that has to go: then it is only the
        caller's.
        """
        before = 0 if entry.rendered is None else getsizeof(entry.rendered)
        entry.rendered = rendered
        entry.size += getsizeof(rendered) - before
        held = self._entries.get(key)
        if held is not None and held[0] is entry:
            held[1].resize(key, entry.size)
            self._settle()
            pool = next(pool for pool in self._pools.values() if held[1] in (pool.lru, pool.ttl))
            # One that moves on, or gives way, does so in its time.
            if entry.size > (pool.budget + pool.excess if pool.heir is None else pool.heir.budget):
                self._drop(key, "capacity")
            self._shrink(pool, now)

    def items(self) -> list[tuple[bytes, HotEntry]]:
        """All keys with their entries, as they are now."""
        return [(key, held[0]) for key, held in self._entries.items()]

    def drop(self, key: bytes, entry: HotEntry) -> None:
        """Forget `key` if `entry` is still what is under it."""
        held = self._entries.get(key)
        if held is not None and held[0] is entry:
            self.delete(key)

    def delete(self, key: bytes) -> None:
        """Forget `key`; not an error when it is absent."""
        held = self._entries.pop(key, None)
        if held is not None:
            held[1].remove(key)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        for pool in self._pools.values():
            pool.lru.clear()
            pool.ttl.clear()

    def _settle(self) -> None:
        """Put the division in force that was given last."""
        division = self._given
        if division is self._division:
            return
        self._division = division
        for name in (COMMON, *division.arms):
            if name not in self._pools:
                self._pools[name] = _Pool(0)
        for name, pool in self._pools.items():
            known = name == COMMON or name in division.arms
            pool.budget = division.part(name, self._budget) if known else 0
            pool.excess = max(0, pool.used - pool.budget)
            pool.heir = self._pools[COMMON] if name in division.joined else None
        self._uneven = True

    def _drop(self, key: bytes, reason: str) -> None:
        self.delete(key)
        self._on_evict(reason)

    def _shrink(self, into: _Pool, now: float) -> None:
        """Evict what no longer fits after something has come `into` a pool."""
        if self._uneven:
            self._give_way(now)
        while into.heir is None and into.used > into.budget + into.excess:
            self._evict(into, now)
        while self.used_bytes > self._budget:
            # Others have not given way yet.
            most = max(self._pools.values(), key=lambda pool: pool.used - pool.budget)
            self._evict(most.heir if most.heir is not None and most.heir.used else most, now)

    def _give_way(self, now: float) -> None:
        """Take a step towards the shares in force."""
        self._uneven = False
        for name, pool in list(self._pools.items()):
            if pool.excess:
                for _ in range(_STEP):
                    if pool.used <= pool.budget:
                        break
                    if pool.heir is None:
                        self._evict(pool, now)
                    else:
                        self._hand_over(pool, pool.heir, now)
                pool.excess = max(0, pool.used - pool.budget)
            if pool.excess:
                self._uneven = True
            elif name != COMMON and name not in self._division.arms:
                del self._pools[name]

    def _hand_over(self, pool: _Pool, heir: _Pool, now: float) -> None:
        """Move one entry, the first that would have to go."""
        key = pool.victim(now)
        if key is None:  # pragma: no cover - bytes above zero always belong to a key
            return
        entry, order = self._entries[key]
        order.remove(key)
        new = heir.lru if order is pool.lru else heir.ttl
        self._entries[key] = (entry, new)
        new.add(key, entry.size, entry.expires_at)
        while heir.used > heir.budget + heir.excess:
            self._evict(heir, now)

    def _evict(self, pool: _Pool, now: float) -> None:
        """Give up one entry of a pool that is not empty."""
        victim = pool.victim(now)
        if victim is None:  # pragma: no cover - bytes above zero always belong to a key
            return
        expired = self._entries[victim][0].expires_at <= now
        pool.evicted += not expired
        self._drop(victim, "expired" if expired else "capacity")
