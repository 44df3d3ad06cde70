import asyncio
import hashlib
import os
import pwd
import stat
from pathlib import Path

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from meshcache.admin.app import LONGEST_BODY, Unavailable, admin_app, metrics_app
from meshcache.admin.server import MAX_CONNECTIONS, EmbeddedServer
from meshcache.admin.token import Token
from meshcache.extproc.status import Condition, PolicyStatus, PurgeStatus, Refusal, Status, WorkerStatus
from meshcache.observe.exposition import render
from meshcache.observe.metrics import EMPTY
from meshcache.process import StartError, bind_tcp, bind_unix
from meshcache.wasm.module import Module

STATUS = Status(
    version="1",
    pid=1,
    started_at=2.0,
    ready=True,
    draining=False,
    metrics_address="127.0.0.1:1",
    policies=PolicyStatus(
        3, "abc", 4.0, "policies", False, ("p",), ("r",), (), 0.125, Refusal(5.0, ("a.yaml:1:1: x",))
    ),
    workers=(WorkerStatus(0, 7, True, 3, 0, "/s", 6.0),),
    tiers=(),
    conditions=(Condition("Accepted", False, "Invalid", "a.yaml:1:1: x", 5.0),),
    purges=PurgeStatus("pod-1", 5, 2, 0, True),
)


class Done(msgspec.Struct):
    body: str
    who: dict[str, object]


class Purges:
    """Says what it was asked."""

    async def purge(self, body, who):
        if b"bad" in body:
            raise ValueError("that makes no sense")
        return Done(body.decode(), dict(who))

    async def result(self, purge_id):
        return Done(purge_id, {}) if purge_id == "known" else None


class Experiments:
    """Knows one experiment."""

    def overview(self):
        return Done("all", {})

    async def show(self, name):
        if name != "known":
            raise LookupError("there is none")
        return Done(name, {})

    async def order(self, name, order, body, who):
        if order == "stop":
            raise Unavailable("the store is away")
        if order == "promote":
            raise ValueError("that makes no sense")
        await self.show(name)
        return Done(f"{order} {body.decode()}", dict(who))


@pytest.fixture
async def admin(tmp_path):
    path = tmp_path / "admin.sock"
    path.write_text("left by one that was killed")
    token = Token.load_or_create(tmp_path / "admin.token")
    server = EmbeddedServer(admin_app(lambda: STATUS, Purges(), Experiments(), token), bind_unix(path, 0o600))
    await server.start()
    async with httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(uds=str(path)), base_url="http://meshcache", timeout=20
    ) as client:
        client.token = token
        yield client
    await server.stop()


MODULE = Module(Path("m.wasm"), b"\0asm\1\0\0\0 and so on", "1.0", True)


class Sidecar:
    ready = True

    def metrics_page(self) -> bytes:
        return render(EMPTY, "1")


@pytest.fixture
async def metrics():
    sidecar = Sidecar()
    sock = bind_tcp("127.0.0.1", 0, "--metrics-listen")
    server = EmbeddedServer(metrics_app(sidecar, MODULE), sock)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    await server.start()
    async with httpx.AsyncClient(base_url=url, timeout=20) as client:
        yield sidecar, client
    await server.stop()


async def test_status_over_the_unix_socket(admin, tmp_path):
    mode = os.stat(tmp_path / "admin.sock").st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
    answer = await admin.get("/status")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"] == "application/json"
    assert msgspec.json.decode(answer.content, type=Status) == STATUS
    body = answer.json()
    assert body["policies"]["fromLastGood"] is False
    assert body["policies"]["refusal"]["errors"] == ["a.yaml:1:1: x"]
    assert body["workers"][0]["pid"] == 7
    assert (await admin.post("/status")).status_code == 405
    assert (await admin.get("/other")).status_code == 404


async def test_a_purge_takes_the_token_and_tells_who_asks(admin):
    answer = await admin.post("/purge", content=b'{"all":true}', headers=admin.token.header)
    assert answer.status_code == 200
    user = pwd.getpwuid(os.getuid()).pw_name
    who = {"uid": os.getuid(), "user": user, "token": "admin.token"}
    assert answer.json() == {"body": '{"all":true}', "who": who}
    for header in ({}, {"authorization": "Bearer x"}, {"authorization": admin.token.header["authorization"][:-1]}):
        answer = await admin.post("/purge", content=b"{}", headers=header)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


async def test_a_purge_that_makes_no_sense_is_refused_with_a_sentence(admin):
    answer = await admin.post("/purge", content=b"bad", headers=admin.token.header)
    assert (answer.status_code, answer.json()) == (400, {"error": "that makes no sense"})
    answer = await admin.post("/purge", content=bytes(LONGEST_BODY + 1), headers=admin.token.header)
    assert answer.status_code == 413


async def test_how_a_purge_stands_takes_no_token(admin):
    assert (await admin.get("/purge/known")).json() == {"body": "known", "who": {}}
    assert (await admin.get("/purge/other")).status_code == 404
    assert (await admin.get("/purge")).status_code == 405


async def test_experiments_are_shown_to_whoever_may_connect(admin):
    assert (await admin.get("/experiments")).json() == {"body": "all", "who": {}}
    assert (await admin.get("/experiments/known")).json() == {"body": "known", "who": {}}
    answer = await admin.get("/experiments/other")
    assert (answer.status_code, answer.json()) == (404, {"error": "there is none"})


async def test_an_order_takes_the_token_and_tells_who_asks(admin):
    answer = await admin.post("/experiments/known/rollback", content=b"{}", headers=admin.token.header)
    assert answer.status_code == 200
    assert answer.json()["body"] == "rollback {}"
    assert answer.json()["who"]["uid"] == os.getuid()
    assert (await admin.post("/experiments/known/rollback")).status_code == 401
    for path, status in (("known/promote", 400), ("known/stop", 503), ("other/rollback", 404)):
        answer = await admin.post(f"/experiments/{path}", headers=admin.token.header)
        assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert (await admin.get("/experiments/known/rollback")).status_code == 405


async def test_a_purge_that_is_broken_off_is_no_error_of_ours(admin, tmp_path, caplog):
    field = Token.load(tmp_path / "admin.token").header["authorization"]
    for _ in range(3):
        _, writer = await asyncio.open_unix_connection(tmp_path / "admin.sock")
        writer.write(
            f"POST /purge HTTP/1.1\r\nhost: x\r\nauthorization: {field}\r\ncontent-length: 9\r\n\r\n{{".encode()
        )
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()
    await asyncio.sleep(0.1)
    assert not caplog.records
    assert (await admin.get("/status")).status_code == 200


def test_well_needs_every_condition():
    assert not STATUS.well
    assert msgspec.structs.replace(STATUS, conditions=()).well
    assert not msgspec.structs.replace(STATUS, conditions=(), ready=False).well


async def test_metrics_page_can_be_scraped(metrics):
    _, client = metrics
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    names = {family.name for family in text_string_to_metric_families(answer.text)}
    assert "meshcache_requests" in names


async def test_readiness_follows_the_sidecar_and_health_does_not(metrics):
    sidecar, client = metrics
    assert (await client.get("/readyz")).status_code == 200
    sidecar.ready = False
    assert (await client.get("/readyz")).status_code == 503
    assert (await client.get("/healthz")).status_code == 200


async def test_who_opens_connections_and_asks_nothing_keeps_nobody_from_an_answer(metrics, caplog):
    _, client = metrics
    held = [await asyncio.open_connection("127.0.0.1", client.base_url.port) for _ in range(MAX_CONNECTIONS + 20)]
    for number, (_, writer) in enumerate(held):
        if number % 2:
            writer.write(b"GET /metrics HTTP/1.1\r\nx: ")
    for path in ("/healthz", "/metrics"):
        assert (await client.get(path)).status_code == 200
    first, last = held[0][0], held[-1][0]
    assert await first.read() == b"", "the oldest one has gone"
    assert not last.at_eof()
    for _, writer in held:
        writer.close()
    assert not caplog.records


def test_a_taken_address_is_told_in_one_line():
    with bind_tcp("127.0.0.1", 0, "--metrics-listen") as first:
        port = first.getsockname()[1]
        with pytest.raises(
            StartError, match=rf"^--metrics-listen 127.0.0.1:{port} cannot be used: Address already in use"
        ):
            bind_tcp("127.0.0.1", port, "--metrics-listen")


@pytest.mark.parametrize("host", ["203.0.113.1", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_told_in_one_line(host):
    with pytest.raises(StartError, match="cannot be used"):
        bind_tcp(host, 9, "--listen")


def test_a_socket_path_that_is_too_long_is_told(tmp_path):
    with pytest.raises(StartError, match="too long"):
        bind_unix(tmp_path / ("x" * 108), 0o600)


async def test_an_agent_fetches_the_filter_by_its_digest(metrics):
    _, client = metrics
    answer = await client.get("/wasm/meshcache.wasm")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/wasm"
    assert answer.content == MODULE.content
    assert answer.headers["etag"] == f'"{hashlib.sha256(MODULE.content).hexdigest()}"'
    again = await client.get("/wasm/meshcache.wasm", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert (await client.post("/wasm/meshcache.wasm")).status_code == 405


async def test_where_no_filter_is_built_there_is_none_to_fetch():
    transport = httpx.ASGITransport(app=metrics_app(Sidecar()))
    async with httpx.AsyncClient(transport=transport, base_url="http://meshcache") as client:
        answer = await client.get("/wasm/meshcache.wasm")
    assert (answer.status_code, answer.text) == (404, "the filter is not built\n")
