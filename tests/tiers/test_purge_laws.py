"""The law of purges, over random histories of two pods with two workers each on one shared store.

Whatever fills, purges, restarts and look-ups come in whatever order, and whichever worker sleeps meanwhile: what was
asked for before a purge that concerns it is not given out as fresh once the purge is known to the pod (on its board),
and never out of the shared store once the purge is in the fleet's log.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from purge_rig import Pod
from tier_helpers import entry, key, limits, resource, response

from meshcache.decisions import TierName
from meshcache.engine.epochs import Epochs
from meshcache.engine.purge_state import Header, Step
from meshcache.engine.purges import PurgeKind, Rule
from meshcache.engine.records import StoredResponse
from meshcache.tiers.base import TierRead
from meshcache.tiers.board import Board
from meshcache.tiers.memory import MemoryTier
from meshcache.tiers.purges import Purges
from meshcache.tiers.signing import Keyring
from meshcache.tiers.stack import TierStack

KEYRING = Keyring([b"k" * 32], b"s" * 32)
HOT, WARM = TierName.HOT, TierName.WARM
TAGS = ("t", "u")
NOW = 1000.0


class Store:
    """What pods share, in memory."""

    name = WARM
    on_board = False
    writes_at_once = 8

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.rules: list[tuple[int, Rule]] = []

    def absent(self, _key: bytes) -> bool:
        return False

    async def get(self, key: bytes, _resource: bytes) -> TierRead:
        return TierRead(self.values.get(key), b"f" * 8, self.rules[-1][0] if self.rules else 0)

    async def put(self, key: bytes, value: bytes, _ttl: float) -> None:
        self.values[key] = value

    async def delete(self, key: bytes) -> None:
        self.values.pop(key, None)

    async def invalidate(self, _resource: bytes) -> None:
        pass

    async def close(self) -> None:
        pass


@dataclass
class Purge:
    tag: str | None
    soft: bool
    time: int
    published: bool = False
    known: set[int] = field(default_factory=set)
    """Pods on whose board it is."""

    def concerns(self, tag: str, asked: int) -> bool:
        return asked < self.time and self.tag in (None, tag)


class Worker:
    def __init__(self, pod: Pod, store: Store) -> None:
        self.board = Board(pod.board.path, slots=1 << 16, lease_buckets=16)
        self.purges = Purges(self.board, pod.path, wall_clock=lambda: NOW)
        self.purges.load()
        self.stack = TierStack(MemoryTier(1 << 20), store, None, self.board, KEYRING, purges=self.purges)  # type: ignore[arg-type]

    async def close(self) -> None:
        await self.stack.close()
        self.board.close()


class History:
    def __init__(self, folder: Path) -> None:
        self.store = Store()
        self.pods = [Pod(self._folder(folder, name), incarnation=7 + name) for name in range(2)]
        self.read = [0, 0]
        self.workers = [Worker(self.pods[number // 2], self.store) for number in range(4)]
        self.time = 0
        self.purges: list[Purge] = []
        self.uids: dict[str, Purge] = {}
        self.fills: list[tuple[int, int, str, int, Epochs]] = []
        self.logged: list[set[str]] = [set(), set()]
        self.served = 0

    @staticmethod
    def _folder(folder: Path, name: int) -> Path:
        (folder / str(name)).mkdir()
        return folder / str(name)

    async def ask(self, worker: int, number: int) -> None:
        """A request goes to the origin."""
        self.time += 1
        found = await self.workers[worker].stack.find(key(number), resource(number), limits(), NOW)
        self.fills.append((worker, number, TAGS[number % 2], self.time, found.epochs))

    async def fill(self, _: int, number: int) -> None:
        """One of the answers comes, and is stored."""
        if not self.fills:
            return
        worker, number, tag, asked, epochs = self.fills.pop(number % len(self.fills))
        record = response(str(asked).encode(), tags=(tag,), fields=())
        made = entry(number, epochs, HOT, WARM, record=record, resource=resource(number), now=NOW)
        self.workers[worker].stack.store(made)
        await self.workers[worker].stack.drain(5)

    async def look(self, worker: int, number: int) -> None:
        """A request is answered from store, or not."""
        stack = self.workers[worker].stack
        hot = stack.hot(key(number), resource(number), limits(), NOW)
        if hot is not None:
            assert isinstance(hot.record, StoredResponse)
            self._served(worker // 2, hot.record, fresh=hot.stale_since is None, shared=False)
            return
        found = await stack.find(key(number), resource(number), limits(), NOW)
        if isinstance(found.record, StoredResponse):
            self._served(worker // 2, found.record, fresh=found.stale_since is None, shared=True)
            if found.stale_since is None:
                copy = entry(number, found.epochs, HOT, record=found.record, resource=resource(number), now=NOW)
                stack.promote(copy)

    def _served(self, pod: int, record: StoredResponse, *, fresh: bool, shared: bool) -> None:
        self.served += 1
        asked = int(record.body)
        for purge in self.purges:
            if purge.concerns(record.tags[0], asked) and (pod in purge.known or (shared and purge.published)):
                assert purge.soft, "a purged answer was given out"
                assert not fresh, "a stale answer was given out as fresh"

    async def purge(self, pod: int, number: int) -> None:
        """A purge is made in a pod: known to the fleet, or owed to it while its store is away."""
        self.time += 1
        made = Purge(tag=None if number % 5 == 4 else TAGS[number % 2], soft=number % 3 == 1, time=self.time)
        kind = PurgeKind.ALL if made.tag is None else PurgeKind.TAG
        rule = Rule(kind, made.tag or "", made.soft, NOW, f"uid {len(self.purges)}")
        self.purges.append(made)
        self.uids[rule.uid] = made
        fleet = 0 if number % 4 == 3 else self._publish(rule)
        made.published = bool(fleet)
        self._log(pod % 2, rule, fleet, board=number % 7 != 6)

    async def pay(self, pod: int, _: int) -> None:
        """A pod makes known what it owes to the fleet."""
        for rule in list(self._state(pod % 2)):
            made = self.uids[rule.uid]
            if not made.published:
                made.published = True
                self._step(pod % 2, Step(0, None, NOW, self._publish(rule), rule.uid))

    async def learn(self, pod: int, _: int) -> None:
        """A pod reads what is new in the fleet's log."""
        pod %= 2
        for fleet, rule in self.store.rules[self.read[pod] :]:
            if pod not in self.uids[rule.uid].known and rule.uid not in self.logged[pod]:
                self._log(pod, rule, fleet, read=fleet)
            else:
                self._step(pod, Step(0, None, NOW, read=fleet))
        self.read[pod] = len(self.store.rules)

    async def sync(self, worker: int, _: int) -> None:
        """A worker reads the log of its pod."""
        await self.workers[worker].purges.catch_up()

    async def restart(self, worker: int, _: int) -> None:
        await self.workers[worker].close()
        self.fills = [fill for fill in self.fills if fill[0] != worker]
        self.workers[worker] = Worker(self.pods[worker // 2], self.store)

    async def lose(self, pod: int, _: int) -> None:
        """The log of a pod is lost, and begun anew."""
        pod %= 2
        if any(not made.published for made in self.purges):
            return  # what was owed is lost with it
        found = self.pods[pod]
        found.incarnation += 2
        found.number = 0
        found.log.remove()
        found.log.replace(Header(found.incarnation), [])
        self.logged[pod].clear()
        self.read[pod] = 0
        for purge in self.purges:
            purge.known.add(pod)
        self._step(pod, Step(0, None, NOW))

    # -- parts -------------------------------------------------------------------------------------------------

    def _publish(self, rule: Rule) -> int:
        fleet = len(self.store.rules) + 1
        self.store.rules.append((fleet, rule))
        return fleet

    def _log(self, pod: int, rule: Rule, fleet: int, *, read: int = 0, board: bool = True) -> None:
        self.logged[pod].add(rule.uid)
        self._step(pod, Step(0, rule, NOW, fleet, read=read), board=board)

    def _step(self, pod: int, step: Step, *, board: bool = True) -> None:
        found = self.pods[pod]
        found.number += 1
        found.log.append([msgspec.structs.replace(step, number=found.number)])
        if board:
            found.publish()
            for uid in self.logged[pod]:
                self.uids[uid].known.add(pod)

    def _state(self, pod: int) -> Iterator[Rule]:
        for uid in self.logged[pod]:
            made = self.uids[uid]
            kind = PurgeKind.ALL if made.tag is None else PurgeKind.TAG
            yield Rule(kind, made.tag or "", made.soft, NOW, uid)

    async def close(self) -> None:
        for worker in self.workers:
            await worker.close()
        for pod in self.pods:
            pod.close()


_OPERATIONS = ["ask", "fill", "fill", "look", "look", "purge", "learn", "sync", "sync", "pay", "restart", "lose"]
_histories = st.lists(st.tuples(st.sampled_from(_OPERATIONS), st.integers(0, 3), st.integers(0, 34)), max_size=40)


@settings(deadline=None, max_examples=150)
@given(_histories)
# A rule of this pod's own is in the fleet's log behind one that it has not read.
@example([("ask", 0, 0), ("fill", 0, 0), ("purge", 0, 0), ("purge", 2, 1)])
# What another pod has written, and a rule that the fleet has not heard of.
@example([("ask", 2, 1), ("fill", 0, 0), ("purge", 0, 3)])
# A copy in memory of what is purged softly below.
@example([("ask", 0, 0), ("fill", 0, 0), ("purge", 0, 10), ("sync", 1, 0), ("look", 1, 0), ("look", 1, 0)])
def test_what_was_asked_for_before_a_purge_is_not_given_out_after_it(steps: list[tuple[str, int, int]]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            history = History(Path(folder))
            try:
                for operation, where, number in steps:
                    if operation in ("ask", "look"):
                        number %= 2
                    await getattr(history, operation)(where, number)
                for at_last in (False, True):
                    for worker in range(4):
                        if at_last:
                            await history.sync(worker, 0)
                        for number in range(2):
                            await history.look(worker, number)
            finally:
                await history.close()

    # What these histories are about is no crash of the machine, and each sync would wait for the disk.
    with patch.object(os, "fsync"):
        asyncio.run(run())


async def test_the_histories_do_give_out_answers(tmp_path: Path) -> None:
    history = History(tmp_path)
    for number in range(4):
        await history.ask(0, number)
    for _ in range(4):
        await history.fill(0, 0)
    await history.purge(0, 0)
    for worker in range(4):
        await history.learn(worker, 0)
        await history.sync(worker, 0)
    for worker in range(4):
        for number in range(4):
            await history.look(worker, number)
    assert history.served >= 4
    await history.close()
