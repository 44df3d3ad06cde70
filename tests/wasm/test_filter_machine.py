"""Everything at once, in any order: requests, late and broken answers, drops, plans, time, a feed that lies.

What must hold is checked by the world at each step: nothing is answered that the model does not allow, what is handed
on is as it came, marks say the truth, nothing traps, nobody is answered twice. FILTER_HISTORIES says how many.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from hot_filter import Exchange, Manner, World
from hot_filter.plans import BUDGET
from hot_filter.requests import (
    FORGED,
    HOT_PATHS,
    answer_fields,
    bodies,
    hot_requests,
    lives,
    pieces,
    plain_requests,
    wild_pairs,
)
from hot_filter.world import Life
from meshcache.experiment.overlay import Overlay, Phase
from meshcache.policy.snapshot import Snapshot
from policy_texts import compiled, experiment_and_off, policies
from proxy_wasm import Pairs

Asked = tuple[str, str, str, list[tuple[str, str]]]
"""Method, host, path and fields."""
MOST_MEMORY = BUDGET * 11 // 10

EXPERIMENT = """
kind: CachePolicy
metadata: {name: q}
spec: {key: {headers: [accept-language]}}
---""" + experiment_and_off("q")
TEXTS = (
    policies(),
    policies(more=EXPERIMENT),
    policies(key="query: {include: [q]}"),
    policies(more=EXPERIMENT, key="host: false"),
)


def counting(snapshot: Snapshot, epoch: int) -> Snapshot:
    """The same with all experiments running."""
    return snapshot.with_overlays(
        {
            one.name: Overlay(one.name, one.spec_hash, Phase.RUNNING, (1,) * len(one.arms), epoch, counting=True)
            for one in snapshot.experiments
        },
        {},
    )


SNAPSHOTS = [counting(compiled(text), epoch) for epoch, text in enumerate(TEXTS)]

HISTORIES = int(os.environ.get("FILTER_HISTORIES", "10"))

quick = settings(max_examples=3 * HISTORIES, deadline=None, suppress_health_check=list(HealthCheck))


class FilterMachine(RuleBasedStateMachine):
    """Two workers at first, up to four."""

    module: Path

    @initialize(which=st.integers(0, len(SNAPSHOTS) - 1))
    def begin(self, which: int) -> None:
        self.world = World(self.module, SNAPSHOTS[which])
        for _ in range(2):
            self.world.add_worker()
        self.open: list[Exchange] = []

    def _took(self, exchange: Exchange) -> None:
        if exchange.reply is None:
            self.open.append(exchange)

    @rule(
        worker=st.integers(0, 3), asked=st.one_of(hot_requests(), hot_requests(), plain_requests()), end=st.booleans()
    )
    def request(self, worker: int, asked: Asked, end: bool) -> None:
        method, host, path, fields = asked
        end = end or method in ("GET", "HEAD")
        number = worker % len(self.world.envoy.workers)
        self._took(self.world.request(path, fields, method=method, authority=host, worker=number, end=end))

    @rule(
        worker=st.integers(0, 3),
        asked=st.lists(hot_requests(), min_size=2, max_size=6),
        life=lives(),
        answer=st.booleans(),
    )
    def traffic(self, worker: int, asked: list[Asked], life: Life, answer: bool) -> None:
        """Several requests that are much alike; what goes on is answered at once, or later."""
        number = worker % len(self.world.envoy.workers)
        for method, host, path, fields in asked:
            exchange = self.world.request(path, fields, method=method, authority=host, worker=number)
            if exchange.reply is None and answer:
                exchange.answer(life=life)
            else:
                self._took(exchange)

    @rule(worker=st.integers(0, 3), asked=hot_requests(), times=st.integers(2, 4))
    def again_and_again(self, worker: int, asked: Asked, times: int) -> None:
        """What is asked for becomes hot."""
        method, host, path, fields = asked
        number = worker % len(self.world.envoy.workers)
        for _ in range(times):
            exchange = self.world.request(path, fields, method=method, authority=host, worker=number)
            if exchange.reply is None:
                exchange.answer(life=Life())

    @rule(worker=st.integers(0, 3), path=st.sampled_from(HOT_PATHS), told=st.booleans())
    def change(self, worker: int, path: str, told: bool) -> None:
        """An unsafe request; then all workers are asked for what it has changed."""
        number = worker % len(self.world.envoy.workers)
        self.world.request(path, method="PATCH", worker=number, end=False).answer(drop=None if told else b"")
        self._look_everywhere()

    @rule(tag=st.sampled_from(("one", "two")))
    def purge_to_the_end(self, tag: str) -> None:
        """A purge; all workers acknowledge it, and then are asked."""
        self.world.drop_tag(tag)
        self.world.settle()
        self._look_everywhere()

    @rule(which=st.integers(0, len(SNAPSHOTS) - 1))
    def policies_change_to_the_end(self, which: int) -> None:
        """An edit; all workers take it over, and then are asked."""
        self.world.install(SNAPSHOTS[which])
        self.world.settle()
        self._look_everywhere()

    @rule(set_back=st.sampled_from((0.0, 0.0, 30.0)), seconds=st.integers(8, 12))
    def silence(self, set_back: float, seconds: int) -> None:
        """What is hot, and then a sidecar of which nobody hears anything."""
        self._look_everywhere(answer=True)
        self.world.envoy.set_clock(-set_back)
        for _ in range(seconds):
            self.world.envoy.advance(1)
            self.world.feed.answer(Manner.GONE)
        self._look_everywhere()

    @rule(worker=st.integers(0, 3), path=st.sampled_from(HOT_PATHS), unsafe=st.booleans(), chunks=pieces())
    def overtaken(self, worker: int, path: str, unsafe: bool, chunks: list[int]) -> None:
        """What is on its way when something is dropped, by a purge or through another worker."""
        count = len(self.world.envoy.workers)
        under_way = self.world.request(path, worker=worker % count)
        life = Life(fresh=3600, tags=("one",))
        if under_way.reply is None and chunks:
            under_way.begin_answer(life=life)
        if unsafe:
            self.world.request(path, method="PUT", worker=(worker + 1) % count).answer()
        else:
            self.world.drop_tag("one")
            self.world.settle()
        if under_way.reply is None:
            if chunks:
                under_way.end_answer(chunks=chunks)
            else:
                under_way.answer(life=life)
        self._look_everywhere()

    def _look_everywhere(self, *, answer: bool = False) -> None:
        for number in range(len(self.world.envoy.workers)):
            for path in HOT_PATHS:
                exchange = self.world.request(path, worker=number)
                if answer and exchange.reply is None:
                    exchange.answer(life=Life(fresh=3600))
                else:
                    self._took(exchange)

    @rule(worker=st.integers(0, 3), asked=hot_requests(), forged=st.sampled_from(FORGED))
    def forged_request(self, worker: int, asked: Asked, forged: tuple[str, str]) -> None:
        method, host, path, fields = asked
        number = worker % len(self.world.envoy.workers)
        self._took(self.world.request(path, [*fields, forged], method=method, authority=host, worker=number))

    @rule(
        which=st.integers(0, 9),
        status=st.sampled_from((200, 200, 200, 204, 301, 404, 500)),
        body=bodies(),
        fields=answer_fields(),
        life=st.one_of(st.none(), lives()),
        chunks=pieces(),
        trailers=st.sampled_from((None, None, [], [(b"x-sum", b"1")])),
        cut=st.sampled_from((False, False, False, True)),
        length=st.sampled_from((-1, -1, -1, None, 0, 3)),
    )
    def answer(self, which: int, **answer: Any) -> None:
        if self.open:
            self.open.pop(which % len(self.open)).answer(**answer)

    @rule(which=st.integers(0, 9), forged=st.sampled_from(FORGED))
    def forged_answer(self, which: int, forged: tuple[str, str]) -> None:
        if self.open:
            name, value = forged[0], forged[1].encode()
            exchange = self.open.pop(which % len(self.open))
            exchange.answer(keep=value if "keep" in name else None, drop=value if "drop" in name else None)

    @rule(which=st.integers(0, 9))
    def leave(self, which: int) -> None:
        if self.open:
            self.open.pop(which % len(self.open)).abandon()

    @rule(seconds=st.sampled_from((-30.0, -0.5, 0.5, 30.0)))
    def clock_is_set(self, seconds: float) -> None:
        self.world.envoy.set_clock(seconds)

    @rule(seconds=st.sampled_from((0.0, 0.1, 0.5, 0.9, 1.0, 3.0, 9.0, 11.0, 100.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.envoy.advance(seconds)

    @rule(manner=st.sampled_from((Manner.WELL, Manner.WELL, Manner.WELL, *Manner)), worker=st.integers(0, 3))
    def feed_answers(self, manner: Manner, worker: int) -> None:
        self.world.feed.answer(manner, only=worker % len(self.world.envoy.workers))

    @rule()
    def all_is_told(self) -> None:
        self.world.settle()

    @rule(tag=st.sampled_from(("one", "two", "three")))
    def purge(self, tag: str) -> None:
        self.world.drop_tag(tag)

    @rule()
    def purge_everything(self) -> None:
        self.world.drop(None)

    @rule(which=st.integers(0, len(SNAPSHOTS) - 1))
    def policies_change(self, which: int) -> None:
        self.world.install(SNAPSHOTS[which])

    @rule()
    def worker_joins(self) -> None:
        if len(self.world.envoy.workers) < 4:
            self.world.add_worker(ready=False)

    @rule(worker=st.integers(0, 3))
    def worker_is_loaded_anew(self, worker: int) -> None:
        number = worker % len(self.world.envoy.workers)
        self.open = [exchange for exchange in self.open if exchange.worker != number]
        self.world.reload(number)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.check_counts()

    @invariant()
    def memory_is_bounded(self) -> None:
        if hasattr(self, "world"):
            for worker in self.world.envoy.workers:
                assert worker.memory_bytes <= MOST_MEMORY, worker.memory_bytes


@pytest.mark.slow
def test_any_history(filter_module: Path) -> None:
    FilterMachine.module = filter_module
    run_state_machine_as_test(FilterMachine, settings=settings(quick, max_examples=HISTORIES, stateful_step_count=40))


@given(lists=st.lists(wild_pairs(), min_size=1, max_size=5), end=st.booleans())
@quick
def test_any_list_of_fields(make_world: Callable[..., World], lists: list[Pairs], end: bool) -> None:
    world = make_world()
    world.add_worker()
    world.get("/a")
    for pairs in lists:
        exchange = world.send(pairs, end=end)
        if exchange.reply is None:
            exchange.answer()
    assert world.get("/c").reply is None
    assert world.get("/c").reply is not None
