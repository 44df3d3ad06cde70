"""What is worse is rolled back by itself, and what is better wins: `make proofs PARTS=verdicts`.

Whole experiments in virtual time (`proofs.virtual`), arms of 80, 10 and 10 percent, a look after every 100 requests:

- A candidate that adds 100 ms to each answer, or fails in 5 % of requests, is rolled back by a guardrail.
- A candidate that hits about 91 % where the baseline hits about 82 % goes through all stages and wins, and no guardrail
  fires on its way.

It says how many units, requests and seconds that took. Environment: `TRIALS` of each (20), `SEED` (1), `PROCESSES`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from meshcache.experiment.state import Decided, Reason
from policy_texts import policies
from proofs.virtual import START, Seen, Traffic, Trial, processes

EVERY = 100
ADDED = 0.1
"""Seconds."""
FAILING = 0.05

_EXPERIMENT = """
kind: CacheExperiment
metadata: {{name: e}}
spec:
  routeRef: {{name: all}}
  unit: [{{header: x-user-id}}]
  arms:
    - {{name: control, policyRef: {{name: p}}, weight: 80}}
    - {{name: baseline, policyRef: {{name: p}}, weight: 10}}
    - {{name: candidate, policyRef: {{name: {candidate}}}, weight: 10}}
  compare: {{candidate: candidate, against: baseline}}
  primary: {{metric: hitRatio, direction: increase}}
  guardrails:
{guardrails}
  warmup: 30s
{ramp}
"""
_GUARDRAILS = """\
    - {metric: latencyP99, maxIncrease: {relative: 20%}, for: 2m, minUnits: 500}
    - {metric: errorRate, maxIncrease: {absolute: 1%}, for: 1m, minUnits: 200}
    - {metric: latencyMean, maxIncrease: {relative: 20%}, for: 1m, minUnits: 200}"""
_RAMP = "  ramp: [{weight: 5, for: 60s}, {weight: 10, for: 90s}, {weight: 25, for: 120s}]"
_BETTER = """
kind: CachePolicy
metadata: {name: better}
spec:
  tiers: {hot: {deadline: 5s}, warm: {deadline: 5s}, cold: {deadline: 5s}}
  collapse: {enabled: false}
  freshness: {defaultTtl: 60s, staleWhileRevalidate: 10m}"""


def _slow(arm: str, seen: Seen, draw: float) -> Seen:
    return (seen[0] + ADDED, seen[1]) if arm == "candidate" else seen


def _fails(arm: str, seen: Seen, draw: float) -> Seen:
    return (seen[0], True) if arm == "candidate" and draw < FAILING else seen


def _as_it_is(arm: str, seen: Seen, draw: float) -> Seen:
    return seen


EXPECTED = {"slow": Decided.ROLLED_BACK, "failing": Decided.ROLLED_BACK, "better": Decided.WON}
WORSE = {"slow": _slow, "failing": _fails, "better": _as_it_is}
TRAFFIC = {
    "slow": Traffic(rate=200.0, activity=0.5),
    "failing": Traffic(rate=200.0, activity=0.5),
    "better": Traffic(rate=200.0, activity=0.5, keys=2_000, zipf=1.12),
}
"""The busiest user makes about 3 % of an arm's requests. Where he makes 14 % (`activity` 0.7), one in eight of the slow
candidates is not beyond doubt after 60,000 requests: who has whose traffic explains too much."""
MOST = {"slow": 60_000, "failing": 60_000, "better": 200_000}
"""Requests after which a trial is given up."""


def policies_of(name: str) -> str:
    """The documents of a trial."""
    better = name == "better"
    experiment = _EXPERIMENT.format(
        candidate="better" if better else "p", guardrails=_GUARDRAILS, ramp=_RAMP if better else ""
    )
    return policies(more=f"{experiment}\n---\n{_BETTER}" if better else experiment, freshness="{defaultTtl: 60s}")


@dataclass
class Verdict:
    """How a trial ended."""

    right: bool
    what: str
    metric: str
    """By which it was rolled back."""
    units: int
    """Of the smaller arm, in the stage of the verdict."""
    requests: int
    """Of the candidate, in that stage."""
    seconds: float
    """Since that stage began to count."""
    total: float
    """Since the first request."""
    values: tuple[float | None, float | None]
    """Of candidate and baseline."""


def trial(name: str, seed: int) -> Verdict:
    """One experiment, until it is decided."""
    with Trial(policies_of(name), TRAFFIC[name], seed, worse=WORSE[name]) as one:
        for _ in one.run(MOST[name], EVERY):
            if one.decisions[-1].what in (Decided.WON, Decided.LOST, Decided.PAUSED, Decided.ROLLED_BACK):
                break
        return verdict(one, EXPECTED[name])


def verdict(one: Trial, expected: Decided) -> Verdict:
    """How it ended, and whether that was `expected`."""
    last = one.decisions[-1]
    stages = [decision for decision in one.decisions if decision.what is Decided.COUNTING]
    evidence = last.evidence[0] if last.evidence else None
    return Verdict(
        right=last.what is expected and last.reason in (Reason.BREACHED, Reason.BETTER),
        what=f"{last.what}: {last.reason}",
        metric="" if evidence is None else evidence.metric,
        units=min(evidence.units) if evidence is not None and evidence.units else 0,
        requests=evidence.requests[0] if evidence is not None and evidence.requests else 0,
        seconds=last.at - stages[-1].at if stages else 0.0,
        total=last.at - START,
        values=(None, None) if evidence is None else (evidence.candidate, evidence.against),
    )


def summary(found: list[Verdict]) -> dict[str, Any]:
    """What came of all of one kind."""
    right = [one for one in found if one.right]
    told: dict[str, Any] = {"trials": len(found), "right": len(right)}
    if wrong := [one.what for one in found if not one.right]:
        told["wrong"] = wrong
    if right:
        told["by"] = sorted({one.metric for one in right})
        for what in ("units", "requests", "seconds", "total"):
            values = sorted(getattr(one, what) for one in right)
            told[what] = {"median": round(statistics.median(values)), "max": round(values[-1])}
        for place, arm in enumerate(("candidate", "baseline")):
            told[arm] = round(statistics.mean(one.values[place] or 0.0 for one in right), 4)
    return told


def main() -> int:
    """Run all; returns the exit status."""
    trials, first = int(os.environ.get("TRIALS") or 20), int(os.environ.get("SEED") or 1) * 1_000_000
    began = time.monotonic()
    told: dict[str, Any] = {}
    with processes() as pool:
        for name in EXPECTED:
            told[name] = summary(list(pool.map(partial(trial, name), range(first, first + trials))))
            print(f"{name}: {json.dumps(told[name])}", file=sys.stderr, flush=True)
    print(json.dumps({"seconds": round(time.monotonic() - began, 1), **told}))
    return 0 if all(one["right"] == one["trials"] for one in told.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
