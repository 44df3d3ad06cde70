"""From counts to what is decided by: which arms, which metrics, at which confidence."""

from __future__ import annotations

from dataclasses import replace
from math import isnan

import numpy as np
import pytest

from experiment_plans import SPEC, experiment
from meshcache.experiment.findings import alpha
from meshcache.experiment.guardrails import Standing, standing
from meshcache.experiment.judging import judge, numbers
from meshcache.experiment.overlay import Phase
from meshcache.experiment.plan import begin, step
from meshcache.experiment.statistics.compare import compare
from meshcache.experiment.totals import BUCKETS, ArmTotals, EpochTotals
from meshcache.policy.compiled import UnitSource

OF = experiment()
WEIGHTS = (80, 10, 10)


def arm(seed: int, units: int, hit_ratio: float, error_rate: float = 0.0, latency: float = 0.04) -> ArmTotals:
    """An arm whose units are spread over the buckets, ten requests each."""
    chance = np.random.default_rng(seed)
    buckets = chance.integers(0, BUCKETS, units)
    requests = np.bincount(np.repeat(buckets, 10), minlength=BUCKETS).astype(np.int64)
    spread = chance.normal(1.0, 0.1, BUCKETS)
    return ArmTotals(
        requests=requests,
        hits_hot=chance.binomial(requests, hit_ratio),
        errors=chance.binomial(requests, error_rate),
        latency_us=(requests * latency * 1e6 * spread).astype(np.int64),
        latency_square=(requests * (latency * 1e3 * spread) ** 2).astype(np.int64),
        origin_requests=requests - chance.binomial(requests, hit_ratio),
        cost_micros=requests * 2000,
        units=units,
    )


def totals(candidate: ArmTotals, baseline: ArmTotals, units: tuple[int, ...] = (8000, 1000, 1000)) -> EpochTotals:
    return EpochTotals((arm(1, 8000, 0.9), candidate, baseline), units, 0.0)


def test_what_the_counts_say_is_what_is_decided_by() -> None:
    found = judge(OF, 7, WEIGHTS, totals(arm(2, 1000, 0.95, error_rate=0.2), arm(3, 1000, 0.8)))
    assert found is not None
    assert (found.epoch, found.units, found.requests) == (7, (1000, 1000), (10_000, 10_000))
    errors, latency = found.guardrails
    assert (errors.relative, latency.relative) == (False, True)
    assert standing(OF.guardrails[0], errors, found.least_units) is Standing.BREACHED
    assert standing(OF.guardrails[1], latency, found.least_units) is Standing.HELD
    assert found.primary is not None
    assert 0 < found.primary.low < found.primary.change < found.primary.high
    assert not found.mismatch


def test_every_bound_has_its_part_of_the_confidence() -> None:
    candidate, baseline = arm(2, 1000, 0.95), arm(3, 1000, 0.8)
    found = judge(OF, 7, WEIGHTS, totals(candidate, baseline))
    assert found is not None
    assert found.primary is not None
    assert OF.primary is not None
    alone = compare(OF.primary.metric, candidate, baseline, alpha(OF))
    assert (found.primary.low, found.primary.high) == (alone.absolute.low, alone.absolute.high)


def test_keys_that_are_assigned_do_not_make_each_others_hits() -> None:
    both = totals(arm(2, 1000, 0.95), arm(3, 900, 0.8))
    keys = judge(replace(OF, units=(UnitSource("cacheKey"),)), 7, WEIGHTS, both)
    users = judge(OF, 7, WEIGHTS, both)
    assert keys is not None
    assert users is not None
    assert keys.primary != users.primary


def test_units_that_are_spread_otherwise_than_the_weights_say_are_a_mismatch() -> None:
    found = judge(OF, 7, WEIGHTS, totals(arm(2, 1000, 0.9), arm(3, 1000, 0.9), (80_000, 10_000, 8_000)))
    assert found is not None
    assert found.mismatch
    assert found.p_value < 1e-6
    assert found.arm_units == (80_000, 10_000, 8_000)


def test_a_mismatch_that_was_seen_is_not_taken_back() -> None:
    fair = totals(arm(2, 1000, 0.9), arm(3, 1000, 0.9))
    found = judge(OF, 7, WEIGHTS, fair, 1e-6)
    assert found is not None
    assert found.mismatch
    assert found.p_value == 1e-6


@pytest.mark.parametrize("nothing", [EpochTotals((), (), 0.0), EpochTotals((ArmTotals(), ArmTotals()), (0, 0), 0.0)])
def test_where_nothing_is_known_nothing_is_said(nothing: EpochTotals) -> None:
    assert judge(OF, 7, WEIGHTS, nothing) is None


def test_without_requests_everything_is_inconclusive_and_nothing_happens() -> None:
    record, _ = begin(OF, None, 0.0)
    record, _ = step(OF, record, None, 10.0)
    assert record.phase is Phase.RUNNING
    empty = EpochTotals((ArmTotals(), ArmTotals(), ArmTotals()), (0, 0, 0), 0.0)
    found = judge(OF, record.epoch, WEIGHTS, empty)
    assert found is not None
    assert all(isnan(estimate.low) and isnan(estimate.high) for estimate in found.guardrails)
    assert [estimate.lack for estimate in found.guardrails] == ["no-data", "no-data"]
    assert not found.mismatch
    assert step(OF, record, found, 1e9) == (record, ())


def test_an_experiment_that_compares_nothing_has_numbers_alone() -> None:
    of = experiment(SPEC[: SPEC.index("  primary")])
    both = EpochTotals((arm(1, 100, 0.9), arm(2, 10, 0.9)), (100, 10), 0.0)
    assert judge(of, 7, (90, 10), both) is None
    first, second = numbers(both)
    assert (first.units, first.requests, second.requests) == (100, 1000, 100)
    assert first.hit_ratio == pytest.approx(0.9, abs=0.05)
    assert first.latency_mean == pytest.approx(0.04, rel=0.1)
    assert first.cost_saved == pytest.approx(2.0)
    assert isnan(first.latency_p99)
