"""A tier below memory as the replay has it: in this process, with the limits and the order of giving up of a real one.

What has expired goes first. For want of room the LMDB file then gives up what expires first, the folder what was
written first; so does this one, with the accounting of `eviction.ttl`, and each pool keeps to its share. The bodies of
a replay are zeros behind a few bytes; only how many is kept of them, so that a tier of gigabytes fits into memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from meshcache.engine.pools import COMMON, UNDIVIDED
from meshcache.eviction.ttl import TtlOrder
from meshcache.tiers.base import TierError, TierRead, Trouble

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshcache.decisions import TierName
    from meshcache.engine.pools import Division
    from meshcache.tiers.board import Board

_RUN: Final = bytes(64)
"""A run of zeros that is worth leaving out."""
_TAIL: Final = 1024


_ZEROS: Final = memoryview(bytes(1 << 20))


def _zeros(size: int) -> bytes | memoryview:
    return _ZEROS[:size] if size <= len(_ZEROS) else bytes(size)


class _Packed(NamedTuple):
    """Bytes with their longest run of zeros left out."""

    head: bytes
    zeros: int
    tail: bytes

    @classmethod
    def of(cls, value: bytes) -> _Packed:
        at = value.find(_RUN)
        if at < 0:
            return cls(value, 0, b"")
        # What follows a body is short: that all before it is zeros is seen at once, the rest byte by byte.
        end = len(value) - _TAIL
        if end <= at or not value.startswith(_zeros(end - at), at):
            end = at
        tail = value[end:].lstrip(b"\0")
        return cls(value[:at], len(value) - at - len(tail), tail)

    def value(self) -> bytes:
        return b"".join((self.head, bytes(self.zeros), self.tail)) if self.zeros else self.head


class _Pool:
    """One share of the room, in order of expiry and in the order of going."""

    __slots__ = ("expiry", "going")

    def __init__(self, *, by_age: bool) -> None:
        self.expiry = TtlOrder()
        self.going = TtlOrder() if by_age else self.expiry

    def add(self, key: bytes, size: int, expires_at: float, now: float) -> None:
        self.expiry.add(key, size, expires_at)
        if self.going is not self.expiry:
            self.going.add(key, size, now)

    def remove(self, key: bytes) -> None:
        self.expiry.remove(key)
        if self.going is not self.expiry:
            self.going.remove(key)


class SimulatedTier:
    """Implements `Tier`; belongs to one replay. Nothing in it waits."""

    on_board = True
    writes_at_once = 64

    def __init__(
        self,
        name: TierName,
        max_bytes: int,
        board: Board,
        clock: Callable[[], float],
        *,
        cost: Callable[[int], int],
        by_age: bool = False,
        shrink_to: float = 1.0,
        on_evict: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`clock` gives Unix seconds, `cost` the bytes that a value of so many takes.

        Where there is no room, what expires first goes, or with `by_age` what was written first, until at most
        `shrink_to` of the share is used. `on_evict` gets `expired` or `capacity`.
        """
        self.name = name
        self.max_bytes = max_bytes
        self.largest_value = max_bytes // 8
        self._board = board
        self._clock = clock
        self._cost = cost
        self._by_age = by_age
        self._shrink_to = shrink_to
        self._on_evict = on_evict
        self._held: dict[bytes, tuple[_Packed, float]] = {}
        self._division = UNDIVIDED
        self._pools = {COMMON: _Pool(by_age=by_age)}
        self.used_bytes = 0
        """Bytes that all values take."""
        self.peak_bytes = 0
        """The most that it ever held."""

    def __len__(self) -> int:
        return len(self._held)

    def divide(self, division: Division) -> None:
        """See `Tier`. To be called before anything is written: a replay knows one division."""
        self._division = division
        self._pools |= {pool: _Pool(by_age=self._by_age) for pool in division.arms}

    def absent(self, key: bytes) -> bool:
        """See `Tier`."""
        held = self._held.get(key)
        return held is None or held[1] <= self._clock()

    async def get(self, key: bytes, resource: bytes) -> TierRead:
        """See `Tier`."""
        return TierRead(self._read(key), self._board.epoch(resource))

    async def put(self, key: bytes, value: bytes, ttl: float) -> None:
        """See `Tier`."""
        self._write(key, value, self._clock() + ttl)

    async def delete(self, key: bytes) -> None:
        """See `Tier`."""
        self._forget(key)

    async def keep(self, digest: bytes, chunk: bytes, ttl: float) -> bool:
        """See `Tier`."""
        until = self._clock() + ttl
        if self._prolonged(digest, until):
            return False
        self._write(digest, chunk, until)
        return True

    async def extend(self, digests: Sequence[bytes], ttl: float) -> frozenset[bytes]:
        """See `Tier`."""
        until = self._clock() + ttl
        return frozenset(digest for digest in digests if not self._prolonged(digest, until))

    async def fetch(self, digest: bytes) -> bytes | None:
        """See `Tier`."""
        return self._read(digest)

    async def drop(self, digests: Sequence[bytes]) -> None:
        """See `Tier`."""
        for digest in digests:
            self._forget(digest)

    async def invalidate(self, resource: bytes) -> None:
        """See `Tier`."""
        self._board.bump(resource)

    async def close(self) -> None:
        """See `Tier`."""

    def _read(self, key: bytes) -> bytes | None:
        held = self._held.get(key)
        return None if held is None or held[1] <= self._clock() else held[0].value()

    def _write(self, key: bytes, value: bytes, expires_at: float) -> None:
        """Raises `TierError` for what is too large, as the real ones do."""
        division, now = self._division, self._clock()
        name = division.pool(key)
        share = division.part(name, self.max_bytes)
        if len(value) > min(self.largest_value, share):
            raise TierError(f"{len(value)} bytes are too large for the simulated tier", Trouble.TOO_LARGE)
        self._forget(key)
        pool = self._pools[name]
        while (expired := pool.expiry.expired(now)) is not None:
            self._on_evict("expired")
            self._forget(expired)
        size = self._cost(len(value))
        self._held[key] = (_Packed.of(value), expires_at)
        pool.add(key, size, expires_at, now)
        self.used_bytes += size
        if pool.expiry.bytes > share:
            room = share * self._shrink_to
            while pool.expiry.bytes > room and (victim := pool.going.victim()) is not None:
                self._on_evict("capacity")
                self._forget(victim)
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)

    def _prolonged(self, key: bytes, until: float) -> bool:
        """Whether a value is there, which then stays until that time at least."""
        held = self._held.get(key)
        if held is None or held[1] <= self._clock():
            return False
        if held[1] < until:
            order = self._pools[self._division.pool(key)].expiry
            self._held[key] = (held[0], until)
            order.add(key, order.remove(key), until)
        return True

    def _forget(self, key: bytes) -> None:
        if self._held.pop(key, None) is not None:
            pool = self._pools[self._division.pool(key)]
            before = pool.expiry.bytes
            pool.remove(key)
            self.used_bytes -= before - pool.expiry.bytes
