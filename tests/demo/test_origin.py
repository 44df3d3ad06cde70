import asyncio
import os
import re
import signal
import sys
import time

import httpx
import pytest

from meshcache.demo.origin import FRESH_SECONDS, MAX_CHANGED, MAX_ID, Model, build_app

CAT = "/v1/images/cat/labels"


def client_of(latency_ms: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(build_app(latency_ms)), base_url="http://origin")


@pytest.fixture
async def client():
    async with client_of(0) as made:
        yield made


async def test_the_same_picture_gives_the_same_labels(client):
    first, second = await client.get(CAT), await client.get(CAT)
    assert first.status_code == 200
    assert first.json() == second.json()
    assert first.json()["image"] == "cat"
    assert (await client.get("/v1/images/dog/labels")).json()["labels"] != first.json()["labels"]
    assert [first.headers["x-origin-request"], second.headers["x-origin-request"]] == ["1", "2"]


async def test_scores_fall_and_stay_between_0_and_1(client):
    labels = (await client.get(CAT, params={"top": "10"})).json()["labels"]
    scores = [label["score"] for label in labels]
    assert len(labels) == 10
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score < 1 for score in scores)
    assert len({label["label"] for label in labels}) == 10


async def test_answers_say_how_they_may_be_cached(client):
    headers = (await client.get(CAT, headers={"accept-language": "fr;q=0.9, de-AT;q=0.8"})).headers
    assert headers["cache-tag"] == "image-cat, model-demo-labels-1"
    assert headers["cache-control"] == f"public, max-age={FRESH_SECONDS}"
    assert headers["vary"] == "accept-language"
    assert headers["content-language"] == "de"
    assert re.fullmatch(r'"[0-9a-f]{24}"', headers["etag"])


async def test_validation(client):
    etag = (await client.get(CAT)).headers["etag"]
    for condition in (etag, f'W/{etag}, "x"', "*"):
        answer = await client.get(CAT, headers={"if-none-match": condition})
        assert answer.status_code == 304
        assert answer.content == b""
        assert answer.headers["etag"] == etag
    assert (await client.get(CAT, headers={"if-none-match": '"other"'})).status_code == 200


async def test_post_changes_the_labels(client):
    before = await client.get(CAT)
    changed = await client.post(CAT)
    assert changed.json() == {"image": "cat", "revision": 1}
    assert changed.headers["cache-control"] == "no-store"
    after = await client.get(CAT, headers={"if-none-match": before.headers["etag"]})
    assert after.status_code == 200
    assert after.json()["revision"] == 1
    assert (await client.get("/v1/images/dog/labels")).json()["revision"] == 0


async def test_head_has_the_headers_alone(client):
    answer = await client.head(CAT)
    assert answer.content == b""
    assert answer.headers["content-length"] == (await client.get(CAT)).headers["content-length"]


@pytest.mark.parametrize(
    "query", ["top=-1", "top=x", "top=99999999999999999999", "latencyMs=abc", "latencyMs=-5", "top=²"]
)
async def test_odd_parameters_are_no_error(client, query):
    assert (await client.get(f"{CAT}?{query}")).status_code == 200


async def test_a_picture_id_that_is_too_long_is_refused(client):
    assert (await client.get(f"/v1/images/{'x' * (MAX_ID + 1)}/labels")).status_code == 400
    assert (await client.post(f"/v1/images/{'x' * (MAX_ID + 1)}/labels")).status_code == 400


async def test_latency_is_what_the_request_or_the_process_says():
    client = client_of(1000)
    began = time.monotonic()
    await client.get(CAT)
    assert time.monotonic() - began >= 1.0
    began = time.monotonic()
    await client.get(CAT, params={"latencyMs": "0"})
    await client.get("/healthz")
    assert time.monotonic() - began < 1.0


def test_what_has_changed_is_remembered_within_a_bound():
    model = Model()
    for number in range(MAX_CHANGED + 1):
        model.change(f"p{number}")
    assert model.revision("p0") == 0
    assert model.revision(f"p{MAX_CHANGED}") == 1


async def start(*arguments: str) -> tuple[asyncio.subprocess.Process, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "meshcache.demo.origin", *arguments, stdout=asyncio.subprocess.PIPE
    )
    line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
    return process, line.split()[-1] if line else ""


@pytest.mark.slow
async def test_the_process_serves_many_at_once_and_ends_on_a_signal():
    process, url = await start("--port", "0", "--latency-ms", "50")
    try:
        async with httpx.AsyncClient(timeout=60) as client:
            answers = await asyncio.gather(*(client.get(f"{url}/v1/images/{n}/labels") for n in range(100)))
        assert {answer.status_code for answer in answers} == {200}
        assert {int(answer.headers["x-origin-request"]) for answer in answers} == set(range(1, 101))
    finally:
        os.kill(process.pid, signal.SIGTERM)
    await asyncio.wait_for(process.wait(), 60)


async def test_a_taken_port_is_one_line():
    process, url = await start("--port", "0")
    try:
        second = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "meshcache.demo.origin", "--port", url.rpartition(":")[2]),
            stderr=asyncio.subprocess.PIPE,
        )
        _, stderr = await asyncio.wait_for(second.communicate(), 60)
        assert second.returncode == 1
        assert stderr.count(b"\n") == 1
        assert b"Address already in use" in stderr
    finally:
        process.kill()
        await process.wait()


async def test_a_picture_is_one_tag_whatever_it_is_called(client):
    answer = await client.get("/v1/images/a%2C%20b%C3%A9/labels")
    assert answer.headers["cache-tag"] == "image-a%2C%20b%C3%A9, model-demo-labels-1"
