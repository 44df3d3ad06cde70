"""Many requests at once over bare sockets, and an origin that sees how many of them come to it at a time."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import httpx
from running_mesh import Mesh, eventually
from scripted_origin import Asked, ScriptedOrigin, Wire, reply

PATIENCE = 60.0


@dataclass(frozen=True)
class Got:
    """One answer as it came."""

    status: int
    head: str
    body: bytes
    seconds: float

    @property
    def cache_status(self) -> str:
        """The field, empty without one."""
        found = re.search(r"^cache-status: (.*)\r$", self.head, re.MULTILINE | re.IGNORECASE)
        return found[1] if found else ""


async def ask(port: int, path: str, *fields: tuple[str, str]) -> Got:
    """One request on a connection of its own."""
    began = time.monotonic()
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        try:
            lines = [f"GET {path} HTTP/1.1", "host: herd.example", "connection: close"]
            lines += [f"{name}: {value}" for name, value in fields]
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
    text = head.decode("latin-1") + "\r\n"
    length = re.search(r"^content-length: (\d+)\r$", text, re.MULTILINE | re.IGNORECASE)
    assert length is None or int(length[1]) == len(body), "cut short"
    return Got(int(text.split(" ")[1]), text, body, time.monotonic() - began)


async def herd(port: int, path: str, number: int, *fields: tuple[str, str]) -> list[Got]:
    """So many of them at once."""
    return await asyncio.gather(*(ask(port, path, *fields) for _ in range(number)))


async def envoy_count(mesh: Mesh, name: str) -> int:
    """The counter of Envoy's ext_proc filter that is named so."""
    transport = httpx.AsyncHTTPTransport(uds=str(mesh.data / "run" / "envoy-admin.sock"))
    async with httpx.AsyncClient(transport=transport, timeout=PATIENCE) as client:
        text = (await client.get(f"http://envoy/stats?filter=ext_proc.{name}$")).text
    return sum(int(line.rpartition(":")[2]) for line in text.splitlines())


async def until_waiting(mesh: Mesh, number: int, within: float = 40.0) -> Callable[[], Awaitable[None]]:
    """What returns when so many more requests than now wait for another's answer, as Envoy was told."""
    before = await envoy_count(mesh, "override_message_timeout_received")

    async def all_wait() -> bool:
        return await envoy_count(mesh, "override_message_timeout_received") >= before + number

    async def wait() -> None:
        await eventually(all_wait, within)

    return wait


async def raced(meshes: Sequence[Mesh], origin: ScriptedOrigin, name: str, number: int) -> list[str]:
    """The keys for which more than one request went to the origin, after many short races, and what their clients got.

    To each of `meshes` come six requests for a key, at any moment of the first one's way and just after it.
    """
    chance = random.Random(name)

    async def quick(_asked: Asked, wire: Wire) -> None:
        await asyncio.sleep(0.003)
        await wire.send(reply(200, [("cache-control", "max-age=600")], b"once"))

    async def later(mesh: Mesh, path: str) -> Got:
        await asyncio.sleep(chance.uniform(0.0, 0.06))
        return await ask(mesh.port, path)

    told: dict[str, list[str]] = {}

    async def race(path: str) -> None:
        origin.script(path, quick)
        answers = await asyncio.gather(*(later(mesh, path) for mesh in meshes for _ in range(6)))
        assert {(one.status, one.body) for one in answers} == {(200, b"once")}
        told[path] = [one.cache_status for one in answers]

    paths = [f"/{name}/{one}" for one in range(number)]
    for at in range(0, number, 4):
        await asyncio.gather(*map(race, paths[at : at + 4]))
    return [f"{path}: {told[path]}" for path in paths if origin.count(path) != 1]


def summary(answers: list[Got]) -> Counter[str]:
    """How they came about."""
    return Counter(re.sub(r"; ttl=-?\d+|; detail=.*", "", one.cache_status) or "untouched" for one in answers)


class Together:
    """Lets nobody go on until so many are there at once, or until they have waited for long."""

    def __init__(self, number: int, patience: float = 15.0) -> None:
        self._missing = number
        self._patience = patience
        self._all = asyncio.Event()

    @property
    def complete(self) -> bool:
        """Whether so many have been there at once."""
        return self._all.is_set()

    async def come(self) -> None:
        """Be one of them."""
        self._missing -= 1
        if self._missing <= 0:
            self._all.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all.wait(), self._patience)
        self._missing += 1


@dataclass
class SlowStep:
    """A step of `ScriptedOrigin` that takes `seconds`, answers with a number, and counts what it has at once."""

    seconds: float
    fields: tuple[tuple[str, str], ...] = (("cache-control", "max-age=60"),)
    body: bytes = b""
    now: int = 0
    most: int = 0
    times: int = 0
    most_after_first: int = 0
    arrivals: list[float] = field(default_factory=list)
    later: float | None = None
    """Seconds for all but the first."""
    until: Callable[[], Awaitable[object]] | None = None
    """What the first waits for besides."""

    async def __call__(self, asked: Asked, wire: Wire) -> None:
        self.times += 1
        number = self.times
        self.now += 1
        self.arrivals.append(time.monotonic())
        self.most = max(self.most, self.now)
        if number > 1:
            self.most_after_first = max(self.most_after_first, self.now)
        try:
            if number == 1 and self.until is not None:
                await self.until()
            await asyncio.sleep(self.seconds if number == 1 or self.later is None else self.later)
        finally:
            self.now -= 1
        await wire.send(reply(200, self.fields, self.body or b"%s %d" % (asked.target.encode(), number)))

    async def begun(self) -> None:
        """Return when the first is there."""

        async def there() -> bool:
            return self.times > 0

        assert await eventually(there)
