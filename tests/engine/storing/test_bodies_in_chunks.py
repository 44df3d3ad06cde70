"""Responses whose bodies are stored in chunks: what is answered, what is asked, and what is kept where."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from cache_harness import HOST, Rig
from meshcache.engine.chunks import WHOLE_BYTES
from meshcache.engine.outcome import Answer
from meshcache.engine.records import StoredResponse
from meshcache.message import Request, Token
from policy_texts import policies

MIB = 1 << 20
BODY = random.Random(1).randbytes(3 * MIB + 5)
TIERS = """
hot: {ttl: 10m, maxObjectBytes: 64Mi, deadline: 5s}
warm: {ttl: 1h, maxObjectBytes: 6Mi, deadline: 5s}
cold: {ttl: 24h, maxObjectBytes: 64Mi, deadline: 5s}
"""
ETAG = {"etag": '"1"'}
LARGE = policies(tiers=TIERS)
STALE = policies(tiers=TIERS, freshness="{defaultTtl: 60s, staleWhileRevalidate: 1h}")
SAFE = policies(tiers=TIERS, freshness="{defaultTtl: 60s, staleIfError: 1h}")


async def found_at(rig: Rig, path: str = "/a", **more: Any) -> StoredResponse:
    """The record that answers `path`."""
    exchange = rig.cache.open(Request("GET", HOST, path, **more))
    outcome = exchange.start() or await exchange.search()
    assert isinstance(outcome, Answer)
    return outcome.stored


async def test_a_large_body_is_answered_from_the_lower_tiers(tmp_path: Path) -> None:
    async with Rig(tmp_path, LARGE) as rig:
        rig.origin.says("/a", body=BODY, cache_control="max-age=60")
        assert (await rig.get()).stored
        got = await rig.get()
        assert (got.decision, got.tier, got.body) == ("hit", "warm", BODY)
        assert rig.meter.stores == ["stored"]
        assert rig.meter.bytes_served["warm"] == len(BODY)
        assert not len(rig.workers[0].memory), "it is too large for memory, whatever the policy takes there"
        got = await rig.ask("HEAD")
        assert (got.decision, got.body) == ("hit", b"")
        got = await rig.get(headers={"range": "bytes=262143-524288"})
        assert (got.status, got.body) == (206, BODY[262143:524289])


async def test_what_is_too_large_for_warm_goes_to_cold(tmp_path: Path) -> None:
    async with Rig(tmp_path, LARGE) as rig:
        rig.origin.says("/a", body=BODY * 3, cache_control="max-age=60")
        rig.origin.says("/b", body=BODY * 3, cache_control="max-age=60", headers={"content-length": str(3 * len(BODY))})
        for path in ("/a", "/b"):
            await rig.get(path)
            got = await rig.get(path)
            assert (got.tier, got.body == BODY * 3) == ("cold", True), path


async def test_an_older_small_answer_does_not_outlive_a_large_one(tmp_path: Path) -> None:
    async with Rig(tmp_path, LARGE) as rig:
        rig.origin.says("/a", b"small", cache_control="max-age=60")
        await rig.get()
        rig.origin.says("/a", body=BODY, cache_control="max-age=60")
        await rig.get(headers={"cache-control": "no-cache"})
        assert (await rig.get()).body == BODY
        rig.origin.says("/a", b"small", cache_control="max-age=60")
        await rig.get(headers={"cache-control": "no-cache"})
        assert (await rig.get()).body == b"small"
        rig.forget_memory()
        assert (await rig.get()).body == b"small"


@pytest.mark.parametrize("length", [None, len(BODY), len(BODY) + 1])
async def test_a_body_of_the_wrong_length_is_not_stored(tmp_path: Path, length: int | None) -> None:
    async with Rig(tmp_path, LARGE) as rig:
        headers = {} if length is None else {"content-length": str(length)}
        rig.origin.says("/a", body=BODY, cache_control="max-age=60", headers=headers, cut_off=length is None)
        await rig.get()
        right = length == len(BODY)
        assert rig.meter.stores == ["stored" if right else "truncated"]
        waiting = await rig.send("GET")
        assert (getattr(waiting, "decision", "") == "hit") == right
        if not right:
            waiting.exchange.close()  # type: ignore[union-attr]


async def test_it_is_validated_and_used_again(tmp_path: Path) -> None:
    async with Rig(tmp_path, LARGE) as rig:
        rig.origin.says("/a", body=BODY, headers=ETAG, cache_control="max-age=60")
        await rig.get()
        rig.clock.pass_by(100)
        got = await rig.get()
        assert (got.decision, got.body) == ("revalidated", BODY)
        got = await rig.get()
        assert (got.decision, got.body) == ("hit", BODY)


async def test_chunks_live_as_long_as_the_last_that_needs_them(tmp_path: Path) -> None:
    async with Rig(tmp_path, LARGE) as rig:
        rig.origin.says("/a", body=BODY, headers=ETAG, cache_control="max-age=3000")
        await rig.get()
        rig.clock.pass_by(3100)
        assert (await rig.get()).decision == "revalidated"
        # An hour after the first, whose residence is over: the chunks would be gone with it.
        rig.clock.pass_by(1000)
        got = await rig.get()
        assert (got.decision, got.body) == ("hit", BODY)


async def test_one_that_cannot_be_sent_after_the_origin_was_asked_is_fetched_whole(tmp_path: Path) -> None:
    async with Rig(tmp_path, LARGE) as rig:
        body = BODY * 3
        assert len(body) > WHOLE_BYTES
        rig.origin.says("/a", body=body, headers=ETAG, cache_control="max-age=60")
        await rig.get()
        rig.clock.pass_by(100)
        sent = await rig.forwarded("GET")
        assert (sent.forward.decision, sent.forward.reason) == ("miss", "stale")
        assert "if-none-match" not in dict(sent.forward.set_fields)
        assert (await sent.finish()).body == body
        await rig.settle()
        rig.clock.pass_by(100)
        got = await rig.ask("HEAD")
        assert got.decision == "revalidated", "which takes no body"


async def test_it_stands_in_for_an_error(tmp_path: Path) -> None:
    async with Rig(tmp_path, SAFE) as rig:
        rig.origin.says("/a", body=BODY, cache_control="max-age=60")
        await rig.get()
        rig.clock.pass_by(100)
        rig.origin.says("/a", b"sorry", status=503)
        got = await rig.get()
        assert (got.decision, got.status, got.body) == ("stale-if-error", 200, BODY)


async def test_it_is_refreshed_in_the_background(tmp_path: Path) -> None:
    async with Rig(tmp_path, STALE) as rig:
        rig.origin.says("/a", body=BODY, cache_control="max-age=60")
        await rig.get()
        rig.clock.pass_by(100)
        rig.origin.says("/a", body=BODY[::-1], cache_control="max-age=60")
        got = await rig.get()
        assert (got.decision, got.body) == ("stale-swr", BODY)
        await rig.settle()
        got = await rig.get()
        assert (got.decision, got.body) == ("hit", BODY[::-1])


async def test_one_whose_chunks_are_gone_is_a_miss_and_goes(tmp_path: Path) -> None:
    async with Rig(tmp_path, LARGE) as rig:
        rig.origin.says("/a", body=BODY, cache_control="max-age=60")
        await rig.get()
        found = await found_at(rig)
        await rig.warm.drop(found.chunks[1:2])
        got = await rig.get()
        assert (got.decision, got.reason, got.body) == ("miss", "uri-miss", BODY)
        assert (await rig.get()).decision == "hit", "and stored anew"


async def test_an_invalidation_while_it_streams_keeps_it_out(tmp_path: Path) -> None:
    async with Rig(tmp_path, LARGE) as rig:
        rig.origin.says("/a", body=BODY, cache_control="max-age=60")
        sent = await rig.forwarded("GET")
        await rig.ask("POST")
        assert (await sent.finish()).body == BODY
        await rig.settle()
        assert rig.meter.stores == ["invalidated"]
        again = await rig.forwarded("GET")
        again.exchange.close()


async def test_when_too_many_are_on_their_way_the_origin_answers(tmp_path: Path) -> None:
    async with Rig(tmp_path, LARGE) as rig:
        rig.origin.says("/a", body=BODY, cache_control="max-age=60")
        await rig.get()
        flights = rig.cache.flights
        while flights.room(len(BODY)):
            assert flights.take(len(BODY))
            flights.landed()
        got = await rig.get()
        assert (got.decision, got.reason, got.body) == ("bypass", "crowded", BODY)
        assert (await rig.ask("HEAD")).decision == "hit"
        rig.clock.pass_by(30)
        assert (await rig.get()).decision == "hit"


async def test_equal_bodies_share_their_chunks(tmp_path: Path) -> None:
    async with Rig(tmp_path, LARGE) as rig:
        for path in ("/a", "/b"):
            rig.origin.says(path, body=BODY, cache_control="max-age=60")
            await rig.get(path)
        one, other = await found_at(rig, "/a"), await found_at(rig, "/b")
        assert one.chunks == other.chunks
        assert one.key != other.key


async def test_one_persons_chunks_are_shared_with_nobody(tmp_path: Path) -> None:
    config = "identity: {subject: {jwtClaim: sub}}"
    async with Rig(tmp_path, policies(tiers=TIERS, config=config, key="partition: [subject]")) as rig:
        rig.origin.says("/a", body=BODY, headers=ETAG, cache_control="max-age=60")
        chunks = []
        for name in ("alice", "bob"):
            tokens = (Token("https://issuer.example", {"sub": name}, b""),)
            await rig.get(tokens=tokens)
            got = await rig.get(tokens=tokens)
            assert (got.decision, got.body) == ("hit", BODY)
            rig.clock.pass_by(61)
            assert (await rig.get(tokens=tokens)).decision == "revalidated"
            assert (await rig.get(tokens=tokens)).body == BODY, "a validation changes nothing of whose they are"
            chunks.append((await found_at(rig, tokens=tokens)).chunks)
        assert not set(chunks[0]) & set(chunks[1])


async def test_more_than_the_store_holds_costs_hits_and_never_bytes(tmp_path: Path) -> None:
    async with Rig(tmp_path, LARGE) as rig:
        bodies = {f"/{number}": bytes([number]) * 100 + BODY for number in range(24)}
        hits = 0
        for _ in range(2):
            for path, body in bodies.items():
                rig.origin.says(path, body=body, cache_control="max-age=600")
                assert (await rig.get(path)).body == body
                got = await rig.get(path)
                assert got.body == body
                hits += got.decision == "hit"
        assert hits > len(bodies), "what was stored just now is there, as a rule"
