"""What has been decided about experiments, handed to every worker: at once, and to new ones at their start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from meshcache.extproc.control import Overlays
from meshcache.extproc.status import ExperimentStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from meshcache.experiment.overlay import Adoption, Overlay
    from meshcache.extproc.child import WorkerProcess
    from meshcache.policy.snapshot import Snapshot


class OverlaysInForce:
    """The newest overlays, and how far the workers have come with them."""

    def __init__(
        self,
        workers: Callable[[], Sequence[WorkerProcess]],
        generation: Callable[[], int],
        *,
        filters: Callable[[], int | None] = lambda: None,
        applied: Callable[[], None] = lambda: None,
    ) -> None:
        """`generation` is that of the newest policy set.

        `filters` gives the version that all filters in Envoy go by, None when there are none; `applied` is called when
        there is a newer one.
        """
        self._filters = filters
        self._on_applied = applied
        self._workers = workers
        self._generation = generation
        self._message = Overlays(0, (), ())
        self._changed = asyncio.Event()

    @property
    def message(self) -> Overlays:
        """What a worker is told."""
        return self._message

    def apply(self, overlays: Mapping[str, Overlay], adoptions: Iterable[Adoption] = ()) -> int:
        """Put these in force in the place of all before, by experiment; returns their version.

        Never waits. A worker takes a message of this kind before anything else, and a request keeps what it has begun
        with. Before the workers have started, they begin with it.
        """
        self._message = Overlays(
            self._message.version + 1, tuple(overlays.values()), tuple(adoptions), self._generation()
        )
        for worker in self._workers():
            worker.overlay(self._message)
        self._on_applied()
        return self._message.version

    @property
    def installed(self) -> int:
        """The version that every worker and filter that answers has in force; the newest when none does."""
        versions = [worker.overlaid for worker in self._workers() if worker.ready]
        filters = self._filters()
        if filters is not None:
            versions.append(filters)
        return min(versions, default=self._message.version)

    async def wait_installed(self, version: int, timeout: float) -> bool:  # noqa: ASYNC109 - a bound, not a scope
        """Wait until `version` is in force in whoever answers; whether it is within `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while self.installed < version:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def acknowledged(self) -> None:
        """A worker or a filter has come further, or has ended."""
        self._changed.set()

    def over(self, snapshot: Snapshot) -> Snapshot:
        """`snapshot` with them."""
        message = self._message
        return snapshot.with_overlays({one.experiment: one for one in message.overlays}, message.adoptions)

    def status(self, snapshot: Snapshot) -> tuple[ExperimentStatus, ...]:
        """The experiments of `snapshot` as they are in force."""
        overlaid = self.over(snapshot)
        return tuple(
            ExperimentStatus(
                name=experiment.name,
                route=experiment.route,
                spec_hash=experiment.spec_hash,
                arms=tuple(arm.name for arm in experiment.arms),
                weights=overlaid.weights[experiment.name],
                overlay=overlaid.overlays.get(experiment.name),
            )
            for experiment in overlaid.experiments
        )
