"""Pods that share a store know each other's callers, on a real Valkey."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from meshcache.experiment.links import unit_in_use
from meshcache.extproc.assembly import build
from meshcache.extproc.control import WorkerOptions
from meshcache.extproc.links import LinkFollower, SharedLinks
from meshcache.message import Headers, Request
from meshcache.observe.logs import get_logger
from meshcache.observe.metrics import Metrics
from meshcache.policy.documents import Documents
from meshcache.tiers.link_exchange import STREAM, LinkTeller
from meshcache.tiers.link_table import FILE_NAME, Link, LinkTable
from meshcache.tiers.redis import RedisTier
from policy_texts import experiment, policies

pytestmark = pytest.mark.e2e

PERSON, COOKIE = b"p" * 16, b"c" * 16


class Pod:
    """A worker's table and a supervisor that follows."""

    def __init__(self, folder: Path, url: str, name: str) -> None:
        self.store = RedisTier(url)
        self.links = LinkTable(folder / name, buckets=64)
        self.links.open()
        self.tasks: list[asyncio.Task[None]] = []
        self.wanted = True
        self.links.on_new = LinkTeller(self.store.send, name, self.spawn).add
        self.spawn(LinkFollower(self.store.send, name, LinkTable(folder / name, buckets=64), lambda: self.wanted).run())

    def spawn(self, work: Any) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def knows(self, unit: bytes) -> bool:
        for _ in range(2000):
            if self.links.find(unit):
                return True
            await asyncio.sleep(0.01)
        return False

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.store.close()


async def test_a_login_at_another_pod_changes_no_unit(valkey: Any, tmp_path: Path) -> None:
    one, other = Pod(tmp_path, valkey.unix_url, "one"), Pod(tmp_path, valkey.unix_url, "other")
    assert unit_in_use([COOKIE], one.links) == COOKIE
    assert await other.knows(COOKIE)
    assert unit_in_use([PERSON, COOKIE], other.links) == COOKIE
    assert await one.knows(PERSON)
    assert unit_in_use([PERSON], one.links) == COOKIE
    # One that starts later hears of it as well.
    late = Pod(tmp_path, valkey.unix_url, "late")
    assert await late.knows(PERSON)
    for pod in (one, other, late):
        await pod.close()


async def test_foreign_things_in_the_stream_and_a_store_that_is_away(valkey: Any, tmp_path: Path) -> None:
    pod = Pod(tmp_path, valkey.unix_url, "one")
    await pod.store.send(
        [("DEL", STREAM), ("XADD", STREAM, "*", "x", "y"), ("XADD", STREAM, "*", "p", "z", "l", "short")]
    )
    await pod.store.send([("XADD", STREAM, "*", "p", "z", "l", PERSON + COOKIE + bytes(5))])
    assert await pod.knows(PERSON)
    await pod.store.send([("SET", STREAM, "no stream")])
    pod.links.put(COOKIE, COOKIE, taken=False)
    await asyncio.sleep(0.3)
    await pod.store.send([("DEL", STREAM)])
    other = Pod(tmp_path, valkey.unix_url, "other")
    await asyncio.sleep(0.2)
    pod.links.put(b"d" * 16, COOKIE, taken=False)
    assert await other.knows(b"d" * 16)
    for each in (pod, other):
        await each.close()


async def test_from_a_worker_of_one_pod_to_the_table_of_another(valkey: Any, tmp_path: Path) -> None:
    on = experiment().replace("{header: x-user-id}", "{header: x-user-id}, {cookie: sid}")
    documents = Documents.of([("a.yaml", policies(more=on))])
    options = [
        WorkerOptions(index=0, workers=1, socket_path="", data_dir=str(tmp_path / name), warm_url=valkey.unix_url)
        for name in ("one", "other")
    ]
    service = await build(options[0], Metrics(), get_logger())
    await asyncio.to_thread(service.install, documents, 1)
    wanted = False
    other = SharedLinks(options[1], lambda: wanted)
    other.start()
    told: list[Link] = []
    tell = service._links.on_new
    service._links.on_new = lambda link: (told.append(link), tell(link))
    service._cache.snapshot.select(Request("GET", "h", "/", Headers([("cookie", "sid=1")])))
    (link,) = told
    table = LinkTable(tmp_path / "other" / FILE_NAME)
    await asyncio.sleep(0.3)
    assert not table.open_existing()
    wanted = True
    for _ in range(3000):
        if table.open_existing() and table.find(link.unit):
            break
        await asyncio.sleep(0.01)
    assert table.find(link.unit) == (link.unit, False)
    await other.stop()
    await service.close()
