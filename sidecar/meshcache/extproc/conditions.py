"""What holds of a sidecar, since when, and why: for `GET /status`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from meshcache.extproc.status import Condition, TierStatus
from meshcache.observe.logs import redact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshcache.extproc.child import WorkerProcess
    from meshcache.extproc.control import WorkerOptions
    from meshcache.extproc.keeper import PolicyKeeper
    from meshcache.extproc.status import FilterStatus
    from meshcache.observe.metrics import Snapshot


def tiers_of(counts: Snapshot, worker: WorkerOptions) -> tuple[TierStatus, ...]:
    """The tiers of workers with these options, by what all of them have counted."""
    errors = counts.counters.get("tier_errors_total", {})
    breakers = counts.gauges.get("tier_breaker_open", {})
    stores = {
        "hot": "process memory",
        "warm": redact(worker.warm_url or "LMDB file in the data folder"),
        "cold": redact(worker.cold_url or "folder in the data folder"),
    }
    return tuple(
        TierStatus(
            name=name,
            store=store,
            breaker_open=breakers.get((name,), 0) > 0,
            errors=sum(value for labels, value in errors.items() if labels[0] == name),
        )
        for name, store in stores.items()
    )


class Conditions:
    """Remembers since when each of them has been so."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[bool, float]] = {}

    def of(
        self,
        keeper: PolicyKeeper,
        workers: Sequence[WorkerProcess],
        tiers: Sequence[TierStatus],
        filters: Sequence[FilterStatus],
        *,
        stores_current: bool,
    ) -> tuple[Condition, ...]:
        """All of them now. `stores_current`: what is read at the start alone is as the set in force has it."""
        serving = [one for one in filters if one.living and one.plan]
        given_up = [tier.name for tier in tiers if tier.breaker_open]
        refusal = keeper.refusal
        generation = keeper.policies.generation
        ready = [worker for worker in workers if worker.ready]
        behind = [worker for worker in ready if worker.generation != generation]
        late = [one.name for one in serving if one.generation != generation]
        programmed = bool(ready) and not behind and not late
        return (
            self._condition(
                "Accepted",
                refusal is None,
                "Valid" if refusal is None else "Invalid",
                "the folder's policies are in force" if refusal is None else refusal.errors[0],
            ),
            self._condition(
                "Programmed",
                programmed,
                "Programmed" if programmed else "Pending",
                f"{len(ready) - len(behind)} of {len(workers)} workers"
                f"{f' and {len(serving) - len(late)} of {len(serving)} filters in Envoy' if serving else ''}"
                f" work by generation {generation}",
            ),
            self._condition(
                "WorkersReady",
                len(ready) == len(workers),
                "Ready" if len(ready) == len(workers) else "NotReady",
                f"{len(ready)} of {len(workers)} workers answer",
            ),
            self._condition(
                "StoresCurrent",
                stores_current,
                "Current" if stores_current else "RestartNeeded",
                "stores, budgets and admin are those of the CacheConfig"
                if stores_current
                else "stores, budgets or admin of the CacheConfig have changed; they need a restart",
            ),
            self._condition(
                "TiersReachable",
                not given_up,
                "BreakerOpen" if given_up else "InUse",
                f"left alone until it answers again: {', '.join(given_up)}" if given_up else "all tiers are in use",
            ),
        )

    def _condition(self, name: str, status: bool, reason: str, message: str) -> Condition:
        before = self._since.get(name)
        if before is None or before[0] != status:
            before = self._since[name] = (status, time.time())
        return Condition(type=name, status=status, reason=reason, message=message, since=before[1])
