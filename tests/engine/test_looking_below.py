"""Look-ups in the lower tiers: given up, of the wrong entry, needless, and failed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from cache_harness import Rig
from meshcache.engine.records import StoredResponse
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path

    from meshcache.tiers.base import TierRead

PLAIN = policies(freshness="{defaultTtl: 60s}")


async def test_a_look_up_given_up_goes_on_to_the_origin_and_stores_nothing(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN, lookup_timeout=1.0) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.forget_memory()
        rig.origin.says("/a", b"two")
        rig.warm.may_go.clear()
        got = await rig.get()
        assert (got.body, got.decision, got.stored) == (b"two", "miss", False)
        assert rig.meter.stores == ["stored", "no-tier"]
        rig.warm.may_go.set()
        got = await rig.get()
        assert (got.body, got.decision, got.tier) == (b"one", "hit", "warm")


async def test_a_look_up_given_up_between_two_variants_stores_nothing(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN, lookup_timeout=1.0) as rig:
        rig.origin.says("/a", b"one", headers={"vary": "accept"})
        await rig.get()
        rig.forget_memory()
        get, reads = rig.warm.get, 0

        async def then_hang(key: bytes, resource: bytes) -> TierRead:
            nonlocal reads
            reads += 1
            if reads > 1:
                await asyncio.sleep(60)
            return await get(key, resource)

        rig.warm.get = then_hang  # type: ignore[method-assign]
        got = await rig.get()
        assert (got.decision, got.stored, reads) == ("miss", False, 2)


async def test_what_lies_under_a_key_by_chance_is_not_given(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one")
        rig.origin.says("/v", b"one", headers={"vary": "accept"})
        await rig.get("/a")
        await rig.get("/v", {"accept": "x"})
        for key, (entry, _) in list(rig.workers[0].memory._entries.items()):
            assert entry.record.key
            if isinstance(entry.record, StoredResponse):
                other = {"selecting": (("accept", "y"),)} if entry.record.selecting else {"key": b"other material"}
                entry.record = msgspec.structs.replace(entry.record, **other)
                assert rig.workers[0].memory.get(key, rig.clock.now) is entry
        rig.warm.may_go.clear()
        for path in ("/a", "/v"):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await rig.get(path, {"accept": "x"})
        rig.warm.may_go.set()


async def test_what_is_surely_nowhere_is_not_looked_for(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN, lookup_timeout=1.0) as rig:
        rig.origin.says("/a", b"one")
        rig.warm.may_go.clear()
        assert (await rig.get()).stored
        assert (await rig.get()).decision == "hit"


async def test_a_look_up_given_up_does_not_cost_what_is_in_memory(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s, staleIfError: 5m}"), lookup_timeout=1.0) as rig:
        rig.origin.says("/a", b"one")
        await rig.get()
        rig.clock.pass_by(61)
        rig.warm.may_go.clear()
        assert (await rig.get()).decision == "miss"
        rig.origin.says("/a", b"oops", status=503)
        got = await rig.get()
        assert (got.body, got.decision) == (b"one", "stale-if-error")


async def test_a_tier_that_fails_is_a_miss(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one")

        async def fail(*_: object) -> None:
            raise OSError("disk on fire")

        rig.warm.get = fail  # type: ignore[assignment,method-assign]
        assert (await rig.get()).stored
        assert (await rig.get()).decision == "hit"
        rig.forget_memory()
        assert (await rig.get()).decision == "miss"
