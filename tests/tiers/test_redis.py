from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator

import pytest
from tier_helpers import epoch_of, key, resource

from fixtures_valkey import PASSWORD, LocalValkey
from meshcache.tiers import redis as module
from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.redis import RedisTier

pytestmark = pytest.mark.e2e
R = resource(1)


@pytest.fixture(params=["tcp", "unix"])
def url(request: pytest.FixtureRequest, valkey: LocalValkey) -> str:
    return valkey.url if request.param == "tcp" else valkey.unix_url


@pytest.fixture
async def tier(url: str) -> AsyncIterator[RedisTier]:
    tier = RedisTier(url, socket_timeout=5.0)
    yield tier
    await tier.close()


async def paid(tier: RedisTier) -> None:
    """Return when the store has heard of every invalidation."""
    async with asyncio.timeout(10):
        while tier.owed:  # noqa: ASYNC110  nothing to await from outside
            await asyncio.sleep(0.01)


async def test_put_get_replace_delete(tier: RedisTier) -> None:
    first = await tier.get(key(1), R)
    assert (first.value, len(first.epoch)) == (None, 8)
    await tier.put(key(1), b"one", 10.0)
    await tier.put(key(1), bytes(range(256)) * 4000, 10.0)
    read = await tier.get(key(1), R)
    assert (read.value, read.epoch) == (bytes(range(256)) * 4000, first.epoch)
    assert await epoch_of(tier, R) == first.epoch
    await tier.delete(key(1))
    await tier.delete(key(1))
    assert (await tier.get(key(1), R)).value is None


async def test_expiry(tier: RedisTier) -> None:
    await tier.get(key(1), R)
    await tier.put(key(1), b"one", 1.0)
    assert (await tier.get(key(1), R)).value == b"one"
    await asyncio.sleep(1.1)
    assert (await tier.get(key(1), R)).value is None
    await tier.put(key(1), b"one", 0.0)


async def test_key_names_are_prefixed_and_all_of_them_expire(tier: RedisTier, valkey: LocalValkey) -> None:
    await tier.get(key(1), R)
    await tier.put(key(1), b"one", 10.0)
    await tier.invalidate(resource(300))
    with valkey.client() as client:
        names = sorted(client.keys())
        assert names == sorted([b"mc1:e:0", b"mc1:e:1", b"mc1:g", b"mc1:i", b"mc1:k:" + key(1).hex().encode()])
        assert all(client.ttl(name) > 0 for name in names)


async def test_a_hit_is_one_round_trip(tier: RedisTier, valkey: LocalValkey) -> None:
    await tier.get(key(1), R)
    await tier.put(key(1), b"one", 10.0)

    def processed() -> tuple[int, int]:
        with valkey.client() as client:
            stats = client.info("stats")
            return stats["total_reads_processed"], stats["total_commands_processed"]

    before = processed()
    for _ in range(100):
        assert (await tier.get(key(1), R)).value == b"one"
    after = processed()
    assert after[1] - before[1] >= 400
    assert after[0] - before[0] <= 110


async def test_invalidation_changes_the_epoch_of_that_resource_for_every_pod(valkey: LocalValkey) -> None:
    one, two = RedisTier(valkey.url), RedisTier(valkey.unix_url)
    before = {n: await epoch_of(two, resource(n)) for n in (1, 2, 300)}
    await one.invalidate(R)
    after = {n: await epoch_of(two, resource(n)) for n in (1, 2, 300)}
    assert after[1] != before[1]
    assert (after[2], after[300]) == (before[2], before[300])
    await one.close()
    await two.close()


async def test_first_readers_agree_on_the_epoch(valkey: LocalValkey) -> None:
    tiers = [RedisTier(valkey.url) for _ in range(4)]
    epochs = await asyncio.gather(*(epoch_of(tier, resource(n)) for n in range(3) for tier in tiers))
    for n in range(3):
        assert len(set(epochs[4 * n : 4 * n + 4])) == 1
    for tier in tiers:
        await tier.close()


async def test_lost_words_make_everything_dead_not_undead(tier: RedisTier, valkey: LocalValkey) -> None:
    first = await epoch_of(tier, R)
    await tier.invalidate(R)
    second = await epoch_of(tier, R)
    seen = {first, second}
    for lost in ("mc1:e:0", "mc1:g"):
        with valkey.client() as client:
            client.delete(lost)
        epoch = await epoch_of(tier, R)
        assert len(epoch) == 8
        assert epoch not in seen
        seen.add(epoch)
    with valkey.client() as client:
        client.flushall()
    assert await epoch_of(tier, R) not in seen


async def test_invalidations_do_not_grow_the_store(tier: RedisTier, valkey: LocalValkey) -> None:
    for _ in range(20):
        await asyncio.gather(*(tier.invalidate(os.urandom(16)) for _ in range(25)))
    with valkey.client() as client:
        assert client.dbsize() <= 4097
        assert client.strlen(client.keys("mc1:e:*")[0]) <= 8 * 257


async def test_foreign_values_under_our_names(tier: RedisTier, valkey: LocalValkey) -> None:
    epoch = await epoch_of(tier, R)
    name = "mc1:k:" + key(1).hex()
    with valkey.client() as client:
        client.rpush(name, "a", "b")
    read = await tier.get(key(1), R)
    assert (read.value, read.epoch) == (None, epoch)
    await tier.put(key(1), b"ours", 10.0)
    assert (await tier.get(key(1), R)).value == b"ours"
    for page in ("mc1:e:0", "mc1:g"):
        for spoil in ("list", "short"):
            with valkey.client() as client:
                client.delete(page)
                if spoil == "list":
                    client.rpush(page, "a")
                else:
                    client.set(page, "abc")
            # Whatever was there, the words are made anew: a miss, and then all is well again.
            read = await tier.get(key(1), R)
            assert read.value is None
            assert len(read.epoch) == 8
            await tier.invalidate(R)
            assert len(await epoch_of(tier, R)) == 8


async def test_an_invalidation_in_an_unreachable_store_is_made_later(valkey: LocalValkey) -> None:
    tier = RedisTier(valkey.url, socket_timeout=0.3)
    other = RedisTier(valkey.url, socket_timeout=0.3)
    before = await epoch_of(tier, R)
    await tier.put(key(1), b"old", 100.0)
    valkey.freeze()
    with pytest.raises(TierError) as caught:
        await tier.invalidate(R)
    assert caught.value.kind is Trouble.TIMEOUT
    assert tier.owed == 1
    with pytest.raises(TierError):
        await tier.invalidate(resource(2))
    valkey.thaw()
    # Not yet made, perhaps, but never read as if it had not been asked for.
    read = await tier.get(key(1), R)
    assert read.value is None or read.epoch != before
    await paid(tier)
    assert await epoch_of(other, R) != before
    assert await epoch_of(tier, R) == await epoch_of(other, R)
    await tier.close()
    await other.close()


async def test_reads_are_misses_while_an_invalidation_is_owed(
    valkey: LocalValkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = RedisTier(valkey.url, socket_timeout=0.3)
    await epoch_of(tier, R)
    await tier.put(key(1), b"old", 100.0)

    async def fails(*_: object) -> None:
        raise TierError("no", Trouble.UNREACHABLE)

    with monkeypatch.context() as patch:
        patch.setattr(tier, "_change_words", fails)
        with pytest.raises(TierError):
            await tier.invalidate(R)
        read = await tier.get(key(1), R)
        assert (read.value, read.epoch, await epoch_of(tier, R)) == (None, b"", b"")
        assert (await tier.get(key(1), resource(2))).value == b"old"
    await paid(tier)
    assert await epoch_of(tier, R)
    await tier.close()


async def test_too_many_owed_become_one_for_all(valkey: LocalValkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_OWED", 5)
    tier, other = RedisTier(valkey.url, socket_timeout=0.3), RedisTier(valkey.url)
    untouched = resource(999)
    before = await epoch_of(other, untouched)
    valkey.freeze()
    for number in range(8):
        with pytest.raises(TierError):
            await tier.invalidate(resource(number))
    assert tier.owed == 1
    assert (await tier.get(key(1), untouched)).epoch == b""
    valkey.thaw()
    await paid(tier)
    assert await epoch_of(other, untouched) != before
    await tier.close()
    await other.close()


async def test_a_flood_of_invalidations_waits_in_bounded_number(valkey: LocalValkey) -> None:
    tier, other = RedisTier(valkey.url, socket_timeout=5.0), RedisTier(valkey.url)
    before = {n: await epoch_of(other, resource(n)) for n in (0, 1999)}
    valkey.freeze()
    flood = [asyncio.create_task(tier.invalidate(resource(n))) for n in range(2000)]
    async with asyncio.timeout(4):
        while sum(not task.done() for task in flood) > 256:  # noqa: ASYNC110  a count tells
            await asyncio.sleep(0.01)
    assert tier.owed == 2000
    assert (await tier.get(key(1), resource(1999))).epoch == b""
    valkey.thaw()
    outcomes = await asyncio.gather(*flood, return_exceptions=True)
    assert {outcome.kind for outcome in outcomes if isinstance(outcome, TierError)} <= set(Trouble)
    await paid(tier)
    assert all([await epoch_of(other, resource(n)) != epoch for n, epoch in before.items()])
    await tier.close()
    await other.close()


async def test_owed_invalidations_get_a_last_try_at_closing(valkey: LocalValkey) -> None:
    tier, other = RedisTier(valkey.url, socket_timeout=0.3), RedisTier(valkey.url)
    before = await epoch_of(other, R)
    valkey.freeze()
    with pytest.raises(TierError):
        await tier.invalidate(R)
    valkey.thaw()
    await tier.close()
    assert await epoch_of(other, R) != before
    await other.close()


async def test_a_full_store_takes_no_values_but_invalidates(tier: RedisTier, valkey: LocalValkey) -> None:
    before = await epoch_of(tier, R)
    with valkey.client() as client:
        client.config_set("maxmemory", 1)
    with pytest.raises(TierError) as caught:
        await tier.put(key(1), b"x", 10.0)
    assert caught.value.kind is Trouble.FULL
    await tier.invalidate(R)
    assert tier.owed == 0
    with valkey.client() as client:
        client.config_set("maxmemory", 0)
    assert await epoch_of(tier, R) != before


async def test_a_store_that_could_not_keep_writes_safe_takes_none_and_is_read(
    tier: RedisTier, valkey: LocalValkey
) -> None:
    await tier.get(key(1), R)
    await tier.put(key(1), b"v", 100.0)
    with valkey.client() as client:
        client.config_set("min-replicas-to-write", 1)
        try:
            for write in (tier.put(key(2), b"v", 100.0), tier.invalidate(R)):
                with pytest.raises(TierError, match="accepts no writes, as it could not keep them safe") as caught:
                    await write
                assert caught.value.kind is Trouble.REFUSED
            assert (await tier.get(key(1), resource(2))).value == b"v"
            assert (await tier.get(key(1), R)).value is None, "what is to be invalidated"
        finally:
            client.config_set("min-replicas-to-write", 0)
    await paid(tier)


async def test_a_frozen_store_costs_the_socket_timeout_at_most(url: str, valkey: LocalValkey) -> None:
    tier = RedisTier(url, socket_timeout=0.4)
    await tier.get(key(1), R)
    valkey.freeze()
    began = time.monotonic()
    with pytest.raises(TierError) as caught:
        await tier.get(key(1), R)
    assert time.monotonic() - began < 4
    assert caught.value.kind is Trouble.TIMEOUT
    valkey.thaw()
    assert len((await tier.get(key(1), R)).epoch) == 8
    await tier.close()


async def test_replies_never_reach_another_caller_after_cancellation(tier: RedisTier) -> None:
    for number in range(20):
        await tier.put(key(number), b"v%d" % number * 2000, 100.0)

    async def read(number: int, patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                value = (await tier.get(key(number), resource(number))).value
        except TimeoutError:
            return
        assert value is None or value == b"v%d" % number * 2000

    for round_ in range(40):
        await asyncio.gather(*(read(n, 0.0002 * (round_ % 7) + 0.0001 * n) for n in range(20)))
    for number in range(20):
        assert (await tier.get(key(number), resource(number))).value == b"v%d" % number * 2000


async def test_killed_and_restarted_under_load(valkey: LocalValkey) -> None:
    tier = RedisTier(valkey.url, socket_timeout=0.3)
    await tier.ping()
    stop = False
    outcomes: list[str] = []

    async def load(number: int) -> None:
        while not stop:
            try:
                await tier.put(key(number), b"v", 10.0)
                await tier.get(key(number), resource(number))
                outcomes.append("ok")
            except TierError as error:
                outcomes.append(error.kind)
            await asyncio.sleep(0.002)

    async def seen(kinds: set[str], number: int) -> None:
        """Return when the last `number` outcomes are all of `kinds`."""
        async with asyncio.timeout(20):
            while len(outcomes) < number or not set(outcomes[-number:]) <= kinds:  # noqa: ASYNC110  a list tells
                await asyncio.sleep(0.01)

    tasks = [asyncio.create_task(load(number)) for number in range(8)]
    await seen({"ok"}, 20)
    valkey.kill()
    await seen(set(Trouble), 20)
    await asyncio.to_thread(valkey.start)
    await seen({"ok"}, 200)
    stop = True
    await asyncio.gather(*tasks)
    await tier.close()


async def test_more_callers_than_connections(valkey: LocalValkey, url: str) -> None:
    # How long so many take is up to the machine.
    tier = RedisTier(url, socket_timeout=10, connect_timeout=10)
    await tier.put(key(1), b"v", 100.0)
    reads = await asyncio.gather(*(tier.get(key(1), resource(n)) for n in range(300)))
    assert all(len(read.epoch) == 8 for read in reads)
    with valkey.client() as client:
        assert len(client.client_list()) <= 33
    await tier.close()


async def test_passwords_work_and_are_never_shown(valkey_with_password: LocalValkey) -> None:
    address = f"127.0.0.1:{valkey_with_password.port}"
    quoted = "p4ss%2Fw0rd%3Aof%23tests"
    tier = RedisTier(f"redis://:{quoted}@{address}/0")
    await tier.ping()
    await tier.close()
    for userinfo in ("", ":wr0ng-s3cret@", "joe:wr0ng-s3cret@"):
        tier = RedisTier(f"redis://{userinfo}{address}")
        with pytest.raises(TierError) as caught:
            await tier.ping()
        assert caught.value.kind is Trouble.REFUSED
        assert address in str(caught.value)
        assert "s3cret" not in f"{caught.value!r} {caught.value.__cause__!r} {tier!r}"
        await tier.close()
    assert PASSWORD not in repr(tier)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://:s3cret@localhost",
        "redis://",
        "redis://:s3cret@localhost:port",
        "redis://:s3cret/x@localhost:1",
        "redis://:s3cret@[::1",
        "redis://:s3cret@localhost/?decode_responses=true",
        "redis://:s3cret@localhost:1/?db=s3cret",
    ],
)
def test_an_unusable_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValueError, match="URL") as caught:
        RedisTier(url)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_nobody_there() -> None:
    tier = RedisTier("redis://user:s3cret@127.0.0.1:1/0")
    with pytest.raises(TierError) as caught:
        await tier.ping()
    assert str(caught.value) == "redis://127.0.0.1:1: the store cannot be reached"
    await tier.close()
