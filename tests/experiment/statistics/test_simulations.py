"""Short forms of `make proofs PARTS=statistics`: few experiments, few looks."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

import pytest

from meshcache.experiment.metric import Metric
from meshcache.experiment.statistics.compare import compare
from proofs.simulated import Cache, Scenario, looks, requests
from proofs.statistics import DIFFERENT, METRICS, Rate, called_different, requests_until_found, within_three_times

SHORT = (
    Scenario("busy users", users=500, zipf=0.8, share=0.4, requests=2_000),
    Scenario("a cache", users=300, zipf=0.8, share=0.4, cache=Cache(keys=2_000), requests=2_000),
)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SHORT, ids=lambda scenario: scenario.name)
def test_equal_arms_are_rarely_called_different(scenario: Scenario) -> None:
    found = [called_different(scenario, seed) for seed in range(40)]
    # At most 5 % of them; the chance of more than 7 of 40 would then be 0.1 %.
    for metric in METRICS:
        assert sum(metric in each for each in found) <= 7, metric


@pytest.mark.slow
def test_a_better_candidate_is_found_in_time() -> None:
    scenario, _ = within_three_times(DIFFERENT[1])
    found = [requests_until_found(scenario, seed) for seed in range(30)]
    assert sum(map(isfinite, found)) >= 27


def test_an_arm_that_is_slower_is_seen_by_each_latency() -> None:
    slow = Scenario("slow", users=2_000, zipf=0.0, share=0.5, added=0.3, requests=3_000)
    *_, (candidate, baseline) = looks(slow, 1, every=3_000)
    for metric in (Metric.LATENCY_MEAN, Metric.LATENCY_P50, Metric.LATENCY_P90, Metric.LATENCY_P95):
        assert compare(metric, candidate, baseline, 0.05).relative.above(0.1), metric


def test_the_simulated_users_are_what_they_should_be() -> None:
    made = requests(Scenario("plain", users=1_000, hit_ratio=(0.9, 0.6), share=0.5, requests=40_000, zipf=0.3), 1)
    assert made.hit[made.arm == 0].mean() == pytest.approx(0.9, abs=0.04)
    assert made.hit[made.arm == 1].mean() == pytest.approx(0.6, abs=0.06)
    # One sample for each bucket and window of 10 s at 200 requests a second.
    assert made.sampled.sum() < len(made.arm)
    busier = requests(replace(SHORT[1], requests=20_000), 1)
    assert busier.hit[-5_000:].mean() > busier.hit[:500].mean()


def test_a_rate_tells_how_sure_it_is() -> None:
    assert str(Rate(50, 1000)) == "0.050 +- 0.007"
    assert Rate(0, 1000).error == pytest.approx(0.001)
