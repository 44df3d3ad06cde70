"""One tier with its deadlines, breakers and queue, over a tier that does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from tier_helpers import CountingHooks, Troubled, key

from meshcache.decisions import TierName
from meshcache.tiers.guarded import GuardedTier, Write

WARM = TierName.WARM


def guarded(hooks: CountingHooks, tier: Troubled | None = None) -> GuardedTier:
    return GuardedTier(tier or Troubled(WARM), hooks, write_deadline=0.1, first_pause=0.01)


async def made(seconds: float, outcome: bool) -> bool:
    await asyncio.sleep(seconds)
    return outcome


async def failing() -> bool:
    raise OSError("broken")


@pytest.mark.slow
async def test_a_write_that_stalls_is_late_alone() -> None:
    hooks = CountingHooks()
    tier = guarded(hooks)
    for number in range(40):
        tier.offer(Write(key(number), 1, partial(made, 60.0 if number % 4 == 0 else 0.0, True)))
    await tier.drain()
    assert hooks.errors == {(WARM, "timeout"): 10}
    assert not hooks.breakers, "the others were made"
    await tier.close()


async def test_writes_that_have_no_point_any_more_say_nothing_of_the_tier() -> None:
    hooks = CountingHooks()
    tier = guarded(hooks)
    for number in range(20):
        tier.offer(Write(key(number), 1, failing))
    await tier.drain()
    assert hooks.breakers == [(WARM, True)]
    await asyncio.sleep(0.02)
    tier.offer(Write(key(1), 1, partial(made, 0.0, False)))
    await tier.drain()
    assert hooks.breakers == [(WARM, True)], "the tier was not asked"
    tier.offer(Write(key(1), 1, partial(made, 0.0, True)))
    await tier.drain()
    assert hooks.breakers == [(WARM, True), (WARM, False)]
    await tier.close()


async def test_a_deletion_comes_after_the_write_that_is_under_way() -> None:
    hooks, troubled = CountingHooks(), Troubled(WARM)
    tier = guarded(hooks, troubled)
    done: list[int] = []

    async def slow() -> bool:
        await asyncio.sleep(0.05)
        done.append(troubled.calls)
        return True

    tier.offer(Write(key(1), 1, slow))
    await asyncio.sleep(0.02)
    assert tier.delete(key(1))
    await tier.drain()
    assert (done, troubled.calls) == ([0], 1)
    await tier.close()


async def test_closed_it_takes_nothing() -> None:
    hooks = CountingHooks()
    tier = guarded(hooks)
    await tier.close()
    assert not tier.delete(key(1))
    assert not hooks.errors


async def test_who_waits_for_a_key_hears_when_all_its_writes_are_done_with() -> None:
    tier = guarded(CountingHooks())
    told: list[str] = []
    tier.when_written(key(1), lambda: told.append("nothing to wait for"))
    assert told == ["nothing to wait for"]
    order: list[int] = []

    async def write(number: int) -> bool:
        order.append(number)
        return True

    for number in (1, 2, 3):
        tier.offer(Write(key(1), 1, partial(write, number)))
    tier.offer(Write(key(2), 1, partial(made, 0.05, True)))
    tier.when_written(key(1), lambda: told.append(f"after {order}"))
    tier.when_written(key(1), lambda: told.append("both"))
    await tier.drain()
    assert told[1:] == ["after [1, 2, 3]", "both"]
    await tier.close()


@pytest.mark.parametrize("how", ["fails", "stalls", "withdrawn", "refused", "closed"])
async def test_however_a_write_ends_who_waits_for_it_hears(how: str) -> None:
    troubled = Troubled(WARM)
    tier = guarded(CountingHooks(), troubled)
    if how == "refused":
        for _ in range(5):
            tier.offer(Write(key(9), 1, failing))
        await tier.drain()
    told: list[bool] = []
    runs: dict[str, Callable[[], Awaitable[bool]]] = {"fails": failing, "stalls": partial(made, 60.0, True)}
    tier.offer(Write(key(1), 1, runs.get(how) or partial(made, 0.0, True)))
    tier.when_written(key(1), lambda: told.append(True))
    if how == "withdrawn":
        tier.withdraw(key(1))
    if how == "closed":
        await tier.close()
    await tier.drain()
    assert told == [True]
    await tier.close()
