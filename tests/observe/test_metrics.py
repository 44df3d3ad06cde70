import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.decisions import Stage
from meshcache.observe.metrics import BUCKETS, CATALOGUE, OTHER, Metrics, Snapshot, merge, without_gauges


def copy(metrics: Metrics) -> Snapshot:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(metrics.snapshot()), type=Snapshot)


def test_counter_adds_up_by_label_set():
    metrics = Metrics()
    metrics.inc("tier_errors_total", ("warm", "timeout"))
    metrics.inc("tier_errors_total", ("warm", "timeout"), 2)
    metrics.inc("tier_errors_total", ("cold", "timeout"))
    assert metrics.get("tier_errors_total", ("warm", "timeout")) == 3
    assert metrics.get("tier_errors_total", ("cold", "timeout")) == 1


def test_counter_without_labels_starts_at_zero():
    assert copy(Metrics()).counters["policy_refusals_total"] == {(): 0}


def test_unknown_name_and_wrong_labels_are_programming_errors():
    metrics = Metrics()
    with pytest.raises(KeyError):
        metrics.inc("nothing_total")
    with pytest.raises(ValueError, match="tier"):
        metrics.inc("tier_errors_total", ("warm",))


def test_open_labels_become_other_beyond_the_bound():
    metrics = Metrics()
    limit = CATALOGUE["requests_total"].limit
    for number in range(limit + 50):
        metrics.inc("requests_total", ("miss", "stale", "", f"route-{number}", "a"))
    series = copy(metrics).counters["requests_total"]
    assert len(series) == limit + 1
    assert series["miss", "stale", "", OTHER, OTHER] == 50
    # What was there before the bound is still counted by its name.
    metrics.inc("requests_total", ("miss", "stale", "", "route-0", "a"))
    assert metrics.get("requests_total", ("miss", "stale", "", "route-0", "a")) == 2


def test_closed_labels_are_bounded_too():
    metrics = Metrics()
    limit = CATALOGUE["store_total"].limit
    for number in range(3 * limit):
        metrics.inc("store_total", (f"outcome-{number}",))
    series = copy(metrics).counters["store_total"]
    assert len(series) <= 2 * limit + 1
    assert sum(series.values()) == 3 * limit


def test_lone_surrogates_in_labels_can_be_sent():
    metrics = Metrics()
    metrics.inc("missing_units_total", ("bad\ud800name",))
    assert copy(metrics).counters["missing_units_total"] == {("bad?name",): 1}


def test_observation_falls_into_the_bucket_that_holds_it():
    metrics = Metrics()
    for seconds in (0.0, BUCKETS[0], BUCKETS[0] * 1.01, 10.0, 11.0):
        metrics.observe("request_stage_seconds", ("lookup",), seconds)
    state = copy(metrics).histograms["request_stage_seconds"]["lookup",]
    assert state.counts[0] == 2
    assert state.counts[1] == 1
    assert state.counts[-2] == 1
    assert state.counts[-1] == 1
    assert state.total == pytest.approx(21.0, abs=0.001)


def test_merge_adds_counts_and_combines_gauges_as_defined():
    first, second = Metrics(), Metrics()
    for metrics, size, is_open in ((first, 10, 1), (second, 5, 0)):
        metrics.inc("requests_total", ("hit", "", "hot", "r", ""), 2)
        metrics.observe("request_stage_seconds", ("lookup",), 0.001)
        metrics.set("hot_bytes", (), size)
        metrics.set("tier_breaker_open", ("warm",), is_open)
    merged = merge([first.snapshot(), second.snapshot()])
    assert merged.counters["requests_total"]["hit", "", "hot", "r", ""] == 4
    assert merged.gauges["hot_bytes"][()] == 15
    assert merged.gauges["tier_breaker_open"]["warm",] == 1
    state = merged.histograms["request_stage_seconds"]["lookup",]
    assert sum(state.counts) == 2
    assert state.total == pytest.approx(0.002)
    # The parts are not changed by being merged.
    assert first.get("requests_total", ("hit", "", "hot", "r", "")) == 2
    assert sum(first.snapshot().histograms["request_stage_seconds"]["lookup",].counts) == 1


def test_merge_leaves_out_what_it_does_not_know():
    merged = merge([Snapshot({"future_total": {("x",): 1.0}}, {"requests_total": {(): 1.0}}, {"hot_bytes": {}})])
    assert "future_total" not in merged.counters
    assert merged.gauges == {}
    assert merged.histograms == {}


def test_what_has_ended_keeps_its_counts_and_loses_its_states():
    metrics = Metrics()
    metrics.inc("policy_refusals_total")
    metrics.set("hot_bytes", (), 7)
    ended = without_gauges(metrics.snapshot())
    assert ended.counters["policy_refusals_total"][()] == 1
    assert ended.gauges == {}


@given(st.lists(st.lists(st.sampled_from(["a", "b", "c"]), max_size=8), max_size=5))
def test_merged_counters_never_lose_or_invent_counts(workers):
    snapshots = []
    for increments in workers:
        metrics = Metrics()
        for outcome in increments:
            metrics.inc("store_total", (outcome,))
        snapshots.append(metrics.snapshot())
    merged = merge(snapshots)
    assert sum(merged.counters["store_total"].values()) == sum(map(len, workers))
    assert merge(reversed(snapshots)).counters == merged.counters
    assert merge([merge(snapshots[:2]), *snapshots[2:]]).counters == merged.counters


def test_every_stage_is_a_label_value():
    metrics = Metrics()
    for stage in Stage:
        metrics.observe("request_stage_seconds", (stage,), 0.01)
    assert set(copy(metrics).histograms["request_stage_seconds"]) == {(str(stage),) for stage in Stage}
