"""Borders between callers: no answer crosses one, and what everybody may do about a URL crosses all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cache_harness import Rig
from meshcache.message import Peer, Token
from meshcache.policy.identity import subject_hash
from policy_texts import SECRET, policies

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = "identity: {subject: {jwtClaim: sub}, tenant: {jwtClaim: org}, session: {cookie: sid}}"


def caller(sub: str = "", org: str = "", standing: bytes = b"") -> dict[str, Any]:
    claims = {name: value for name, value in (("sub", sub), ("org", org)) if value}
    return {"tokens": (Token("https://issuer.example", claims, standing),)}


ALICE, BOB = caller("alice", "acme"), caller("bob", "acme")
EVE = caller("alice", "evil")


def rig(path: Path, partition: str, **more: str) -> Rig:
    return Rig(path, policies(config=CONFIG, key=f"partition: [{partition}]", **more), workers=2)


async def test_a_tenant_gets_its_own_answers_and_nobody_elses(tmp_path: Path) -> None:
    async with rig(tmp_path, "tenant") as cache:
        cache.origin.says("/a", body=b"for acme", cache_control="max-age=60")
        await cache.get("/a", **ALICE)
        cache.origin.says("/a", body=b"for evil", cache_control="max-age=60")
        assert (await cache.get("/a", **EVE)).body == b"for evil"
        for worker in (0, 1):
            assert (await cache.get("/a", **BOB, worker=worker)).body == b"for acme"
            assert (await cache.get("/a", **EVE, worker=worker)).body == b"for evil"


async def test_a_person_gets_his_own_answers_and_nobody_elses(tmp_path: Path) -> None:
    async with rig(tmp_path, "subject") as cache:
        cache.origin.says("/a", body=b"alice", cache_control="max-age=60")
        await cache.get("/a", **ALICE)
        cache.origin.says("/a", body=b"bob", cache_control="max-age=60")
        assert (await cache.get("/a", **BOB)).body == b"bob"
        assert (await cache.get("/a", **ALICE)).decision == "hit"
        # The same person by a token that may see less is asked for again.
        cache.origin.says("/a", body=b"less", cache_control="max-age=60")
        assert (await cache.get("/a", **caller("alice", "acme", b"less"))).body == b"less"
        assert (await cache.get("/a", **ALICE)).body == b"alice"


@pytest.mark.parametrize("partition", ["tenant", "subject", "session", "tenant, subject"])
async def test_a_caller_who_is_not_known_shares_nothing(tmp_path: Path, partition: str) -> None:
    async with rig(tmp_path, partition) as cache:
        cache.origin.says("/a", body=b"secret", cache_control="public, max-age=60")
        await cache.get("/a", {"cookie": "sid=1"}, **ALICE)
        claims = {"x-tenant": "acme", "x-user": "alice", "x-jwt-payload": "eyJzdWIiOiJhbGljZSJ9", "sub": "alice"}
        for headers in ({}, claims, {"authorization": "Bearer a.b.c"}):
            got = await cache.get("/a", headers, peer=Peer("127.0.0.1", True, "alice"))
            assert (got.decision, got.reason) == ("bypass", "no-identity")
        assert len(cache.origin.asked) == 4


async def test_a_session_is_its_cookie(tmp_path: Path) -> None:
    async with rig(tmp_path, "session") as cache:
        cache.origin.says("/a", body=b"one", cache_control="max-age=60")
        await cache.get("/a", {"cookie": "sid=1"})
        assert (await cache.get("/a", {"cookie": "x=y; sid=1"})).decision == "hit"
        assert (await cache.get("/a", {"cookie": "sid=2"})).decision == "miss"
        assert (await cache.get("/a", {"cookie": "sid=1; sid=2"})).reason == "no-identity"


async def test_a_write_by_anyone_reaches_what_is_stored_for_everyone(tmp_path: Path) -> None:
    async with rig(tmp_path, "tenant, subject") as cache:
        cache.origin.says("/a", body=b"old", cache_control="max-age=60")
        for who in (ALICE, BOB, EVE):
            await cache.get("/a", **who)
            assert (await cache.get("/a", **who)).decision == "hit"
        # Whoever writes need not be known to the cache.
        await cache.ask("POST", "/a")
        cache.origin.says("/a", body=b"new", cache_control="max-age=60")
        for who in (ALICE, BOB, EVE):
            for worker in (0, 1):
                assert (await cache.get("/a", **who, worker=worker)).body == b"new"


async def test_an_entry_knows_whose_it_is_by_a_keyed_hash_alone(tmp_path: Path) -> None:
    async with rig(tmp_path, "tenant, subject") as cache:
        cache.origin.says("/a", body=b"x", cache_control="max-age=60")
        await cache.get("/a", **ALICE)
        (entry,) = [found.record for found, _ in cache.workers[0].memory._entries.values()]
        assert entry.subject == subject_hash(SECRET, "alice")
        assert b"alice" not in entry.key
        assert b"acme" in entry.key
    async with rig(tmp_path / "open", "tenant") as cache:
        cache.origin.says("/a", body=b"x", cache_control="max-age=60")
        await cache.get("/a", **ALICE)
        (entry,) = [found.record for found, _ in cache.workers[0].memory._entries.values()]
        assert entry.subject == b""


async def test_what_lies_behind_a_border_is_not_refreshed_by_strangers(tmp_path: Path) -> None:
    async with rig(tmp_path, "subject", freshness="{staleWhileRevalidate: 1h}") as cache:
        cache.origin.says("/a", body=b"alice", cache_control="max-age=1", headers={"etag": "1"})
        await cache.get("/a", **ALICE)
        cache.clock.pass_by(5)
        # The refresh goes without credentials: it would fetch the answer to nobody.
        assert (await cache.get("/a", **ALICE)).decision == "revalidated"
        assert cache.refresher.asked == []
