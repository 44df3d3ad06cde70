"""Herds: many clients want one thing that is not there, through real Envoy and two workers."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
from collections import Counter

import pytest
import pytest_asyncio
from herds import SlowStep, Together, ask, herd, raced, summary, until_waiting
from policy_sets import policies
from running_mesh import PATIENCE, eventually
from scripted_origin import chunk, head, reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

SLOTS = 8
NOT_WAITED = 40.0
"""Seconds, fewer than `PATIENT` policies let anybody wait for another's answer, and enough on a busy machine."""
PATIENT = "collapse: {maxWait: 60s}"


async def test_five_hundred_clients_are_one_request(pair, origin, path):
    await pair.put_policies(policies(PATIENT))
    step = SlowStep(0.5, until=await until_waiting(pair, 499))
    origin.script(path, step)
    answers = await herd(pair.port, path, 500)
    assert {(one.status, one.body) for one in answers} == {(200, f"{path} 1".encode())}
    assert step.times == 1
    assert summary(answers) == {"meshcache; fwd=uri-miss; stored": 1, "meshcache; fwd=uri-miss; collapsed": 499}
    assert max(one.seconds for one in answers) < NOT_WAITED


async def test_the_leading_client_leaves_in_the_middle(pair, origin, path):
    await pair.put_policies(policies(PATIENT))
    left = asyncio.Event()
    step = SlowStep(0.3, until=left.wait)
    origin.script(path, step)
    leader = asyncio.create_task(ask(pair.port, path))
    await step.begun()
    all_wait = await until_waiting(pair, 500)
    crowd = asyncio.create_task(herd(pair.port, path, 500))
    await all_wait()
    leader.cancel()
    left.set()
    answers = await crowd
    assert {(one.status, one.body) for one in answers} == {(200, f"{path} 2".encode())}
    assert step.times == 2


async def test_the_leading_client_leaves_in_the_middle_of_the_body(pair, origin, path):
    await pair.put_policies(policies(PATIENT))
    begun = asyncio.Event()

    async def endless(_asked, wire):
        await wire.send(head([("cache-control", "max-age=60"), ("transfer-encoding", "chunked")]))
        while True:
            await wire.send(chunk(b"x" * 100))
            begun.set()
            await asyncio.sleep(0.1)

    origin.script(path, endless, reply(200, [("cache-control", "max-age=60")], b"whole"))
    leader = asyncio.create_task(ask(pair.port, path))
    await begun.wait()
    all_wait = await until_waiting(pair, 100)
    crowd = asyncio.create_task(herd(pair.port, path, 100))
    await all_wait()
    leader.cancel()
    assert {(one.status, one.body) for one in await crowd} == {(200, b"whole")}
    assert origin.count(path) == 2


FIELDS = {
    "no-store": [("cache-control", "no-store")],
    "private": [("cache-control", "private, max-age=60")],
    "cookie alone": [("set-cookie", "session=1")],
    "vary star": [("cache-control", "max-age=60"), ("vary", "*")],
    "to be validated": [("cache-control", "no-cache"), ("etag", '"1"')],
}


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS.keys())
async def test_what_is_not_for_sharing_comes_to_each_by_itself_and_a_few_at_a_time(pair, origin, path, fields):
    # A place is given on when nothing is heard of who has it, after a time that follows from this one: a second, so.
    await pair.put_policies(policies(PATIENT))
    # Who comes after its answer does not wait at all, and a busy machine may take long until all are there.
    step = SlowStep(0.1, tuple(fields), later=0.04, until=await until_waiting(pair, 199))
    origin.script(path, step)
    answers = await herd(pair.port, path, 200)
    assert {one.status for one in answers} == {200}
    assert len({one.body for one in answers}) == 200, "each has his own"
    assert step.times == 200
    assert step.most_after_first <= SLOTS
    together = Together(15)

    async def again(_asked, wire):
        await together.come()
        await wire.send(reply(200, fields, b"again"))

    origin.script(path, again)
    await herd(pair.port, path, 20)
    assert together.complete, "for a while they do not wait for each other at all"


async def test_callers_never_get_each_others_answers(pair, origin, path):
    async def personal(asked, wire):
        await asyncio.sleep(0.1)
        await wire.send(reply(200, [("cache-control", "max-age=60")], (asked.get("authorization") or "?").encode()))

    origin.script(path, personal)
    names = [f"Bearer {number}" for number in range(60)]
    answers = await asyncio.gather(*(ask(pair.port, path, ("authorization", name)) for name in names))
    assert [one.body.decode() for one in answers] == names


async def test_each_variant_is_asked_for_once(pair, origin, path):
    async def in_language(asked, wire):
        await asyncio.sleep(0.5)
        fields = [("cache-control", "max-age=60"), ("vary", "accept-language")]
        await wire.send(reply(200, fields, (asked.get("accept-language") or "?").encode()))

    origin.script(path, in_language)
    languages = ["de", "fr", "en", "it"] * 25
    answers = await asyncio.gather(*(ask(pair.port, path, ("accept-language", one)) for one in languages))
    assert [one.body.decode() for one in answers] == languages
    # Until the first answer nobody knows that there are variants; each worker then releases a few at a time.
    assert origin.count(path) <= 4 + SLOTS


async def test_errors_are_not_waited_for_one_after_the_other(pair, origin, path):
    await pair.put_policies(policies(PATIENT))

    async def failing(_asked, wire):
        await asyncio.sleep(0.5)
        await wire.send(reply(503, [], b"sorry"))

    origin.script(path, failing)
    answers = await herd(pair.port, path, 100)
    assert {(one.status, one.body) for one in answers} == {(503, b"sorry")}
    assert max(one.seconds for one in answers) < NOT_WAITED, "not the seconds of all of them, nor those one may wait"


async def test_a_stream_of_events_holds_nobody_back(pair, origin, path):
    together = Together(10)

    async def stream(_asked, wire):
        await wire.send(head([("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]))
        await wire.send(chunk(b"data: 1\n\n"))
        await together.come()
        await wire.send(chunk(b"data: 2\n\n"))
        await wire.send(chunk(b""))

    origin.script(path, stream)
    answers = await herd(pair.port, path, 10)
    assert {one.status for one in answers} == {200}
    assert together.complete, "the last has begun before any has ended"


async def test_one_validation_for_all(pair, origin, path):
    fields = [("cache-control", "max-age=1"), ("etag", '"1"')]
    origin.script(path, reply(200, fields, b"one"))
    await ask(pair.port, path)
    await asyncio.sleep(2.1)
    asked = []

    async def validate(request, wire):
        asked.append(request.get("if-none-match"))
        await asyncio.sleep(0.7)
        # From then on fresh for long: on a busy machine the last of the herd may come late.
        await wire.send(reply(304, [("cache-control", "max-age=60"), ("etag", '"1"')]))

    origin.script(path, validate)
    answers = await herd(pair.port, path, 100)
    assert {(one.status, one.body) for one in answers} == {(200, b"one")}
    assert asked == ['"1"']


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def patient_process(start_mesh):
    return await start_mesh("--workers", "2", policies=POLICY.replace("{wait}", "60s"))


@pytest_asyncio.fixture(loop_scope="session")
async def patient(patient_process):
    """Two workers that a test may kill, and one policy for all: requests wait for each other for a minute."""
    yield patient_process
    await patient_process.put_policies(POLICY.replace("{wait}", "60s"))

    async def well():
        status = await patient_process.status()
        return status["ready"] and all(worker["ready"] for worker in status["workers"])

    assert await eventually(well), patient_process.log


async def test_nobody_waits_longer_than_the_policy_says(patient, origin, name):
    await patient.put_policies(POLICY.replace("{wait}", "1s"))
    # Nobody is answered before all have come.
    step = Together(50, PATIENCE)
    arrivals = []

    async def late(_asked, wire):
        arrivals.append(time.monotonic())
        await step.come()
        await wire.send(reply(200, [("cache-control", "max-age=60")], b"x"))

    origin.script(f"/{name}", late)
    answers = await herd(patient.port, f"/{name}", 50)
    assert {one.status for one in answers} == {200}
    assert step.complete, "nobody has waited for the answer"
    assert arrivals[1] - arrivals[0] >= 0.4, "they waited"


POLICY = """\
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: patient}
spec:
  tiers: {warm: {deadline: 900ms}, cold: {deadline: 900ms}}
  collapse: {maxWait: {wait}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: all}
spec: {match: [{path: {prefix: /}}], policyRef: {name: patient}}
"""


async def test_two_thousand_clients_wait_at_once(patient, origin, name):
    before = await patient.metric("collapses_total", outcome="answered")
    step = SlowStep(1.0, until=await until_waiting(patient, 1999))
    origin.script(f"/{name}", step)
    answers = await herd(patient.port, f"/{name}", 2000)
    assert {(one.status, one.body) for one in answers} == {(200, f"/{name} 1".encode())}
    assert step.times == 1

    async def counted():
        return await patient.metric("collapses_total", outcome="answered") - before == 1999

    assert await eventually(counted)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda number: number.name)
async def test_a_worker_is_killed_or_hangs_in_the_middle(patient, origin, name, number):
    """Envoy lets its streams pass. If it was the leader's, the other worker notices, and one of those there goes on."""
    path = f"/{name}"
    ended = asyncio.Event()
    step = SlowStep(2.0, later=3.0, until=ended.wait)
    origin.script(path, step)
    leader = asyncio.create_task(ask(patient.port, path))
    await step.begun()
    all_wait = await until_waiting(patient, 200)
    crowd = asyncio.create_task(herd(patient.port, path, 200))
    await all_wait()
    assert step.times == 1
    os.kill(random.choice(await patient.worker_pids()), number)
    began = time.monotonic()
    ended.set()
    answers = [await leader, *await crowd]
    assert {one.status for one in answers} == {200}
    passed = summary(answers)["untouched"]
    assert 50 <= passed <= 150
    assert step.times <= passed + 2, summary(answers)
    # A worker that hangs is killed after five seconds.
    assert time.monotonic() - began < NOT_WAITED


async def test_workers_that_look_while_an_answer_is_stored_find_it(pair, origin, name):
    assert await raced([pair], origin, f"plain/{name}", 500) == []


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pods(start_mesh, make_folder, valkey_server):
    """Two pods of one installation: a Valkey and the keys in common, and nothing else."""
    valkey_server.ensure()
    text = POLICY.replace("{wait}", "60s")
    first = await start_mesh("--warm", valkey_server.url, "--workers", "2", policies=text)
    folder = make_folder()
    (folder / "data").mkdir()
    shutil.copytree(first.data / "keys", folder / "data" / "keys")
    second = await start_mesh("--warm", valkey_server.url, "--workers", "2", policies=text, folder=folder)
    yield first, second
    for mesh in (first, second):
        assert await mesh.metric("stream_errors_total") == 0, mesh.log
        await mesh.stop()


async def both(pods, path, number):
    """So many requests at each of the pods."""
    answers = await asyncio.gather(*(herd(mesh.port, path, number) for mesh in pods))
    return [one for some in answers for one in some]


async def test_one_request_for_the_fleet(pods, origin, name):
    step = SlowStep(1.0)
    origin.script(f"/{name}", step)
    answers = await both(pods, f"/{name}", 100)
    assert {(one.status, one.body) for one in answers} == {(200, f"/{name} 1".encode())}
    assert step.times == 1
    assert max(one.seconds for one in answers) < NOT_WAITED


async def test_pods_that_look_while_an_answer_is_stored_find_it(pods, origin, name):
    assert await raced(pods, origin, name, 500) == []


async def test_what_is_not_for_sharing_is_known_to_the_fleet(pods, origin, name):
    everywhere = [await until_waiting(pod, 59) for pod in pods]

    async def all_wait():
        for waiting in everywhere:
            await waiting()

    step = SlowStep(0.1, (("cache-control", "no-store"),), later=0.05, until=all_wait)
    origin.script(f"/{name}", step)
    answers = await both(pods, f"/{name}", 60)
    assert len({one.body for one in answers}) == 120
    assert step.most_after_first <= 2 * SLOTS
    assert max(one.seconds for one in answers) < NOT_WAITED


async def test_a_pod_that_dies_strands_nobody(pods, start_mesh, make_folder, origin, name, valkey_server):
    folder = make_folder()
    (folder / "data").mkdir()
    shutil.copytree(pods[0].data / "keys", folder / "data" / "keys")
    text = POLICY.replace("{wait}", "60s")
    mortal = await start_mesh("--warm", valkey_server.url, policies=text, folder=folder)
    step = SlowStep(60.0, later=0.2)
    origin.script(f"/{name}", step)
    leader = asyncio.create_task(ask(mortal.port, f"/{name}"))
    await step.begun()
    all_wait = await until_waiting(pods[0], 50)
    crowd = asyncio.create_task(herd(pods[0].port, f"/{name}", 50))
    await all_wait()
    await mortal.kill()
    answers = await crowd
    assert {(one.status, one.body) for one in answers} == {(200, f"/{name} 2".encode())}
    assert step.times == 2
    assert max(one.seconds for one in answers) < NOT_WAITED
    await asyncio.gather(leader, return_exceptions=True)


async def test_a_store_that_is_away_keeps_nobody_waiting(pods, origin, name, valkey_server):
    valkey_server.kill()
    try:
        step = SlowStep(0.5)
        origin.script(f"/{name}", step)
        answers = await both(pods, f"/{name}", 50)
        assert {one.status for one in answers} == {200}
        assert step.times <= 4, "one for each worker: a pod's workers have nothing else in common"
        assert max(one.seconds for one in answers) < NOT_WAITED
    finally:
        valkey_server.ensure()


async def test_a_storm_of_clients_that_come_and_go(pair, origin, name):
    """Answers of every kind, clients that leave at any moment: whoever stays is answered, rightly and in time."""
    await pair.put_policies(policies(PATIENT))
    chance = random.Random(name)
    kinds = {
        "shared": [("cache-control", "max-age=1")],
        "stale": [("cache-control", "max-age=0, stale-while-revalidate=5")],
        "own": [("cache-control", "no-store")],
        "varied": [("cache-control", "max-age=1"), ("vary", "x-who")],
        "checked": [("cache-control", "max-age=1"), ("etag", '"1"')],
    }

    def answers(kind, fields):
        async def step(asked, wire):
            await asyncio.sleep(chance.choice([0.0, 0.02, 0.3]))
            luck = chance.random()
            if luck < 0.1:
                await wire.send(reply(503, [], b"sorry"))
            elif luck < 0.2:
                await wire.send(head([*fields, ("content-length", "100")]) + b"x" * 10)
                wire.close()
            elif asked.get("if-none-match") is not None:
                await wire.send(reply(304, fields))
            else:
                who = asked.get("x-who") or ""
                await wire.send(reply(200, fields, f"{kind} {who if kind == 'varied' else ''}".encode()))

        return step

    for kind, fields in kinds.items():
        for number in range(3):
            origin.script(f"/plain/{name}/{kind}/{number}", answers(kind, fields))
    seen: Counter[str] = Counter()

    async def client():
        clock = asyncio.get_running_loop().time
        until = clock() + 6
        while clock() < until or (seen["answered"] <= 500 and clock() < until + PATIENCE):
            kind, who = chance.choice(list(kinds)), chance.choice("abc")
            asking = asyncio.ensure_future(
                ask(pair.port, f"/plain/{name}/{kind}/{chance.randrange(3)}", ("x-who", who))
            )
            if chance.random() < 0.3:
                await asyncio.sleep(chance.choice([0.0, 0.01, 0.05]))
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                continue
            try:
                got = await asking
            except (AssertionError, ConnectionError, IndexError):
                seen["cut off"] += 1
                continue
            right = f"{kind} {who if kind == 'varied' else ''}".encode()
            if (got.status, got.body) not in ((200, right), (503, b"sorry")) and got.status not in (502, 503):
                seen[f"wrong {got.status} {got.body[:40]!r} for {right!r}"] += 1
            else:
                seen["answered" if got.seconds < NOT_WAITED else f"after {got.seconds:.0f} s"] += 1

    await asyncio.gather(*(client() for _ in range(60)))
    assert set(seen) <= {"answered", "cut off"}, seen
    assert seen["answered"] > 500
