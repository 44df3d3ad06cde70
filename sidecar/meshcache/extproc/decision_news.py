"""Who is told of a decision about an experiment: log, audit log, metrics, and the webhook."""

from __future__ import annotations

import asyncio
from math import nan
from typing import TYPE_CHECKING, Any

import msgspec

from meshcache.experiment.overlay import Phase
from meshcache.experiment.state import Actor, Decided

if TYPE_CHECKING:
    from collections.abc import Mapping

    from structlog.typing import FilteringBoundLogger

    from meshcache.experiment.findings import Estimate, Findings
    from meshcache.experiment.state import Decision, Record
    from meshcache.extproc.webhook import Notifier
    from meshcache.observe.audit import AuditLog
    from meshcache.observe.metrics import Metrics
    from meshcache.policy.compiled import Experiment

_LOUD = frozenset({Decided.PAUSED, Decided.ROLLED_BACK, Decided.LOST})


class DecisionNews:
    """Belongs to one event loop."""

    def __init__(self, metrics: Metrics, log: FilteringBoundLogger, audit: AuditLog, notifier: Notifier) -> None:
        self._metrics = metrics
        self._log = log
        self._audit = audit
        self._notifier = notifier
        self._shown: set[tuple[str, str, str, str]] = set()
        self._phases: set[str] = set()

    async def decided(self, record: Record, decisions: tuple[Decision, ...], who: Mapping[str, Any]) -> None:
        """Decisions that were made here, and that the store has taken. `who` asked for them, if a person did."""
        for decision in decisions:
            fields = told(record, decision)
            (self._log.warning if decision.what in _LOUD else self._log.info)("experiment decided", **fields)
            self._metrics.inc("experiment_decisions_total", (record.name, decision.what, decision.by))
            self._notifier.tell({"event": "meshcache.experiment", **fields})
            by = {"who": dict(who)} if decision.by is Actor.PERSON else {}
            await asyncio.to_thread(self._audit.append, "experiment", {**fields, **by})

    def learned(self, record: Record, decisions: tuple[Decision, ...]) -> None:
        """Decisions that were made by another process."""
        for decision in decisions:
            fields = told(record, decision)
            (self._log.warning if decision.what in _LOUD else self._log.info)(
                "experiment decided by another process", **fields
            )

    def in_force(self, phases: Mapping[str, Phase]) -> None:
        """Which phase each experiment is in, as far as this process knows."""
        for name in self._phases | phases.keys():
            for phase in Phase:
                self._metrics.set("experiment_phase", (name, phase), float(phases.get(name) is phase))
        self._phases = set(phases)

    def found(self, experiment: Experiment, findings: Findings | None) -> None:
        """What the decider sees."""
        estimates: dict[tuple[str, str], Estimate] = {}
        if findings is not None:
            for guardrail, estimate in zip(experiment.guardrails, findings.guardrails, strict=True):
                estimates["guardrail", guardrail.metric] = estimate
            if experiment.primary is not None and findings.primary is not None:
                estimates["primary", experiment.primary.metric] = findings.primary
        for (role, metric), estimate in estimates.items():
            for bound, value in (("estimate", estimate.change), ("low", estimate.low), ("high", estimate.high)):
                labels = (experiment.name, role, metric, bound)
                self._shown.add(labels)
                self._metrics.set("experiment_verdict", labels, value)

    def blind(self) -> None:
        """This process does not decide any more: what it has seen is no news."""
        for labels in self._shown:
            self._metrics.set("experiment_verdict", labels, nan)
        self._shown.clear()


def told(record: Record, decision: Decision) -> dict[str, Any]:
    """A decision as plain values, with the names of the experiment and of what is in force from now on."""
    fields = msgspec.to_builtins(decision)
    shares = dict(zip(record.arms, record.weights, strict=True))
    return {"experiment": record.name, "phase": record.phase.value, "weights": shares, **fields}
