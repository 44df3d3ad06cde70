"""Hot answers out of Envoy itself, with two workers of it: what the filter gives, and what it leaves to the sidecar."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
import pytest_asyncio
from hot_mesh import crowd_of
from policy_sets import POLICIES, policies
from purge_races import Admin
from running_mesh import PATIENCE, eventually, verdict
from scripted_origin import reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

FRESH = ("cache-control", "max-age=600")
FORGED_WORDS = "v1 0123456789abcdef " + "0" * 64
FORGED = {
    "x-meshcache-ask": f"{FORGED_WORDS} miss " + "0" * 32,
    "x-meshcache-keep": f"{FORGED_WORDS} 0 {'9' * 13} {'9' * 13} {'9' * 13} 0 1 {'0' * 16} - " + "0" * 32,
    "x-meshcache-drop": f"{FORGED_WORDS} * " + "0" * 32,
    "x-meshcache-skip": "1",
}


@pytest_asyncio.fixture(loop_scope="session")
async def crowd(hot):
    async with crowd_of(hot) as crowd:
        yield crowd


async def test_what_is_hot_comes_from_envoy(hot, crowd, origin, path):
    origin.script(path, reply(200, [FRESH, ("etag", '"e"'), ("link", "</a>"), ("link", "</b>")], b"hot"))
    await crowd.heat(path)
    asked = origin.count(path)
    for answer in await crowd.get(path):
        assert answer.status_code == 200
        assert answer.content == b"hot"
        assert answer.headers.get_list("link") == ["</a>", "</b>"]
        assert verdict(answer).policy == "plain"
        assert 0 <= int(answer.headers["age"]) <= 20
        assert 580 <= (verdict(answer).ttl or 0) <= 600
        assert not [name for name in answer.headers if name.startswith("x-meshcache")]
    for answer in await crowd.get(path, method="HEAD"):
        assert (answer.status_code, answer.headers["content-length"], answer.content) == (200, "3", b"")
        assert verdict(answer).tier == "wasm"
    for answer in await crowd.get(path, {"if-none-match": 'W/"e"'}):
        assert (answer.status_code, answer.headers["etag"], answer.content) == (304, '"e"', b"")
        assert verdict(answer).tier == "wasm"
    assert origin.count(path) == asked


async def test_requests_that_are_sent_at_once_are_all_answered(hot, crowd, origin, path):
    """Envoy answers hits within the call in which it reads; of such answers it lets two wait to be written."""
    origin.script(path, reply(200, [FRESH], b"x" * 50_000))
    await crowd.heat(path)
    request = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{hot.port}\r\n\r\n".encode()
    last = request.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    reader, writer = await asyncio.open_connection("127.0.0.1", hot.port)
    writer.write(request * 29 + last)
    answers = await asyncio.wait_for(reader.read(-1), PATIENCE)
    writer.close()
    assert answers.count(b"HTTP/1.1 200 OK") == 30
    assert answers.count(b"tier=wasm") > 20
    assert answers.count(b"x" * 50_000) == 30


@pytest.mark.alone
async def test_clients_that_leave_keep_nothing_from_being_refreshed(hot, crowd, origin, name):
    """The sidecar sees nothing of a request whose client has left by the time that Envoy sends it on."""

    async def took(path):
        origin.script(path, reply(200, [("cache-control", "max-age=1")], b"old"))
        await crowd.heat(path)
        origin.script(path, reply(200, [FRESH], b"new"))
        await asyncio.sleep(1.1)
        for _ in range(4 * len(crowd.clients)):
            with socket.create_connection(("127.0.0.1", hot.port)) as leaving:
                leaving.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{hot.port}\r\n\r\n".encode())
        assert origin.count(path) == 0
        began = time.monotonic()

        async def refreshed():
            return {answer.text for answer in await crowd.get(path)} == {"new"}

        assert await eventually(refreshed)
        return time.monotonic() - began

    # Nobody had to wait for the second to pass in which they would have been the ones that are handed on. The best of
    # three: others may want the machine, too.
    seconds = []
    while not seconds or (seconds[-1] >= 0.9 and len(seconds) < 3):
        seconds.append(await took(f"/stale/{name}-{len(seconds)}"))
    assert min(seconds) < 0.9


async def test_age_counts_from_the_origin(hot, crowd, origin, path):
    origin.script(path, reply(200, [FRESH, ("age", "100")], b"old"))
    await crowd.heat(path)
    first = [int(answer.headers["age"]) for answer in await crowd.get(path)]
    assert min(first) >= 100
    await asyncio.sleep(1.1)
    second = [int(answer.headers["age"]) for answer in await crowd.get(path)]
    assert min(second) > min(first)


SPECIAL = (
    {"authorization": "Basic eDp5"},
    {"cache-control": "no-cache"},
    {"pragma": "no-cache"},
    {"range": "bytes=0-1"},
    {"if-match": '"e"'},
    {"content-type": "application/grpc"},
    {"x-cache-status": "key"},
    {"forwarded": "host=other.test"},
)


async def test_what_is_special_is_the_sidecars(hot, crowd, path):
    await crowd.heat(path)
    for client, headers in zip(crowd.clients, SPECIAL, strict=False):
        answer = await client.get(path, headers=headers)
        assert verdict(answer).tier != "wasm", headers
        assert answer.status_code in (200, 206, 412), answer.status_code
    # A reload has brought a newer answer, which takes the place of what was kept.
    await crowd.heat(path)
    # What overrides its method may change something: what was kept before is not given any more.
    answer = await hot.get(path, {"x-http-method-override": "DELETE"})
    assert verdict(answer).tier != "wasm"
    assert "wasm" not in await crowd.tiers(path)


async def test_an_upgrade_passes(hot, crowd, path):
    await crowd.heat(path)
    request = f"GET {path} HTTP/1.1\r\nhost: {hot.base[7:]}\r\nconnection: close, upgrade\r\nupgrade: x\r\n\r\n"
    assert b"tier=wasm" not in await hot.raw(request.encode())


async def test_marks_of_clients_and_origins_are_worth_nothing(hot, crowd, origin, path):
    await crowd.heat(path)
    for answer in await crowd.get(path, FORGED):
        assert verdict(answer).tier == "wasm"
    assert all("x-meshcache-ask" not in dict(asked.fields) for asked in origin.asked(path))
    # A mark from the origin neither keeps what is not to be kept, nor drops what is.
    other = path + "-private"
    origin.script(other, reply(200, [("cache-control", "no-store"), *FORGED.items()], b"mine"))
    for _ in range(4):
        for answer in await crowd.get(other, FORGED):
            assert not verdict(answer).hit
            assert not [name for name in answer.headers if name.startswith("x-meshcache")]
    assert await crowd.tiers(path) == {"wasm"}


async def test_uploads_arrive_as_they_were_sent(hot, crowd, origin, path):
    body = bytes(range(256)) * 4096
    for method in ("POST", "PUT"):
        answer = await hot.client.request(method, path, content=body)
        assert answer.status_code == 200
        assert origin.asked(path)[-1].body == body

    async def pieces():
        for at in range(0, len(body), 70_000):
            yield body[at : at + 70_000]

    assert (await hot.client.post(path, content=pieces())).status_code == 200
    assert origin.asked(path)[-1].body == body


async def test_after_a_post_no_worker_gives_the_old_answer(hot, crowd, origin, path):
    rounds = 4
    version = 0

    async def content(asked, wire):
        nonlocal version
        version += asked.method == "POST"
        await wire.send(reply(200, [FRESH], str(version).encode()))

    origin.script(path, content)
    for number in range(rounds):
        for _ in range(3):
            await crowd.get(path)
        poster = crowd.clients[number % len(crowd.clients)]
        assert int((await poster.post(path)).text) == number + 1
        assert {answer.text for answer in await crowd.get(path)} == {str(number + 1)}
    await crowd.heat(path)


async def test_a_purge_is_done_when_nothing_is_pending(hot, crowd, origin, path):
    origin.script(path, reply(200, [FRESH, ("cache-tag", "red")], b"1"), reply(200, [FRESH], b"2"))
    await crowd.heat(path)
    assert {answer.text for answer in await crowd.get(path)} == {"1"}
    admin = Admin(hot)
    await admin.settled(await admin.purge(tags=["red"]))
    await admin.close()
    assert {answer.text for answer in await crowd.get(path)} == {"2"}


async def test_arms_are_those_of_the_sidecar(hot, crowd, name):
    path = f"/tested/{name}"
    arms = {}
    # Whose arm is which the secret decides, which is another one each time: of four all may have the same.
    for user in map(str, range(40)):
        arms[user] = verdict(await hot.get(path, {"x-user-id": user, "cache-control": "max-age=600"})).arm
        if len(arms) >= 4 and len(set(arms.values())) == 2:
            break
    assert set(arms.values()) == {"control", "candidate"}
    for user, arm in arms.items():
        await crowd.heat(path, {"x-user-id": user})
        assert {verdict(answer).arm for answer in await crowd.get(path, {"x-user-id": user})} == {arm}
    forced = {"x-user-id": next(user for user, arm in arms.items() if arm == "control"), "x-canary": "v2"}
    assert {verdict(answer).arm for answer in await crowd.get(path, forced)} == {"candidate"}


async def test_an_edit_of_the_policy_binds_at_once(hot, crowd, origin, path):
    origin.script(path, reply(200, [FRESH], b"1"), reply(200, [FRESH], b"2"))
    await crowd.heat(path)
    await hot.put_policies(policies("freshness: {maxTtl: 1s}"))
    await asyncio.sleep(1.1)

    async def bound():
        return {answer.text for answer in await crowd.get(path)} == {"2"}

    assert await eventually(bound)
    await hot.put_policies(POLICIES)
