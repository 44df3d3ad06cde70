"""How a pod keeps up with the rules that other pods make, and they with its own, through the store that they share."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING, Final

from meshcache.engine.purges import PurgeKind, Rule
from meshcache.process import raise_if_cancelled
from meshcache.tiers.base import TierError
from meshcache.tiers.fleet_log import PodState, Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from structlog.typing import FilteringBoundLogger

    from meshcache.extproc.purge_book import PurgeBook
    from meshcache.tiers.fleet_log import FleetLog

PUBLISH_PATIENCE: Final = 0.3
"""Seconds that a purge waits for the store before its rules are owed to the fleet."""
BEAT: Final = 0.5
"""Seconds between two signs of life."""
SILENT: Final = 3.0
"""Seconds after which a pod that gives none is named as silent."""
TRIM_EVERY: Final = 3600.0
_REPAIR_SECONDS: Final = 5.0
_LONGEST_PAUSE: Final = 2.0
_ASK_PATIENCE: Final = 0.3


class FleetFollower:
    """First `run` in a task; `close` at the end. Belongs to one event loop."""

    def __init__(
        self,
        fleet: FleetLog,
        book: PurgeBook,
        log: FilteringBoundLogger,
        *,
        pod: str,
        name: str,
        where: str,
        waiting: Callable[[], Sequence[str]],
        keeps: Callable[[], float],
        learned: Callable[[Sequence[Rule]], None],
    ) -> None:
        """`waiting` names the workers that have not applied the newest rule; `keeps` is as in `PodState`.

        `learned` is told of rules that other pods have made, once they are in effect here.
        """
        self._fleet = fleet
        self._book = book
        self._log = log
        self._pod = pod
        self._name = name
        self._where = where
        self._waiting = waiting
        self._keeps = keeps
        self._learned = learned
        self._connected = False
        self._announced: tuple[int, tuple[str, ...]] | None = None
        self._announced_at = 0.0
        self._trimmed_at = time.monotonic()
        self._poked = asyncio.Event()
        self._others: dict[str, tuple[PodState, float]] = {}
        """The other pods as they were last heard of, and when that was (monotonic seconds)."""

    @property
    def connected(self) -> bool:
        """Whether the store answers, and all its rules are known."""
        return self._connected

    def poke(self) -> None:
        """Something has changed that the other pods wait for."""
        self._poked.set()

    async def run(self) -> None:
        """Follow the log until cancelled. Troubles of the store are waited out."""
        pause = 0.1
        beats = asyncio.create_task(self._beat())
        try:
            while True:
                try:
                    await self._begin()
                    pause = 0.1
                    while True:
                        await self._take(await self._fleet.read(self._book.state.fleet, BEAT))
                        await self._look()
                        raise_if_cancelled()
                except TierError as error:
                    self._lose_touch(error)
                except Exception as error:
                    # Whatever it is, who follows no more would hold up every purge for good.
                    self._log.error("following the fleet's purges failed", error=error, exc_info=True)
                    self._connected = False
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  spreads load, hides nothing
                pause = min(_LONGEST_PAUSE, pause * 2)
        finally:
            beats.cancel()
            await asyncio.gather(beats, return_exceptions=True)

    async def leave(self) -> None:
        """Sign off: this pod answers nothing any more."""
        try:
            async with asyncio.timeout(_ASK_PATIENCE):
                await self._fleet.leave(self._name)
        except (TierError, TimeoutError):
            pass

    async def publish(self, rules: Sequence[Rule]) -> list[int]:
        """The generations of `rules` in the fleet's log; zeros when the store is away: then they are owed."""
        if not self._connected:
            return [0] * len(rules)
        try:
            async with asyncio.timeout(PUBLISH_PATIENCE):
                return await self._fleet.publish(rules)
        except (TierError, TimeoutError):
            # Some of it may be there all the same: whoever reads the log knows a rule by its uid.
            return [0] * len(rules)

    async def standing(self, uids: Collection[str]) -> tuple[list[str], list[str]]:
        """The pods that have applied the rules `uids`, and who has not: pods, their workers, or the store itself."""
        store = f"store {self._where}"
        if any(uid in self._book.state.owed for uid in uids):
            return [], [store]
        steps = [self._book.known.get(uid) for uid in uids]
        newest = max((step.fleet for step in steps if step is not None), default=0)
        try:
            async with asyncio.timeout(_ASK_PATIENCE):
                there = await self._look_around()
        except (TierError, TimeoutError):
            return [], [store]
        acknowledged: list[str] = []
        pending: list[str] = []
        for pod, (state, heard) in sorted(self._others.items()):
            silent = time.monotonic() - heard
            if pod in there and state.applied >= newest:
                acknowledged.append(state.name)
            elif state.waiting and silent < SILENT:
                pending += [f"{state.name}/{worker}" for worker in state.waiting]
            else:
                pending.append(state.name if silent < SILENT else f"{state.name} (silent for {silent:.0f} s)")
        return acknowledged, pending

    # -- parts -------------------------------------------------------------------------------------------------

    async def _look_around(self) -> set[str]:
        """Learn how the other pods stand; the ids of those that the store knows.

        One that the store knows no more, and that has not said that it leaves, was lost by the store: it may serve
        for as long as it has said that it might.
        """
        now = time.monotonic()
        there = await self._fleet.pods()
        for pod, (state, silent) in there.items():
            if state.left or pod == self._pod:
                self._others.pop(pod, None)
            else:
                self._others[pod] = (state, now - silent)
        for pod, (state, heard) in list(self._others.items()):
            if now - heard > state.keeps:
                del self._others[pod]
        return set(there)

    async def _begin(self) -> None:
        """Find out what was missed, tell what was made meanwhile."""
        state = self._book.state
        standing = await self._fleet.standing(state.fleet)
        if standing.floor > state.fleet and len(state):
            await self._book.give_up("the store has dropped rules before they were read here")
            state = self._book.state
        await self._mend(standing)
        while news := await self._fleet.read(self._book.state.fleet, 0.001):
            await self._take(news)
        if self._book.lost:
            # Only what is written from here on can be judged.
            await self._fleet.publish([self._lost_rule(self._pod)])
            self._book.lost = False
            await self._take(await self._fleet.read(self._book.state.fleet, 0.05))
        owed = list(self._book.state.owed.values())
        if owed:
            for rule, generation in zip(owed, await self._fleet.publish(owed), strict=True):
                await self._book.published(rule.uid, generation)
            self._log.info("purges owed to the fleet have been made known", rules=len(owed))
        if not self._connected:
            self._log.info("following the fleet's purges", store=self._where)
        self._connected = True
        self.poke()

    async def _look(self) -> None:
        """See whether the log is still the one that was read."""
        state = self._book.state
        standing = await self._fleet.standing(state.fleet)
        if standing.newest is None or (state.fleet and not standing.has and standing.floor < state.fleet):
            self._connected = False
            await self._begin()
        if state.owed:
            await self._begin()
        if time.monotonic() - self._trimmed_at > TRIM_EVERY:
            self._trimmed_at = time.monotonic()
            await self._fleet.trim()

    async def _mend(self, standing: Standing) -> None:
        """Publish again what the store has lost: it may have come back with older data, or empty."""
        state = self._book.state
        lacking = bool(state.fleet) and not standing.has and standing.floor < state.fleet
        if not lacking and standing.newest is not None:
            return
        if not await self._fleet.may_repair(_REPAIR_SECONDS):
            raise TierError("another pod is mending the log of purges")
        there = await self._fleet.everything()
        uids = {rule.uid for _, rule in there if rule is not None}
        missing = [
            step.rule
            for step in self._book.known.values()
            if step.rule is not None and step.fleet and step.rule.uid not in uids
        ]
        if standing.newest is None and there:
            await self._fleet.name_newest(there[-1][0])
        elif standing.newest is None:
            # Nobody knows what was purged of that which may still be there.
            missing.insert(0, self._lost_rule(""))
        elif not missing:
            # What is lost is covered by other rules. This one concerns nobody; it is there to be read up to.
            missing.append(self._lost_rule("nobody"))
        if missing:
            await self._fleet.publish(missing)
            if state.fleet:
                self._log.warning("the store had lost purges; they have been made known again", rules=len(missing))
            else:
                # As far as this pod knows there never were any: it may be the first one.
                self._log.info("the log of the fleet's purges begins")

    async def _take(self, news: Sequence[tuple[int, Rule | None]]) -> None:
        """Put rules of other pods in effect here."""
        if not news:
            return
        known = self._book.state.uids
        fresh: list[tuple[Rule, int]] = []
        for generation, rule in news:
            if rule is None:
                # Of a newer release. Nobody knows what it means but that something is dead.
                fresh.append((Rule(PurgeKind.ALL, "", False, time.time(), f"unread {generation}"), generation))
            elif rule.kind is not PurgeKind.LOST or rule.value in ("", self._pod):
                fresh.append((rule, generation))
        learned = [rule for rule, _ in fresh if rule.uid not in known]
        await self._book.add(fresh, read=news[-1][0])
        if learned:
            self._learned(learned)

    async def _beat(self) -> None:
        while True:
            # Before anything is looked at: what changes from here on is for the next round.
            self._poked.clear()
            state = self._state()
            due = time.monotonic() - self._announced_at >= BEAT
            if self._connected and (due or self._announced != (state.applied, state.waiting)):
                try:
                    async with asyncio.timeout(_ASK_PATIENCE):
                        await self._fleet.announce(state)
                        await self._look_around()
                    self._announced = (state.applied, state.waiting)
                except (TierError, TimeoutError):
                    self._announced = None
                self._announced_at = time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT):
                    await self._poked.wait()

    def _state(self) -> PodState:
        waiting = tuple(self._waiting())
        applied = self._book.state.fleet
        if waiting:
            applied = min(applied, self._announced[0] if self._announced is not None else 0)
        return PodState(self._name, applied, waiting, self._keeps())

    def _lost_rule(self, pod: str) -> Rule:
        return Rule(PurgeKind.LOST, pod, False, time.time(), f"lost {pod} {random.getrandbits(64):x}")

    def _lose_touch(self, error: TierError) -> None:
        if self._connected:
            self._log.warning("the fleet's purges cannot be followed", store=self._where, error=str(error))
        self._connected = False
