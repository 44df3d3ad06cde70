"""What the metrics say of the arms' memory."""

from __future__ import annotations

from meshcache.extproc.metering import PoolMeter
from meshcache.observe.metrics import Metrics
from meshcache.policy.shares import ArmShare
from meshcache.tiers.memory import PoolUse

A, B = b"a" * 8, b"b" * 8
ONE, TWO = ArmShare(A, 0.9, "all", "one"), ArmShare(B, 0.1, "all", "two")


def use(pool: bytes, taken: int, evicted: int = 0) -> PoolUse:
    return PoolUse(pool, taken, budget=1000, entries=taken // 10, evicted=evicted)


def test_each_arm_is_told_apart_and_the_common_pool_is_none() -> None:
    metrics = Metrics()
    meter = PoolMeter(metrics)
    meter.report([use(b"", 500), use(A, 100, 3), use(B, 50)], [ONE, TWO])
    names = ("arm_hot_bytes", "arm_hot_budget_bytes", "arm_hot_entries", "arm_hot_evictions_total")
    assert [metrics.get(name, ("all", "one")) for name in names] == [100, 1000, 10, 3]
    assert [metrics.get(name, ("all", "two")) for name in names] == [50, 1000, 5, 0]
    assert set(metrics.snapshot().gauges["arm_hot_bytes"]) == {("all", "one"), ("all", "two")}


def test_evictions_add_up_also_when_a_pool_begins_anew() -> None:
    metrics = Metrics()
    meter = PoolMeter(metrics)
    for evicted in (3, 5, 5, 2):
        meter.report([use(A, 100, evicted)], [ONE])
    assert metrics.get("arm_hot_evictions_total", ("all", "one")) == 7


def test_an_arm_that_has_gone_takes_nothing() -> None:
    metrics = Metrics()
    meter = PoolMeter(metrics)
    meter.report([use(A, 100), use(B, 50)], [ONE, TWO])
    meter.report([use(A, 100)], [ONE])
    assert [metrics.get("arm_hot_bytes", ("all", arm)) for arm in ("one", "two")] == [100, 0]
