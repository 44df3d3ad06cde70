"""The built filter tells what it has answered, each request once: under new plans, without a sidecar, late and lost."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from hot_filter import Manner, World
from hot_filter.world import Life
from meshcache.experiment.overlay import Overlay, Phase
from meshcache.policy.snapshot import Snapshot
from policy_texts import compiled, experiment_and_off, policies

EXPERIMENT = experiment_and_off()
HISTORIES = int(os.environ.get("FILTER_HISTORIES", "8"))
STEPS = 250
PATHS = ("/a", "/tested/a", "/tested/b", "/tested/b", "/off/a")


def running(epoch: int) -> Snapshot:
    """The policies with the experiment running."""
    snapshot = compiled(policies(more=EXPERIMENT))
    (one,) = snapshot.experiments
    return snapshot.with_overlays({"e": Overlay("e", one.spec_hash, Phase.RUNNING, (1, 1), epoch, counting=True)})


SNAPSHOTS = [compiled(policies(more=EXPERIMENT)), running(1), running(2)]


def live(world: World, random: Random) -> None:
    for _ in range(STEPS):
        number = random.randrange(2)
        match random.choices(("ask", "time", "feed", "plan", "reload"), (80, 20, 15, 2, 0.5))[0]:
            case "ask":
                headers = [("x-user-id", f"u{random.randrange(6)}")] if random.random() < 0.8 else []
                if random.random() < 0.1:
                    headers.append(("if-none-match", "*"))
                exchange = world.request(random.choice(PATHS), headers, worker=number)
                if exchange.reply is None:
                    exchange.answer(life=Life(fresh=random.choice((0.5, 60.0)), stale=random.choice((0.0, 20.0))))
            case "time":
                world.envoy.advance(random.choice((0.1, 0.3, 0.6, 3.0)))
            case "feed":
                world.feed.answer(random.choice((Manner.WELL, Manner.WELL, Manner.ERROR, Manner.GONE)), only=number)
            case "plan":
                world.install(random.choice(SNAPSHOTS))
            case _:
                world.reload(number)


@pytest.mark.slow
def test_what_is_answered_is_told_once(filter_module: Path) -> None:
    kinds: set[object] = set()
    for seed in range(HISTORIES):
        world = World(filter_module, SNAPSHOTS[1])
        for _ in range(2):
            world.add_worker()
        live(world, Random(seed))
        world.check_counts()
        kinds |= {place[0] for place in world.tally.seen}
    assert kinds == {"hit", "exposed", "passed", "not modified"}


def test_how_many_answers_came_and_had_to_go_is_told_with_each_poll(filter_module: Path) -> None:
    world = World(filter_module, SNAPSHOTS[0])
    world.add_worker()

    def told() -> list[int]:
        world.settle()
        world.settle()
        return [int(world.feed.said[0][name]) for name in ("fills", "evictions", "entries")]

    assert told() == [0, 0, 0]
    for number in range(20):
        world.request(f"/{number}").answer(bytes(60_000), life=Life())
    assert told() == [20, 0, 20]
    for number in range(20, 200):
        world.request(f"/{number}").answer(bytes(60_000), life=Life())
    fills, evictions, entries = told()
    assert fills == 200
    assert 100 < evictions == fills - entries
