"""What users do through a real Envoy is what the ledger says: exactly, over kills and restarts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import tempfile
from collections import Counter
from pathlib import Path

import httpx
import pytest
import structlog
from supervised import Bench, pids, until

from meshcache.envoy.bootstrap import BootstrapOptions, Origin
from meshcache.envoy.process import EnvoyProcess
from meshcache.experiment.bins import bin_of
from meshcache.experiment.overlay import Overlay, Phase
from meshcache.extproc.child import COMMAND

pytestmark = pytest.mark.e2e

SET = """\
apiVersion: meshcache.dev/v1alpha1
kind: CacheConfig
metadata: {name: default}
spec: {trust: {cacheStatus: {from: [any]}}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: p}
spec: {tiers: {hot: {deadline: 2s}, warm: {deadline: 2s}, cold: {deadline: 2s}}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: r}
spec: {match: [{path: {prefix: /}}], policyRef: {name: p}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheExperiment
metadata: {name: e}
spec:
  routeRef: {name: r}
  unit: [{header: x-user-id}]
  arms: [{name: control, policyRef: {name: p}, weight: 50}, {name: candidate, policyRef: {name: p}, weight: 50}]
"""
ARMS = ("control", "candidate")
SLOW = 0.3


class Counting:
    """An origin that counts what it is asked: `/kept/`, `/fails/`, `/slow/` (the body takes its time), `/cut/`."""

    def __init__(self) -> None:
        self.asked = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
                self.asked += 1
                status = "500 Oh" if path.startswith("/fails/") else "200 OK"
                life = "max-age=60" if path.startswith("/kept/") else "no-store"
                head = f"HTTP/1.1 {status}\r\ncontent-length: 10\r\ncache-control: {life}\r\n\r\n"
                if path.startswith("/chunked/"):
                    head = f"HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\ncache-control: {life}\r\n\r\n"
                    writer.write(head.encode() + b"a\r\n0123456789\r\n0\r\n\r\n")
                    continue
                writer.write(head.encode() + b"01234")
                if path.startswith(("/slow/", "/cut/")):
                    await writer.drain()
                    await asyncio.sleep(SLOW)
                if path.startswith("/cut/"):
                    break
                writer.write(b"56789")
                await writer.drain()
        writer.close()


class Users:
    """Clients of the front door, and what they have seen."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20)
        self.requests: Counter[str] = Counter()
        self.hits: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.arms: dict[str, str] = {}

    async def ask(self, user: str, path: str) -> None:
        answer = await self.client.get(path, headers={"x-user-id": user})
        status = answer.headers["cache-status"]
        arm = re.findall(r"arm=(\w+)", status)[0]
        assert self.arms.setdefault(user, arm) == arm
        self.requests[arm] += 1
        self.hits[arm] += "meshcache; hit" in status
        self.errors[arm] += answer.status_code >= 500


@pytest.fixture
async def bench():
    with tempfile.TemporaryDirectory(prefix="mc-", dir="/tmp") as folder:
        made = Bench(Path(folder), structlog.get_logger())
        made.write(SET)
        yield made
        await made.close()


async def counting(supervisor, users, origin, epoch=1):
    """Have requests counted, and wait until every worker does; from then on users and origin count as the ledger."""
    (experiment,) = supervisor.snapshot.experiments
    overlay = Overlay("e", experiment.spec_hash, Phase.RUNNING, (1, 1), epoch, counting=True)
    version = supervisor.overlays.apply({"e": overlay})
    assert await supervisor.overlays.wait_installed(version, 10)

    async def totals():
        return await supervisor.counting.totals("e", experiment.spec_hash, epoch, uid=experiment.uid)

    async def counted():
        found = await totals()
        return sum(int(arm.requests.sum()) for arm in found.arms)

    counts = False
    while not counts:
        before = await counted()
        # Envoy gives the workers requests in turn.
        for _ in range(4):
            await users.ask("user-0", "/chunked/probe")
        # A client has his answer a moment before it is counted.
        await asyncio.sleep(0.5)
        counts = await counted() == before + 4
    users.requests, users.hits, users.errors = Counter({users.arms["user-0"]: await counted()}), Counter(), Counter()
    origin.asked = await counted()
    return totals


def sums(totals, name):
    return {arm: int(getattr(found, name).sum()) for arm, found in zip(ARMS, totals.arms, strict=True)}


def slow_ones(totals):
    """How many took as long as the slow ones of the origin, or a busy machine."""
    return sum(int(arm.latency.counts[bin_of(0.9 * SLOW) :].sum()) for arm in totals.arms)


async def agree(read, users, origin):
    """The totals, once all requests are counted; they say what users and origin have seen."""
    for _ in range(1000):
        totals = await read()
        if sum(sums(totals, "requests").values()) >= sum(users.requests.values()):
            break
        await asyncio.sleep(0.02)
    assert sums(totals, "requests") == {arm: users.requests[arm] for arm in ARMS}
    hits = {arm: sum(sums(totals, f"hits_{tier}")[arm] for tier in ("hot", "warm", "cold")) for arm in ARMS}
    assert hits == {arm: users.hits[arm] for arm in ARMS}
    assert sums(totals, "errors") == {arm: users.errors[arm] for arm in ARMS}
    assert sum(sums(totals, "origin_requests").values()) == origin.asked
    by_arm = Counter(users.arms.values())
    assert totals.units == tuple(by_arm[arm] for arm in ARMS)
    return totals


async def test_the_ledger_says_what_users_have_seen(bench):
    origin = Counting()
    server = await asyncio.start_server(origin.serve, "127.0.0.1", 0)
    supervisor = await bench.start(2, COMMAND)
    folder = bench.data / "run"
    options = BootstrapOptions(
        listen=("127.0.0.1", 0),
        origin=Origin("127.0.0.1", server.sockets[0].getsockname()[1]),
        worker_sockets=(folder / "worker-0.sock", folder / "worker-1.sock"),
        refresh_socket=folder / "refresh.sock",
        admin=folder / "envoy-admin.sock",
        # Of what the sidecar has not seen nothing is counted, and a busy machine may take long.
        message_timeout=5.0,
    )
    async with EnvoyProcess(options, folder) as envoy:
        users = Users(await envoy.listen_port())
        # Before anybody has decided that it counts.
        await users.client.get("/kept/early", headers={"x-user-id": "early"})
        totals = await counting(supervisor, users, origin)

        async def visit(user: int) -> None:
            for turn in range(6):
                await users.ask(f"user-{user}", f"/kept/{turn % 3}")
            await users.ask(f"user-{user}", f"/fails/{user}")
            await users.ask(f"user-{user}", f"/chunked/{user}")

        # One after the other: two at once for one answer would be one request at the origin.
        for user in range(12):
            await visit(user)
        assert sum(users.requests.values()) >= 96
        assert sum(users.hits.values()) > 40
        slow_before = slow_ones(await agree(totals, users, origin))
        bytes_before = sum(sums(await totals(), "origin_bytes").values())
        assert bytes_before == 10 * origin.asked

        # Who carries no unit is not counted.
        await users.client.get("/kept/0")

        # What is not stored is timed until the client has all of it.
        for user in range(4):
            await users.ask(f"user-{user}", f"/slow/{user}")
        assert slow_ones(await agree(totals, users, origin)) == slow_before + 4

        # The origin breaks off, and a client leaves: one request each, and no error.
        with pytest.raises(httpx.RemoteProtocolError):
            await users.client.get("/cut/1", headers={"x-user-id": "user-0"})
        async with users.client.stream("GET", "/slow/left", headers={"x-user-id": "user-0"}):
            pass
        users.requests[users.arms["user-0"]] += 2
        await agree(totals, users, origin)

        # A worker dies. What it has counted stays, and the next one goes on with it.
        victim = pids(supervisor)[0]
        os.kill(victim, signal.SIGKILL)
        await until(lambda: pids(supervisor)[0] not in (victim, None))
        await until(lambda: all(worker.ready for worker in supervisor.status().workers))
        for user in range(12, 16):
            await visit(user)
        await agree(totals, users, origin)

        # Another epoch counts for itself.
        first = sums(await totals(), "requests")
        second = await counting(supervisor, Users(users.port), Counting(), 2)
        before = sum(sums(await second(), "requests").values())
        await users.ask("user-1", "/kept/0")
        for _ in range(200):
            if sum(sums(await second(), "requests").values()) > before:
                break
            await asyncio.sleep(0.05)
        assert sum(sums(await second(), "requests").values()) == before + 1
        assert sums(await totals(), "requests") == first

        await users.client.aclose()
        # As a supervisor that starts has it.
        again = bench.make(2, COMMAND)
        again.load()
        (experiment,) = again.snapshot.experiments
        assert sums(await again.counting.totals("e", experiment.spec_hash, 1), "requests") == first
        bench.running.append(again)
    metrics = supervisor.metrics().counters["experiment_requests_total"]
    assert sum(metrics.values()) > 0
    server.close()
