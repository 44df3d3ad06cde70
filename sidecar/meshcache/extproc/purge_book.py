"""The pod's log of purge rules as its one writer keeps it: the file, the rules in effect, and the word on the board.

A log that cannot be trusted (damaged, behind the board, or on a disk that takes no more) is given up for a new one of
another incarnation, and with it all that this pod has stored so far is dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from typing import TYPE_CHECKING, Final

import msgspec

from meshcache.engine.purge_state import INCARNATION_BITS, MOST_NUMBERS, NUMBER_BITS, Header, PurgeState, Step
from meshcache.engine.purges import Keying
from meshcache.tiers.fleet_log import MOST_RULES, RETENTION
from meshcache.tiers.purge_log import LogReader, LogWriter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from meshcache.engine.purges import Rule
    from meshcache.tiers.board import Board

NOTHING_SHARED: Final = 1 << 63
"""A floor below which every generation of the fleet's log lies: nothing of other pods is used."""
_COMPACT_FROM: Final = 1 << 20
_ROOM_FOR_WORKERS: Final = 0.02
"""Seconds for workers to apply a rule before the board says that all must have: until then they miss nothing."""


class PurgeBook:
    """First `open`, then any other call. Belongs to one event loop."""

    def __init__(
        self,
        path: Path,
        board: Board,
        log: FilteringBoundLogger,
        *,
        tell: Callable[[int], Awaitable[None]],
        shared: bool = False,
        wall_clock: Callable[[], float] = time.time,
        announce: Callable[[Sequence[Rule] | None, int], None] = lambda _rules, _generation: None,
    ) -> None:
        """`tell` gives the workers a new generation and returns when all have it; it is cancelled when they take long.

        `announce` hears of rules that have come into the log, up to a generation; None: all that was stored is dead.

        `shared`: the rules are for other pods as well, which have a log of their own for them.
        """
        self._path = path
        self._board = board
        self._log = log
        self._tell = tell
        self._shared = shared
        self._wall_clock = wall_clock
        self._announce = announce
        self._writer = LogWriter(path)
        self._reader = LogReader(path)
        """Reads along as a worker does."""
        self._lock = asyncio.Lock()
        self._rules: dict[str, Step] = {}
        self._compacted = 0
        self.keying = Keying()
        self.state = PurgeState(Header(0), self.keying)
        """The rules in effect."""
        self.lost = False
        """Whether this pod has given up a log since the fleet's log was last told so."""

    @property
    def generation(self) -> int:
        """Of the newest rule."""
        return self.state.generation

    @property
    def known(self) -> dict[str, Step]:
        """The steps of all rules that are kept, by uid, oldest first."""
        return self._rules

    def open(self) -> None:
        """Take up the log that is there, or begin one. Blocks. Never fails: without a disk it is kept in memory."""
        word = self._board.purges
        reader = LogReader(self._path)
        try:
            news = reader.read()
        except FileNotFoundError:
            news = None
            if word:
                self._log.error("the log of purges is gone; what was stored before is not used any more")
        except (OSError, ValueError) as error:
            news = None
            word = word or 1
            self._log.error("the log of purges cannot be used; nor is what was stored before", error=str(error))
        if news is not None and news.header is not None:
            state = PurgeState(news.header, self.keying)
            for step in news.steps:
                state.apply(step)
            if word in (0, state.generation) or (
                word >> NUMBER_BITS == state.incarnation and word & MOST_NUMBERS < state.number
            ):
                self.state = state
                for step in news.steps:
                    self._remember(step)
                try:
                    self._writer.resume(reader.offset)
                    self._compact()
                except OSError as error:
                    self._log.warning("the log of purges cannot be written", error=str(error))
                self._board.purges = self.state.generation
                return
            self._log.error("the log of purges lacks rules; what was stored before is not used any more")
        self._begin_anew(lost=bool(word))

    async def add(self, rules: Sequence[tuple[Rule, int]], read: int = 0) -> bool:
        """Put rules in effect in this pod, each with its generation in the fleet's log (0: not there yet).

        `read` tells that this log has been read so far, and that nothing is in it before that which is not known here.
        Returns when they are on the disk and every worker knows that there are new ones. False when they could not be
        written: then all that was stored before is dead instead.
        """
        return await self._add([(rule, fleet, "") for rule, fleet in rules], read)

    async def published(self, uid: str, fleet: int) -> None:
        """The rule `uid` has this generation in the fleet's log."""
        await self._add([(None, fleet, uid)], 0)

    async def give_up(self, reason: str) -> None:
        """Rules have been missed: what was stored so far is dead."""
        async with self._lock:
            self._log.error("purges have been missed; what was stored before is not used any more", reason=reason)
            await asyncio.to_thread(self._begin_anew, lost=True)
            self._announce(None, self.generation)

    async def check(self) -> None:
        """See to it that log and board are there and agree; to be called now and then."""
        self._board.refresh()
        async with self._lock:
            if not self._writer.stands() or not await asyncio.to_thread(self._sound):
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(self._rewrite)
            if self._board.purges != self.generation:
                self._board.purges = self.generation

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    async def _add(self, entries: Iterable[tuple[Rule | None, int, str]], read: int) -> bool:
        # To its end, once begun: a step that is on the disk and not in effect would be two.
        return await asyncio.shield(asyncio.create_task(self._add_all(entries, read)))

    async def _add_all(self, entries: Iterable[tuple[Rule | None, int, str]], read: int) -> bool:
        async with self._lock:
            now = self._wall_clock()
            number = self.state.number
            steps = []
            for rule, fleet, uid in self._unknown(entries):
                number += 1
                steps.append(Step(number, rule, now, fleet, uid))
            if read > self.state.fleet:
                number += 1
                steps.append(Step(number, None, now, read=read))
            if not steps:
                return True
            written = number <= MOST_NUMBERS
            if written:
                try:
                    await asyncio.to_thread(self._writer.append, steps)
                except OSError as error:
                    self._log.error("a purge cannot be written; everything stored is purged instead", error=str(error))
                    written = False
            if written:
                for step in steps:
                    self._apply(step)
                if rules := [step.rule for step in steps if step.rule is not None]:
                    self._announce(rules, self.generation)
            else:
                owed = [step.rule for step in steps if step.rule is not None and not step.fleet]
                await asyncio.to_thread(self._begin_anew, lost=True, owed=owed)
                self._announce(None, self.generation)
            try:
                async with asyncio.timeout(_ROOM_FOR_WORKERS):
                    await self._tell(self.generation)
            except TimeoutError:
                pass
            finally:
                self._board.purges = self.generation
            if self._writer.size > _COMPACT_FROM + 2 * self._compacted or len(self._rules) > MOST_RULES:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(self._compact)
            return written

    def _unknown(self, entries: Iterable[tuple[Rule | None, int, str]]) -> Iterator[tuple[Rule | None, int, str]]:
        """What of `entries` is new: a rule may come from whoever made it and out of the fleet's log."""
        for rule, fleet, uid in entries:
            if rule is not None and rule.uid not in self.state.uids:
                yield rule, fleet, ""
            elif fleet and (name := uid if rule is None else rule.uid) in self.state.owed:
                yield None, fleet, name

    def _apply(self, step: Step) -> None:
        self.state.apply(step)
        self._remember(step)

    def _sound(self) -> bool:
        """Whether workers can read what has been written."""
        try:
            self._reader.read()
        except (OSError, ValueError):
            return False
        return self._reader.offset == self._writer.size

    def _remember(self, step: Step) -> None:
        if step.rule is not None:
            self._rules[step.rule.uid] = step
        elif step.uid in self._rules:
            before = self._rules[step.uid]
            self._rules[step.uid] = msgspec.structs.replace(before, fleet=step.fleet)

    def _begin_anew(self, *, lost: bool, owed: Iterable[Rule] = ()) -> None:
        """Another incarnation; rules that the fleet has not heard of go with it."""
        rules = [*self.state.owed.values(), *owed]
        header = Header(
            secrets.randbits(INCARNATION_BITS - 1) | 1 << (INCARNATION_BITS - 1),
            shared_floor=NOTHING_SHARED if lost else 0,
        )
        self.state = PurgeState(header, self.keying)
        self._rules.clear()
        self.lost = lost
        self._apply(Step(1, None, self._wall_clock()))
        for rule in rules:
            self._apply(Step(self.state.number + 1, rule, self._wall_clock()))
        try:
            self._rewrite()
        except OSError as error:
            self._log.error("the log of purges cannot be written", error=str(error))
            # Nobody shall take the old one for whole.
            with contextlib.suppress(OSError):
                self._writer.remove()
        self._board.purges = self.generation

    def _compact(self) -> None:
        """Leave out what a newer rule covers, and what is older than anything stored. Raises `OSError`."""
        kept: dict[tuple[str, str, bool], Step] = {}
        floor, shared_floor = self.state.floor, self.state.shared_floor
        oldest = self._wall_clock() - RETENTION
        surplus = len(self._rules) - MOST_RULES // 2 if len(self._rules) > MOST_RULES else 0
        for place, step in enumerate(self._rules.values()):
            rule = step.rule
            if rule is None:
                continue
            owed = self._shared and rule.uid in self.state.owed
            if (step.at < oldest or place < surplus) and not owed:
                floor, shared_floor = max(floor, step.number), max(shared_floor, step.fleet)
                continue
            key = (rule.uid if owed else rule.kind, rule.value, rule.soft)
            before = kept.pop(key, None)
            kept[key] = step if before is None else msgspec.structs.replace(step, fleet=max(step.fleet, before.fleet))
        self._rules = {step.rule.uid: step for step in kept.values() if step.rule is not None}
        self._rewrite(floor, shared_floor)

    def _rewrite(self, floor: int | None = None, shared_floor: int | None = None) -> None:
        """Write the whole log. Raises `OSError`."""
        state = self.state
        steps = sorted(self._rules.values(), key=lambda step: step.number)
        header = Header(
            state.incarnation,
            number=steps[0].number - 1 if steps else state.number - 1,
            floor=state.floor if floor is None else floor,
            fleet=state.fleet,
            shared_floor=state.shared_floor if shared_floor is None else shared_floor,
        )
        if not steps or steps[-1].number < state.number:
            # It says how far the numbers have come.
            steps.append(Step(state.number, None, self._wall_clock()))
        self._writer.replace(header, steps)
        self._compacted = self._writer.size
        rebuilt = PurgeState(header, self.keying)
        for step in steps:
            rebuilt.apply(step)
        self.state = rebuilt
