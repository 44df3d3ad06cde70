"""What the statistics promise, by thousands of simulated experiments: `make proofs PARTS=statistics`.

- Equal arms are called different in at most 5 % of experiments that are looked at after every 100 requests, for rate,
  mean and quantile each, whatever users and caches are like.
- A hit ratio of 0.91 against 0.82 is found in at least 95 % within three times the size that a single look at the end
  would take.
- The sequential test for sample ratio mismatch flags at most 1 % of fair splits, and finds one that is off.

A rate is given with its binomial standard error. Environment: `EXPERIMENTS` for each scenario (1000), `SEED` (1).
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from meshcache.experiment.metric import Metric
from meshcache.experiment.statistics.compare import compare
from meshcache.experiment.statistics.sample_ratio import sample_ratio
from proofs.simulated import Cache, Scenario, looks
from proofs.sizes import fixed_for_shares

if TYPE_CHECKING:
    from collections.abc import Iterable

ALPHA = 0.05
MISMATCH_ALPHA = 0.01

ALIKE = (
    Scenario("few busy users"),
    Scenario("users of one kind", users=20_000, zipf=0.0, share=0.4, requests=8_000),
    Scenario("few users", users=60, zipf=0.5, share=0.5, requests=8_000),
    Scenario("rare errors", users=5_000, zipf=0.7, alike=0, share=0.4, error_rate=(0.003, 0.003), requests=8_000),
    Scenario("half are hits", users=500, zipf=0.8, hit_ratio=(0.5, 0.5), alike=1.0, share=0.4, requests=8_000),
    Scenario("a cache, small arms", zipf=0.8, cache=Cache()),
    Scenario("a cache, busy users", users=500, zipf=0.8, share=0.4, cache=Cache(), requests=6_000),
    Scenario("a cache, shared keys", users=500, zipf=0.8, share=0.4, cache=Cache(own=0.0), requests=6_000),
)
"""Experiments with one policy in both arms."""

METRICS = (Metric.HIT_RATIO, Metric.LATENCY_MEAN, Metric.ERROR_RATE, Metric.LATENCY_P50, Metric.LATENCY_P99)

DIFFERENT = (
    Scenario("a request each", users=100_000, zipf=0.0, alike=0, hit_ratio=(0.91, 0.82), share=0.5),
    Scenario("users differ", users=400, zipf=0.0, alike=5, hit_ratio=(0.91, 0.82), share=0.5, new_users_every=2_000),
    Scenario("busy users", users=400, zipf=0.7, alike=8, hit_ratio=(0.91, 0.82), share=0.5, new_users_every=2_000),
)


@dataclass(frozen=True)
class Rate:
    """How often something happened."""

    happened: int
    of: int

    @property
    def share(self) -> float:
        return self.happened / self.of

    @property
    def error(self) -> float:
        """The standard error of `share`."""
        return sqrt(max(self.share * (1 - self.share), 1 / self.of) / self.of)

    def __str__(self) -> str:
        return f"{self.share:.3f} +- {self.error:.3f}"


def called_different(scenario: Scenario, seed: int) -> set[Metric]:
    """The metrics by which the arms of one experiment differ at any look."""
    found: set[Metric] = set()
    for candidate, baseline in looks(scenario, seed):
        for metric in METRICS:
            if metric not in found and compare(metric, candidate, baseline, ALPHA).absolute.excludes(0):
                found.add(metric)
    return found


def requests_until_found(scenario: Scenario, seed: int) -> float:
    """Requests in either arm after which the candidate's hit ratio is seen to be better; infinite when it is not."""
    for candidate, baseline in looks(scenario, seed):
        if compare(Metric.HIT_RATIO, candidate, baseline, ALPHA).absolute.above(0):
            return float(candidate.requests.sum() + baseline.requests.sum()) / 2
    return inf


def design_effect(scenario: Scenario) -> float:
    """How many times as many requests as independent ones it takes, by how they are spread over users: Kish 1965."""
    weights = np.arange(1.0, scenario.users + 1) ** -scenario.zipf
    weights /= weights.sum()
    others = ((scenario.new_users_every or scenario.requests) - 1) * float((weights**2).sum())
    return 1 + others / (scenario.alike + 1) if scenario.alike else 1.0


def within_three_times(scenario: Scenario) -> tuple[Scenario, float]:
    """The scenario, as long as three times the size for a single look takes; and that size, in requests of an arm."""
    fixed = fixed_for_shares(*scenario.hit_ratio, alpha=ALPHA, power=0.95) * design_effect(scenario)
    return replace(scenario, requests=ceil(3 * fixed / scenario.share / 100) * 100), fixed


def flagged(weights: tuple[float, ...], truth: tuple[float, ...], seed: int) -> bool:
    """Whether the sequential test flags a split, looked at from 20 to half a million units."""
    rng = np.random.default_rng(seed)
    units = np.zeros(len(weights), np.int64)
    for step in range(100):
        units += rng.multinomial(int(20 * 1.08**step), truth)
        if sample_ratio(units.tolist(), weights, MISMATCH_ALPHA).flagged:
            return True
    return False


def rates_when_alike(scenario: Scenario, seeds: Iterable[int], pool: ProcessPoolExecutor) -> dict[Metric, Rate]:
    """How often arms of one policy are called different, by metric."""
    results = list(pool.map(partial(called_different, scenario), seeds, chunksize=4))
    return {metric: Rate(sum(metric in found for found in results), len(results)) for metric in METRICS}


def main() -> int:
    """Run all of it; returns the exit status."""
    experiments = int(os.environ.get("EXPERIMENTS") or 1000)
    first = int(os.environ.get("SEED") or 1) * 1_000_000
    seeds = range(first, first + experiments)
    found: dict[str, Any] = {}
    held = True
    with ProcessPoolExecutor() as pool:
        for scenario in ALIKE:
            for metric, rate in rates_when_alike(scenario, seeds, pool).items():
                print(f"alike: {scenario.name}: {metric}: called different {rate}", flush=True)
                worst = found.setdefault("calledDifferent", {})
                worst[metric] = max(worst.get(metric, 0.0), rate.share)
                held &= rate.share <= ALPHA
        for scenario in DIFFERENT:
            longer, fixed = within_three_times(scenario)
            times = np.array(list(pool.map(partial(requests_until_found, longer), seeds, chunksize=4)))
            rate = Rate(int(np.isfinite(times).sum()), len(times))
            print(
                f"different: {scenario.name}: found {rate} within 3 x {fixed:.0f} requests, half within"
                f" {np.median(times) / fixed:.2f} x",
                flush=True,
            )
            found.setdefault("power", {})[scenario.name] = rate.share
            held &= rate.share >= 0.95
        for weights in ((50.0, 50.0), (80.0, 10.0, 10.0), (98.0, 1.0, 1.0)):
            fair = tuple(weight / 100 for weight in weights)
            off = (*(share * 0.99 for share in fair[:-1]), 1 - 0.99 * sum(fair[:-1]))
            several = range(first, first + 4 * experiments)
            rate = Rate(sum(pool.map(partial(flagged, weights, fair), several, chunksize=50)), len(several))
            power = Rate(sum(pool.map(partial(flagged, weights, off), seeds, chunksize=50)), experiments)
            print(f"split {weights}: fair flagged {rate}, 1 % off flagged {power}", flush=True)
            found.setdefault("fairFlagged", {})[str(weights)] = rate.share
            # The test uses nearly all of what it may, so chance alone puts the share a little above now and then.
            held &= rate.share - 2 * rate.error <= MISMATCH_ALPHA
            held &= power.share >= 0.95
    print(json.dumps(found))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
