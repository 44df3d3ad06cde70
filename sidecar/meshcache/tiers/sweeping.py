"""Sweeps after purges: what is dead is counted and removed from the stores below memory, a slice at a time.

Nothing depends on a sweep but space, and that what was purged for someone's sake is really gone: what is dead is not
answered with, whether or not it is still there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from meshcache.engine.purge_state import NUMBER_BITS
from meshcache.engine.purges import ALIVE
from meshcache.tiers.base import TierError
from meshcache.tiers.envelope import front_of, private_chunks
from meshcache.tiers.fates import FRONT_BYTES, HEAD_BYTES, Fate, Judge, front_bytes, is_private
from meshcache.tiers.object_folder import ObjectFolder
from meshcache.tiers.redis import CHUNKS, ENTRIES
from meshcache.tiers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from meshcache.engine.purge_state import PurgeState
    from meshcache.tiers.lmdb_file import LmdbFile

Send = Callable[[Sequence[tuple[Any, ...]]], "Awaitable[list[Any]]"]

_SLICE: Final = 512
_SHARE: Final = 0.5
"""Of the time, at most, that a sweep keeps a store busy."""
_LONGEST_PAUSE: Final = 0.25

_REMOVE: Final = f"""\
for i = 1, #KEYS do
  if redis.call('GETRANGE', KEYS[i], 0, {HEAD_BYTES - 1}) == ARGV[i] then redis.call('DEL', KEYS[i]) end
end
return 0
"""


class Sweepable(Protocol):
    """A store whose values can be shown to a judge."""

    def slices(self, judge: Judge) -> AsyncIterator[list[bytes]]:
        """The keys of what was matched, slice by slice; what is condemned goes. Raises `TierError`."""
        ...


class SweptFile:
    """An LMDB file as a `Sweepable`."""

    def __init__(self, file: LmdbFile, threads: Threads) -> None:
        self._file = file
        self._threads = threads

    async def slices(self, judge: Judge) -> AsyncIterator[list[bytes]]:
        """See `Sweepable`."""
        last: bytes | None = b""
        while last is not None:
            visited = await self._threads.run(self._file.visit, last, _SLICE, time.time(), judge)
            last = visited.last
            yield visited.matched


class SweptFolder:
    """A folder of objects as a `Sweepable`."""

    def __init__(self, folder: ObjectFolder, threads: Threads) -> None:
        self._folder = folder
        self._threads = threads

    async def slices(self, judge: Judge) -> AsyncIterator[list[bytes]]:
        """See `Sweepable`."""
        for first in await self._threads.run(self._folder.folders):
            visited = await self._threads.run(self._folder.visit, first, time.time(), judge)
            yield visited.matched


class SweptStore:
    """A Redis that pods share as a `Sweepable`."""

    def __init__(self, send: Send) -> None:
        """`send` is `RedisTier.send`."""
        self._send = send

    async def slices(self, judge: Judge) -> AsyncIterator[list[bytes]]:
        """See `Sweepable`."""
        cursor = "0"
        while True:
            ((position, names),) = await self._send([("SCAN", cursor, "MATCH", f"{ENTRIES}*", "COUNT", _SLICE)])
            yield await self._look_at(list(dict.fromkeys(names)), judge)
            cursor = str(int(position))
            if cursor == "0":
                return

    async def _look_at(self, names: list[bytes], judge: Judge) -> list[bytes]:
        starts = await self._starts(names, FRONT_BYTES)
        longer = {name: front_bytes(start) for name, start in starts.items() if front_bytes(start) > len(start)}
        if longer:
            starts |= await self._starts(list(longer), max(longer.values()))
        matched: list[bytes] = []
        condemned: list[bytes] = []
        for name, start in starts.items():
            key = _key(name)
            fate = Fate.SPARED if key is None else judge(key, start)
            if key is not None and fate is not Fate.SPARED:
                matched.append(key)
            if fate is Fate.CONDEMNED:
                condemned.append(name)
        private = [name for name in condemned if is_private(starts[name])]
        if private:
            values = await self._send([("GET", name) for name in private])
            chunks = [chunk for value in values if isinstance(value, bytes) for chunk in private_chunks(value)]
            if chunks:
                await self._send([("DEL", *(f"{CHUNKS}{chunk.hex()}" for chunk in chunks))])
        if condemned:
            heads = [starts[name][:HEAD_BYTES] for name in condemned]
            await self._send([("EVAL", _REMOVE, len(condemned), *condemned, *heads)])
        return matched

    async def _starts(self, names: list[bytes], size: int) -> dict[bytes, bytes]:
        replies = await self._send([("GETRANGE", name, 0, size - 1) for name in names]) if names else []
        return {name: reply for name, reply in zip(names, replies, strict=True) if isinstance(reply, bytes)}


class Job:
    """One purge whose entries are to be found."""

    def __init__(self, rules: PurgeState, *, own_only: bool = False) -> None:
        """`rules` has the rules of the purge in effect, and no others."""
        self.rules = rules
        self.own_only = own_only
        self.matched: set[bytes] = set()
        self.failed: list[str] = []
        """Titles of the stores that could not be looked through."""
        self.done = asyncio.Event()


class Sweeper:
    """Looks through all stores for one batch of jobs after the other. Belongs to one event loop."""

    def __init__(self, stores: dict[str, tuple[Sweepable, bool]], clock: Callable[[], float] = time.monotonic) -> None:
        """`stores` by title; the flag says whether other pods write there, too."""
        self._stores = stores
        self._clock = clock
        self._queue: list[Job] = []
        self._working: asyncio.Task[None] | None = None

    def begin(self, rules: PurgeState, *, own_only: bool = False) -> Job:
        """Have the stores looked through for what `rules` concern; `Job.done` is set at the end.

        `own_only` leaves out those that other pods share: whoever made the rules looks through these.
        """
        job = Job(rules, own_only=own_only)
        self._queue.append(job)
        if self._working is None or self._working.done():
            self._working = asyncio.get_running_loop().create_task(self._work())
        return job

    async def close(self) -> None:
        """Give up what is under way."""
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)

    async def _work(self) -> None:
        while self._queue:
            jobs, self._queue = self._queue, []
            try:
                for title, (store, shared) in self._stores.items():
                    if asking := [job for job in jobs if not (shared and job.own_only)]:
                        await self._look_through(title, store, shared, asking)
            finally:
                for job in jobs:
                    job.done.set()

    async def _look_through(self, title: str, store: Sweepable, shared: bool, jobs: list[Job]) -> None:
        concerned: dict[bytes, list[Job]] = {}

        def judge(key: bytes, start: bytes | memoryview) -> Fate:
            front = front_of(start)
            if front is None or isinstance(front, int) or front.labels is None:
                return Fate.SPARED
            fate = Fate.SPARED
            for job in jobs:
                if not shared and front.born[0] >> NUMBER_BITS != job.rules.incarnation:
                    # Dead with the log of its time, and no affair of this purge.
                    continue
                verdict = job.rules.verdict(front.born, front.labels, shared=shared)
                if verdict == ALIVE:
                    continue
                concerned.setdefault(key, []).append(job)
                if fate is not Fate.CONDEMNED:
                    fate = Fate.CONDEMNED if verdict.dead else Fate.MATCHED
            return fate

        try:
            began = self._clock()
            async for matched in store.slices(judge):
                for key in matched:
                    for job in concerned[key]:
                        job.matched.add(key)
                concerned.clear()
                spent = self._clock() - began
                await asyncio.sleep(min(_LONGEST_PAUSE, spent * (1 - _SHARE) / _SHARE))
                began = self._clock()
        except TierError:
            for job in jobs:
                job.failed.append(title)


def _key(name: bytes) -> bytes | None:
    try:
        return bytes.fromhex(name[len(ENTRIES) :].decode("ascii"))
    except ValueError:
        return None
