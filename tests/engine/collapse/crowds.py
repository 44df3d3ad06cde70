"""Requests for one key at one time, of which one goes ahead."""

from __future__ import annotations

import asyncio
from typing import Any

from cache_harness import Got, Rig, Sent
from policy_texts import policies

PATIENCE = 30.0

COLLAPSING = policies(collapse="{maxWait: 5s}")


class Crowd:
    """Requests that have been sent and have to wait for one that went ahead."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.tasks: list[asyncio.Task[Got | Sent]] = []
        self.got: list[Got] = []
        self.most = 0
        """As many of them were at the origin at one time."""

    async def join(self, number: int = 1, path: str = "/a", headers: dict[str, str] | None = None, **more: Any) -> None:
        for _ in range(number):
            self.tasks.append(asyncio.create_task(self.rig.send("GET", path, headers, **more)))
        await self.stirred()

    async def stirred(self, seconds: float = 0.05) -> None:
        """Let those that may go do so, however often the machine does other work meanwhile."""
        await asyncio.sleep(seconds)
        for _ in range(200):
            await asyncio.sleep(0)

    @property
    def waiting(self) -> int:
        return sum(not task.done() for task in self.tasks)

    @property
    def sent(self) -> list[Sent]:
        """Those that have gone to the origin after all."""
        results = [task.result() for task in self.tasks if task.done()]
        return [one for one in results if isinstance(one, Sent)]

    async def all(self) -> list[Got]:
        """What each one gets in the end, when the origin answers one after the other."""
        left = list(self.tasks)
        async with asyncio.timeout(PATIENCE):
            while left:
                done, _ = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                await self.stirred(0.01)
                self.most = max(self.most, sum(isinstance(task.result(), Sent) for task in left if task.done()))
                for task in left:
                    if task in done:
                        one = task.result()
                        self.got.append(await one.finish() if isinstance(one, Sent) else one)
                        left.remove(task)
                        break
        return self.got

    def drop(self) -> None:
        """All of them leave."""
        for task in self.tasks:
            task.cancel()
