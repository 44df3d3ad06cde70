"""Chunks of large bodies: the contract of every lower tier, and what joins them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tier_helpers import CountingHooks, Troubled, response

from fixtures_valkey import LocalValkey
from meshcache.decisions import NoStoreReason, TierName
from meshcache.engine.chunks import CHUNK_BYTES, digest
from meshcache.engine.records import StoredResponse
from meshcache.engine.storing.fill import CopyBudget
from meshcache.tiers.base import Tier
from meshcache.tiers.board import Board
from meshcache.tiers.bodies import Bodies
from meshcache.tiers.chunks import BodyLostError
from meshcache.tiers.guarded import GuardedTier
from meshcache.tiers.lmdb import LmdbTier
from meshcache.tiers.objects import ObjectTier
from meshcache.tiers.redis import RedisTier
from meshcache.tiers.spool import MOST_BEHIND, Spool

MIB = 1 << 20
WARM, COLD = TierName.WARM, TierName.COLD


class Now:
    """The wall clock of a tier."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture(params=["lmdb", "folder", "redis"])
async def tier(request: pytest.FixtureRequest, tmp_path: Path, now: Now) -> AsyncIterator[Tier]:
    board = Board(tmp_path / "board")
    made: Tier
    match request.param:
        case "lmdb":
            made = LmdbTier(tmp_path / "warm", 32 * MIB, board, wall_clock=now)
        case "folder":
            made = ObjectTier(tmp_path / "cold", 32 * MIB, board, wall_clock=now)
            # Else the first write begins a sweep, at whatever the time is by then.
            await made.sweep()
        case _:
            valkey: LocalValkey = request.getfixturevalue("valkey")
            made = RedisTier(valkey.url)
    yield made
    await made.close()


def name_of(chunk: bytes) -> bytes:
    return digest(chunk)


async def test_a_chunk_is_kept_once_and_read_again(tier: Tier) -> None:
    chunk = b"c" * 1000
    assert await tier.fetch(name_of(chunk)) is None
    assert await tier.keep(name_of(chunk), chunk, 60.0)
    assert not await tier.keep(name_of(chunk), chunk, 60.0), "it is there already"
    assert await tier.fetch(name_of(chunk)) == chunk
    assert await tier.extend([name_of(chunk), name_of(b"other")], 0.0) == {name_of(b"other")}


async def test_chunks_and_entries_are_apart(tier: Tier) -> None:
    await tier.get(b"k" * 32, b"r" * 16)  # the first look at a resource makes its epoch
    await tier.keep(name_of(b"x"), b"x", 60.0)
    await tier.put(b"k" * 32, b"value", 60.0)
    assert (await tier.get(b"k" * 32, b"r" * 16)).value == b"value"
    await tier.drop([name_of(b"x"), name_of(b"never there")])
    assert await tier.fetch(name_of(b"x")) is None
    assert (await tier.get(b"k" * 32, b"r" * 16)).value == b"value"


async def lives(tier: Tier, now: Now, chunk: bytes, seconds: float) -> bool:
    """Whether it is there after so many seconds. Redis has its own clock, and is asked for what is left."""
    if isinstance(tier, RedisTier):
        (left,) = await tier._send([("PTTL", f"mc1:c:{name_of(chunk).hex()}")])
        return bool(left > seconds * 1000)
    now.ahead = seconds
    there = await tier.fetch(name_of(chunk)) is not None
    now.ahead = 0.0
    return there


async def test_the_owner_who_lives_longest_counts(tier: Tier, now: Now) -> None:
    await tier.keep(name_of(b"a"), b"a", 100.0)
    await tier.keep(name_of(b"a"), b"a", 10.0)
    assert await lives(tier, now, b"a", 90.0), "a shorter-living owner does not make it go earlier"
    await tier.keep(name_of(b"a"), b"a", 1000.0)
    assert await lives(tier, now, b"a", 900.0)
    assert not await lives(tier, now, b"a", 1100.0)
    assert not await tier.extend([name_of(b"a")], 5000.0)
    assert await lives(tier, now, b"a", 4900.0)
    assert not await tier.extend([name_of(b"a")], 10.0)
    assert await lives(tier, now, b"a", 4900.0)


async def test_what_has_expired_is_not_there(tier: Tier, now: Now) -> None:
    await tier.keep(name_of(b"a"), b"a", 0.05 if isinstance(tier, RedisTier) else 10.0)
    now.ahead = 20.0
    if isinstance(tier, RedisTier):
        await asyncio.sleep(0.1)
    assert await tier.extend([name_of(b"a")], 100.0) == {name_of(b"a")}, "and is not brought back without its bytes"
    assert await tier.fetch(name_of(b"a")) is None
    assert await tier.keep(name_of(b"a"), b"a", 10.0)
    assert await tier.fetch(name_of(b"a")) == b"a"


async def test_many_writers_of_one_chunk(tier: Tier) -> None:
    chunk = b"z" * CHUNK_BYTES
    await asyncio.gather(*(tier.keep(name_of(chunk), chunk, 60.0 + number) for number in range(20)))
    assert await tier.fetch(name_of(chunk)) == chunk


# -- joined --------------------------------------------------------------------------------------------------------


class Bench:
    """Bodies over a real file and a real folder."""

    def __init__(self, folder: Path) -> None:
        board = Board(folder / "board")
        self.hooks = CountingHooks()
        self.warm: Tier = LmdbTier(folder / "warm", 64 * MIB, board)
        self.cold: Tier = ObjectTier(folder / "cold", 512 * MIB, board)
        self.budget = CopyBudget(64 * MIB)
        self.lower = {tier.name: GuardedTier(tier, self.hooks, write_deadline=5.0) for tier in (self.warm, self.cold)}
        self.bodies = Bodies(self.lower, self.hooks, time.monotonic, drop_after=0.01)

    def spool(self, where: Callable[[int], list[TierName]] = lambda _: [WARM], owner: bytes = b"") -> Spool:
        return self.bodies.spool(where, lambda _: 60.0, owner=owner, pool=b"", budget=self.budget, expected=2 * MIB)

    async def stored(self, body: bytes, tier: TierName = WARM, **changes: object) -> StoredResponse:
        spool = self.spool(lambda _: [tier])
        assert spool.add(body)
        chunks = await spool.written()
        assert chunks is not None
        return response(b"", chunks=chunks, size=len(body), chunk_bytes=CHUNK_BYTES, **changes)

    async def read(self, stored: StoredResponse, tier: TierName = WARM, *span: int) -> bytes:
        return b"".join([part async for part in self.bodies.body(stored, tier).read(*span)])

    async def close(self) -> None:
        await self.bodies.close()
        for lower in self.lower.values():
            await lower.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    await bench.close()
    assert bench.budget.used == 0


BODY = b"".join(number.to_bytes(4, "big") for number in range(400_000))


async def test_a_body_is_read_as_it_came(bench: Bench) -> None:
    stored = await bench.stored(BODY)
    assert len(stored.chunks) == 7
    assert stored.length == len(BODY)
    assert await bench.read(stored) == BODY
    for span in [(0, 1), (5, 0), (CHUNK_BYTES - 1, 2), (CHUNK_BYTES, CHUNK_BYTES), (1, len(BODY) - 2)]:
        assert await bench.read(stored, WARM, *span) == BODY[span[0] : sum(span)]
    with pytest.raises(ValueError, match="of a body of"):
        await bench.read(stored, WARM, 1, len(BODY))
    assert bench.hooks.chunked[WARM, "written"] == 7


@pytest.mark.parametrize("size", [1000, 65_536, 100_001, 3 * MIB])
async def test_it_does_not_matter_in_what_parts_it_came(bench: Bench, size: int) -> None:
    whole = await bench.stored(BODY)
    spool = bench.spool()
    for at in range(0, len(BODY), size):
        assert spool.add(BODY[at : at + size])
        await spool.has_room()
    assert await spool.written() == whole.chunks
    assert bench.hooks.chunked[WARM, "shared"] == 7


async def test_chunks_of_another_owner_are_not_shared(bench: Bench) -> None:
    everybodys = await bench.stored(BODY)
    spool = bench.spool(owner=b"o" * 32)
    spool.add(BODY)
    his = await spool.written()
    assert his is not None
    assert not set(his) & set(everybodys.chunks)


async def test_a_chunk_that_is_gone_is_no_short_answer(bench: Bench) -> None:
    stored = await bench.stored(BODY)
    assert await bench.bodies.whole(bench.lower[WARM], b"k" * 32, stored, 1.0)
    await bench.warm.drop(stored.chunks[3:4])
    assert not await bench.bodies.whole(bench.lower[WARM], b"k" * 32, stored, 1.0)
    pieces = bench.bodies.body(stored, WARM).read()
    assert b"".join([await anext(pieces) for _ in range(3)]) == BODY[: 3 * CHUNK_BYTES]
    with pytest.raises(BodyLostError):
        await anext(pieces)


async def test_a_chunk_that_was_changed_is_refused_and_goes(bench: Bench) -> None:
    stored = await bench.stored(BODY)
    for foreign in (b"x" * CHUNK_BYTES, BODY[:100], b""):
        await bench.warm.drop(stored.chunks[:1])
        await bench.warm.keep(stored.chunks[0], foreign, 60.0)
        with pytest.raises(BodyLostError):
            await bench.read(stored)
        assert await bench.warm.extend(stored.chunks[:1], 0.0), "else nobody could ever store it again"
    assert bench.hooks.chunked[WARM, "corrupt"] == 3


async def test_a_reader_that_stops_leaves_nothing_running(bench: Bench) -> None:
    stored = await bench.stored(BODY)
    before = asyncio.all_tasks()
    pieces = bench.bodies.body(stored, WARM).read()
    assert await anext(pieces) == BODY[:CHUNK_BYTES]
    await pieces.aclose()
    assert asyncio.all_tasks() == before


async def test_what_is_moved_up_takes_its_chunks_along(bench: Bench) -> None:
    stored = await bench.stored(BODY, COLD)
    assert await bench.bodies._chunks.ensure(WARM, stored, 60.0)
    assert await bench.read(stored, WARM) == BODY
    assert await bench.read(stored, COLD) == BODY


async def test_a_body_that_outgrows_a_tier_ends_up_whole_in_the_next(bench: Bench) -> None:
    spool = bench.spool(lambda size: [WARM] if size <= 1 * MIB else [COLD])
    spool._size = 0
    for at in range(0, len(BODY), 100_000):
        assert spool.add(BODY[at : at + 100_000])
        await asyncio.sleep(0.005)
    chunks = await spool.written()
    assert chunks is not None
    stored = response(b"", chunks=chunks, size=len(BODY), chunk_bytes=CHUNK_BYTES)
    assert await bench.cold.extend(chunks, 0.0), "the first ones are in warm"
    assert await bench.bodies._chunks.ensure(COLD, stored, 60.0)
    assert await bench.read(stored, COLD) == BODY


async def test_what_is_nowhere_is_not_stored(bench: Bench) -> None:
    stored = response(b"", chunks=(name_of(b"never"),), size=5, chunk_bytes=CHUNK_BYTES)
    assert not await bench.bodies._chunks.ensure(WARM, stored, 60.0)


async def test_one_persons_chunks_go_with_his_record(bench: Bench) -> None:
    his = await bench.stored(BODY, subject=b"s" * 32)
    ours = await bench.stored(BODY)
    bench.bodies.drop(ours)
    await asyncio.sleep(0.05)
    assert await bench.read(ours) == BODY, "somebody else may have a part in them"
    bench.bodies.drop(his)
    await asyncio.sleep(0.05)
    await bench.bodies.drain()
    assert len(await bench.warm.extend(his.chunks, 0.0)) == 7


# -- trouble -------------------------------------------------------------------------------------------------------


def troubled(error: Exception | None = None, delay: float = 0.0) -> tuple[Bodies, CountingHooks, CopyBudget]:
    hooks = CountingHooks()
    tier = Troubled(WARM)
    tier.error, tier.delay = error, delay
    return Bodies({WARM: GuardedTier(tier, hooks)}, hooks, time.monotonic), hooks, CopyBudget(64 * MIB)


async def test_a_store_that_cannot_follow_is_left_without_the_body() -> None:
    bodies, hooks, budget = troubled(delay=60.0)
    spool = bodies.spool(lambda _: [WARM], lambda _: 60.0, owner=b"", pool=b"", budget=budget, expected=0)
    taken = 0
    while spool.add(b"x" * 65_536):
        taken += 65_536
        assert taken < (MOST_BEHIND + 8) * CHUNK_BYTES, "what waits is bounded"
    assert spool.refused is NoStoreReason.NO_MEMORY
    assert budget.used == 0
    assert hooks.chunked[WARM, "given-up"]
    assert await spool.written() is None
    await bodies.close()


async def test_a_store_that_fails_is_left_without_the_body() -> None:
    bodies, hooks, budget = troubled(error=OSError("no disk"))
    spool = bodies.spool(lambda _: [WARM], lambda _: 60.0, owner=b"", pool=b"", budget=budget, expected=0)
    assert spool.add(b"x" * MIB)
    assert await spool.written() is None
    assert spool.refused is NoStoreReason.NO_TIER
    assert not spool.add(b"x")
    assert budget.used == 0
    assert hooks.errors
    await bodies.close()


async def test_chunks_of_many_bodies_take_turns() -> None:
    hooks, tier, budget = CountingHooks(), Troubled(WARM), CopyBudget(64 * MIB)
    tier.delay = 0.02
    bodies = Bodies({WARM: GuardedTier(tier, hooks)}, hooks, time.monotonic)
    spools = [
        bodies.spool(lambda _: [WARM], lambda _: 60.0, owner=b"", pool=b"", budget=budget, expected=0)
        for _ in range(20)
    ]
    for spool in spools:
        assert spool.add(b"x" * MIB)
    assert all([await spool.written() for spool in spools])
    assert tier.calls == 80
    assert tier.most_under_way <= 16, "a write that waits behind those of others is in time all the same"
    await bodies.close()


async def test_chunks_of_the_body_that_began_first_go_first() -> None:
    hooks, tier, budget = CountingHooks(), Gated(WARM), CopyBudget(64 * MIB)
    bodies = Bodies({WARM: GuardedTier(tier, hooks, write_deadline=60.0)}, hooks, time.monotonic)
    spools = [
        bodies.spool(lambda _: [WARM], lambda _: 60.0, owner=b"", pool=b"", budget=budget, expected=0) for _ in range(6)
    ]
    chunks = [bytes([number]) * CHUNK_BYTES for number in range(6)]
    waiting = bodies._chunks._turns[WARM]._waiting
    for number in (5, 4, 3, 2, 1, 0):
        before = len(tier.asked) + len(waiting)
        assert spools[number].add(chunks[number] * 4)
        async with asyncio.timeout(30):
            while len(tier.asked) + len(waiting) < before + 4:  # noqa: ASYNC110  nothing to await
                await asyncio.sleep(0.001)
    assert len(tier.asked) == 16
    tier.gate.set()
    assert all([await spool.written() for spool in spools])
    assert tier.asked[16:] == [name_of(chunks[0])] * 4 + [name_of(chunks[1])] * 4
    await bodies.close()


class Gated(Troubled):
    """Takes chunks when its gate is open."""

    def __init__(self, name: TierName) -> None:
        super().__init__(name)
        self.asked: list[bytes] = []
        self.gate = asyncio.Event()

    async def keep(self, digest: bytes, *_: object) -> bool:
        self.asked.append(digest)
        await self.gate.wait()
        return True


async def test_readers_wait_for_each_other_as_long_as_the_tier_answers() -> None:
    hooks, tier = CountingHooks(), Reading(WARM)
    store = Bodies({WARM: GuardedTier(tier, hooks)}, hooks, time.monotonic)._chunks
    # Together they take more than twice as long as one of them waits for a tier that gives nothing.
    tier.delay = 0.05
    chunks = await asyncio.gather(*(store.fetch(WARM, tier.names[0], b"", 1.0) for _ in range(50)))
    assert set(chunks) == {tier.chunk}
    assert tier.most_under_way <= 8
    await store.close()


async def test_nobody_waits_for_his_turn_at_a_tier_that_hangs() -> None:
    hooks, tier = CountingHooks(), Reading(WARM)
    store = Bodies({WARM: GuardedTier(tier, hooks)}, hooks, time.monotonic)._chunks
    tier.delay = 60.0
    ends = await asyncio.gather(*(store.fetch(WARM, name, b"", 0.5) for name in tier.names), return_exceptions=True)
    assert {type(end) for end in ends} == {BodyLostError}
    assert set(tier.asked) <= set(tier.names[:8]), "the others have given it up together with these"
    await store.close()


class Reading(Troubled):
    """Has one chunk, and gives one after the other."""

    def __init__(self, name: TierName) -> None:
        super().__init__(name)
        self.chunk = b"c" * 1000
        self.names = [name_of(self.chunk), *(name_of(bytes([number])) for number in range(30))]
        self.asked: list[bytes] = []
        self._lock = asyncio.Lock()

    async def fetch(self, digest: bytes, *_: object) -> bytes | None:
        self.asked.append(digest)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            async with self._lock:
                await asyncio.sleep(self.delay)
        finally:
            self.under_way -= 1
        return self.chunk


async def test_a_body_that_waits_for_its_turn_can_be_dropped() -> None:
    bodies, _, budget = troubled(delay=60.0)
    spools = [
        bodies.spool(lambda _: [WARM], lambda _: 60.0, owner=b"", pool=b"", budget=budget, expected=0)
        for _ in range(20)
    ]
    for spool in spools:
        assert spool.add(b"x" * MIB)
    await asyncio.sleep(0.05)
    for spool in spools:
        spool.drop()
    assert budget.used == 0
    assert [await spool.written() for spool in spools] == [None] * 20
    assert budget.used == 0
    await bodies.close()


async def test_without_memory_there_is_no_copy() -> None:
    bodies, _, _ = troubled(delay=60.0)
    budget = CopyBudget(MIB)
    spool = bodies.spool(lambda _: [WARM], lambda _: 60.0, owner=b"", pool=b"", budget=budget, expected=0)
    assert spool.add(b"x" * MIB)
    assert not spool.add(b"x")
    assert budget.used == 0
    await asyncio.sleep(0.01)
    assert budget.used == 0
    await bodies.close()


async def test_a_body_that_is_dropped_gives_its_memory_back(bench: Bench) -> None:
    spool = bench.spool()
    spool.add(BODY)
    spool.drop()
    assert bench.budget.used == 0
    assert not spool.add(b"more")
    assert await spool.written() is None
