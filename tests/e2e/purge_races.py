"""Races of purges with requests, through real Envoy: once nothing is pending, nobody gets what was purged.

Clients ask for one path all the time, and the origin takes a moment for each answer, so that at any moment some are on
their way. Then its content changes and is purged, again and again, each time in another manner.

`python -m pytest tests/e2e/test_purges.py -k races` runs fifty; PURGE_RACES=1000 as many as that.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from running_mesh import Mesh, eventually
from scripted_origin import Asked, ScriptedOrigin, Wire, reply

CLIENTS = 6


class Admin:
    """The admin API of a mesh, with its token."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        transport = httpx.AsyncHTTPTransport(uds=str(mesh.data / "run" / "admin.sock"))
        self._client = httpx.AsyncClient(transport=transport, base_url="http://meshcache", timeout=30)

    async def purge(self, **request: Any) -> dict[str, Any]:
        """Make a purge; what it says."""
        return await self._post("/purge", json.dumps(request))

    async def order(self, experiment: str, order: str) -> None:
        """Decide about an experiment: `rollback`, `resume` and the like."""
        await self._post(f"/experiments/{experiment}/{order}")

    async def settled(self, result: dict[str, Any], within: float = 30.0) -> dict[str, Any]:
        """How a purge stands once nothing is pending."""
        return await self._until(result, lambda found: not found["pending"], within)

    async def counted(self, result: dict[str, Any]) -> dict[str, Any]:
        """How a purge stands once nothing is pending, and what it has hit is counted."""
        return await self._until(result, lambda found: not found["pending"] and found["counted"])

    async def lacking(self, result: dict[str, Any], *names: str) -> dict[str, Any]:
        """How a purge stands once nobody but these is pending: others may take their time on a busy machine."""
        return await self._until(result, lambda found: set(found["pending"]) <= {*names})

    async def _until(
        self, result: dict[str, Any], holds: Callable[[dict[str, Any]], bool], within: float = 30.0
    ) -> dict[str, Any]:
        async with asyncio.timeout(within):
            while not holds(result):
                await asyncio.sleep(0.05)
                result = (await self._client.get(f"/purge/{result['id']}")).json()
        return result

    async def close(self) -> None:
        await self._client.aclose()

    async def _post(self, path: str, content: str = "") -> dict[str, Any]:
        token = (self._mesh.data / "admin.token").read_text().strip()
        answer = await self._client.post(path, content=content, headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@dataclass
class Changing:
    """Content at one path of an origin that changes, and that takes a moment to be sent."""

    origin: ScriptedOrigin
    path: str
    tag: str
    version: int = 0
    slowest: float = 0.03

    def __post_init__(self) -> None:
        self.origin.script(self.path, self._answer)

    async def _answer(self, _asked: Asked, wire: Wire) -> None:
        # Settled as the request arrives: what is sent later is older.
        body = str(self.version).encode()
        await asyncio.sleep(random.uniform(0.0, self.slowest))
        fields = [("cache-control", "max-age=3600"), ("cache-tag", f"other, {self.tag}")]
        await wire.send(reply(200, fields, body))


@dataclass
class Watchers:
    """Clients that ask all the time, and note what they got that had been purged before they asked."""

    meshes: Sequence[Mesh]
    path: str
    floor: int = 0
    """The version that every request from now on must get, or a newer one."""
    answers: int = 0
    hits: int = 0
    wrong: list[str] = field(default_factory=list)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, number: int) -> None:
        mesh = self.meshes[number % len(self.meshes)]
        async with httpx.AsyncClient(base_url=mesh.base, trust_env=False, timeout=20) as client:
            while not self._stop.is_set():
                floor = self.floor
                answer = await client.get(self.path)
                self.answers += 1
                self.hits += "hit" in answer.headers.get("cache-status", "")
                if answer.status_code != 200 or int(answer.text) < floor:
                    self.wrong.append(f"{answer.status_code} {answer.text} for {floor}: {dict(answer.headers)}")
                await asyncio.sleep(random.uniform(0.0, 0.002))

    async def have_hits(self, number: int) -> None:
        """Wait, on a slow machine, until there have been more than so many hits in all."""

        async def there() -> bool:
            return self.hits > number

        await eventually(there)

    def stop(self) -> None:
        self._stop.set()


def manners(content: Changing, host: str) -> list[dict[str, Any]]:
    """Ways to purge that content."""
    url = f"http://{host}{content.path}"
    return [
        {"tags": [content.tag]},
        {"urls": [url]},
        {"prefixes": [url[:-1]]},
        {"tags": [content.tag], "soft": True},
        {"all": True},
        {"routes": ["plain"]},
        {"prefixes": [content.path], "soft": True},
    ]


async def race(
    meshes: Sequence[Mesh],
    content: Changing,
    count: int,
    disturb: Callable[[int], Awaitable[None]] | None = None,
) -> Watchers:
    """Change and purge `content` so many times, in each mesh in turn; what the clients got."""
    watchers = Watchers(meshes, content.path)
    tasks = [asyncio.create_task(watchers.run(number)) for number in range(CLIENTS)]
    admins = [Admin(mesh) for mesh in meshes]
    try:
        for number in range(count):
            await watchers.have_hits(number)
            await asyncio.sleep(random.uniform(0.0, 0.05))
            content.version += 1
            if disturb is not None:
                await disturb(number)
            mesh, admin = meshes[number % len(meshes)], admins[number % len(meshes)]
            ways = manners(content, mesh.base.removeprefix("http://"))
            # The host is the one that clients of that mesh ask; content of others is purged by its tag.
            way = ways[number % len(ways)] if len(meshes) == 1 else ways[(0, 3, 4, 5, 6)[number % 5]]
            await admin.settled(await admin.purge(**way))
            watchers.floor = content.version
            for task in tasks:
                if task.done():
                    task.result()
        await watchers.have_hits(count)
        await asyncio.sleep(0.1)
    finally:
        watchers.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
        for admin in admins:
            await admin.close()
    return watchers
