"""Answers that are stale, within the window in which they may be served while they are refreshed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policy_texts import policies

if TYPE_CHECKING:
    from cache_harness import Rig

SWR = policies(freshness="{defaultTtl: 10s, staleWhileRevalidate: 30s}")


async def stale(rig: Rig, path: str = "/a", **answer: Any) -> None:
    """Store an answer and let it grow stale, within the window."""
    rig.origin.says(path, b"old", **answer)
    await rig.get(path)
    await rig.settle()
    rig.clock.pass_by(15)
    rig.origin.says(path, b"new", **answer)
    rig.origin.asked.clear()
