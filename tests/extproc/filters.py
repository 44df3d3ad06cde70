"""A hub for filters over workers that a test plays, on a unix socket, and filters that ask as the real one does."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import structlog

from meshcache.admin.server import EmbeddedServer
from meshcache.extproc.filter_feed import filter_app
from meshcache.extproc.filter_hub import FilterHub, InForce
from meshcache.observe.metrics import Metrics
from meshcache.process import bind_unix
from meshcache.wasm.feed import News, decode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from meshcache.extproc.control import FilterPlans


class PlayedWorker:
    """A worker of the sidecar, as a hub sees it."""

    def __init__(self, name: str = "worker-0") -> None:
        self.name = name
        self.ready = True
        self.applied = 0
        self.generation = 0
        self.overlaid = 0
        self.told: list[FilterPlans] = []

    def tell_plans(self, plans: FilterPlans) -> None:
        self.told.append(plans)


class PlayedFilter:
    """The filter of one worker of Envoy."""

    def __init__(self, socket: Path, number: int) -> None:
        self.id = f"{number:016x}"
        self.name = f"envoy-{self.id}"
        self.after = 0
        self.plan = ""
        self.dropped: list[tuple[int, ...] | None] = []
        self.bodies: list[bytes] = []
        transport = httpx.AsyncHTTPTransport(uds=str(socket))
        self._client = httpx.AsyncClient(transport=transport, base_url="http://filter", timeout=60)

    async def ask(self, wait: float = 0.0, **more: Any) -> httpx.Response:
        query = {"format": "1", "worker": self.id, "after": f"{self.after:016x}", "wait": str(wait), **more}
        headers = {"if-none-match": f'"{self.plan}"'} if self.plan else {}
        return await self._client.get("/v1/feed", params=query, headers=headers)

    async def poll(self, wait: float = 0.0) -> News | None:
        """Ask, and do as the answer says."""
        answer = await self.ask(wait)
        if answer.status_code == 304:
            return None
        assert answer.status_code == 200, answer.text
        news = decode(answer.content)
        self.after = news.generation
        self.dropped.append(news.labels)
        if news.plan:
            self.plan = answer.headers["etag"].strip('"')
            self.bodies.append(news.plan)
        return news

    async def send(self, body: bytes) -> httpx.Response:
        return await self._client.post("/v1/numbers", content=body)

    async def close(self) -> None:
        await self._client.aclose()


class Filtering:
    """The hub of one supervisor, with what is in force played by the test."""

    def __init__(self, snapshot: Any, folder: Path, lease: float = 10.0) -> None:
        self.now = 0.0
        self.snapshot = snapshot
        self.version = 0
        self.worker = PlayedWorker()
        self.worker.generation = snapshot.generation
        self.metrics = Metrics()
        self.progress = 0
        self.compiled = self._compiled
        self.socket = folder / "filter.sock"
        self.hub = FilterHub(
            compiled=lambda snapshot, secret, lease: self.compiled(snapshot, secret, lease),
            in_force=lambda: InForce(self.snapshot, self.version),
            workers=lambda: [self.worker],  # type: ignore[list-item]  # played
            metrics=self.metrics,
            log=structlog.get_logger(),
            progressed=self._progressed,
            clock=lambda: self.now,
            lease=lease,
        )
        self.filters = [PlayedFilter(self.socket, number) for number in (1, 2)]

    def _compiled(self, snapshot: Any, secret: bytes, lease: float) -> tuple[str, bytes]:
        body = f"{snapshot.digest} {self.version} {lease} ".encode() + secret
        return f"{abs(hash((snapshot.digest, self.version))) % (1 << 64):016x}", body

    def _progressed(self) -> None:
        self.progress += 1

    def counted(self, name: str, *labels: str) -> float:
        return self.metrics.snapshot().counters.get(name, {}).get(labels, 0.0)


@asynccontextmanager
async def filtering(snapshot: Any, folder: Path, lease: float = 10.0) -> AsyncIterator[Filtering]:
    made = Filtering(snapshot, folder, lease)
    server = EmbeddedServer(filter_app(made.hub), bind_unix(made.socket, 0o600))
    await server.start()
    made.hub.changed()
    running = asyncio.create_task(made.hub.run())
    try:
        yield made
    finally:
        running.cancel()
        for one in made.filters:
            await one.close()
        made.hub.close()
        await server.stop()
