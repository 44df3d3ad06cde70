"""A simulation: one trace, read once, against several policy sets side by side."""

from __future__ import annotations

import contextlib
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from meshcache.simulate.callers import Callers
from meshcache.simulate.curve import miss_ratio_curve, stack_distances
from meshcache.simulate.eviction import entry_bytes
from meshcache.simulate.latency import LatencyModel
from meshcache.simulate.origin import Origin
from meshcache.simulate.replay import Replay
from meshcache.simulate.result import CurveResult, SimulationResult, TraceResult, policy_result
from meshcache.simulate.world import Sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from meshcache.engine.ports import Renderer
    from meshcache.policy.snapshot import Snapshot
    from meshcache.simulate.trace import TraceRequest


@dataclass(frozen=True)
class Contender:
    """A policy set, and how much each tier may hold under it."""

    name: str
    snapshot: Snapshot
    sizes: Sizes = field(default_factory=Sizes)


@dataclass(frozen=True)
class OriginModel:
    """How the origin answers; see `Origin`."""

    cache_control: str | None = None
    validators: bool = True
    object_bytes: int = 4096


class Simulation:
    """Takes requests in order of time, and gives the result. Use as a context manager."""

    def __init__(
        self,
        folder: Path,
        contenders: Sequence[Contender],
        *,
        origin: OriginModel,
        latency: LatencyModel,
        render: Renderer,
    ) -> None:
        """`folder` is for small files of the replays."""
        self._folder = folder
        self._contenders = contenders
        self._origin = Origin(
            cache_control=origin.cache_control, validators=origin.validators, object_bytes=origin.object_bytes
        )
        self._latency = latency
        self._render = render
        self._running = contextlib.ExitStack()
        self._replays: list[Replay] = []
        self._takers: list[Callable[[TraceRequest], None]] = []
        self._objects: dict[tuple[str, str], int] = {}
        self._asked = array("q")
        self._sizes = array("q")
        self._around = entry_bytes()
        self._first = self._last = 0.0
        self.requests = 0
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def feed(self, request: TraceRequest) -> None:
        """One more request."""
        asked = self._origin.seen(request)
        size = asked.size
        if not self._replays:
            self._begin(asked.time)
        self.requests += 1
        self._bytes += size
        self._last = asked.time
        if asked.method == "GET":
            objects = self._objects
            self._asked.append(objects.setdefault((asked.host, asked.path), len(objects)))
            self._sizes.append(size + self._around)
        for take in self._takers:
            take(asked)

    def result(self, trace: str, form: str, bad_lines: int, first_bad: list[tuple[int, str]]) -> SimulationResult:
        """Let all come to its end, and say what was seen. `trace` is what the trace is called, `form` its format."""
        self._running.close()
        for replay in self._replays:
            replay.finish()
        curve = miss_ratio_curve(stack_distances(self._asked, self._sizes))
        return SimulationResult(
            trace=TraceResult(
                name=trace,
                format=form,
                requests=self.requests,
                objects=len(self._objects),
                bytes=self._bytes,
                seconds=self._last - self._first,
                bad_lines=bad_lines,
                first_bad_lines=first_bad,
            ),
            policies=[
                policy_result(contender.name, replay)
                for contender, replay in zip(self._contenders, self._replays, strict=False)
            ],
            curve=CurveResult(list(curve.capacities), list(curve.miss_ratios)),
        )

    def _begin(self, start: float) -> None:
        self._first = start
        for number, contender in enumerate(self._contenders):
            folder = self._folder / str(number)
            folder.mkdir()
            self._replays.append(
                Replay(
                    folder,
                    contender.snapshot,
                    contender.sizes,
                    start=start,
                    origin=self._origin,
                    latency=self._latency,
                    callers=Callers.of_policies(contender.snapshot),
                    render=self._render,
                )
            )
        if len(self._replays) == 1:
            self._running.enter_context(self._replays[0].world.loop.running())
            self._takers = [self._replays[0].take]
        else:
            self._takers = [replay.feed for replay in self._replays]
