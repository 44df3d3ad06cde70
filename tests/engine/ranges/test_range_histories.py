"""Random histories of range requests: every answer is made of one version of the resource, and says which bytes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from cache_harness import Got, Rig
from meshcache.rfc.ranges import parse_content_range
from policy_texts import policies
from ranged_origin import Ranged

if TYPE_CHECKING:
    from pathlib import Path

SIZES = (40, 64, 100)
STEPS = 150


def version(number: int, size: int) -> bytes:
    """A body that shows at each byte of which version it is and where it stood."""
    return bytes((number * 37 + at) % 256 for at in range(size))


def wanted(chance: random.Random) -> str:
    first = chance.randrange(110)
    last = first + chance.randrange(40)
    return chance.choice([f"bytes={first}-{last}", f"bytes={first}-", f"bytes=-{last % 50}", f"bytes=0-{last}"])


def check(got: Got, bodies: dict[str, bytes], asked: str | None) -> None:
    if got.status == 304:
        return
    if got.status == 416:
        assert asked is not None
        return
    whole = bodies[got.headers.get("etag") or ""]
    if got.status == 200:
        assert got.body == whole
        assert "content-range" not in got.headers
        return
    assert got.status == 206
    assert asked is not None
    said = parse_content_range(got.headers.get("content-range"))
    assert said is not None
    assert got.body == whole[said.first : said.last + 1]
    assert said.total in (None, len(whole))


@pytest.mark.parametrize("seed", range(4))
async def test_random_histories(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    text = policies(freshness="{staleWhileRevalidate: 5s, staleIfError: 5s}" if seed % 2 else "{}")
    async with Rig(tmp_path, text, workers=2) as rig:
        bodies: dict[str, bytes] = {}

        def publish(number: int) -> None:
            size = chance.choice(SIZES)
            etag = f'"{number}"'
            bodies[etag] = version(number, size)
            fields = [("cache-control", f"max-age={chance.choice([0, 5, 60])}"), ("etag", etag)]
            if chance.random() < 0.3:
                fields.append(("vary", "accept"))
            origin.body, origin.fields = bodies[etag], tuple(fields)

        origin = Ranged()
        publish(0)
        rig.origin.does("/a", origin)
        hits = 0
        for step in range(1, STEPS):
            event = chance.random()
            if event < 0.1:
                publish(step)
            elif event < 0.2:
                rig.clock.pass_by(chance.choice([1, 6, 30]))
            elif event < 0.25:
                rig.forget_memory()
            elif event < 0.28:
                await rig.ask("POST")
            headers = {"accept": chance.choice(["x", "y"])}
            if chance.random() < 0.7:
                headers["range"] = wanted(chance)
                if chance.random() < 0.2:
                    headers["if-range"] = chance.choice([*bodies, 'W/"0"'])
            elif chance.random() < 0.2:
                headers["if-none-match"] = chance.choice([*bodies])
            got = await rig.get(headers=headers, worker=chance.randrange(2))
            check(got, bodies, headers.get("range"))
            hits += got.decision in ("hit", "completed", "revalidated")
        await rig.settle()
        assert hits > STEPS / 8
