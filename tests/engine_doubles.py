"""What the engine needs from outside, as tests have it: a meter that remembers, a tier that can be held."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshcache.tiers.base import Tier, TierRead


class CountingMeter:
    """A `Meter` that keeps what it is told."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str, str, str]] = []
        self.stores: list[str] = []
        self.refreshes: list[str] = []
        self.refresh_causes: list[str] = []
        self.collapses: Counter[str] = Counter()
        self.bytes_served: Counter[str] = Counter()
        self.units_missing: Counter[str] = Counter()

    def request(self, decision: str, reason: str, tier: str, route: str, arm: str) -> None:
        self.requests.append((str(decision), str(reason), str(tier), route, arm))

    def stored(self, outcome: str) -> None:
        self.stores.append(str(outcome))

    def stage(self, stage: str, seconds: float) -> None:
        pass

    def collapsed(self, outcome: str) -> None:
        self.collapses[str(outcome)] += 1

    def refreshed(self, outcome: str, cause: str) -> None:
        self.refreshes.append(str(outcome))
        self.refresh_causes.append(str(cause))

    def served(self, tier: str, size: int) -> None:
        self.bytes_served[tier] += size

    def missing_unit(self, experiment: str) -> None:
        self.units_missing[experiment] += 1


class SlowTier:
    """A tier that can be held: `get` waits while `may_go` is not set."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier
        self.name = tier.name
        self.on_board = tier.on_board
        self.may_go = asyncio.Event()
        self.may_go.set()

    async def get(self, key: bytes, resource: bytes) -> TierRead:
        await self.may_go.wait()
        return await self._tier.get(key, resource)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tier, name)
