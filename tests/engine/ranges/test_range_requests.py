"""Range requests for which the whole answer is stored."""

from __future__ import annotations

from email.parser import BytesParser
from typing import TYPE_CHECKING

import pytest

from cache_harness import Rig
from cache_origin import Reply
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path

    from meshcache.message import Request

BODY = bytes(range(256)) * 8
PLAIN = policies(freshness="{defaultTtl: 60s}")
STALE = policies(freshness="{defaultTtl: 60s, staleWhileRevalidate: 1h}")
MODIFIED = "Mon, 13 Nov 2023 08:00:00 GMT"
TYPE = {"content-type": "text/plain; charset=utf-8"}


@pytest.mark.parametrize(
    ("value", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=5-", 5, 2047),
        ("bytes=-7", 2041, 2047),
        ("bytes=0-", 0, 2047),
        ("BYTES=9-5000", 9, 2047),
    ],
)
async def test_one_range_is_cut_out(tmp_path: Path, value: str, first: int, last: int) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", BODY, headers=TYPE | {"etag": '"1"', "content-md5": "x", "content-digest": "y"})
        await rig.get()
        rig.clock.pass_by(5)
        for in_memory in (True, False):
            if not in_memory:
                rig.forget_memory()
            got = await rig.get(headers={"range": value})
            assert (got.status, got.body, got.decision) == (206, BODY[first : last + 1], "hit")
            assert got.headers.get("content-range") == f"bytes {first}-{last}/2048"
            assert got.headers.get("content-type") == TYPE["content-type"]
            assert got.headers.get("etag") == '"1"'
            assert not got.headers.names & {"content-md5", "content-digest", "content-length"}
            assert got.age == 5
        assert rig.origin.times == 1
        assert rig.meter.bytes_served["hot"] == last - first + 1


async def test_several_ranges_are_parts_of_one_answer(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", BODY, headers=TYPE)
        await rig.get()
        got = await rig.get(headers={"range": "bytes=1000-1009, 0-4, 3-9, 9000-, -2"})
        assert (got.status, got.decision) == (206, "hit")
        assert "content-range" not in got.headers
        assert len(got.headers.get_all("content-type")) == 1
        head = f"content-type: {got.headers.get('content-type')}\r\n".encode()
        parts = [*BytesParser().parsebytes(head + got.body).walk()][1:]
        assert [(part["content-range"], part["content-type"]) for part in parts] == [
            ("bytes 1000-1009/2048", TYPE["content-type"]),
            ("bytes 0-9/2048", TYPE["content-type"]),
            ("bytes 2046-2047/2048", TYPE["content-type"]),
        ]


@pytest.mark.parametrize(
    "value",
    [
        "bytes=0-900,1100-2047",
        "bytes=9-8",
        "lines=0-1",
        "bytes=" + ",".join(f"{at}-{at}" for at in range(0, 130, 2)),
    ],
)
async def test_the_whole_where_ranges_do_not_count_or_are_longer(tmp_path: Path, value: str) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", BODY)
        await rig.get()
        got = await rig.get(headers={"range": value})
        assert (got.status, got.body, got.decision) == (200, BODY, "hit")
        assert "content-range" not in got.headers


async def test_nothing_that_could_be_sent(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", BODY, headers=TYPE | {"etag": '"1"'})
        rig.origin.says("/empty", b"")
        for path in ("/a", "/empty"):
            await rig.get(path)
        got = await rig.get(headers={"range": "bytes=2048-,-0"})
        assert (got.status, got.body, got.decision) == (416, b"", "hit")
        assert got.headers.get("content-range") == "bytes */2048"
        assert got.headers.get("etag") == '"1"'
        assert "content-type" not in got.headers
        got = await rig.get("/empty", {"range": "bytes=0-"})
        assert (got.status, got.headers.get("content-range")) == (416, "bytes */0")
        assert (await rig.get("/empty", {"range": "bytes=-5"})).status == 200


async def test_a_page_of_another_origin_may_see_that_there_are_no_such_bytes(tmp_path: Path) -> None:
    cors = {"access-control-allow-origin": "*", "access-control-expose-headers": "content-range", "x-own": "1"}
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", BODY, headers=TYPE | cors | {"content-language": "de", "content-disposition": "inline"})
        await rig.get()
        got = await rig.get(headers={"range": "bytes=2048-", "origin": "https://a.example"})
        assert (got.status, got.decision) == (416, "hit")
        assert cors.items() <= dict(got.headers).items()
        assert [name for name, _ in got.headers if name.startswith("content-")] == ["content-range"]


async def test_head_and_other_statuses_have_no_ranges(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s, negative: [{status: 404, ttl: 60s}]}")) as rig:
        rig.origin.says("/a", BODY)
        rig.origin.says("/missing", b"nothing", status=404)
        rig.origin.says("/moved", b"there", status=301, headers={"location": "/b"})
        for path, status in (("/a", 200), ("/missing", 404), ("/moved", 301)):
            await rig.get(path)
            if path == "/a":
                got = await rig.ask("HEAD", path, {"range": "bytes=0-1"})
            else:
                got = await rig.get(path, {"range": "bytes=0-1"})
            assert (got.status, got.decision) == (status, "hit")
            assert "content-range" not in got.headers


@pytest.mark.parametrize(
    ("if_range", "status"),
    [('"1"', 206), ('"2"', 200), ('W/"1"', 200), (MODIFIED, 206), ("Mon, 13 Nov 2023 08:00:01 GMT", 200), ("x y", 200)],
)
async def test_if_range(tmp_path: Path, if_range: str, status: int) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", BODY, headers={"etag": '"1"', "last-modified": MODIFIED})
        await rig.get()
        got = await rig.get(headers={"range": "bytes=0-1", "if-range": if_range})
        assert (got.status, got.decision) == (status, "hit")
        assert got.body == (BODY if status == 200 else BODY[:2])


@pytest.mark.parametrize(
    "condition", [{"if-none-match": '"1"'}, {"if-modified-since": MODIFIED}, {"if-none-match": "*", "if-range": '"1"'}]
)
async def test_conditions_come_before_ranges(tmp_path: Path, condition: dict[str, str]) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", BODY, headers={"etag": '"1"', "last-modified": MODIFIED})
        await rig.get()
        for value in ("bytes=0-1", "bytes=9999-"):
            got = await rig.get(headers={"range": value} | condition)
            assert (got.status, got.body) == (304, b"")
        assert (await rig.get(headers={"range": "bytes=0-1", "if-none-match": '"2"'})).status == 206


async def test_a_stale_answer_is_validated_and_then_cut(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", BODY, cache_control="max-age=10", headers={"etag": '"1"'})
        await rig.get()
        rig.clock.pass_by(20)
        got = await rig.get(headers={"range": "bytes=0-1"})
        assert (got.status, got.body, got.decision) == (206, BODY[:2], "revalidated")
        asked = rig.origin.asked[-1].headers
        assert (asked.get("if-none-match"), asked.get("range")) == ('"1"', "bytes=0-1")
        assert (await rig.get()).decision == "hit"


async def test_a_stale_answer_is_cut_while_the_whole_is_refreshed(tmp_path: Path) -> None:
    async with Rig(tmp_path, STALE) as rig:
        rig.origin.says("/a", BODY, cache_control="max-age=10", headers={"vary": "accept"})
        await rig.get()
        rig.clock.pass_by(20)
        rig.origin.says("/a", b"new", cache_control="max-age=10", headers={"vary": "accept"})
        got = await rig.get(headers={"range": "bytes=0-1", "if-range": '"1"'})
        assert (got.status, got.body, got.decision) == (200, BODY, "stale-swr")
        await rig.settle()
        assert not rig.refresher.asked[-1].headers.names & {"range", "if-range"}
        got = await rig.get(headers={"range": "bytes=0-1"})
        assert (got.status, got.body, got.decision) == (206, b"ne", "hit")


async def test_what_is_chosen_by_its_range_is_validated_by_the_client_s_own_request(tmp_path: Path) -> None:
    async with Rig(tmp_path, STALE) as rig:
        rig.origin.says("/a", BODY, cache_control="max-age=10", headers={"vary": "range", "etag": '"1"'})
        await rig.get(headers={"range": "bytes=0-1"})
        rig.clock.pass_by(20)
        got = await rig.get(headers={"range": "bytes=0-1"})
        assert (got.status, got.decision) == (206, "revalidated")


async def test_an_origin_that_fails_is_stood_in_for_by_a_part(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s, staleIfError: 1h}")) as rig:
        rig.origin.says("/a", BODY)
        await rig.get()
        rig.clock.pass_by(100)
        rig.origin.says("/a", b"down", status=503)
        got = await rig.get(headers={"range": "bytes=0-1"})
        assert (got.status, got.body, got.decision) == (206, BODY[:2], "stale-if-error")


async def test_an_origin_that_knows_no_ranges_fills_the_cache(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", BODY)
        got = await rig.get(headers={"range": "bytes=0-1"})
        assert (got.status, got.body, got.decision, got.stored) == (200, BODY, "miss", True)
        assert (await rig.get()).decision == "hit"
        assert (await rig.get(headers={"range": "bytes=0-1"})).body == BODY[:2]


@pytest.mark.parametrize("status", [400, 412, 416])
async def test_a_refusal_of_a_range_is_no_answer_to_others(tmp_path: Path, status: int) -> None:
    def answer(request: Request) -> Reply:
        if "range" in request.headers:
            return Reply(status, (("cache-control", "max-age=60"), ("content-range", "bytes */4")))
        return Reply(200, (("cache-control", "max-age=60"),), b"body")

    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", answer)
        assert (await rig.get(headers={"range": "bytes=9-"})).status == status
        assert (await rig.get()).body == b"body"


async def test_a_200_with_a_content_range_is_a_whole_answer(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", BODY, headers={"content-range": "bytes 0-1/9"})
        await rig.get()
        got = await rig.get()
        assert (got.status, got.headers.get("content-range"), got.decision) == (200, "bytes 0-1/9", "hit")
        got = await rig.get(headers={"range": "bytes=0-0"})
        assert (got.status, got.headers.get_all("content-range")) == (206, ["bytes 0-0/2048"])
