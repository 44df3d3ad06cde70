"""The hot tier: entries of this process, bounded by the bytes they really take."""

from __future__ import annotations

from collections import OrderedDict
from itertools import chain
from sys import getsizeof
from typing import TYPE_CHECKING, Any

from meshcache.engine.purge_state import UNBORN
from meshcache.engine.records import StoredResponse, VariantIndex
from meshcache.eviction.lru import LruOrder
from meshcache.eviction.ttl import TtlOrder

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshcache.engine.purge_state import Born
    from meshcache.engine.records import Record
    from meshcache.eviction.base import EvictionOrder
    from meshcache.policy.compiled import Eviction


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
# The key of the table is a digest of 32 bytes, the epoch has 8.
_OVERHEAD = _SLOTS + 2 * getsizeof(0.0) + 2 * getsizeof(1 << 30) + getsizeof(bytes(32)) + getsizeof(bytes(8))
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
    return size


class MemoryTier:
    """Entries by storage key, in two eviction pools (`lru`, `ttl`) that share one budget.

    When the budget is exceeded, expired entries go first; then the pool that holds more bytes gives up its
    victim, so that neither can starve the other. Not safe between threads: it belongs to one event loop.
    """

    __slots__ = ("_budget", "_entries", "_lru", "_on_evict", "_ttl")

    def __init__(self, budget_bytes: int, on_evict: Callable[[str], None] = lambda _: None) -> None:
        """`on_evict` is called with `expired` or `capacity` for every entry that goes without being asked to."""
        self._budget = budget_bytes
        self._on_evict = on_evict
        self._entries: dict[bytes, tuple[HotEntry, EvictionOrder]] = {}
        self._lru = LruOrder()
        self._ttl = TtlOrder()

    @property
    def used_bytes(self) -> int:
        """Bytes that all entries take."""
        return self._lru.bytes + self._ttl.bytes

    @property
    def budget_bytes(self) -> int:
        """Bytes that all entries may take."""
        return self._budget

    def __len__(self) -> int:
        return len(self._entries)

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
        """Store `entry` in the pool `eviction`, replacing what is under `key`, and evict what no longer fits.

        False, and nothing is kept under `key`, when the entry alone exceeds the budget or has expired.
        """
        self.delete(key)
        if entry.size > self._budget or entry.expires_at <= now:
            return False
        order = self._ttl if eviction == "ttl" else self._lru
        self._entries[key] = (entry, order)
        order.add(key, entry.size, entry.expires_at)
        self._shrink(now)
        return True

    def attach(self, key: bytes, entry: HotEntry, rendered: bytes, now: float) -> None:
        """Keep the serialised reply `rendered` with `entry`, counted against the budget.

        The entry itself may have left in the meantime, or be the one that has to go: then it is only the
        caller's.
        """
        entry.rendered = rendered
        entry.size = entry_size(entry)
        held = self._entries.get(key)
        if held is not None and held[0] is entry:
            held[1].resize(key, entry.size)
            if entry.size > self._budget:
                self._drop(key, "capacity")
            self._shrink(now)

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
        self._lru.clear()
        self._ttl.clear()

    def _drop(self, key: bytes, reason: str) -> None:
        self.delete(key)
        self._on_evict(reason)

    def _shrink(self, now: float) -> None:
        while self.used_bytes > self._budget:
            expired = self._ttl.expired(now)
            if expired is not None:
                self._drop(expired, "expired")
                continue
            order = self._lru if self._lru.bytes >= self._ttl.bytes else self._ttl
            victim = order.victim()
            if victim is None:  # pragma: no cover - bytes above zero always belong to a key
                return
            self._drop(victim, "expired" if self._entries[victim][0].expires_at <= now else "capacity")
