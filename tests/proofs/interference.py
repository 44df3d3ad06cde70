"""No arm lives off another's capacity: each hits as often in a mixed run as it does alone with its share.

`python -m proofs.interference` replays `REQUESTS` (40000) through the engine on real tiers, in virtual time: keys by
Zipf's law (1.0 over 10,000), users in arms of 80, 10 and 10 percent, all under one policy. Then each arm's own requests
again, without an experiment, where there is as much capacity as the arm's share had been. Where there are tiers below
memory, it is a quarter of the requests: each write takes its time. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cache_harness import HOST, Rig, Sent
from meshcache.message import Headers, Request
from policy_texts import compiled, policies

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ARMS = {"control": 80, "baseline": 10, "candidate": 10}
ALLOWED = 0.01
"""By which a hit ratio may differ."""
_PER_SECOND = 200
_USERS = 5000

_EXPERIMENT = """
kind: CacheExperiment
metadata: {name: e}
spec:
  routeRef: {name: all}
  unit: [{header: x-user-id}]
  arms:
""" + "\n".join(f"    - {{name: {name}, policyRef: {{name: p}}, weight: {weight}}}" for name, weight in ARMS.items())


@dataclass(frozen=True)
class Setting:
    """Where entries are kept, and how much room there is."""

    name: str
    eviction: str
    hot_bytes: int
    warm_bytes: int = 64 << 20
    cold_bytes: int = 64 << 20
    body: int = 1000
    """Bytes of a body on average."""
    below: bool = False
    """Whether there is anything below memory."""

    def policies(self, *, mixed: bool) -> str:
        """The documents, with the experiment or without."""
        limits = ("64Ki", "64Ki") if self.below else ("1", "1")
        return policies(
            config="trust: {scoreHeader: {from: [any]}, cacheStatus: {from: [any]}}",
            more=_EXPERIMENT if mixed else "",
            eviction=self.eviction,
            freshness="{defaultTtl: 60s}",
            placement="{hotAt: 70, warmAt: 30}",
            tiers=f"""
hot: {{ttl: 60s, maxObjectBytes: 64Ki, deadline: 5s}}
warm: {{ttl: 60s, maxObjectBytes: {limits[0]}, deadline: 5s}}
cold: {{ttl: 60s, maxObjectBytes: {limits[1]}, deadline: 5s}}""",
        )

    def share(self, fraction: float) -> Setting:
        """The same with so much of its room."""
        below = fraction if self.below else 1.0
        return replace(
            self,
            hot_bytes=int(self.hot_bytes * fraction),
            warm_bytes=int(self.warm_bytes * below),
            cold_bytes=int(self.cold_bytes * below),
        )


SETTINGS = (
    Setting("hot, lru", "lru", 2 << 20),
    Setting("hot, ttl", "ttl", 2 << 20),
    Setting("hot, warm and cold", "lru", 8 << 20, 44 << 20, 40 << 20, body=32_000, below=True),
)


def trace(requests: int, keys: int, seed: int) -> list[tuple[float, str, int]]:
    """Requests as seconds from the start, user and number of the key."""
    source = random.Random(seed)
    cumulative = list(itertools.accumulate(1 / rank for rank in range(1, keys + 1)))
    chosen = source.choices(range(keys), cum_weights=cumulative, k=requests)
    return [(number / _PER_SECOND, f"u{source.randrange(_USERS)}", key) for number, key in enumerate(chosen)]


def arms_of(text: str, users: Iterable[str]) -> dict[str, str]:
    """The arm of each user."""
    snapshot = compiled(text)
    asking = {user: Request("GET", HOST, "/", Headers([("x-user-id", user)]), "http") for user in users}
    return {user: snapshot.select(request).arm for user, request in asking.items()}


async def replay(setting: Setting, asked: Sequence[tuple[float, str, int]], *, mixed: bool) -> Counter[str]:
    """How often each user's requests were hits, by user, and under `""` how many entries were evicted."""
    hits: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(
            Path(folder),
            setting.policies(mixed=mixed),
            hot_bytes=setting.hot_bytes,
            warm_bytes=setting.warm_bytes,
            cold_bytes=setting.cold_bytes,
        )
        async with rig:
            start = rig.clock.now
            for key in {key for _, _, key in asked}:
                size = setting.body // 2 + key * 7919 % setting.body
                rig.origin.says(f"/{key}", bytes(size), cache_control="max-age=60")
            for at, user, key in asked:
                rig.clock.now = start + at
                # Where an answer is written depends on the user's score: to hot and warm, to warm, or to cold.
                score = ("0.9", "0.5", "0.1")[int(user[1:]) % 3] if setting.below else "0.9"
                got = await rig.send("GET", f"/{key}", {"x-user-id": user, "x-user-score": score})
                if isinstance(got, Sent):
                    got = await got.finish()
                    if setting.below:
                        await rig.workers[0].stack.drain(5)
                hits[user] += got.decision == "hit"
            hits[""] = sum(use.evicted for use in rig.workers[0].memory.pools())
    return hits


def compare(setting: Setting, requests: int, keys: int, seed: int = 1) -> dict[str, dict[str, float]]:
    """By arm: its share of requests, and its hit ratio in the mixed run (`mixed`) and alone (`alone`)."""
    asked = trace(requests, keys, seed)
    arms = arms_of(setting.policies(mixed=True), {user for _, user, _ in asked})
    together = asyncio.run(replay(setting, asked, mixed=True))
    found = {}
    for arm, weight in ARMS.items():
        own = [row for row in asked if arms[row[1]] == arm]
        alone = asyncio.run(replay(setting.share(weight / sum(ARMS.values())), own, mixed=False))
        hits = [sum(count for user, count in run.items() if arms.get(user) == arm) for run in (together, alone)]
        found[arm] = {
            "traffic": round(len(own) / len(asked), 4),
            "mixed": round(hits[0] / len(own), 4),
            "alone": round(hits[1] / len(own), 4),
            "evictedAlone": alone[""],
        }
    return found


def main() -> int:
    """Compare in every setting; returns the exit status."""
    requests = int(os.environ.get("REQUESTS") or "40000")
    began = time.monotonic()
    found = {one.name: compare(one, requests // 4 if one.below else requests, 10_000) for one in SETTINGS}
    worst = max(abs(arm["mixed"] - arm["alone"]) for arms in found.values() for arm in arms.values())
    print(json.dumps({"seconds": round(time.monotonic() - began, 1), "worst": round(worst, 4), **found}))
    return 0 if worst <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
