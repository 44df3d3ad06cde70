"""Parts of answers: stored, combined, and given only to those who ask for what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cache_harness import Rig, Sent
from cache_origin import Reply
from policy_texts import policies
from ranged_origin import BODY, FRESH, Ranged

if TYPE_CHECKING:
    from pathlib import Path

    from meshcache.message import Request

PLAIN = policies(freshness="{}")


async def test_a_part_answers_ranges_within_it(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN, workers=2) as rig:
        origin = Ranged(in_parts=(("content-md5", "m"), ("x-a", "1")))
        rig.origin.does("/a", origin)
        got = await rig.get(headers={"range": "bytes=10-49"})
        assert (got.status, got.body, got.decision, got.stored) == (206, BODY[10:50], "miss", True)
        for value, first, last in (("bytes=10-49", 10, 49), ("bytes=20-24", 20, 24), ("bytes=49-49", 49, 49)):
            for worker in (0, 1):
                got = await rig.get(headers={"range": value}, worker=worker)
                assert (got.status, got.body, got.decision) == (206, BODY[first : last + 1], "hit")
                assert got.headers.get_all("content-range") == [f"bytes {first}-{last}/100"]
                assert got.headers.get("x-a") == "1"
                assert "content-md5" not in got.headers
        assert len(origin.seen) == 1
        got = await rig.get(headers={"range": "bytes=100-"})
        assert (got.status, got.headers.get("content-range"), got.decision) == (416, "bytes */100", "hit")


@pytest.mark.parametrize("value", ["bytes=0-19", "bytes=40-50", "bytes=-10", "bytes=90-", "bytes=12-13,60-61"])
async def test_what_it_does_not_hold_goes_to_the_origin_as_it_is(tmp_path: Path, value: str) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        origin = Ranged()
        rig.origin.does("/a", origin)
        await rig.get(headers={"range": "bytes=10-49"})
        got = await rig.get(headers={"range": value})
        assert (got.status, got.decision, got.reason) == (206, "miss", "partial")
        assert "fwd=partial" in (got.headers.get("cache-status") or "")
        assert origin.seen[-1] == (value, None, None)


@pytest.mark.parametrize("in_memory", [True, False])
async def test_a_part_is_never_the_whole(tmp_path: Path, in_memory: bool) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        origin = Ranged()
        rig.origin.does("/a", origin)
        await rig.get(headers={"range": "bytes=10-49"})
        if not in_memory:
            rig.forget_memory()
        for headers in ({}, {"range": "lines=1-2"}, {"range": "bytes=12-13", "if-range": '"2"'}):
            sent = await rig.send("GET", headers=headers)
            assert isinstance(sent, Sent)
            assert sent.forward.decision == "miss"
            sent.exchange.close()
        sent = await rig.send("HEAD", headers={"range": "bytes=12-13"})
        assert isinstance(sent, Sent)
        sent.exchange.close()
        got = await rig.get()
        assert (got.status, got.body, got.stored) == (200, BODY, True)
        assert (await rig.get()).body == BODY


async def test_parts_are_combined_until_they_are_the_whole(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        origin = Ranged()
        rig.origin.does("/a", origin)
        for value in ("bytes=60-", "bytes=0-19"):
            await rig.get(headers={"range": value})
        for value, expected in (("bytes=0-9", BODY[:10]), ("bytes=-40", BODY[60:])):
            got = await rig.get(headers={"range": value})
            assert (got.body, got.decision) == (expected, "hit")
        rig.clock.pass_by(30)
        await rig.get(headers={"range": "bytes=15-65"})
        got = await rig.get()
        assert (got.status, got.body, got.decision, got.age) == (200, BODY, "hit", 0)
        assert "content-range" not in got.headers
        rig.forget_memory()
        assert (await rig.get()).body == BODY
        assert len(origin.seen) == 3


async def test_a_206_of_everything_is_the_whole(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", Ranged())
        assert (await rig.get(headers={"range": "bytes=0-"})).status == 206
        got = await rig.get()
        assert (got.status, got.body, got.decision) == (200, BODY, "hit")
        assert "content-range" not in got.headers


async def test_parts_of_two_versions_are_not_combined(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        origin = Ranged()
        rig.origin.does("/a", origin)
        await rig.get(headers={"range": "bytes=0-49"})
        origin.body, origin.fields = bytes(100), (FRESH, ("etag", '"2"'))
        await rig.get(headers={"range": "bytes=50-"})
        got = await rig.get(headers={"range": "bytes=50-59"})
        assert (got.body, got.headers.get("etag"), got.decision) == (bytes(10), '"2"', "hit")
        got = await rig.get(headers={"range": "bytes=0-9"})
        assert (got.body, got.decision) == (bytes(10), "miss")


async def test_a_stale_part_is_validated(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        origin = Ranged()
        rig.origin.does("/a", origin)
        await rig.get(headers={"range": "bytes=0-49"})
        rig.clock.pass_by(100)
        got = await rig.get(headers={"range": "bytes=0-9"})
        assert (got.status, got.body, got.decision) == (206, BODY[:10], "revalidated")
        assert origin.seen[-1] == ("bytes=0-9", None, '"1"')
        got = await rig.get(headers={"range": "bytes=40-49"})
        assert (got.body, got.decision, got.age) == (BODY[40:50], "hit", 0)
        rig.clock.pass_by(100)
        origin.body, origin.fields = bytes(100), (FRESH, ("etag", '"2"'))
        got = await rig.get(headers={"range": "bytes=0-9"})
        assert (got.status, got.body, got.decision) == (206, bytes(10), "revalidate")
        assert (await rig.get(headers={"range": "bytes=5-6"})).decision == "hit"
        assert (await rig.get(headers={"range": "bytes=20-29"})).decision == "miss"


async def test_a_part_is_not_refreshed_behind_the_client_s_back(tmp_path: Path) -> None:
    text = policies(freshness="{staleWhileRevalidate: 1h, refreshAhead: 50%}")
    async with Rig(tmp_path, text) as rig:
        rig.origin.does("/a", Ranged())
        await rig.get(headers={"range": "bytes=0-49"})
        rig.clock.pass_by(50)
        for _ in range(20):
            await rig.get(headers={"range": "bytes=0-9"})
        rig.clock.pass_by(50)
        assert (await rig.get(headers={"range": "bytes=0-9"})).decision == "revalidated"
        assert rig.refresher.asked == []


async def test_conditions_are_judged_by_a_part(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", Ranged())
        await rig.get(headers={"range": "bytes=0-49"})
        got = await rig.get(headers={"range": "bytes=0-9", "if-none-match": '"1"'})
        assert (got.status, got.decision) == (304, "hit")
        got = await rig.get(headers={"range": "bytes=0-9", "if-range": '"1"'})
        assert (got.status, got.decision) == (206, "hit")


async def test_a_whole_answer_takes_the_place_of_parts(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        origin = Ranged()
        rig.origin.does("/a", origin)
        await rig.get(headers={"range": "bytes=0-49"})
        origin.body, origin.fields = bytes(100), (FRESH, ("etag", '"2"'))
        await rig.get()
        await rig.settle()
        assert (await rig.get(headers={"range": "bytes=0-9"})).body == bytes(10)
        assert len(rig.workers[0].memory) == 1
        for storage in list(rig.workers[0].memory._entries):
            rig.workers[0].stack.delete(storage)
        await rig.settle()
        assert isinstance(await rig.send("GET", headers={"range": "bytes=0-9"}), Sent)


@pytest.mark.parametrize(
    ("etag", "decision", "body"), [('"1"', "hit", BODY), ('"2"', "miss", bytes(100)), (None, "revalidate", bytes(100))]
)
async def test_a_206_says_of_the_whole_whether_it_is_still_right(
    tmp_path: Path, etag: str | None, decision: str, body: bytes
) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        origin = Ranged()
        rig.origin.does("/a", origin)
        await rig.get()
        rig.clock.pass_by(100)
        if etag != '"1"':
            origin.body, origin.fields = bytes(100), (FRESH, *((("etag", etag),) if etag else ()))
        # An origin that looks at `range` first.
        rig.origin.does(
            "/a", lambda _: Reply(206, (*origin.fields, ("content-range", "bytes 0-9/100")), origin.body[:10])
        )
        got = await rig.get(headers={"range": "bytes=0-9"})
        assert (got.status, got.body, got.decision) == (206, origin.body[:10], "revalidate")
        rig.origin.does("/a", origin)
        got = await rig.get()
        assert (got.decision, got.body) == (decision, body)


@pytest.mark.parametrize(
    ("status", "fields", "body"),
    [
        (206, (), BODY[:10]),
        (206, (("content-range", "bytes 0-9/5"),), BODY[:10]),
        (206, (("content-range", "lines 0-9/100"),), BODY[:10]),
        (206, (("content-range", "bytes 0-8/100"),), BODY[:10]),
        (206, (("content-range", "bytes 0-9/100"), ("content-type", "multipart/byteranges; boundary=x")), b""),
        (206, (("content-type", "multipart/byteranges; boundary=x"),), b"--x--"),
        (206, (("content-range", "bytes 0-9/100"), ("cache-control", "no-store")), BODY[:10]),
        (206, (("content-range", "bytes 0-9/100"), ("cache-control", "private")), BODY[:10]),
        (206, (("content-range", "bytes 0-9/100"), ("vary", "*")), BODY[:10]),
    ],
)
async def test_parts_that_are_not_kept(
    tmp_path: Path, status: int, fields: tuple[tuple[str, str], ...], body: bytes
) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        first = () if any(name == "cache-control" for name, _ in fields) else (FRESH,)
        rig.origin.does("/a", lambda _: Reply(status, (*first, ("etag", '"1"'), *fields), body))
        for _ in range(2):
            got = await rig.get(headers={"range": "bytes=0-9"})
            assert (got.status, got.body, got.decision) == (206, body, "miss")


async def test_a_206_that_nobody_asked_for_is_not_kept(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", lambda _: Reply(206, (FRESH, ("content-range", "bytes 0-9/10")), BODY[:10]))
        assert (await rig.get()).status == 206
        assert (await rig.get()).decision == "miss"


async def test_a_part_that_was_cut_off_is_not_kept(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", lambda _: Reply(206, (FRESH, ("content-range", "bytes 0-9/20")), BODY[:10], cut_off=True))
        for _ in range(2):
            assert (await rig.get(headers={"range": "bytes=0-9"}, chunk=5)).decision == "miss"


async def test_a_continuation_alone_is_not_kept(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        origin = Ranged()
        rig.origin.does("/a", origin)
        await rig.get(headers={"range": "bytes=0-9", "if-range": '"1"'})
        assert (await rig.get(headers={"range": "bytes=0-9"})).decision == "miss"
        await rig.get(headers={"range": "bytes=10-19", "if-range": '"1"'})
        assert (await rig.get(headers={"range": "bytes=0-19"})).decision == "hit"


async def test_parts_of_variants_are_kept_apart(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        language = request.headers.get("accept-language") or "none"
        body = language.encode() * 10
        fields = (FRESH, ("vary", "accept-language"), ("etag", f'"{language}"'))
        if "range" in request.headers:
            return Reply(206, (*fields, ("content-range", f"bytes 0-9/{len(body)}")), body[:10])
        return Reply(200, fields, body)

    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", answer)
        for language in ("de", "en"):
            await rig.get(headers={"range": "bytes=0-9", "accept-language": language})
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            for language in ("de", "en"):
                got = await rig.get(headers={"range": "bytes=0-1", "accept-language": language})
                assert (got.body, got.decision) == (language.encode(), "hit")
        assert isinstance(await rig.send("GET", headers={"range": "bytes=0-1", "accept-language": "fr"}), Sent)


async def test_a_part_never_hides_a_whole_answer(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        origin = Ranged()
        rig.origin.does("/a", origin)
        await rig.get()
        rig.clock.pass_by(100)
        origin.fields = (FRESH, ("vary", "accept"))
        rig.origin.does("/a", lambda _: Reply(206, (*origin.fields, ("content-range", "bytes 0-9/100")), BODY[:10]))
        await rig.get(headers={"range": "bytes=0-9"})
        origin.fields = (FRESH, ("etag", '"1"'))
        rig.origin.does("/a", origin)
        got = await rig.get()
        assert (got.decision, got.body) == ("revalidated", BODY)


async def test_an_invalidation_reaches_parts(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", Ranged())
        await rig.get(headers={"range": "bytes=0-49"})
        rig.origin.says("/a", b"done")
        await rig.ask("POST")
        assert isinstance(await rig.send("GET", headers={"range": "bytes=0-9"}), Sent)


async def test_what_belongs_to_an_authorized_caller_stays_his(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", Ranged())
        got = await rig.get(headers={"range": "bytes=0-49", "authorization": "x"})
        assert not got.stored
        await rig.get(headers={"range": "bytes=0-49"})
        got = await rig.get(headers={"range": "bytes=0-9", "authorization": "x"})
        assert got.decision == "revalidated"


async def test_an_origin_that_errs_about_the_end(tmp_path: Path) -> None:
    """Five bytes that claim to be six, the last of them the last of all."""
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", lambda _: Reply(206, (FRESH, ("content-range", "bytes 4-9/10")), b"01234"))
        await rig.get(headers={"range": "bytes=-5"})
        for value, body in (("bytes=-5", b"01234"), ("bytes=6-8", b"234"), ("bytes=6-", b"234"), ("bytes=-1", b"4")):
            got = await rig.get(headers={"range": value})
            assert (got.status, got.body, got.decision) == (206, body, "hit")


async def test_small_pieces_of_something_large_are_not_gathered(tmp_path: Path) -> None:
    """Each would have all the others written again."""
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", Ranged())
        for value, stored in (
            ("bytes=0-63", True),
            ("bytes=70-72", False),
            ("bytes=70-75", True),
            ("bytes=64-69", True),
        ):
            await rig.get(headers={"range": value})
            assert ((await rig.get(headers={"range": value})).decision == "hit") is stored
        await rig.get(headers={"range": "bytes=76-98"})
        await rig.get(headers={"range": "bytes=99-"})
        got = await rig.get()
        assert (got.body, got.decision) == (BODY, "hit"), "what completes it is welcome"


async def test_parts_of_what_may_be_personal_make_a_whole_that_may_be(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{mode: override, defaultTtl: 1h}")) as rig:
        rig.origin.does("/a", Ranged())
        await rig.get(headers={"range": "bytes=0-49", "cookie": "sid=1"})
        await rig.get(headers={"range": "bytes=50-99"})
        assert (await rig.get()).decision == "hit"
        rig.clock.pass_by(61)
        assert isinstance(await rig.send("GET"), Sent), "the origin has given it a minute"


@pytest.mark.parametrize("value", ["items=0-1", "0-1", "bytes=0-1"])
async def test_an_origin_with_ranges_of_its_own_kind(tmp_path: Path, value: str) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"two rows", cache_control="max-age=60", headers={"content-range": "0-1/*"})
        assert not (await rig.get(headers={"range": value})).stored
        rig.origin.says("/a", b"all rows", cache_control="max-age=60", headers={"content-range": "0-9/10"})
        got = await rig.get()
        assert (got.body, got.stored) == (b"all rows", True)
