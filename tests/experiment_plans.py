"""Experiments and findings for tests of what is decided."""

from __future__ import annotations

from math import nan

from meshcache.experiment.findings import Estimate, Findings
from meshcache.experiment.state import Record
from meshcache.policy.compile import compile_documents
from meshcache.policy.compiled import Experiment
from meshcache.policy.documents import Documents

HEAD = "apiVersion: meshcache.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n"
SPEC = """\
  routeRef: {name: r}
  unit: [{header: x-user-id}]
  arms: [{name: control, policyRef: {name: old}, weight: 90}, {name: candidate, policyRef: {name: new}, weight: 10}]
  primary: {metric: hitRatio, direction: increase}
  guardrails:
  - {metric: errorRate, maxIncrease: {absolute: 1%}, for: 10s, minUnits: 50}
  - {metric: latencyMean, maxIncrease: {relative: 20%}, minUnits: 50}
  warmup: 5s
"""
RAMP = SPEC + "  ramp: [{weight: 1, for: 60s}, {weight: 5, for: 120s}, {weight: 25, for: 300s}]\n"


def files(spec: str = SPEC, ttl: str = "2m") -> str:
    return "\n---\n".join(
        (
            HEAD.format(kind="CachePolicy", name="old") + "  freshness: {defaultTtl: 60s}",
            HEAD.format(kind="CachePolicy", name="new") + f"  freshness: {{defaultTtl: {ttl}}}",
            HEAD.format(kind="CacheRoute", name="r") + "  match: [{path: {prefix: /}}]\n  policyRef: {name: old}",
            HEAD.format(kind="CacheExperiment", name="e") + spec,
        )
    )


def experiment(spec: str = SPEC, ttl: str = "2m") -> Experiment:
    documents = Documents.of([("a.yaml", files(spec, ttl))])
    (found,) = compile_documents(documents, generation=1, secret=b"s").experiments
    return found


def estimate(low: float = nan, high: float = nan, *, relative: bool = False) -> Estimate:
    return Estimate(relative, nan, nan, (low + high) / 2, low, high)


HARMLESS = estimate(-0.001, 0.001)
HARM = estimate(0.5, 0.6)
NOTHING = estimate()


def findings(
    record: Record,
    errors: Estimate = HARMLESS,
    latency: Estimate = HARMLESS,
    hits: Estimate = NOTHING,
    units: int = 1000,
    requests: int = 10_000,
    mismatch: bool = False,
    p_value: float = nan,
) -> Findings:
    return Findings(
        epoch=record.epoch,
        units=(units, units),
        requests=(requests, requests),
        guardrails=(errors, latency),
        primary=hits,
        mismatch=mismatch,
        p_value=p_value,
    )
