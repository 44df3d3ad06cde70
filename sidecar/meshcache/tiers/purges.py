"""The purge rules of one worker: read from the pod's log, in effect before anything stored is given out.

The board says which rule is the newest. A worker that has not applied it yet, because it hung or has only just begun,
answers nothing from what it has until it has read the log. It needs no message for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final

from meshcache.engine.purge_state import MOST_NUMBERS, NUMBER_BITS, Born, Header, PurgeState, Step
from meshcache.engine.purge_state import generation as generation_of
from meshcache.engine.purges import ALIVE, Keying
from meshcache.engine.records import StoredResponse
from meshcache.tiers.purge_log import LogReader
from meshcache.tiers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from meshcache.engine.purges import Verdict
    from meshcache.engine.records import Record
    from meshcache.policy.compiled import KeySpec
    from meshcache.tiers.board import Board
    from meshcache.tiers.memory import MemoryTier

SILENCE: Final = 1.0
"""Seconds after which a worker that applies a rule empties its memory first: it has hung, or was cut off."""
_TRIES: Final = 3
_PAUSE: Final = 0.02
_AT_ONCE: Final = 256
"""Entries of memory that are looked at before others have their turn."""
_MOST_COUNTED: Final = 1 << 20


class Purges:
    """What a tier stack goes by. Belongs to one event loop.

    Without a log (`path` None) there are no rules, and nothing ever is purged.
    """

    def __init__(
        self,
        board: Board,
        path: Path | None = None,
        *,
        on_silence: Callable[[], None] = lambda: None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`on_silence` is called before a rule comes into effect that was made more than a second ago."""
        self._board = board
        self._reader = None if path is None else LogReader(path)
        self._on_silence = on_silence
        self._wall_clock = wall_clock
        self._keying = Keying()
        self._state = PurgeState(Header(0), self._keying)
        self._threads = Threads("purge-log", 1)
        self._fresh: list[Step] = []
        self._catching_up: asyncio.Task[bool] | None = None
        self.generation = 0
        """Of the newest rule in effect here; equal to the board's when there is none that is not."""
        self.born: Born = self._state.born
        """When something that is asked for now is born."""

    def knows(self, fleet: int | None) -> bool:
        """Whether the rules of the fleet's log up to the generation `fleet` are in effect here."""
        return self._reader is None or (fleet is not None and fleet <= self._state.fleet)

    def current(self) -> bool:
        """Whether every rule is in effect here. If not, they are read in the background."""
        newest = self._board.purges
        if newest == self.generation or self._ahead(newest):
            return True
        if self._reader is not None and (self._catching_up is None or self._catching_up.done()):
            self._catching_up = asyncio.get_running_loop().create_task(self.catch_up())
        return False

    def verdict(self, born: Born, stored: Record, *, shared: bool = False) -> Verdict:
        """What the rules in effect say of an entry; see `PurgeState.verdict`. Ask `current` first."""
        return self._state.verdict(born, stored, shared=shared)

    def install(self, specs: Iterable[KeySpec]) -> None:
        """Policies key a URI in these ways from now on. To be called before any of them serves, from any thread."""
        self._keying.install(specs)

    def load(self) -> None:
        """Put what is in the log in effect. Blocks: for the start. No log is no error: the board tells if it is due."""
        if self._reader is not None:
            with contextlib.suppress(OSError, ValueError):
                self._take(*self._read(self._reader))

    async def catch_up(self) -> bool:
        """Put every rule in effect that the board knows of; whether that came about.

        Where the log cannot be read, all that was stored before is dead instead.
        """
        if self._reader is None:
            return False
        for _ in range(_TRIES):
            with contextlib.suppress(OSError, ValueError):
                self._take(*await self._threads.run(self._read, self._reader))
            newest = self._board.purges
            if newest == self.generation or self._ahead(newest):
                return True
            await asyncio.sleep(_PAUSE)
        if newest == 0:
            # A new board, whose log has not been named yet: what was stored under the old one is dead already.
            return False
        incarnation, number = newest >> NUMBER_BITS, newest & MOST_NUMBERS
        # Nothing of other pods can be judged: no generation of theirs is as high.
        header = Header(incarnation, number, floor=number, fleet=0, shared_floor=1 << 63)
        self._adopt(PurgeState(header, self._keying))
        self._on_silence()
        return True

    async def sweep(self, memory: MemoryTier) -> tuple[int, int, tuple[bytes, ...]] | None:
        """Remove from `memory` what rules have killed that have come since the last sweep.

        Returns the first and the last generation of these rules and the keys of all that they concern; None when none
        have come. Works a little at a time.
        """
        steps, self._fresh = self._fresh, []
        if not steps:
            return None
        incarnation = self._state.incarnation
        rules = PurgeState(Header(incarnation, number=steps[0].number - 1), self._keying)
        for step in steps:
            rules.apply(step)
        found: list[bytes] = []
        for place, (key, entry) in enumerate(memory.items()):
            if place % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            record = entry.record
            if not isinstance(record, StoredResponse) or entry.born[0] >> NUMBER_BITS != incarnation:
                continue
            verdict = rules.verdict(entry.born, record, shared=False)
            if verdict.dead:
                memory.drop(key, entry)
            if verdict != ALIVE and len(found) < _MOST_COUNTED:
                found.append(key)
        return generation_of(incarnation, steps[0].number), rules.generation, tuple(found)

    async def close(self) -> None:
        """Stop reading."""
        if self._catching_up is not None:
            self._catching_up.cancel()
            await asyncio.gather(self._catching_up, return_exceptions=True)
        await self._threads.close(1.0)

    def _ahead(self, newest: int) -> bool:
        """Whether the rules in effect here go beyond those that everyone has to have applied."""
        return newest >> NUMBER_BITS == self.generation >> NUMBER_BITS and newest < self.generation

    def _read(self, reader: LogReader) -> tuple[PurgeState | None, tuple[Step, ...]]:
        """What is new in the log; of another file than before, all of it in effect in a state of its own."""
        news = reader.read()
        if news.header is None:
            return None, news.steps
        state = PurgeState(news.header, self._keying)
        for step in news.steps:
            state.apply(step)
        return state, news.steps

    def _take(self, state: PurgeState | None, steps: tuple[Step, ...]) -> None:
        late = self._wall_clock() - SILENCE
        known = self._state.number
        if self.generation and any(step.number > known and step.at < late for step in steps):
            self._on_silence()
        if state is not None and state.incarnation != self._state.incarnation:
            # All that these rules could concern is dead with the log of its time.
            self._fresh = []
        elif self.generation:
            self._fresh += [step for step in steps if step.rule is not None and step.number > known]
        if state is not None:
            self._adopt(state)
            return
        for step in steps:
            self._state.apply(step)
        self.generation, self.born = self._state.generation, self._state.born

    def _adopt(self, state: PurgeState) -> None:
        self._state = state
        self.generation, self.born = state.generation, state.born
