"""Small makers for the tests of the tiers."""

from __future__ import annotations

import asyncio
from collections import Counter

from meshcache.decisions import TierName
from meshcache.engine.epochs import Epochs
from meshcache.engine.records import Entry, StoredResponse
from meshcache.policy.compiled import TierLimits, Tiers
from meshcache.tiers.base import Tier, TierRead
from meshcache.tiers.hooks import NoHooks


def response(body: bytes = b"hello", **changes: object) -> StoredResponse:
    values = {
        "key": b"GET https://example.com/a",
        "selecting": (("accept", "text/html"), ("accept-language", None)),
        "status": 200,
        "fields": (("content-type", "text/plain"), ("etag", '"x"')),
        "request_time": 1000.0,
        "response_time": 1000.5,
        "initial_age": 0.0,
        "authorized": False,
        "body": body,
    } | changes
    return StoredResponse(**values)  # type: ignore[arg-type]


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def resource(number: int) -> bytes:
    return number.to_bytes(16, "little")


def limits(**changes: TierLimits) -> Tiers:
    usual = {
        "hot": TierLimits(30.0, 1 << 20, 0.005),
        # Deadlines that a busy machine keeps.
        "warm": TierLimits(300.0, 8 << 20, 5.0),
        "cold": TierLimits(86400.0, 64 << 20, 5.0),
    }
    return Tiers(**(usual | changes))


def entry(number: int, known: Epochs, *tiers: TierName, **changes: object) -> Entry:
    """An entry for `key(number)` of `resource(1)`, with room everywhere and of use for a long time."""
    values = {
        "key": key(number),
        "resource": resource(1),
        "record": response(),
        "tiers": tiers,
        "limits": limits(),
        "epochs": known,
        "now": 1000.0,
        "expires_in": 1000.0,
        "eviction": "lru",
    } | changes
    return Entry(**values)  # type: ignore[arg-type]


async def epoch_of(tier: Tier, of: bytes) -> bytes:
    """The invalidation epoch of the resource `of`, as every look-up tells it."""
    return (await tier.get(key(1 << 200), of)).epoch


class CountingHooks(NoHooks):
    """Counts what is reported."""

    def __init__(self) -> None:
        self.errors: Counter[tuple[str, str]] = Counter()
        self.refused: Counter[tuple[str, str]] = Counter()
        self.dropped: Counter[tuple[str, str]] = Counter()
        self.evictions: Counter[tuple[str, str]] = Counter()
        self.breakers: list[tuple[str, bool]] = []
        self.chunked: Counter[tuple[str, str]] = Counter()

    def tier_error(self, tier: TierName, kind: str) -> None:
        self.errors[tier, kind] += 1

    def entry_refused(self, tier: TierName, reason: str) -> None:
        self.refused[tier, reason] += 1

    def write_dropped(self, tier: TierName, reason: str) -> None:
        self.dropped[tier, reason] += 1

    def evicted(self, tier: TierName, reason: str, count: int) -> None:
        self.evictions[tier, reason] += count

    def chunks(self, tier: TierName, event: str, count: int = 1) -> None:
        self.chunked[tier, event] += count

    def breaker(self, tier: TierName, opened: bool) -> None:
        self.breakers.append((tier, opened))


class Troubled:
    """A tier that does as it is told, for failures that a real one cannot be made to have."""

    on_board = True
    writes_at_once = 4

    def __init__(self, name: TierName) -> None:
        self.name = name
        self.error: Exception | None = None
        self.delay = 0.0
        self.calls = 0
        self.under_way = 0
        self.most_under_way = 0

    async def _do(self) -> None:
        self.calls += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(self.delay)
        finally:
            self.under_way -= 1
        if self.error is not None:
            raise self.error

    def absent(self, _key: bytes) -> bool:
        return False

    def divide(self, *_: object) -> None:
        pass

    async def get(self, *_: object) -> TierRead:
        await self._do()
        return TierRead(None, b"")

    async def put(self, *_: object) -> None:
        await self._do()

    async def delete(self, *_: object) -> None:
        await self._do()

    async def keep(self, *_: object) -> bool:
        await self._do()
        return True

    async def extend(self, *_: object) -> frozenset[bytes]:
        await self._do()
        return frozenset()

    async def fetch(self, *_: object) -> bytes | None:
        await self._do()
        return None

    async def drop(self, *_: object) -> None:
        await self._do()

    async def invalidate(self, *_: object) -> None:
        await self._do()

    async def close(self) -> None:
        await self._do()
