"""stale-while-revalidate and invalidation, with one worker and with two: at once, once, and everywhere."""

from __future__ import annotations

import asyncio
import math
import time

import pytest
from running_mesh import Mesh, eventually, verdict
from scripted_origin import cut, head, reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

LIFETIME = ("cache-control", "max-age=60")
STALE = [LIFETIME, ("age", "100"), ("etag", '"old"')]
"""Older than its lifetime from the start."""


@pytest.fixture(params=["mesh", "pair"], ids=["one worker", "two workers"])
def some_mesh(request: pytest.FixtureRequest) -> Mesh:
    found: Mesh = request.getfixturevalue(request.param)
    return found


async def test_fifty_stale_requests_are_answered_at_once_by_one_refresh(some_mesh, origin, name):
    path = f"/stale/{name}"
    go_on = asyncio.Event()

    async def held_back(_asked, wire):
        await go_on.wait()
        await wire.send(reply(200, [LIFETIME], b"new"))

    origin.script(path, reply(200, [LIFETIME, ("age", "58")], b"old"))
    assert await some_mesh.settled(path)
    origin.script(path, held_back)
    await asyncio.sleep(2.1)  # the two seconds that are left of its lifetime
    async with asyncio.timeout(15):
        answers = await asyncio.gather(*(some_mesh.get(path) for _ in range(50)))
    assert {answer.content for answer in answers} == {b"old"}
    assert all(verdict(answer).hit and verdict(answer).ttl < 0 for answer in answers)
    go_on.set()
    assert await some_mesh.settled(path, body=b"new")
    assert origin.count(path) == 1


async def test_a_change_is_known_to_all_workers_at_once(some_mesh, origin, path):
    origin.script(path, reply(200, [LIFETIME], b"old"))
    assert await some_mesh.settled(path)
    origin.script(path, reply(200, [LIFETIME], b"new"))
    await some_mesh.get(path, method="POST")
    answers = [await some_mesh.get(path) for _ in range(8)]
    assert {answer.content for answer in answers} == {b"new"}
    assert await some_mesh.settled(path, body=b"new")


async def test_a_change_reaches_every_arm_and_variant(some_mesh, origin, name):
    path = f"/tested/{name}"
    callers = [{"accept": "a"}, {"accept": "b"}, {"accept": "a", "x-canary": "v2"}]
    origin.script(path, reply(200, [LIFETIME, ("vary", "accept")], b"old"))
    for headers in callers:
        assert await some_mesh.settled(path, headers)
    origin.script(path, reply(200, [LIFETIME, ("vary", "accept")], b"new"))
    await some_mesh.get(path, method="DELETE")
    for headers in callers * 3:
        assert (await some_mesh.get(path, headers)).content == b"new"


async def test_an_answer_under_way_during_a_change_is_not_stored(mesh, origin, path):
    go_on = asyncio.Event()

    async def slowly(asked, wire):
        if asked.method == "GET":
            await go_on.wait()
        await wire.send(reply(200, [LIFETIME], b"old"))

    origin.script(path, slowly)
    early = asyncio.create_task(mesh.get(path))

    async def there():
        return origin.count(path) == 1

    assert await eventually(there)
    await mesh.get(path, method="POST")
    go_on.set()
    assert (await early).content == b"old"
    origin.script(path, reply(200, [LIFETIME], b"new"))
    assert (await mesh.get(path)).content == b"new"


async def test_a_location_of_the_answer_to_a_change_is_dropped_too(mesh, origin, path):
    other = f"{path}/other"
    for target in (path, other):
        await mesh.get(target)
        assert verdict(await mesh.get(target)).hit
    origin.script(path, reply(201, [("location", other)]))
    await mesh.get(path, method="POST")
    assert not verdict(await mesh.get(other)).hit


# -- what a refresh asks, and what becomes of its answer -------------------------------------------------------------


async def test_a_refresh_carries_what_selects_the_answer_and_nothing_of_the_client_himself(mesh, origin, name):
    path = f"/stale/{name}"
    personal = {"cookie": "sid=1", "x-user-id": "u", "x-canary": "v1", "x-own": "1", "referer": "http://a/"}
    old, new = [*STALE, ("vary", "accept-language")], [LIFETIME, ("vary", "accept-language")]
    origin.script(path, reply(200, old, b"old"), reply(200, new, b"new"))
    await mesh.get(path, {"accept-language": "de"})
    answer = await mesh.get(path, {"accept-language": "de", **personal})
    assert answer.content == b"old"

    async def asked():
        return origin.count(path) == 2

    assert await eventually(asked)
    refresh = origin.asked(path)[1]
    assert refresh.method == "GET"
    assert refresh.get("accept-language") == "de"
    assert refresh.get("if-none-match") == '"old"'
    assert not set(personal) & {field for field, _ in refresh.fields}


async def test_a_304_makes_the_stale_answer_fresh(mesh, origin, name):
    path = f"/stale/{name}"
    origin.script(path, reply(200, STALE, b"old"), reply(304, [LIFETIME, ("etag", '"old"')]))
    await mesh.get(path)
    assert verdict(await mesh.get(path)).ttl < 0

    async def fresh():
        answer = await mesh.get(path)
        return answer.content == b"old" and verdict(answer).hit and verdict(answer).ttl > 0

    assert await eventually(fresh)
    assert origin.count(path) == 2


@pytest.mark.parametrize("failing", [reply(500, [], b"sorry"), cut(b"")], ids=["error", "hang up"])
async def test_a_refresh_that_fails_keeps_the_stale_answer_and_is_not_tried_at_every_request(
    mesh, origin, name, failing
):
    path = f"/stale/{name}"
    origin.script(path, reply(200, STALE, b"old"))
    await mesh.get(path)
    origin.script(path, failing)
    began = time.monotonic()
    for _ in range(100):
        assert (await mesh.get(path)).content == b"old"
    # A try and others after one second, three, seven ..., each of them repeated once by Envoy where the connection was
    # cut.
    tries = 1 + int(math.log2(1 + time.monotonic() - began))
    assert 1 <= origin.count(path) <= 2 * tries


async def test_a_refresh_that_brings_something_private_ends_the_stale_answer(mesh, origin, name):
    path = f"/stale/{name}"
    private = reply(200, [("cache-control", "private")], b"mine")
    origin.script(path, reply(200, STALE, b"old"), private)
    await mesh.get(path)
    assert (await mesh.get(path)).content == b"old"

    async def gone():
        return (await mesh.get(path)).content == b"mine"

    assert await eventually(gone)
    assert (await mesh.get(path)).content == b"mine"


async def test_must_revalidate_forbids_to_serve_stale(mesh, origin, name):
    path = f"/stale/{name}"
    fields = [("cache-control", "max-age=60, must-revalidate"), ("age", "100")]
    origin.script(path, reply(200, fields, b"old"), reply(200, fields, b"new"))
    await mesh.get(path)
    assert (await mesh.get(path)).content == b"new"


async def test_what_was_given_to_one_with_credentials_is_revalidated_with_those_of_the_next(mesh, origin, name):
    path = f"/stale/{name}"
    fields = [("cache-control", "public, max-age=60"), ("age", "100"), ("etag", '"1"')]
    origin.script(path, reply(200, fields, b"old"), reply(200, fields, b"new"))
    await mesh.get(path, {"authorization": "Bearer a"})
    answer = await mesh.get(path, {"authorization": "Bearer b"})
    assert answer.content == b"new"
    assert origin.asked(path)[1].get("authorization") == "Bearer b"


# -- a 304 that makes no sense ---------------------------------------------------------------------------------------

DATED = [*STALE, ("last-modified", "Tue, 14 Nov 2023 22:13:20 GMT")]
"""Asked by date as well, an origin may have overlooked the tag."""


async def test_after_a_304_for_something_else_the_client_gets_the_whole_answer(mesh, origin, path):
    async def confused(asked, wire):
        if asked.get("if-none-match"):
            await wire.send(reply(304, [("etag", '"new"')]))
        else:
            await asyncio.sleep(2.2)  # longer than Envoy waits for a reply without being asked to
            await wire.send(reply(200, [LIFETIME, ("etag", '"new"')], b"new"))

    origin.script(path, reply(200, DATED, b"old"), confused)
    await mesh.get(path)
    answer = await mesh.get(path)
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (200, b"new", '"new"')
    assert "refetched" in verdict(answer).detail
    assert verdict(await mesh.get(path)).hit
    assert origin.count(path) == 3


async def test_where_there_is_none_he_gets_502_and_the_next_one_an_answer(mesh, origin, path):
    origin.script(path, reply(200, [*DATED, ("vary", "cookie")], b"old"), reply(304, [("etag", '"new"')]))
    await mesh.get(path)
    answer = await mesh.get(path)
    assert answer.status_code == 502
    assert "mismatch" in verdict(answer).detail
    assert b"try again" in answer.content
    origin.script(path, reply(200, [LIFETIME], b"new"))
    assert (await mesh.get(path)).content == b"new"


async def test_a_client_who_holds_what_it_speaks_of_gets_the_304(mesh, origin, path):
    origin.script(path, reply(200, DATED, b"old"), reply(304, [("etag", '"new"')]))
    await mesh.get(path)
    answer = await mesh.get(path, {"if-none-match": '"new"'})
    assert (answer.status_code, answer.headers["etag"]) == (304, '"new"')


async def test_a_refresh_keeps_no_field_of_its_hop(mesh, origin, name):
    path = f"/stale/{name}"
    new = reply(200, [LIFETIME, ("connection", "x-hop"), ("x-hop", "1"), ("x-own", "1")], b"new")
    origin.script(path, reply(200, STALE, b"old"), new)
    for _ in range(2):
        assert (await mesh.get(path)).content == b"old"
    assert await mesh.settled(path, body=b"new")
    answer = await mesh.get(path)
    assert ("x-hop" in answer.headers, "x-own" in answer.headers) == (False, True)


async def test_a_refresh_that_ends_with_its_connection_is_not_kept(mesh, origin, name):
    path = f"/stale/{name}"
    new = cut(head([LIFETIME, ("connection", "close")]) + b"perhaps not all of it")
    origin.script(path, reply(200, STALE, b"old"), new)
    for _ in range(2):
        assert (await mesh.get(path)).content == b"old"

    async def asked_for_each_time():
        return "undelimited" in verdict(await mesh.get(path)).detail

    assert await eventually(asked_for_each_time), "nothing stale is given any more"
    assert await asked_for_each_time()
