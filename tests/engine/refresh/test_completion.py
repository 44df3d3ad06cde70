"""A request for the whole while a part is held."""

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


@pytest.mark.parametrize(
    ("held", "asked"), [("bytes=0-59", "bytes=60-"), ("bytes=-30", "bytes=0-69"), ("bytes=0-98", "bytes=99-")]
)
@pytest.mark.parametrize("in_memory", [True, False])
async def test_only_the_rest_is_asked_for(tmp_path: Path, held: str, asked: str, in_memory: bool) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        origin = Ranged(in_parts=(("x-a", "1"),))
        rig.origin.does("/a", origin)
        await rig.get(headers={"range": held})
        if not in_memory:
            rig.forget_memory()
        got = await rig.get(headers={"accept": "text/plain", "x-secret": "1"})
        assert (got.status, got.body, got.decision) == (200, BODY, "completed")
        assert origin.seen[1:] == [(asked, '"1"', None)]
        assert "x-secret" not in rig.refresher.asked[-1].headers
        assert "content-range" not in got.headers
        assert got.headers.get("x-a") == "1"
        assert "fwd=partial; fwd-status=206; stored" in (got.headers.get("cache-status") or "")
        assert (await rig.get()).decision == "hit"
        assert rig.meter.requests[-2][0] == "completed"


async def test_pieces_in_the_middle(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        origin = Ranged()
        rig.origin.does("/a", origin)
        for value in ("bytes=0-19", "bytes=80-"):
            await rig.get(headers={"range": value})
        assert (await rig.get()).body == BODY
        assert origin.seen[-1] == ("bytes=20-79", '"1"', None)


async def test_another_version_comes_whole(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        origin = Ranged()
        rig.origin.does("/a", origin)
        await rig.get(headers={"range": "bytes=0-59"})
        origin.body, origin.fields = bytes(100), (FRESH, ("etag", '"2"'))
        got = await rig.get()
        assert (got.status, got.body, got.decision) == (200, bytes(100), "completed")
        assert "fwd-status=200" in (got.headers.get("cache-status") or "")
        assert (await rig.get(headers={"range": "bytes=0-9"})).body == bytes(10)


async def test_a_stale_part_with_a_strong_validator_is_completed(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", Ranged())
        await rig.get(headers={"range": "bytes=0-59"})
        rig.clock.pass_by(100)
        got = await rig.get()
        assert (got.body, got.decision, got.age) == (BODY, "completed", 0)


def without_if_range(request: Request) -> Reply:
    """An origin that knows ranges and no `if-range`, and has another version by now."""
    later = (FRESH, ("etag", '"2"'))
    if "range" in request.headers:
        return Reply(206, (*later, ("content-range", "bytes 60-99/100")), bytes(40))
    return Reply(200, later, bytes(100))


def another_range(request: Request) -> Reply:
    fields = (FRESH, ("etag", '"1"'))
    if "range" in request.headers:
        return Reply(206, (*fields, ("content-range", "bytes 60-69/100")), BODY[60:70])
    return Reply(200, fields, BODY)


def gone_shorter(request: Request) -> Reply:
    if "range" in request.headers:
        return Reply(416, (("content-range", "bytes */10"),))
    return Reply(200, (FRESH,), b"0123456789")


def failing(request: Request) -> Reply:
    if "range" in request.headers:
        return Reply(503, (), b"down")
    return Reply(200, (FRESH,), BODY)


def cut_off(request: Request) -> Reply:
    if "range" in request.headers:
        fields = (FRESH, ("etag", '"1"'), ("content-range", "bytes 60-99/100"))
        return Reply(206, fields, BODY[60:70], cut_off=True)
    return Reply(200, (FRESH,), BODY)


def private(request: Request) -> Reply:
    del request
    return Reply(200, (("cache-control", "private"),), BODY)


@pytest.mark.parametrize("origin", [without_if_range, another_range, gone_shorter, failing, cut_off, private])
async def test_whatever_goes_wrong_the_request_is_forwarded_as_it_is(tmp_path: Path, origin: object) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", Ranged())
        await rig.get(headers={"range": "bytes=0-59"})
        rig.origin.does("/a", origin)  # type: ignore[arg-type]
        got = await rig.get()
        assert (got.status, got.decision, got.reason) == (200, "miss", "partial")
        whole = origin(rig.origin.asked[-1])  # type: ignore[operator]
        assert got.body == whole.body
        assert "range" not in rig.origin.asked[-1].headers
        assert "if-range" not in rig.origin.asked[-1].headers
        again = await rig.get()
        assert again.body == whole.body


async def test_an_origin_that_is_slow_is_not_waited_for(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", Ranged())
        await rig.get(headers={"range": "bytes=0-59"})
        rig.refresher.may_go.clear()
        got = await rig.get()
        assert (got.body, got.decision) == (BODY, "miss")
        rig.refresher.may_go.set()
        await rig.get("/b", headers={"range": "bytes=0-59"})
        slow = await rig.forwarded("GET", "/c", headers={"range": "bytes=0-59"})
        rig.clock.pass_by(1)
        rig.origin.does("/c", Ranged())
        await slow.finish()
        assert isinstance(await rig.send("GET", "/c"), Sent)
        assert len(rig.refresher.asked) == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "x"},
        {"cookie": "a=b"},
        {"if-none-match": '"0"'},
        {"if-modified-since": "Mon, 13 Nov 2023 08:00:00 GMT"},
        {"cache-control": "no-cache"},
    ],
)
async def test_requests_that_are_more_than_plain_go_by_themselves(tmp_path: Path, headers: dict[str, str]) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", Ranged())
        await rig.get(headers={"range": "bytes=0-59"})
        assert isinstance(await rig.send("GET", headers=headers), Sent)
        assert rig.refresher.asked == []


async def test_without_a_validator_the_rest_is_asked_for_and_never_pieced_on(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        origin = Ranged(fields=(FRESH,))
        rig.origin.does("/a", origin)
        await rig.get(headers={"range": "bytes=0-59"})
        got = await rig.get()
        assert (got.body, got.decision) == (BODY, "miss")
        assert origin.seen[1:] == [("bytes=60-", None, None), (None, None, None)]
        for value in ("bytes=50-", "bytes=20-59"):
            await rig.ask("POST")
            await rig.get(headers={"range": value})
            assert (await rig.get()).body == BODY
        assert len(rig.refresher.asked) == 1, "the beginning or the middle is not asked for"


async def test_an_answer_that_the_fetch_chose_by_fields_it_did_not_send(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        name = request.headers.get("x-name") or "nobody"
        fields = (FRESH, ("vary", "x-name"), ("etag", f'"{name}"'))
        return Reply(200, fields, name.encode() * 10)

    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.does("/a", Ranged())
        await rig.get(headers={"range": "bytes=0-59", "x-name": "ann"})
        rig.origin.does("/a", answer)
        got = await rig.get(headers={"x-name": "ann"})
        assert (got.body, got.decision) == (b"ann" * 10, "miss")


async def test_one_at_a_time(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies(freshness="{}"), workers=2) as rig:
        rig.origin.does("/a", Ranged())
        await rig.get(headers={"range": "bytes=0-59"})
        await rig.settle()
        stolen = rig.board.leases.lease(_part_storage(rig), 5)
        assert stolen is not None
        got = await rig.get()
        assert (got.body, got.decision) == (BODY, "miss")
        assert rig.refresher.asked == []


def _part_storage(rig: Rig) -> bytes:
    (storage,) = rig.workers[0].memory._entries
    return storage
