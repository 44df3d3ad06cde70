"""Purges through real Envoy: races, workers that hang or die, pods on one store, a store that goes away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal

import httpx
import pytest
import pytest_asyncio
from purge_races import Admin, Changing, race
from running_mesh import Mesh, eventually, verdict
from scripted_origin import reply

from meshcache.engine.paths import as_handed_on

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

RACES = int(os.environ.get("PURGE_RACES", "50"))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def local(start_mesh):
    """Two workers over the stores of one machine."""
    return await start_mesh("--workers", "2")


@pytest_asyncio.fixture(loop_scope="session")
async def admin(local):
    made = Admin(local)
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pods_processes(start_mesh, valkey_server):
    """Two pods with two workers each on one store."""
    valkey_server.ensure()
    arguments = ("--workers", "2", "--warm", valkey_server.url)
    return [await start_mesh(*arguments), await start_mesh(*arguments)]


@pytest_asyncio.fixture(loop_scope="session")
async def pods(pods_processes, valkey_server):
    valkey_server.ensure()
    for pod in pods_processes:
        assert await eventually(lambda pod=pod: _following(pod), 20), pod.log
    return pods_processes


async def _following(mesh: Mesh) -> bool:
    status = await mesh.status()
    return status["purges"]["following"] and all(worker["ready"] for worker in status["workers"])


async def _stored(mesh: Mesh, path: str) -> bool:
    return await mesh.settled(path)


@pytest.mark.parametrize("kind", ["urls", "tags"])
async def test_nothing_is_known_of_a_resource_whose_variants_are_all_purged(local, admin, origin, path, name, kind):
    fields = [("cache-control", "max-age=60"), ("vary", "accept-language"), ("cache-tag", name)]
    origin.script(path, reply(200, fields, b"one"))
    languages = [{"accept-language": one} for one in ("de", "en", "fr", "it")]
    for language in languages[:2]:
        assert await local.settled(path, language)
    assert verdict(await local.get(path, languages[2])).fwd == "vary-miss"
    value = local.base + path if kind == "urls" else name
    await admin.settled(await admin.purge(**{kind: [value]}))
    assert verdict(await local.get(path, languages[3])).fwd == "uri-miss"


@pytest.mark.timeout(1200)
async def test_races_of_purges_with_requests(local, origin, path, name):
    content = Changing(origin, path, f"tag-{name}")
    watchers = await race([local], content, RACES)
    assert watchers.wrong == []
    assert watchers.hits > RACES
    assert content.origin.count(path) < watchers.answers


@pytest.mark.timeout(1200)
async def test_races_over_two_pods_on_one_store(pods, origin, path, name):
    content = Changing(origin, path, f"tag-{name}")
    watchers = await race(pods, content, RACES)
    assert watchers.wrong == []
    assert watchers.hits > RACES


async def test_tags_are_exact_and_are_not_for_clients(local, admin, origin, path, name):
    for tag in ("a", "ab", "A"):
        fields = [("cache-control", "max-age=60"), ("surrogate-key", f"x-{name} {tag}-{name}"), ("xkey", "k")]
        origin.script(f"{path}/{tag}", reply(200, fields, tag.encode()))
        assert await _stored(local, f"{path}/{tag}")
        answer = await local.get(f"{path}/{tag}")
        assert not {"surrogate-key", "xkey", "cache-tag"} & set(answer.headers)
    result = await admin.counted(await admin.purge(tags=[f"a-{name}"]))
    assert (result["pending"], result["entries"], result["counted"]) == ([], 1, True)
    assert not verdict(await local.get(f"{path}/a")).hit
    assert verdict(await local.get(f"{path}/ab")).hit
    assert verdict(await local.get(f"{path}/A")).hit
    fields = [("cache-control", "no-store"), ("cache-tag", "t")]
    origin.script(f"{path}/never", reply(200, fields, b"x"))
    assert "cache-tag" not in (await local.get(f"{path}/never")).headers


async def test_a_url_is_purged_in_all_variants_and_arms(local, admin, origin, name):
    path = f"/tested/{name}"
    varying = reply(200, [("cache-control", "max-age=60"), ("vary", "accept-language")], b"x")
    origin.script(path, varying)
    asked = [{"accept-language": language, "x-canary": canary} for language in ("de", "en") for canary in ("v1", "v2")]
    for headers in asked:
        assert await local.settled(path, headers)
    host = local.base.removeprefix("http://")
    result = await admin.counted(await admin.purge(urls=[f"https://{host.upper()}{path}"]))
    assert result["pending"] == []
    # v1 forces no arm: both languages in the arm without a unit, and in the one that v2 names.
    assert result["entries"] == 4
    for headers in asked:
        assert not verdict(await local.get(path, headers)).hit


@pytest.mark.parametrize(
    "end",
    ["%7Ebob", "%41%2d%5A%5f%30%2F%25%40", "a/../b", "a/%2e%2E/b", "a/./b", "a//../b", "a/..", "a/b/.", "a\\b", "a//b"],
    ids=lambda end: end.encode().hex(),
)
async def test_a_url_is_purged_as_clients_write_it(local, admin, origin, path, end):
    written = f"{path}/{end}"
    request = f"GET {written} HTTP/1.1\r\nhost: purged.example\r\nconnection: close\r\n\r\n".encode()
    await local.raw(request)
    assert origin.count(as_handed_on(written)) == 1
    result = await admin.counted(await admin.purge(urls=[f"http://purged.example{written}"]))
    assert (result["entries"], result["pending"]) == (1, [])
    await local.raw(request)
    assert origin.count(as_handed_on(written)) == 2


async def test_a_soft_purge_has_the_origin_asked_once_more(local, admin, origin, path, name):
    fields = [("cache-control", "max-age=60"), ("etag", '"1"'), ("cache-tag", f"soft-{name}")]
    origin.script(path, reply(200, fields, b"same"), reply(304, fields))
    origin.script(path, reply(200, fields, b"same"))
    assert await local.settled(path)
    count = origin.count(path)
    origin.script(path, reply(304, fields))
    result = await admin.counted(await admin.purge(tags=[f"soft-{name}"], soft=True))
    assert (result["pending"], result["entries"]) == ([], 1)
    answer = await local.get(path)
    assert (answer.status_code, answer.text) == (200, "same")
    assert verdict(answer).fwd == "stale"
    assert origin.asked(path)[0].get("if-none-match") == '"1"'
    assert await local.settled(path)
    assert origin.count(path) <= 2 < count + 3


async def test_stale_windows_begin_with_a_soft_purge(local, admin, origin, name):
    path = f"/stale/{name}"
    fields = [("cache-control", "max-age=3600"), ("cache-tag", name)]
    origin.script(path, reply(200, fields, b"old"))
    assert await local.settled(path)
    origin.script(path, reply(200, fields, b"new"))
    await admin.settled(await admin.purge(tags=[name], soft=True))
    first = await local.get(path)
    assert (first.text, verdict(first).hit) == ("old", True)
    assert verdict(first).ttl is not None
    assert verdict(first).ttl <= 0
    assert await local.settled(path, body=b"new")


async def test_a_worker_that_was_stopped_answers_nothing_old_when_it_goes_on(local, admin, origin, path, name):
    content = Changing(origin, path, name)
    assert await _stored(local, path)
    victim = (await local.worker_pids())[1]
    os.kill(victim, signal.SIGSTOP)
    try:
        content.version += 1
        result = await admin.lacking(await admin.purge(tags=[name]), "worker-1")
        assert result["pending"] == ["worker-1"]
        assert result["acknowledged"] == ["worker-0"]
    finally:
        os.kill(victim, signal.SIGCONT)
    answers = await asyncio.gather(*(local.get(path) for _ in range(40)))
    assert {answer.text for answer in answers} == {"1"}
    result = await admin.settled(result)
    assert sorted(result["acknowledged"]) == ["worker-0", "worker-1"]


async def test_races_with_workers_that_are_killed(local, origin, path, name):
    content = Changing(origin, path, name)

    async def disturb(number: int) -> None:
        if number % 5 == 0:
            # One that is gone may not have its successor yet.
            for pid in [pid for pid in await local.worker_pids() if pid][number % 2 :][:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    watchers = await race([local], content, 20, disturb)
    assert watchers.wrong == []


async def test_a_purge_outlives_a_supervisor_that_is_killed_in_the_middle(local, admin, origin, path, name):
    content = Changing(origin, path, name)
    for round_ in range(4):
        assert await local.settled(path, body=str(content.version).encode())
        content.version += 1
        asking = asyncio.create_task(admin.purge(tags=[name]))
        await asyncio.sleep(0.001 * 3**round_)
        pid = (await local.status())["pid"]
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(httpx.HTTPError, AssertionError):
            await asking

        async def back(pid: int = pid) -> bool:
            with contextlib.suppress(httpx.HTTPError):
                status = await local.status()
                return status["pid"] != pid and all(worker["ready"] for worker in status["workers"])
            return False

        assert await eventually(back), local.log
        # In effect as a whole or not at all; and once it is said to be in effect, for good.
        await admin.settled(await admin.purge(tags=[name]))
        answers = await asyncio.gather(*(local.get(path) for _ in range(10)))
        assert {answer.text for answer in answers} == {str(content.version)}


async def test_what_was_purged_stays_so_over_a_restart(start_mesh, origin, name):
    path = f"/plain/{name}"
    mesh = await start_mesh()
    content = Changing(origin, path, name)
    assert await _stored(mesh, path)
    admin = Admin(mesh)
    await admin.settled(await admin.purge(tags=[name]))
    content.version += 1
    await admin.close()
    await mesh.stop()
    await mesh.start()
    assert (await mesh.get(path)).text == "1"


async def test_the_command(local, origin, path, name):
    Changing(origin, path, name)
    assert await _stored(local, path)

    async def purge(*arguments: str):
        return await local.command("purge", "--data", str(local.data), *arguments)

    code, out, _ = await purge("--tag", name, "--json", "--wait", "30")
    result = json.loads(out)
    assert (code, result["entries"], result["pending"]) == (0, 1, [])
    code, out, _ = await purge("--prefix", "/plain/", "--soft", "--wait", "30")
    assert code == 0
    assert "pending       0" in out
    code, _, err = await purge()
    assert code == 2
    assert "name what is to be purged" in err
    code, _, err = await purge("--tag", "a,b")
    assert code == 2
    assert "without commas" in err
    code, out, err = await purge("--route", "gone", "--json", "--wait", "30")
    assert (code, json.loads(out)["entries"]) == (0, 0)
    assert "note: no route in force is named gone" in err
    code, _, err = await purge("--url", "http://elsewhere.example/plain", "--wait", "30")
    assert code == 0
    assert "note: nothing was stored there" in err
    assert await eventually(lambda: _following(local), 20)
    victim = (await local.worker_pids())[0]
    os.kill(victim, signal.SIGSTOP)
    try:
        code, out, _ = await purge("--all")
        assert code == 1
        assert "worker-0" in out.partition("pending")[2]
    finally:
        os.kill(victim, signal.SIGCONT)
    code, _, err = await purge("--all", "--token-file", str(local.data / "keys" / "assignment.secret"))
    assert code == 1
    assert "401" in err
    lines = [json.loads(line) for line in (local.data / "audit.log").read_text().splitlines()]
    made = [line for line in lines if line["action"] == "purge" and line["what"] == [{"by": "tag", "value": name}]]
    assert [line["who"]["uid"] for line in made] == [os.getuid()]
    assert all(line["who"]["token"] == "admin.token" for line in made)
    assert any(line["action"] == "policies" for line in lines)
    assert await eventually(lambda: _following(local), 20)


async def test_a_person_is_neither_in_the_log_nor_in_the_audit_log(local, admin):
    await admin.purge(subjects=["alice@example.com"])
    for file in ("audit.log", "purges.log"):
        assert b"alice" not in (local.data / file).read_bytes()
    assert "alice" not in local.log


async def test_a_purge_reaches_the_memory_of_the_other_pod(pods, origin, path, name):
    content = Changing(origin, path, name)
    for pod in pods:
        assert await pod.settled(path)
    admin = Admin(pods[0])
    content.version += 1
    result = await admin.settled(await admin.purge(tags=[name]))
    other = (await pods[1].status())["purges"]["pod"]
    assert result["pending"] == []
    assert sorted(result["acknowledged"]) == sorted(["worker-0", "worker-1", other])
    for pod in pods:
        answers = await asyncio.gather(*(pod.get(path) for _ in range(10)))
        assert {answer.text for answer in answers} == {"1"}
    await admin.close()


async def test_an_unsafe_request_reaches_the_memory_of_the_other_pod(pods, origin, path):
    # For one host, as pods of one service are asked.
    headers = {"host": "example.com"}
    origin.script(path, reply(200, [("cache-control", "max-age=3600")], b"old"))
    for pod in pods:
        assert await pod.settled(path, headers)
    origin.script(path, reply(200, [("cache-control", "max-age=3600")], b"new"))
    assert (await pods[0].get(path, headers, "POST")).status_code == 200

    async def heard() -> bool:
        answers = [await pods[1].get(path, headers) for _ in range(6)]
        return all(answer.text == "new" for answer in answers)

    assert await eventually(heard)


async def test_a_worker_of_the_other_pod_that_hangs_is_named(pods, origin, path, name):
    Changing(origin, path, name)
    for pod in pods:
        assert await pod.settled(path)
    admin = Admin(pods[0])
    other = (await pods[1].status())["purges"]["pod"]
    victim = (await pods[1].worker_pids())[0]
    os.kill(victim, signal.SIGSTOP)
    try:
        result = await admin.lacking(await admin.purge(tags=[name]), f"{other}/worker-0")
        assert result["pending"] == [f"{other}/worker-0"]
    finally:
        os.kill(victim, signal.SIGCONT)
    assert (await admin.settled(result))["pending"] == []
    await admin.close()


@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_a_store_that_is_away_owes_the_purge_to_the_others(pods, valkey_server, origin, path, name, how):
    content = Changing(origin, path, name)
    for pod in pods:
        assert await pod.settled(path)
    admin = Admin(pods[0])
    getattr(valkey_server, how)()
    try:
        await asyncio.sleep(1.5)
        content.version += 1
        store = f"store redis://127.0.0.1:{valkey_server.port}"
        result = await admin.lacking(await admin.purge(tags=[name]), store)
        assert result["pending"] == [store]
        # In this pod it is in effect all the same.
        answers = await asyncio.gather(*(pods[0].get(path) for _ in range(10)))
        assert {answer.text for answer in answers} == {"1"}
        assert (await pods[0].status())["purges"]["owed"] == 1
    finally:
        valkey_server.ensure()
    await admin.settled(result)
    for pod in pods:
        answers = await asyncio.gather(*(pod.get(path) for _ in range(10)))
        assert {answer.text for answer in answers} == {"1"}

    async def paid() -> bool:
        return bool((await pods[0].status())["purges"]["owed"] == 0)

    assert await eventually(paid)
    await admin.close()


async def test_a_store_that_comes_back_with_old_data_revives_nothing(pods, valkey_server, origin, path, name):
    content = Changing(origin, path, name)
    for pod in pods:
        assert await pod.settled(path)
    with valkey_server.client() as client:
        before = {key: (client.dump(key), client.pttl(key)) for key in client.keys("mc1:*")}
    admin = Admin(pods[0])
    content.version += 1
    await admin.settled(await admin.purge(tags=[name]))
    # At once: the pods go on writing to it meanwhile.
    with valkey_server.client() as client, client.pipeline(transaction=True) as restored:
        restored.flushall()
        for key, (value, ttl) in before.items():
            # A lease may have run out before it was read.
            if value is not None:
                restored.restore(key, max(0, ttl), value)
        restored.execute()
    for pod in pods:
        answers = await asyncio.gather(*(pod.get(path) for _ in range(10)))
        assert {answer.text for answer in answers} == {"1"}

    def known() -> bool:
        with valkey_server.client() as client:
            return any(name.encode() in fields[b"r"] for _, fields in client.xrange("mc1:p:log"))

    async def mended() -> bool:
        return known()

    # A pod that knows nothing of it so far hears of it again.
    assert await eventually(mended)
    assert await eventually(lambda: _following(pods[0]))
    assert await eventually(lambda: _following(pods[1]))
    await admin.close()


async def test_a_pod_that_ends_is_no_longer_waited_for(start_mesh, valkey_server, origin, path):
    valkey_server.ensure()
    first, second = [await start_mesh("--warm", valkey_server.url) for _ in range(2)]
    for pod in (first, second):
        assert await eventually(lambda pod=pod: _following(pod), 20), pod.log
    admin = Admin(first)
    other = (await second.status())["purges"]["pod"]
    assert other in (await admin.settled(await admin.purge(all=True)))["acknowledged"]
    await second.stop()
    result = await admin.purge(all=True)
    assert not any(other in name for name in (*result["acknowledged"], *result["pending"]))
    await admin.close()
    await first.stop()
