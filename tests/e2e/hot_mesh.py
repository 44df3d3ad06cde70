"""Many clients of a mesh with the filter in Envoy, so that each of Envoy's workers has some of their connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
from running_mesh import PATIENCE, Headers, Mesh, eventually, verdict

CONNECTIONS = 8
"""With so many, the kernel gives some to each of two workers but once in a hundred times."""


class Crowd:
    """Clients with a connection each, which stays the same: one always asks the same worker of Envoy."""

    def __init__(self, base: str, count: int = CONNECTIONS) -> None:
        limits = httpx.Limits(max_connections=1)
        self.clients = [
            httpx.AsyncClient(base_url=base, trust_env=False, timeout=20, limits=limits) for _ in range(count)
        ]

    async def close(self) -> None:
        for client in self.clients:
            await client.aclose()

    async def get(self, path: str, headers: Headers | None = None, method: str = "GET") -> list[httpx.Response]:
        """What each of them gets, all at once; no header but `headers` and what HTTP itself needs."""
        requests = [
            client.send(httpx.Request(method, str(client.base_url).rstrip("/") + path, headers=headers))
            for client in self.clients
        ]
        return list(await asyncio.gather(*requests))

    async def tiers(self, path: str, headers: Headers | None = None) -> set[str]:
        """Where their answers come from; empty text for the origin."""
        return {verdict(answer).tier if verdict(answer).hit else "" for answer in await self.get(path, headers)}

    async def heat(self, path: str, headers: Headers | None = None, within: float = PATIENCE) -> None:
        """Ask until all workers of Envoy answer by themselves, for so many seconds at most."""

        async def hot() -> bool:
            return await self.tiers(path, headers) == {"wasm"}

        assert await eventually(hot, within), await self.tiers(path, headers)


@contextlib.asynccontextmanager
async def crowd_of(mesh: Mesh, count: int = CONNECTIONS) -> AsyncIterator[Crowd]:
    """Clients of `mesh`."""
    crowd = Crowd(mesh.base, count)
    try:
        yield crowd
    finally:
        await crowd.close()
