"""A key tells whose share of the tiers' capacity its entry takes."""

from __future__ import annotations

import random
from pathlib import Path

from cache_harness import Rig
from meshcache.engine.chunks import digest
from meshcache.engine.key import cache_key, part_key, variant_key
from meshcache.engine.pools import COMMON, UNDIVIDED, Division, pool_of
from meshcache.message import Headers, Request
from meshcache.policy.compiled import KeySpec
from meshcache.policy.selection import namespace
from meshcache.policy.shares import pool_id
from policy_texts import compiled, experiment, policies

ARM = namespace("all", "e", "one")
POOL = pool_id(ARM)


def key(of: bytes = namespace("all")) -> bytes:
    request = Request("GET", "example.com", "/a", Headers(()), "http")
    return cache_key(request, KeySpec(), namespace=of, revision="").storage


def test_every_key_of_an_arm_names_its_pool() -> None:
    assert pool_of(key()) == COMMON
    for made in (key(ARM), variant_key(key(ARM), (("accept", "a"),)), part_key(key(ARM)), digest(b"c", pool=POOL)):
        assert pool_of(made) == POOL
        assert len(made) == 40


def test_without_an_arm_keys_are_what_they_were() -> None:
    assert len({len(made) for made in (key(), variant_key(key(), ()), part_key(key()), digest(b"c"))}) == 1
    assert part_key(part_key(key())) == key()
    assert part_key(part_key(key(ARM))) == key(ARM)


def test_what_no_arm_has_a_share_for_is_in_the_common_pool() -> None:
    division = Division({POOL: 0.25}, 0.5)
    assert (division.pool(key()), division.pool(key(ARM)), division.pool(key(namespace("all", "e", "two")))) == (
        COMMON,
        POOL,
        COMMON,
    )
    assert (division.part(POOL, 1000), division.part(COMMON, 1000)) == (250, 500)
    assert UNDIVIDED.part(UNDIVIDED.pool(key(ARM)), 1000) == 1000


async def test_an_arm_that_is_taken_out_of_the_files_frees_its_share(tmp_path: Path) -> None:
    with_arms = policies(freshness="{defaultTtl: 60s}", more=experiment())
    async with Rig(tmp_path, with_arms) as rig:
        for number in range(20):
            rig.origin.says(f"/{number}", b"x" * 100)
            await rig.get(f"/{number}", {"x-user-id": "u"})
        memory = rig.workers[0].memory
        (one,) = [use for use in memory.pools() if use.entries]
        assert (one.pool, one.entries) == (POOL, 20)
        rig.install(policies(freshness="{defaultTtl: 60s}"))
        # Step by step, as something is stored.
        await rig.get("/0")
        assert [(use.pool, use.entries) for use in memory.pools()] == [(COMMON, 1)]
        assert len(memory) == 1
        # From below memory it can still be had, by whoever takes the file back.
        rig.install(with_arms)
        assert (await rig.get("/1", {"x-user-id": "u"})).decision == "hit"


async def test_the_winner_keeps_its_entries_when_its_experiment_is_deleted(tmp_path: Path) -> None:
    before = compiled(policies(freshness="{defaultTtl: 60s}", more=experiment()))
    adoption = before.adoption("e", "one")
    assert adoption is not None
    async with Rig(tmp_path, policies()) as rig:
        cache, memory = rig.cache, rig.workers[0].memory
        cache.install(before)
        for number in range(20):
            rig.origin.says(f"/{number}", b"x" * 100)
            await rig.get(f"/{number}", {"x-user-id": "u"})
        cache.install(compiled(policies(freshness="{defaultTtl: 60s}")).with_overlays({}, [adoption]))
        assert [(await rig.get(f"/{number}")).tier for number in range(20)] == ["hot"] * 20
        rig.origin.says("/new", b"x" * 100)
        await rig.get("/new")
        assert [(use.pool, use.entries) for use in memory.pools()] == [(COMMON, 21)]


HALVES = """
kind: CacheExperiment
metadata: {name: e}
spec:
  routeRef: {name: all}
  unit: [{header: x-user-id}]
  arms:
    - {name: one, policyRef: {name: p}, weight: 1}
    - {name: two, policyRef: {name: p}, weight: 1}
"""


async def test_arms_share_no_chunks(tmp_path: Path) -> None:
    text = policies(freshness="{defaultTtl: 60s}", more=HALVES)
    snapshot = compiled(text)
    body = random.Random(1).randbytes(1_500_000)

    def arm(user: str) -> str:
        asked = Request("GET", "example.com", "/a", Headers([("x-user-id", user)]), "http")
        return snapshot.select(asked).arm

    users = [next(f"u{number}" for number in range(50) if arm(f"u{number}") == name) for name in ("one", "two")]
    async with Rig(tmp_path, text) as rig:
        rig.origin.says("/a", body)
        decisions = []
        for user in (*users, *users):
            got = await rig.get("/a", {"x-user-id": user})
            assert got.body == body
            decisions.append(got.decision)
            await rig.settle()
        assert decisions == ["miss", "miss", "hit", "hit"]
        with rig.warm._store._using() as held, held.env.begin() as txn:
            assert txn.stat(held.order)["entries"] == 0
            # Six chunks and a record for each.
            assert txn.stat(held.pooled)["entries"] == 14
            pools = {bytes(key)[:8] for key in txn.cursor(db=held.pooled).iternext(keys=True, values=False)}
        assert pools == {pool_id(namespace("all", "e", name)) for name in ("one", "two")}
