"""Ranges of bytes through real Envoy: what is on the wire."""

from __future__ import annotations

import time
from email.parser import BytesParser

import pytest
from running_mesh import eventually, verdict
from scripted_origin import reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

FRESH = ("cache-control", "max-age=60")
ETAG = ("etag", '"1"')
TEXT = ("content-type", "text/plain; charset=utf-8")
BODY = bytes(range(256)) * 64


async def stored(mesh, origin, path, *fields):
    origin.script(path, reply(200, [FRESH, ETAG, TEXT, *fields], BODY))
    assert await mesh.settled(path)


async def test_a_range_of_what_is_stored(mesh, origin, path):
    await stored(mesh, origin, path)
    seen = origin.count(path)
    answer = await mesh.get(path, {"range": "bytes=100-299"})
    assert (answer.status_code, answer.content) == (206, BODY[100:300])
    assert answer.headers["content-range"] == "bytes 100-299/16384"
    assert answer.headers["content-length"] == "200"
    assert answer.headers["content-type"] == TEXT[1]
    assert answer.headers["etag"] == '"1"'
    assert "age" in answer.headers
    assert verdict(answer).hit
    assert origin.count(path) == seen


async def test_several_ranges(mesh, origin, path):
    await stored(mesh, origin, path)
    answer = await mesh.get(path, {"range": "bytes=0-9,-10"})
    assert answer.status_code == 206
    assert answer.headers["content-length"] == str(len(answer.content))
    assert "content-range" not in answer.headers
    head = f"content-type: {answer.headers['content-type']}\r\n".encode()
    parts = BytesParser().parsebytes(head + answer.content).get_payload()
    assert [part["content-range"] for part in parts] == ["bytes 0-9/16384", "bytes 16374-16383/16384"]
    assert [part["content-type"] for part in parts] == [TEXT[1]] * 2


async def test_no_such_range(mesh, origin, path):
    await stored(mesh, origin, path)
    host = f"127.0.0.1:{mesh.port}"
    asked = f"GET {path} HTTP/1.1\r\nhost: {host}\r\nrange: bytes=20000-\r\nconnection: close\r\n\r\n"
    raw = await mesh.raw(asked.encode())
    head, _, body = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 416 ")
    assert b"\r\ncontent-range: bytes */16384" in head
    assert b"content-type" not in head
    assert b"\r\ncontent-length: 0" in head
    assert body == b""


async def test_a_range_of_something_without_a_type(mesh, origin, path):
    origin.script(path, reply(200, [FRESH], BODY))
    assert await mesh.settled(path)
    answer = await mesh.get(path, {"range": "bytes=0-9"})
    assert (answer.status_code, answer.headers["content-type"]) == (206, "")


async def test_head_and_another_version_get_the_whole(mesh, origin, path):
    await stored(mesh, origin, path)
    head = await mesh.get(path, {"range": "bytes=0-9"}, method="HEAD")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "16384")
    assert "content-range" not in head.headers
    other = await mesh.get(path, {"range": "bytes=0-9", "if-range": '"2"'})
    assert (other.status_code, other.content) == (200, BODY)
    assert verdict(other).hit
    unchanged = await mesh.get(path, {"range": "bytes=0-9", "if-none-match": '"1"'})
    assert (unchanged.status_code, unchanged.content) == (304, b"")


async def test_a_stale_answer_is_validated_and_then_cut(mesh, origin, path):
    stale = [("cache-control", "max-age=0"), ETAG]
    origin.script(path, reply(200, stale, BODY), reply(304, [FRESH, ETAG]))
    await mesh.get(path)
    answer = await mesh.get(path, {"range": "bytes=1-3"})
    assert (answer.status_code, answer.content) == (206, BODY[1:4])
    assert answer.headers["content-length"] == "3"
    assert verdict(answer).fwd == "stale"
    asked = origin.asked(path)[-1]
    assert (asked.get("range"), asked.get("if-none-match")) == ("bytes=1-3", '"1"')


async def test_parts_are_stored_and_become_the_whole(mesh, origin, path):
    def part(first, last):
        fields = [FRESH, ETAG, TEXT, ("content-range", f"bytes {first}-{last}/{len(BODY)}")]
        return reply(206, fields, BODY[first : last + 1])

    origin.script(path, part(0, 9999), part(10000, 16383))
    first = await mesh.get(path, {"range": "bytes=0-9999"})
    assert (first.status_code, first.headers["content-length"], verdict(first).stored) == (206, "10000", True)
    within = await mesh.get(path, {"range": "bytes=100-199"})
    assert (within.status_code, within.content, verdict(within).hit) == (206, BODY[100:200], True)
    assert within.headers["content-range"] == "bytes 100-199/16384"
    rest = await mesh.get(path, {"range": "bytes=10000-"})
    assert (rest.status_code, verdict(rest).fwd) == (206, "partial")
    whole = await mesh.get(path)
    assert (whole.status_code, whole.content, verdict(whole).hit) == (200, BODY, True)
    assert "content-range" not in whole.headers
    assert origin.count(path) == 2


async def test_the_rest_of_what_is_held_is_asked_for(mesh, origin, path):
    fields = [FRESH, ETAG, TEXT]
    answers = {
        "bytes=0-9999": reply(206, [*fields, ("content-range", f"bytes 0-9999/{len(BODY)}")], BODY[:10000]),
        "bytes=10000-": reply(206, [*fields, ("content-range", f"bytes 10000-16383/{len(BODY)}")], BODY[10000:]),
        None: reply(200, fields, BODY),
    }
    paths = iter([f"{path}/{number}" for number in range(1000)])

    async def answer(asked, wire):
        await wire.send(answers[asked.get("range")])

    async def completed():
        """A path and its whole answer; None where the rest took longer than a client waits: a tenth of a second."""
        path = next(paths)
        origin.script(path, answer)
        await mesh.get(path, {"range": "bytes=0-9999"})
        whole = await mesh.get(path)
        assert (whole.status_code, whole.content) == (200, BODY)
        return (path, whole) if [one.get("range") for one in origin.asked(path)][1:] == ["bytes=10000-"] else None

    path, whole = await eventually(completed)
    assert verdict(whole).fwd == "partial"
    assert whole.headers["content-length"] == str(len(BODY))
    assert "content-range" not in whole.headers
    asked = origin.asked(path)[-1]
    assert (asked.get("range"), asked.get("if-range")) == ("bytes=10000-", '"1"')
    assert verdict(await mesh.get(path)).hit
    assert origin.count(path) == 2


async def test_a_rest_that_does_not_come_in_time_is_not_waited_for(mesh, origin, path):
    async def never(_asked, wire):
        await wire.gone()

    beginning = reply(206, [FRESH, ETAG, ("content-range", f"bytes 0-9999/{len(BODY)}")], BODY[:10000])
    origin.script(path, beginning, never, reply(200, [FRESH, ETAG], BODY))
    await mesh.get(path, {"range": "bytes=0-9999"})
    began = time.monotonic()
    whole = await mesh.get(path)
    assert (whole.status_code, whole.content, verdict(whole).stored) == (200, BODY, True)
    assert time.monotonic() - began < 15, "not the time that Envoy gives an origin"
    assert [asked.get("range") for asked in origin.asked(path)] == ["bytes=0-9999", "bytes=10000-", None]
