"""The chunks of large bodies in the lower tiers: written while a body streams, verified when they are read.

A chunk lives as long as the longest-living record that was written with it, and a little longer. Only records lead to
chunks, so chunks know no invalidation and no purge: one that no record names any more ends by its expiry.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from meshcache.engine.chunks import digest, owner_of
from meshcache.engine.pools import pool_of
from meshcache.tiers.threads import Threads
from meshcache.tiers.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshcache.decisions import TierName
    from meshcache.engine.records import StoredResponse
    from meshcache.tiers.base import Tier
    from meshcache.tiers.guarded import GuardedTier
    from meshcache.tiers.hooks import TierHooks

OUTLIVES: Final = 120.0
"""Seconds by which chunks outlive their record: an answer that begins at its end can still be sent."""
PATIENCE: Final = 3.0
"""Seconds for which a chunk is tried for in the middle of an answer: a tier that is slow for once must not break it.

Nor must one that has many to answer: as long as it gives chunks, those who wait for theirs go on waiting.
"""
_PAUSE: Final = 0.05
_MOST_WRITING: Final = 16
"""Chunks that are written to one tier at the same time. Each has its deadline from then on: were it to count while
those of other bodies are written, many bodies at once would make a tier that works look like one that fails. Bodies
that began first go first: of more than a tier can take, some are stored then, where otherwise all would fall behind."""
_MOST_READING: Final = 8
"""The same for reading; look-ups wait behind these few only."""
_MOST_COPYING: Final = 4
"""Bodies that are copied from one tier to another at the same time."""


class BodyLostError(Exception):
    """A chunk is gone, is not what it was, or cannot be had in time: the body cannot be read to its end."""


class ChunkStore:
    """What the chunk writers and readers of one process share. Belongs to one event loop."""

    def __init__(
        self,
        lower: Mapping[TierName, GuardedTier],
        hooks: TierHooks,
        clock: Callable[[], float] = time.monotonic,
        threads: Callable[[str, int], Threads] = Threads,
    ) -> None:
        self._lower = lower
        self._hooks = hooks
        self._clock = clock
        self._threads = threads("chunks", 2)
        self._copying: set[tuple[TierName, bytes]] = set()
        self._turns = {name: Turns(_MOST_WRITING) for name in lower}
        self._reading = {name: Turns(_MOST_READING) for name in lower}
        # When each was last seen to answer.
        self._answered = dict.fromkeys(lower, -math.inf)
        self._ranks = count()

    def rank(self) -> int:
        """The place of a body that begins now among those that are written."""
        return next(self._ranks)

    async def whole(self, name: TierName, stored: StoredResponse, deadline: float) -> bool | None:
        """Whether all chunks of `stored` are in the tier; None when it did not tell within `deadline` seconds."""
        lower = self._lower[name]
        missing = await lower.read(partial(lower.tier.extend, stored.chunks, 0.0), deadline)
        if missing:
            self._hooks.chunks(name, "missing", len(missing))
        return None if missing is None else not missing

    async def locate(self, name: TierName, stored: StoredResponse) -> TierName:
        """Where the chunks of `stored` are: in `name`, if that is a tier for them. Raises `BodyLostError`."""
        if name in self._lower:
            return name
        for other in self._lower:
            if await self.whole(other, stored, PATIENCE):
                return other
        raise BodyLostError("the chunks are nowhere")

    async def ensure(self, name: TierName, stored: StoredResponse, ttl: float) -> bool:
        """See to it that all chunks of `stored` are in the tier for `ttl` seconds more, and copy those that lack.

        False when they are nowhere, or the tier fails. Raises nothing but `CancelledError`.
        """
        lower = self._lower[name]
        missing = await lower.write(partial(lower.tier.extend, stored.chunks, ttl))
        if not missing:
            return missing is not None
        wanted = list(dict.fromkeys(chunk for chunk in stored.chunks if chunk in missing))
        copying = (name, wanted[0])
        if copying in self._copying or len(self._copying) >= _MOST_COPYING:
            return False
        self._copying.add(copying)
        try:
            return await self._copy(name, wanted, owner_of(stored), ttl)
        finally:
            self._copying.discard(copying)

    async def _copy(self, name: TierName, wanted: list[bytes], owner: bytes, ttl: float) -> bool:
        sources = [other for other in self._lower if other != name]
        rank = self.rank()
        for each in wanted:
            chunk = await self._from_any(sources, each, owner)
            if chunk is None or not await self.keep(name, each, chunk, ttl, rank):
                return False
        return True

    async def digest(self, chunk: bytes, owner: bytes, pool: bytes) -> bytes:
        """The name of a chunk. Raises `TierError` when too many wait for theirs."""
        return await self._threads.run(digest, chunk, owner, pool)

    async def keep(self, name: TierName, wanted: bytes, chunk: bytes, ttl: float, rank: int) -> bool:
        """Write one chunk, when it is the turn of this `rank`, unless it is there; False when the tier fails."""
        lower, turns = self._lower[name], self._turns[name]
        await turns.take(rank)
        try:
            new = await lower.write(partial(lower.tier.keep, wanted, chunk, ttl))
        finally:
            turns.give()
        if new is not None:
            self._hooks.chunks(name, "written" if new else "shared")
            if new:
                self._hooks.moved("written", name, len(chunk))
        return new is not None

    async def fetch(self, name: TierName, wanted: bytes, owner: bytes, patience: float = PATIENCE) -> bytes:
        """One chunk, verified. Raises `BodyLostError`.

        What was stored just now, and handed to those that waited for it, is said to be in memory: it lies in one of the
        lower tiers, or in several.
        """
        lower = self._lower.get(name)
        if lower is None:
            *others, last = self._lower
            for other in others:
                with contextlib.suppress(BodyLostError):
                    return await self.fetch(other, wanted, owner, patience)
            return await self.fetch(last, wanted, owner, patience)
        turns, asked = self._reading[name], self._clock()
        await turns.take(0)
        try:
            until = max(asked, self._answered[name]) + patience
            chunk, sound = await self._tried(lower, wanted, owner, until)
        finally:
            turns.give()
        if chunk is None:
            self._hooks.chunks(name, "missing")
            raise BodyLostError("a chunk is gone")
        if not sound:
            self._hooks.chunks(name, "corrupt")
            # Else it would stay: whoever stores the same again finds that it is there.
            await lower.write(partial(lower.tier.drop, (wanted,)))
            raise BodyLostError("a chunk is not what it was")
        self._hooks.chunks(name, "read")
        return chunk

    async def _tried(self, lower: GuardedTier, wanted: bytes, owner: bytes, until: float) -> tuple[bytes | None, bool]:
        while (left := until - self._clock()) > _PAUSE:
            found = await lower.read(partial(self._verified, lower.tier, wanted, owner), left)
            if found is not None:
                self._answered[lower.name] = self._clock()
                return found
            await asyncio.sleep(_PAUSE)
        raise BodyLostError("the tier does not answer")

    async def drop(self, stored: StoredResponse) -> None:
        """Forget the chunks of `stored` in all tiers, if nothing else can have a part in them."""
        if owner_of(stored):
            for lower in self._lower.values():
                await lower.write(partial(lower.tier.drop, stored.chunks))

    async def close(self) -> None:
        """End the threads."""
        await self._threads.close(1.0)

    async def _from_any(self, sources: list[TierName], wanted: bytes, owner: bytes) -> bytes | None:
        for source in sources:
            try:
                return await self.fetch(source, wanted, owner, _PAUSE * 4)
            except BodyLostError:
                continue
        return None

    async def _verified(self, tier: Tier, wanted: bytes, owner: bytes) -> tuple[bytes | None, bool]:
        chunk = await tier.fetch(wanted)
        return chunk, chunk is not None and await self.digest(chunk, owner, pool_of(wanted)) == wanted
