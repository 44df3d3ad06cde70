"""Replays for tests: a policy set, requests at given times, and what became of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.extproc import wire
from meshcache.simulate.callers import Callers
from meshcache.simulate.latency import LatencyModel
from meshcache.simulate.origin import Origin
from meshcache.simulate.replay import Replay
from meshcache.simulate.trace import TraceRequest
from meshcache.simulate.world import Sizes
from policy_texts import compiled

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from meshcache.simulate.tally import Outcome

START = 1_700_000_000.0
AT_ONCE = LatencyModel(miss=0.0)


def asked(at: float, path: str = "/a", size: int = 100, **more: object) -> TraceRequest:
    """A request so many seconds after the start."""
    return TraceRequest(START + at, path, size, host="example.com", **more)  # type: ignore[arg-type]


def replayed(
    folder: Path,
    text: str,
    requests: Iterable[TraceRequest],
    *,
    origin: Origin | None = None,
    latency: LatencyModel = AT_ONCE,
    sizes: Sizes | None = None,
) -> tuple[Replay, list[Outcome]]:
    """The replay at its end, and the outcomes in the order in which the answers came."""
    snapshot = compiled(text)
    origin = origin or Origin(cache_control="max-age=60")
    replay = Replay(
        folder,
        snapshot,
        sizes or Sizes(),
        start=START,
        origin=origin,
        latency=latency,
        callers=Callers.of_policies(snapshot),
        render=wire.render,
    )
    outcomes: list[Outcome] = []
    replay.observe(lambda _, outcome: outcomes.append(outcome))
    for request in requests:
        replay.feed(origin.seen(request))
    replay.finish()
    return replay, outcomes
