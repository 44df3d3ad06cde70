"""A client of the soak of the hot tier that looks at every byte of what it gets."""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.processes import LOOPBACK
from soak.sizes import STEP, number_of, version_in

if TYPE_CHECKING:
    from collections import Counter

PATIENCE: Final = 30.0
"""Seconds after which an answer that has not come never will."""
PAUSE: Final = 0.03
"""Seconds between an answer and the next request, at most."""
UNSAFE: Final = 0.05
"""Share of requests that change something."""
_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_HOT: Final = re.compile(rb"\r\ncache-status: [^\r]*\btier=wasm\b", re.IGNORECASE)


@dataclass
class Known:
    """What all clients know."""

    floors: Counter[str]
    """By path, the version of which somebody has been told that it is made."""
    round: int = 0


@dataclass
class Watcher:
    """A client on a connection of its own, which has to last."""

    port: int
    objects: int
    seed: int
    known: Known
    answers: int = 0
    hot: int = 0
    made: int = 0
    """Versions that it has had made."""
    wrong: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Ask until cancelled. Raises `OSError` or `EOFError` when the connection is lost, `TimeoutError`."""
        rng = random.Random(self.seed)
        reader, writer = await asyncio.open_connection(LOOPBACK, self.port)
        try:
            while True:
                async with asyncio.timeout(PATIENCE):
                    path = f"/hot/{number_of(rng.random(), self.objects, self.known.round * STEP)}"
                    method = "POST" if rng.random() < UNSAFE else "GET"
                    floor = self.known.floors[path]
                    # The host that wrk names, so that it is about the same answers.
                    writer.write(f"{method} {path} HTTP/1.1\r\nhost: {LOOPBACK}:{self.port}\r\n\r\n".encode())
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = _LENGTH.search(head)
                    body = await reader.readexactly(int(length[1]) if length else 0)
                if method == "POST":
                    self._changed(path, head, body)
                else:
                    self._got(path, floor, head, body)
                await asyncio.sleep(rng.random() * PAUSE)
        finally:
            writer.close()

    def _changed(self, path: str, head: bytes, body: bytes) -> None:
        if _status(head) != 200:
            self.wrong.append(f"POST {path}: {_status(head)}")
            return
        self.made += 1
        self.known.floors[path] = max(self.known.floors[path], int(body))

    def _got(self, path: str, floor: int, head: bytes, body: bytes) -> None:
        self.answers += 1
        self.hot += _HOT.search(head) is not None
        version = version_in(path, body)
        if _status(head) != 200 or version is None or version < floor:
            self.wrong.append(f"GET {path}: {_status(head)}, {version} for {floor}")


def _status(head: bytes) -> int:
    return int(head[9:12])
