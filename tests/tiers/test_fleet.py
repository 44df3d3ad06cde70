"""Leases among pods, on a real server that goes away, hangs and loses what it held."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tier_helpers import CountingHooks, key

from fixtures_valkey import LocalValkey
from meshcache.tiers import fleet as module
from meshcache.tiers.fleet import RedisLeases
from meshcache.tiers.redis import RedisTier

pytestmark = pytest.mark.e2e

Make = Callable[[], RedisLeases]


@pytest.fixture
def hooks() -> CountingHooks:
    return CountingHooks()


@pytest.fixture
async def make(valkey: LocalValkey, hooks: CountingHooks) -> AsyncIterator[Make]:
    """Makes the leases of one more pod."""
    made: list[tuple[RedisTier, RedisLeases]] = []
    tasks: set[asyncio.Task[None]] = set()

    def one(deadline: float = 5.0) -> RedisLeases:
        tier = RedisTier(valkey.url, socket_timeout=deadline + 0.1)
        leases = RedisLeases(tier.send, hooks, lambda work: tasks.add(asyncio.ensure_future(work)), deadline=deadline)
        made.append((tier, leases))
        return leases

    yield one
    for tier, leases in made:
        await leases.close()
        await tier.close()
    await asyncio.gather(*tasks)


async def took(work: Awaitable[object]) -> float:
    began = time.monotonic()
    await work
    return time.monotonic() - began


async def test_one_pod_has_it_until_it_gives_it_back(make: Make) -> None:
    one, two = make(), make()
    lease = await one.acquire(key(1), 30)
    assert lease is not None
    assert await two.acquire(key(1), 30) is None
    assert await one.acquire(key(1), 30) is None, "nor twice"
    assert await two.acquire(key(2), 30) is not None
    await one.release(lease)
    assert await two.acquire(key(1), 30) is not None
    await one.release(lease)
    assert await one.acquire(key(1), 30) is None, "what others have taken since is left alone"


async def test_of_many_that_want_it_one_gets_it(make: Make) -> None:
    pods = [make() for _ in range(5)]
    for number in range(20):
        got = await asyncio.gather(*(pod.acquire(key(number), 30) for pod in pods for _ in range(3)))
        assert sum(lease is not None for lease in got) == 1


async def test_it_ends_with_its_time(make: Make) -> None:
    one, two = make(), make()
    assert await one.acquire(key(1), 0.15) is not None
    await asyncio.sleep(0.2)
    assert await two.acquire(key(1), 30) is not None


async def test_it_is_renewed_while_it_is_held(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIFE", 1.0)
    monkeypatch.setattr(module, "_RENEW", 0.1)
    one, two = make(), make()
    lease = await one.acquire(key(1), 2.0)
    until = time.monotonic() + 1.3
    while time.monotonic() < until:
        assert await two.acquire(key(1), 30) is None
        await asyncio.sleep(0.05)
    assert lease is not None
    await asyncio.sleep(1.5)
    assert await two.acquire(key(1), 30) is not None, "and not for longer than was asked"


async def test_that_of_a_dead_pod_is_soon_free(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIFE", 0.3)
    one, two = make(), make()
    assert await one.acquire(key(1), 60) is not None
    await one.close()
    await asyncio.sleep(0.4)
    assert await two.acquire(key(1), 60) is not None


async def test_what_is_not_for_sharing_is_told(make: Make, valkey: LocalValkey) -> None:
    one, two = make(), make()
    lease = await one.acquire(key(1), 30)
    assert lease is not None
    await one.release(lease, shun=1.0)
    told = await two.acquire(key(1), 30)
    assert told is not None
    assert told.shunned
    await two.release(told)
    again = await two.acquire(key(1), 30)
    assert again is not None
    assert again.shunned
    await asyncio.sleep(1.1)
    free = await two.acquire(key(1), 30)
    assert free is not None
    assert not free.shunned


async def test_who_gets_it_next_is_told_of_an_answer(make: Make) -> None:
    one, two = make(), make()
    lease = await one.acquire(key(1), 30)
    assert lease is not None
    assert lease.answered == math.inf
    await one.release(lease, answered=True)
    await asyncio.sleep(0.2)
    told = await two.acquire(key(1), 30)
    assert told is not None
    assert 0.15 < told.answered < 2.0
    await two.release(told)
    again = await one.acquire(key(1), 30)
    assert again is not None
    assert told.answered <= again.answered < 4.0, "what was given back without an answer says nothing of one"
    other = await one.acquire(key(2), 30)
    assert other is not None
    assert other.answered == math.inf


async def test_an_answer_is_told_for_a_while(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MARKED", 0.2)
    one, two = make(), make()
    lease = await one.acquire(key(1), 30)
    assert lease is not None
    await one.release(lease, answered=True)
    await asyncio.sleep(0.3)
    later = await two.acquire(key(1), 30)
    assert later is not None
    assert later.answered == math.inf


async def test_who_has_lost_it_tells_of_no_answer(make: Make, valkey: LocalValkey) -> None:
    one, two = make(), make()
    lease = await one.acquire(key(1), 30)
    assert lease is not None
    with valkey.client() as client:
        client.flushall()
    assert await two.acquire(key(1), 30) is not None
    await one.release(lease, answered=True)
    with valkey.client() as client:
        assert client.keys("mc1:d:*") == []


async def test_a_full_store_loses_the_lease_all_the_same(make: Make, valkey: LocalValkey) -> None:
    one, two = make(), make()
    lease = await one.acquire(key(1), 30)
    assert lease is not None
    with valkey.client() as client:
        client.config_set("maxmemory", 1)
        try:
            await one.release(lease, answered=True)
            assert client.keys("mc1:l:*") == []
        finally:
            client.config_set("maxmemory", 0)
    free = await two.acquire(key(1), 30)
    assert free is not None
    assert free.token


async def test_releases_that_know_no_marks(make: Make, valkey: LocalValkey) -> None:
    """What the first release of this scheme sends: it neither waits for a mark nor makes one."""
    new = make()
    lease = await new.acquire(key(1), 30)
    assert lease is not None
    name = "mc1:l:" + key(1).hex()
    with valkey.client() as client:
        assert client.set(name, b"old", nx=True, px=3000) is None
        await new.release(lease, answered=True)
        assert client.set(name, b"old", nx=True, px=3000)
        assert await new.acquire(key(1), 30) is None
        client.eval(
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end", 1, name, b"old"
        )
    assert await new.acquire(key(1), 30) is not None


async def test_everything_expires(make: Make, valkey: LocalValkey) -> None:
    pod = make()
    lease = await pod.acquire(key(1), 30)
    assert lease is not None
    await pod.acquire(key(2), 30)
    await pod.release(lease, shun=30, answered=True)
    with valkey.client() as client:
        names = client.keys("*")
        assert len(names) == 3
        assert all(0 < client.pttl(name) <= 30_000 for name in names)


async def test_a_cancelled_request_leaves_nothing_behind(make: Make) -> None:
    one, two = make(), make()
    await one.acquire(key(99), 30)  # connected
    for number in range(10):
        task = asyncio.ensure_future(one.acquire(key(number), 30))
        for _ in range(number):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            began = time.monotonic()
            while await two.acquire(key(number), 30) is None:
                assert time.monotonic() - began < module.LIFE / 2, "given back, not run out"
                await asyncio.sleep(0.01)


async def test_a_store_that_is_gone_grants_at_once(make: Make, valkey: LocalValkey, hooks: CountingHooks) -> None:
    pod, other = make(), make()
    valkey.kill()
    for _ in range(20):
        assert await pod.acquire(key(1), 30) is not None
        assert await other.acquire(key(1), 30) is not None
    assert hooks.errors["warm", "unreachable"] <= 10, "the breaker has opened"
    assert await took(pod.acquire(key(1), 30)) < 4.0, "not the five seconds of its deadline"
    lease = await pod.acquire(key(1), 30)
    assert lease is not None
    await pod.release(lease)


async def test_a_store_that_hangs_is_waited_for_no_longer_than_the_deadline(
    make: Make, valkey: LocalValkey, hooks: CountingHooks
) -> None:
    pod = make(1.0)
    await pod.acquire(key(1), 30)
    valkey.freeze()
    assert 0.9 < await took(pod.acquire(key(2), 30)) < 10.0
    for _ in range(4):
        await pod.acquire(key(2), 30)
    assert await took(pod.acquire(key(2), 30)) < 0.9, "the breaker has opened"
    assert hooks.errors["warm", "timeout"] >= 4


@pytest.mark.parametrize(("allowed", "least"), [(1.0, 0.9), (0.001, 0.8 * module.LEAST_DEADLINE)])
async def test_a_store_may_be_as_slow_as_policies_let_it_be(
    make: Make, valkey: LocalValkey, allowed: float, least: float
) -> None:
    pod = make()
    pod.allow(allowed)
    await pod.acquire(key(1), 30)
    valkey.freeze()
    assert least < await took(pod.acquire(key(2), 30)) < 4.5, "not the five seconds of its own deadline"


async def test_a_foreign_key_in_its_place(make: Make, valkey: LocalValkey) -> None:
    with valkey.client() as client:
        client.lpush("mc1:l:" + key(1).hex(), "x")
    lease = await make().acquire(key(1), 30)
    assert lease is not None
    assert not lease.shunned
