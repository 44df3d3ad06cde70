"""What a client gets from a cache that works: the first answer from the origin, the second one stored, the same."""

from __future__ import annotations

import gzip
import os
import zlib

import pytest
from running_mesh import eventually, verdict
from scripted_origin import reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

FRESH = ("cache-control", "max-age=60")


async def test_the_second_answer_comes_from_memory(mesh, origin, path):
    first, second = await mesh.get(path), await mesh.get(path)
    assert verdict(first).fwd == "uri-miss"
    assert verdict(first).stored
    assert verdict(second).hit
    assert verdict(second).tier == "hot"
    assert verdict(second).policy == "plain"
    assert 55 <= verdict(second).ttl <= 60
    assert second.content == first.content == f"{path} 1".encode()
    assert 0 <= int(second.headers["age"]) <= 5
    assert "age" not in first.headers
    assert second.headers["content-length"] == str(len(first.content))
    assert origin.count(path) == 1


async def test_age_counts_from_what_the_origin_says(mesh, origin, path):
    origin.script(path, reply(200, [FRESH, ("age", "40")], b"x"))
    await mesh.get(path)
    again = await mesh.get(path)
    assert 40 <= int(again.headers["age"]) <= 45
    assert 15 <= verdict(again).ttl <= 20


async def test_head_is_answered_from_a_stored_get(mesh, origin, path):
    await mesh.get(path)
    answer = await mesh.raw(f"HEAD {path} HTTP/1.1\r\nhost: {mesh.base[7:]}\r\nconnection: close\r\n\r\n".encode())
    top, _, body = answer.partition(b"\r\n\r\n")
    assert top.startswith(b"HTTP/1.1 200")
    assert f"content-length: {len(f'{path} 1')}".encode() in top.lower()
    assert b"transfer-encoding" not in top.lower()
    assert b"meshcache; hit" in top
    assert body == b""
    assert origin.count(path) == 1


async def test_an_answer_to_head_is_not_stored_for_get(mesh, origin, path):
    assert verdict(await mesh.get(path, method="HEAD")).fwd == "uri-miss"
    answer = await mesh.get(path)
    assert verdict(answer).fwd == "uri-miss"
    assert answer.content == f"{path} 2".encode()


@pytest.mark.parametrize("condition", ['"v1"', 'W/"v1"', '"v0", "v1"', "*"])
async def test_a_client_that_holds_the_answer_gets_304(mesh, origin, path, condition):
    origin.script(path, reply(200, [FRESH, ("etag", '"v1"'), ("content-type", "text/x")], b"body"))
    await mesh.get(path)
    answer = await mesh.get(path, {"if-none-match": condition})
    assert answer.status_code == 304
    assert answer.content == b""
    assert answer.headers["etag"] == '"v1"'
    assert answer.headers["cache-control"] == "max-age=60"
    assert verdict(answer).hit
    assert origin.count(path) == 1


async def test_a_client_that_holds_another_answer_gets_it_whole(mesh, origin, path):
    origin.script(path, reply(200, [FRESH, ("etag", '"v1"')], b"body"))
    await mesh.get(path)
    answer = await mesh.get(path, {"if-none-match": '"v0"'})
    assert (answer.status_code, answer.content) == (200, b"body")


async def test_a_date_of_last_modification_makes_304_too(mesh, origin, path):
    modified = "Sat, 01 Jan 2022 00:00:00 GMT"
    origin.script(path, reply(200, [FRESH, ("last-modified", modified)], b"body"))
    await mesh.get(path)
    assert (await mesh.get(path, {"if-modified-since": modified})).status_code == 304
    earlier = await mesh.get(path, {"if-modified-since": "Fri, 31 Dec 2021 23:59:59 GMT"})
    assert (earlier.status_code, earlier.content) == (200, b"body")


@pytest.mark.parametrize("status", [200, 203, 204, 301, 308, 404, 410, 501])
async def test_a_status_is_stored_with_its_answer(mesh, origin, path, status):
    body = b"" if status == 204 else b"text"
    origin.script(path, reply(status, [FRESH, ("location", "/elsewhere"), ("x-mine", "1")], body))
    await mesh.get(path)
    answer = await mesh.get(path)
    assert verdict(answer).hit
    assert (answer.status_code, answer.content) == (status, body)
    assert answer.headers["location"] == "/elsewhere"
    assert answer.headers["x-mine"] == "1"
    assert ("content-length" in answer.headers) == (status != 204)
    assert origin.count(path) == 1


async def test_an_answer_of_no_type_is_not_given_one(mesh, origin, path):
    origin.script(path, reply(200, [FRESH], b"<html>"))
    assert "content-type" not in (await mesh.get(path)).headers
    for method in ("GET", "HEAD"):
        answer = await mesh.get(path, method=method)
        assert verdict(answer).hit
        assert answer.headers.get("content-type", "") == ""


async def test_an_empty_answer_stays_empty(mesh, origin, path):
    origin.script(path, reply(200, [FRESH], b""))
    await mesh.get(path)
    answer = await mesh.get(path)
    assert verdict(answer).hit
    assert answer.headers["content-length"] == "0"
    assert answer.content == b""


async def test_a_large_answer_comes_back_byte_for_byte(mesh, origin, path):
    body = os.urandom(5 << 20)
    origin.script(path, reply(200, [FRESH, ("content-type", "application/octet-stream")], body))
    assert (await mesh.get(path)).content == body
    # Too large for memory: it is written to the warm tier in the background.
    hit = await eventually(lambda: mesh.hit(path))
    assert verdict(hit).tier == "warm"
    assert hit.content == body
    assert hit.headers["content-length"] == str(len(body))


async def test_bytes_above_ascii_in_header_values_are_kept(mesh, origin, path):
    value = bytes(range(0x80, 0x100)).decode("latin-1")
    origin.script(path, reply(200, [FRESH, ("x-bytes", value)], b"x"))
    for expected in ("uri-miss", ""):
        answer = await mesh.get(path)
        assert verdict(answer).fwd == expected
        assert dict(answer.headers.raw)[b"x-bytes"] == value.encode("latin-1")


async def test_repeated_lines_stay_separate_and_in_order(mesh, origin, path):
    lines = [("link", "</a>; rel=x"), ("x-one", "1"), ("link", "</b>; rel=y"), ("link", "</c>; rel=z")]
    origin.script(path, reply(200, [FRESH, *lines], b"x"))
    for expected in ("uri-miss", ""):
        answer = await mesh.get(path)
        assert verdict(answer).fwd == expected
        assert answer.headers.get_list("link") == ["</a>; rel=x", "</b>; rel=y", "</c>; rel=z"]


async def test_a_coded_body_is_left_as_it_is(mesh, origin, path):
    body = gzip.compress(b"text " * 1000)
    origin.script(path, reply(200, [FRESH, ("content-encoding", "gzip")], body))
    accepted = {"accept-encoding": "gzip"}
    await mesh.get(path, accepted)
    async with mesh.client.stream("GET", path, headers=accepted) as answer:
        received = b"".join([part async for part in answer.aiter_raw()])
    assert verdict(answer).hit
    assert answer.headers["content-encoding"] == "gzip"
    assert received == body
    assert zlib.decompress(received, 31) == b"text " * 1000


async def test_a_cookie_reaches_the_one_it_was_set_for_and_nobody_else(mesh, origin, path):
    origin.script(path, reply(200, [FRESH, ("set-cookie", "sid=1"), ("set-cookie", "b=2"), ("x-kept", "1")], b"x"))
    first, second = await mesh.get(path), await mesh.get(path)
    assert first.headers.get_list("set-cookie") == ["sid=1", "b=2"]
    assert verdict(second).hit
    assert "set-cookie" not in second.headers
    assert second.headers["x-kept"] == "1"


async def test_what_belongs_to_one_connection_is_not_replayed(mesh, origin, path):
    fields = [FRESH, ("connection", "x-hop"), ("x-hop", "1"), ("keep-alive", "timeout=5"), ("proxy-authenticate", "a")]
    origin.script(path, reply(200, fields, b"x"))
    await mesh.get(path)
    answer = await mesh.get(path)
    assert verdict(answer).hit
    assert not {"x-hop", "keep-alive", "proxy-authenticate"} & set(answer.headers)


async def test_variants_are_kept_apart(mesh, origin, path):
    async def speak(asked, wire):
        language = asked.get("accept-language") or "none"
        await wire.send(reply(200, [FRESH, ("vary", "Accept-Language")], language.encode()))

    origin.script(path, speak)
    for _ in range(2):
        assert (await mesh.get(path, {"accept-language": "de"})).text == "de"
        assert (await mesh.get(path, {"accept-language": "en"})).text == "en"
        assert (await mesh.get(path)).text == "none"
    assert origin.count(path) == 3
    assert verdict(await mesh.get(path, {"accept-language": "en"})).hit
    assert verdict(await mesh.get(path, {"accept-language": "fr"})).fwd == "vary-miss"


async def test_queries_are_different_answers(mesh, origin, path):
    first, second = await mesh.get(f"{path}?a=1"), await mesh.get(f"{path}?a=2")
    assert first.content != second.content
    assert (await mesh.get(f"{path}?a=1")).content == first.content
    assert (await mesh.get(f"{path}?a=2")).content == second.content


async def test_hosts_are_different_answers(mesh, origin, path):
    first = await mesh.get(path, {"host": "one.example"})
    second = await mesh.get(path, {"host": "two.example"})
    assert first.content != second.content
    assert verdict(await mesh.get(path, {"host": "ONE.example"})).hit, "the same host, however it is spelled"


@pytest.mark.parametrize(
    "fields",
    [
        [("cache-control", "no-store")],
        [("cache-control", "no-store, max-age=60")],
        [("cache-control", "NO-STORE"), FRESH],
        [("cache-control", "private, max-age=60")],
        [FRESH, ("vary", "*")],
        [FRESH, ("vary", "accept"), ("vary", "*")],
        [("cache-control", "max-age=0")],
        [("expires", "0")],
        [],
    ],
    ids=lambda fields: " ".join(f"{name} {value}" for name, value in fields) or "nothing",
)
async def test_what_must_not_be_reused_is_not(mesh, origin, path, fields):
    origin.script(path, reply(200, fields, b"one"), reply(200, fields, b"two"))
    assert (await mesh.get(path)).content == b"one"
    again = await mesh.get(path)
    assert again.content == b"two"
    assert not verdict(again).hit


async def test_no_cache_is_stored_and_asked_about_each_time(mesh, origin, path):
    fields = [("cache-control", "no-cache, max-age=60"), ("etag", '"1"')]
    origin.script(path, reply(200, fields, b"one"), reply(304, fields))
    await mesh.get(path)
    again = await mesh.get(path)
    assert (again.status_code, again.content) == (200, b"one")
    assert "fwd-status=304" in again.headers["cache-status"]
    assert origin.asked(path)[1].get("if-none-match") == '"1"'


async def test_a_304_of_the_origin_makes_the_stored_answer_fresh_again(mesh, origin, path):
    old = [FRESH, ("age", "100"), ("etag", '"1"'), ("x-rev", "old")]
    origin.script(path, reply(200, old, b"body"), reply(304, [FRESH, ("etag", '"1"'), ("x-rev", "new")]))
    await mesh.get(path)
    validated, hit = await mesh.get(path), await mesh.get(path)
    for answer in (validated, hit):
        assert (answer.status_code, answer.content) == (200, b"body")
        assert answer.headers["x-rev"] == "new"
        assert int(answer.headers["age"]) < 5
    assert verdict(hit).hit
    assert origin.count(path) == 2


async def test_a_request_may_ask_for_the_origins_own_answer(mesh, origin, path):
    await mesh.get(path)
    answer = await mesh.get(path, {"cache-control": "no-cache"})
    assert verdict(answer).fwd == "request"
    assert answer.content == f"{path} 2".encode()
    assert (await mesh.get(path)).content == f"{path} 2".encode()


async def test_a_request_may_forbid_to_store(mesh, origin, path):
    await mesh.get(path, {"cache-control": "no-store"})
    assert verdict(await mesh.get(path)).fwd == "uri-miss"


async def test_answers_to_authorized_requests_are_not_shared(mesh, origin, path):
    await mesh.get(path, {"authorization": "Bearer a"})
    for headers in ({"authorization": "Bearer b"}, {"authorization": "Bearer a"}, {}):
        assert verdict(await mesh.get(path, headers)).fwd == "uri-miss"
    assert verdict(await mesh.get(path)).hit
    stranger = await mesh.get(path, {"authorization": "Bearer b"})
    assert not verdict(stranger).hit
    assert origin.asked(path)[-1].get("authorization") == "Bearer b"


@pytest.mark.parametrize("permission", ["public", "s-maxage=60", "must-revalidate"])
async def test_answers_to_authorized_requests_are_shared_when_the_origin_allows_it(mesh, origin, path, permission):
    origin.script(path, reply(200, [("cache-control", f"max-age=60, {permission}")], b"x"))
    await mesh.get(path, {"authorization": "Bearer a"})
    assert verdict(await mesh.get(path, {"authorization": "Bearer b"})).hit
    assert verdict(await mesh.get(path)).hit


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_change_drops_what_is_stored(mesh, origin, path, method):
    await mesh.get(path)
    assert (await mesh.get(path, method=method)).status_code == 200
    answer = await mesh.get(path)
    assert not verdict(answer).hit
    assert answer.content == f"{path} 3".encode()


async def test_a_change_that_failed_drops_nothing(mesh, origin, path):
    good = reply(200, [FRESH], b"kept")
    origin.script(path, good, reply(403), good)
    await mesh.get(path)
    await mesh.get(path, method="POST")
    assert verdict(await mesh.get(path)).hit


async def test_a_route_without_a_policy_passes_untouched(mesh, origin, name):
    answers = [await mesh.get(f"/elsewhere/{name}") for _ in range(2)]
    assert [answer.text[-1] for answer in answers] == ["1", "2"]
    assert all("cache-status" not in answer.headers for answer in answers)


async def test_a_cache_nearer_to_the_origin_keeps_its_word(mesh, origin, path):
    origin.script(path, reply(200, [FRESH, ("cache-status", "Inner; fwd=miss")], b"x"))
    answer = await mesh.get(path)
    assert answer.headers["cache-status"].startswith("Inner; fwd=miss, meshcache; fwd=uri-miss")
