"""The log of purge rules that pods share, on a real Valkey."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from meshcache.engine.purges import PurgeKind, Rule
from meshcache.tiers import fleet_log
from meshcache.tiers.base import TierError
from meshcache.tiers.fleet_log import FleetLog, PodState
from meshcache.tiers.redis import RedisTier

pytestmark = pytest.mark.e2e


def rule(value: str) -> Rule:
    return Rule(PurgeKind.TAG, value, False, 1.0, f"uid of {value}")


@pytest_asyncio.fixture
async def tier(valkey) -> AsyncIterator[RedisTier]:
    made = RedisTier(valkey.unix_url)
    yield made
    await made.close()


@pytest.fixture
def log(tier) -> FleetLog:
    return FleetLog(tier.send, "pod-a")


async def test_rules_are_read_in_the_order_of_their_generations(log, tier):
    assert await log.read(0, 0.01) == []
    first, second = await log.publish([rule("t"), rule("u")])
    assert first < second < 1 << 63
    assert await log.read(0, 0.01) == await log.everything() == [(first, rule("t")), (second, rule("u"))]
    assert await log.read(first, 0.01) == [(second, rule("u"))]
    await tier.get(b"k" * 32, b"r" * 16)  # makes the words of the resource
    assert (await tier.get(b"k" * 32, b"r" * 16)).purges == second


async def test_a_reader_waits_for_the_next(log):
    (first,) = await log.publish([rule("t")])
    waiting = asyncio.create_task(log.read(first, 0.9))
    await asyncio.sleep(0.05)
    (second,) = await log.publish([rule("u")])
    async with asyncio.timeout(10):
        assert await waiting == [(second, rule("u"))]


async def test_how_the_log_stands(log, valkey):
    standing = await log.standing(5 << 20)
    assert (standing.newest, standing.floor, standing.has) == (None, 0, False)
    first, second = await log.publish([rule("t"), rule("u")])
    standing = await log.standing(first)
    assert (standing.newest, standing.has) == (second, True)
    assert not (await log.standing(second + 1)).has
    with valkey.client() as client:
        client.delete("mc1:p:g")
    assert (await log.standing(second)).newest is None
    await log.name_newest(second)
    assert (await log.standing(second)).newest == second


async def test_old_rules_are_dropped_and_that_is_told(log, monkeypatch):
    await log.trim()
    first, second = await log.publish([rule("t"), rule("u")])
    await log.trim()
    assert len(await log.everything()) == 2
    await asyncio.sleep(1.1)
    (third,) = await log.publish([rule("v")])
    monkeypatch.setattr(fleet_log, "RETENTION", 1.0)
    await log.trim()
    assert await log.everything() == [(third, rule("v"))]
    standing = await log.standing(first)
    assert (standing.newest, standing.floor, standing.has) == (third, second, False)


async def test_rules_that_are_too_many_are_dropped(log, monkeypatch):
    generations = await log.publish([rule(str(number)) for number in range(10)])
    monkeypatch.setattr(fleet_log, "MOST_RULES", 4)
    await log.trim()
    assert [generation for generation, _ in await log.everything()] == generations[-4:]
    assert (await log.standing(0)).floor == generations[-5]


async def test_pods_are_told_of_until_they_can_hold_nothing_any_more(log, tier):
    other = FleetLog(tier.send, "pod-b")
    await log.announce(PodState("a", 7, (), 60.0))
    await other.announce(PodState("b", 5, ("worker-1",), 1.0))
    found = await log.pods()
    assert {pod: (state.name, state.applied, state.waiting) for pod, (state, _) in found.items()} == {
        "pod-a": ("a", 7, ()),
        "pod-b": ("b", 5, ("worker-1",)),
    }
    assert all(0 <= silent < 5 for _, silent in found.values())
    await asyncio.sleep(1.1)
    assert set(await log.pods()) == {"pod-a"}
    await log.leave("a")
    assert [state.left for state, _ in (await log.pods()).values()] == [True]


async def test_one_pod_repairs(log, tier):
    other = FleetLog(tier.send, "pod-b")
    assert await log.may_repair(5)
    assert await log.may_repair(5)
    assert not await other.may_repair(5)


async def test_what_is_no_rule_is_passed_over(log, valkey):
    (first,) = await log.publish([rule("t")])
    with valkey.client() as client:
        client.xadd("mc1:p:log", {"r": b"\xc1"})
        client.xadd("mc1:p:log", {"other": "x"})
        client.hset("mc1:p:pods", "x", b"\xc1")
    assert [found for _, found in await log.read(first, 0.01)] == [None, None]
    assert await log.pods() == {}


async def test_a_store_that_is_away(log, valkey):
    valkey.kill()
    with pytest.raises(TierError):
        await log.publish([rule("t")])
    with pytest.raises(TierError):
        await log.read(0, 0.01)
