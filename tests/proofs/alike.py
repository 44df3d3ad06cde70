"""Arms of one policy through the engine are rarely called different: `make proofs PARTS=aa`.

Experiments in virtual time (`proofs.virtual`) with arms of 80, 10 and 10 percent under one policy, looked at after
every 100 requests: baseline and candidate are called different in at most 5 % of them, for mean, rate and quantile
each, and no guardrail fires. Environment: `TRIALS` (200), `REQUESTS` of each (20000), `SEED` (1), `PROCESSES`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any

from meshcache.experiment.metric import Metric
from meshcache.experiment.state import Decided, Reason
from meshcache.experiment.statistics.compare import compare
from policy_texts import policies
from proofs.virtual import Traffic, Trial, processes

ALPHA = 0.05
MISMATCH_ALPHA = 0.01
EVERY = 100
METRICS = (Metric.HIT_RATIO, Metric.LATENCY_MEAN, Metric.ERROR_RATE, Metric.LATENCY_P50, Metric.LATENCY_P99)

EXPERIMENT = """
kind: CacheExperiment
metadata: {name: e}
spec:
  routeRef: {name: all}
  unit: [{header: x-user-id}]
  arms:
    - {name: control, policyRef: {name: p}, weight: 80}
    - {name: baseline, policyRef: {name: p}, weight: 10}
    - {name: candidate, policyRef: {name: p}, weight: 10}
  compare: {candidate: candidate, against: baseline}
  primary: {metric: hitRatio, direction: increase}
  guardrails:
    - {metric: latencyP99, maxIncrease: {relative: 20%}, for: 2m, minUnits: 500}
    - {metric: errorRate, maxIncrease: {absolute: 1%}, for: 1m, minUnits: 200}
  warmup: 20s
"""
"""The guardrails are those of the manifest."""


@dataclass(frozen=True)
class Scenario:
    """Whose requests, and how long their answers are kept."""

    name: str
    traffic: Traffic
    lifetime: str = "60s"

    @property
    def policies(self) -> str:
        """The documents."""
        return policies(more=EXPERIMENT, freshness=f"{{defaultTtl: {self.lifetime}}}")


SCENARIO = Scenario("busy users with favourites", Traffic())


@dataclass
class Found:
    """What came of one experiment."""

    different: set[Metric]
    """By which the arms were called different at any look."""
    fired: bool
    """Whether a guardrail did: none should."""
    mismatch: bool
    """Whether the split of units was called unfair: in at most one of 100."""
    told: list[str]
    """What was said of the primary metric."""
    units: int
    """Of the smaller arm."""
    looks: int


def alike(scenario: Scenario, requests: int, seed: int, every: int = EVERY) -> Found:
    """One experiment with one policy in all arms."""
    found = Found(set(), False, False, [], 0, 0)
    with Trial(scenario.policies, scenario.traffic, seed) as trial:
        compared = trial.experiment.compare
        assert compared is not None
        for totals in trial.run(requests, every):
            if not trial.record.counting:
                continue
            candidate, baseline = totals.arms[compared.candidate], totals.arms[compared.against]
            found.looks += 1
            for metric in METRICS:
                if metric not in found.different and compare(metric, candidate, baseline, ALPHA).absolute.excludes(0):
                    found.different.add(metric)
        for decision in trial.decisions:
            found.fired |= decision.reason is Reason.BREACHED
            found.mismatch |= decision.reason is Reason.MISMATCH
            if decision.what in (Decided.WON, Decided.LOST):
                found.told.append(decision.what.value)
        if trial.findings is not None:
            found.units = trial.findings.least_units
    return found


def summary(found: list[Found]) -> dict[str, Any]:
    """What came of all of them, for the last line."""
    different = Counter(metric for one in found for metric in one.different)
    return {
        "trials": len(found),
        "calledDifferent": {metric: round(different[metric] / len(found), 4) for metric in METRICS},
        "guardrailsFired": sum(one.fired for one in found),
        "mismatches": sum(one.mismatch for one in found),
        "told": Counter(word for one in found for word in one.told),
        "units": min(one.units for one in found),
        "looks": sum(one.looks for one in found),
    }


def holds(told: dict[str, Any]) -> bool:
    """Whether that is as it should be."""
    return bool(
        max(told["calledDifferent"].values()) <= ALPHA
        and not told["guardrailsFired"]
        # A share of at most 1 % is found to be more than that by chance, once in 40 times that this is run.
        and told["mismatches"] / told["trials"] <= MISMATCH_ALPHA + 2 * sqrt(MISMATCH_ALPHA / told["trials"])
    )


def main() -> int:
    """Run all of it; returns the exit status."""
    trials, requests = int(os.environ.get("TRIALS") or 200), int(os.environ.get("REQUESTS") or 20_000)
    first = int(os.environ.get("SEED") or 1) * 1_000_000
    began = time.monotonic()
    with processes() as pool:
        found = []
        for one in pool.map(partial(alike, SCENARIO, requests), range(first, first + trials)):
            found.append(one)
            if len(found) % 10 == 0:
                print(f"aa: {json.dumps(summary(found))}", file=sys.stderr, flush=True)
    told = summary(found)
    print(json.dumps({"requests": requests, "seconds": round(time.monotonic() - began, 1), **told}))
    return 0 if holds(told) else 1


if __name__ == "__main__":
    sys.exit(main())
