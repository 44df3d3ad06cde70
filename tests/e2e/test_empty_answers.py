"""Answers without content, out of the cache: with the fields that they came with, to GET and to HEAD."""

from __future__ import annotations

import pytest
from hot_mesh import crowd_of
from running_mesh import eventually, verdict
from scripted_origin import reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

FRESH = ("cache-control", "max-age=60")
TYPED = [FRESH, ("etag", '"e"'), ("content-type", "text/javascript"), ("link", "<a>"), ("link", "<b>")]


def told(answer):
    """What is said of the content, and whether the connection says something else of it."""
    names = ("content-type", "content-length", "etag", "link", "transfer-encoding")
    return {name: answer.headers[name] for name in names if name in answer.headers}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("status", [200, 301, 404])
async def test_a_hit_has_the_type_and_the_length_that_the_miss_had(mesh, origin, path, status, method):
    origin.script(path, reply(status, TYPED))
    first = await mesh.get(path)
    assert verdict(first).stored
    hit = await mesh.get(path, method=method)
    assert verdict(hit).hit
    assert hit.status_code == status
    assert told(hit) == told(first)
    assert told(hit)["content-length"] == "0"


async def test_one_that_has_no_type_has_none(mesh, origin, path):
    origin.script(path, reply(200, [FRESH]))
    await mesh.get(path)
    for method in ("GET", "HEAD"):
        hit = await mesh.get(path, method=method)
        assert verdict(hit).hit
        assert told(hit) == {"content-length": "0"}


async def test_its_copy_is_confirmed_as_any_other(mesh, origin, path):
    origin.script(path, reply(200, TYPED))
    await mesh.get(path)
    assert (await mesh.get(path, {"if-none-match": '"e"'})).status_code == 304


@pytest.mark.parametrize("status", [200, 301])
async def test_with_the_filter_in_envoy(hot, origin, path, status):
    origin.script(path, reply(status, TYPED))
    async with crowd_of(hot) as crowd:
        for method in ("GET", "GET", "HEAD", "GET"):
            for answer in await crowd.get(path, method=method):
                assert answer.status_code == status
                assert told(answer)["content-type"] == "text/javascript"
                assert told(answer)["content-length"] == "0"
    assert verdict(answer).hit


LARGE = bytes(1 << 21)
STALE = [("cache-control", "max-age=0"), ("etag", '"e"'), ("content-type", "text/javascript"), ("link", "<a>, <b>")]
CONFIRMED = reply(304, [("cache-control", "max-age=0"), ("etag", '"e"'), ("x-of-304", "1"), ("set-cookie", "a=b")])
FAILED = reply(503, [("retry-after", "1"), ("set-cookie", "a=b")])


async def asked_about(mesh, path, method):
    """An answer for which the origin was asked about what is stored; None while nothing is."""
    answer = await mesh.get(path, method=method)
    return answer if "fwd-status" in answer.headers["cache-status"] else None


@pytest.mark.parametrize(("method", "body"), [("HEAD", b""), ("HEAD", b"x"), ("HEAD", LARGE), ("GET", b"")])
@pytest.mark.parametrize(("said", "status"), [(CONFIRMED, 304), (FAILED, 503)])
async def test_after_the_origin_was_asked(mesh, origin, name, method, body, said, status):
    path = f"/safety/{name}"
    origin.script(path, reply(200, STALE, body), said)
    first = await mesh.get(path)
    # A large body is stored a moment later.
    answer = await eventually(lambda: asked_about(mesh, path, method), within=5)
    assert answer is not None
    assert f"fwd-status={status}" in answer.headers["cache-status"]
    assert answer.status_code == 200
    assert told(answer) == told(first)
    assert "retry-after" not in answer.headers
    assert answer.headers["cache-control"] == "max-age=0"


async def test_a_head_while_nobody_answers(mesh, origin, name):
    path = f"/safety/{name}"
    origin.script(path, reply(200, STALE, LARGE))
    first = await mesh.get(path)
    async with origin.down():
        answer = await eventually(lambda: asked_about(mesh, path, "HEAD"), within=5)
    assert (answer.status_code, told(answer)) == (200, told(first))
    assert verdict(answer).detail.startswith("stale-if-error")


async def test_the_cookies_of_a_confirmation_reach_who_asked(mesh, origin, path):
    origin.script(path, reply(200, STALE), reply(304, [("set-cookie", "a=b"), ("set-cookie", "c=d")]))
    await mesh.get(path)
    for method in ("GET", "HEAD"):
        answer = await mesh.get(path, method=method)
        assert answer.headers.get_list("set-cookie") == ["a=b", "c=d"]
        assert told(answer)["content-type"] == "text/javascript"
