"""Following the purges that pods share, on a real Valkey: what is told of a store that knows none."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
import structlog
from supervised import until

from meshcache.extproc.fleet_follower import FleetFollower
from meshcache.extproc.purge_book import PurgeBook
from meshcache.tiers.board import Board
from meshcache.tiers.fleet_log import FleetLog
from meshcache.tiers.redis import RedisTier

pytestmark = pytest.mark.e2e

LOST = "the store had lost purges; they have been made known again"


class Pod:
    def __init__(self, folder, tier: RedisTier) -> None:
        log = structlog.get_logger()
        self.board = Board(folder / "board", slots=1 << 16, lease_buckets=16)
        self.book = PurgeBook(folder / "purges.log", self.board, log, tell=self.tell, shared=True)
        self.book.open()
        self.follower = FleetFollower(
            FleetLog(tier.send, "pod-a"),
            self.book,
            log,
            pod="pod-a",
            name="pod-a",
            where="valkey",
            waiting=list,
            keeps=lambda: 60.0,
            learned=lambda _rules: None,
        )

    async def tell(self, _generation: int) -> None:
        """There are no workers."""

    @asynccontextmanager
    async def following(self):
        running = asyncio.create_task(self.follower.run())
        try:
            await until(lambda: self.follower.connected)
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest_asyncio.fixture
async def pod(tmp_path, valkey):
    tier = RedisTier(valkey.unix_url)
    made = Pod(tmp_path, tier)
    yield made
    made.book.close()
    made.board.close()
    await tier.close()


async def test_a_new_store_has_lost_nothing_and_an_emptied_one_has(pod, valkey):
    with structlog.testing.capture_logs() as logs:
        async with pod.following():
            pass
    assert {"event": "the log of the fleet's purges begins", "log_level": "info"} in logs
    assert not [line for line in logs if line["log_level"] != "info"]
    with valkey.client() as client:
        client.flushall()
    with structlog.testing.capture_logs() as logs:
        async with pod.following():
            await until(lambda: any(line["event"] == LOST for line in logs))
