"""Large bodies in the lower tiers as the stack sees them: begun, finished, read, and written before their records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from meshcache.decisions import TierName
from meshcache.engine.chunks import owner_of
from meshcache.tiers.base import Trouble
from meshcache.tiers.body import Body
from meshcache.tiers.chunks import OUTLIVES, ChunkStore
from meshcache.tiers.spool import Spool
from meshcache.tiers.threads import Threads
from meshcache.tiers.works import Works

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from meshcache.engine.ports import Spool as AnySpool
    from meshcache.engine.records import StoredResponse
    from meshcache.engine.storing.fill import CopyBudget
    from meshcache.tiers.guarded import GuardedTier, Write
    from meshcache.tiers.hooks import TierHooks


DROP_AFTER: Final = 30.0
"""Seconds after the deletion of a record at which the chunks go that are its own: answers are being read from them."""


class Bodies:
    """The chunks of a stack's lower tiers, and the work in the background that they take."""

    def __init__(
        self,
        lower: Mapping[TierName, GuardedTier],
        hooks: TierHooks,
        clock: Callable[[], float],
        *,
        drop_after: float = DROP_AFTER,
        threads: Callable[[str, int], Threads] = Threads,
    ) -> None:
        self._hooks = hooks
        self._chunks = ChunkStore(lower, hooks, clock, threads)
        self._works = Works(lambda: hooks.tier_error(TierName.WARM, Trouble.INTERNAL))
        self._drop_after = drop_after
        self._due: dict[tuple[TierName, bytes], Write] = {}
        self._heard: dict[tuple[TierName, bytes], list[Callable[[], None]]] = {}

    def spool(
        self,
        where: Callable[[int], Sequence[TierName]],
        ttl: Callable[[TierName], float],
        *,
        owner: bytes,
        pool: bytes,
        budget: CopyBudget,
        expected: int,
    ) -> Spool:
        """Begin to store a body; `ttl` gives the seconds for which its record stays in a tier. See `Spool`."""
        return Spool(
            self._chunks,
            self._hooks,
            where=where,
            ttl=lambda name: ttl(name) + OUTLIVES,
            owner=owner,
            pool=pool,
            budget=budget,
            expected=expected,
        )

    def when_written(self, spool: AnySpool, then: Callable[[tuple[bytes, ...] | None], None]) -> None:
        """Call `then` with the digests of a complete body's chunks when all are stored; with None if they are not."""

        async def wait() -> None:
            digests = None
            try:
                digests = await spool.written()
            finally:
                then(digests)

        if not self._works.begin(wait()):
            spool.drop()
            then(None)

    def body(self, stored: StoredResponse, tier: TierName) -> Body:
        """What reads the body of a response in chunks that was found in `tier`."""
        return Body(self._chunks, stored, tier)

    async def whole(self, lower: GuardedTier, key: bytes, stored: StoredResponse, deadline: float) -> bool:
        """Whether all chunks of the record under `key` are there. One that lacks some is deleted, of use to nobody."""
        whole = await self._chunks.whole(lower.name, stored, deadline)
        if whole is False:
            self._hooks.entry_refused(lower.name, "chunks")
            lower.delete(key)
        return whole is True

    def write_after(self, lower: GuardedTier, write: Write, stored: StoredResponse, ttl: float) -> bool:
        """Offer the `write` of a record when its chunks are in the tier for `ttl` seconds; False when too many wait.

        It is dropped when they cannot be brought there, or something newer is written or deleted under its key first.
        """
        place = (lower.name, write.key)

        async def then_offer() -> None:
            try:
                there = await self._chunks.ensure(lower.name, stored, ttl + OUTLIVES)
                if not there:
                    self._hooks.write_dropped(lower.name, "chunks")
                elif self._due.get(place) is write:
                    lower.offer(write)
            finally:
                if self._due.get(place) is write:
                    self._settled(place)

        self._due[place] = write
        if self._works.begin(then_offer()):
            return True
        self._settled(place)
        return False

    def when_offered(self, name: TierName, key: bytes, call: Callable[[], None]) -> None:
        """Call `call` when no record waits for its chunks before it is written under `key`."""
        if (name, key) in self._due:
            self._heard.setdefault((name, key), []).append(call)
        else:
            call()

    def supersede(self, name: TierName, key: bytes) -> None:
        """A record that waits for its chunks is not to be written under `key` any more."""
        if (name, key) in self._due:
            self._settled((name, key))

    def _settled(self, place: tuple[TierName, bytes]) -> None:
        self._due.pop(place, None)
        for call in self._heard.pop(place, ()):
            call()

    def drop(self, stored: StoredResponse) -> None:
        """Forget the chunks of a record that is deleted, if they are nobody else's; not at once, they may be in use."""
        if owner_of(stored):
            asyncio.get_running_loop().call_later(self._drop_after, self._drop, stored)

    def _drop(self, stored: StoredResponse) -> None:
        self._works.begin(self._chunks.drop(stored))

    async def drain(self) -> None:
        """Return when no body is being written."""
        await self._works.drain()

    async def close(self) -> None:
        """Break off what is under way."""
        await self._works.close()
        await self._chunks.close()
