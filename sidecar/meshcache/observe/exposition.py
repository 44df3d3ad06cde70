"""The `/metrics` page: one merged `Snapshot` in Prometheus' text format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

from meshcache.observe.metrics import BUCKETS, CATALOGUE, PREFIX, Definition, HistogramState, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class SnapshotCollector:
    """Hands one snapshot to prometheus-client. Metrics without a value yet are listed with their help text."""

    def __init__(self, snapshot: Snapshot, version: str) -> None:
        self._snapshot = snapshot
        self._version = version

    def collect(self) -> Iterator[Metric]:
        """The metric families, in the order of the catalogue."""
        build = InfoMetricFamily(f"{PREFIX}build", "The running release.")
        build.add_metric([], {"version": self._version})
        yield build
        for definition in CATALOGUE.values():
            if definition.kind == "counter":
                yield self._counter(definition)
            elif definition.kind == "gauge":
                yield self._gauge(definition)
            else:
                yield self._histogram(definition)

    def _counter(self, definition: Definition) -> Metric:
        family = CounterMetricFamily(PREFIX + definition.name, definition.help, labels=definition.labels)
        for labels, value in self._snapshot.counters.get(definition.name, {}).items():
            family.add_metric(labels, value)
        return family

    def _gauge(self, definition: Definition) -> Metric:
        family = GaugeMetricFamily(PREFIX + definition.name, definition.help, labels=definition.labels)
        for labels, value in self._snapshot.gauges.get(definition.name, {}).items():
            family.add_metric(labels, value)
        return family

    def _histogram(self, definition: Definition) -> Metric:
        family = HistogramMetricFamily(PREFIX + definition.name, definition.help, labels=definition.labels)
        for labels, state in self._snapshot.histograms.get(definition.name, {}).items():
            family.add_metric(labels, buckets=_cumulative(state), sum_value=state.total)
        return family


def render(snapshot: Snapshot, version: str) -> bytes:
    """The page for `snapshot` (`CONTENT_TYPE`)."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(snapshot, version))
    return generate_latest(registry)


def _cumulative(state: HistogramState) -> list[tuple[str, float]]:
    rows: list[tuple[str, float]] = []
    running = 0
    for bound, count in zip((*BUCKETS, float("inf")), state.counts, strict=True):
        running += count
        rows.append(("+Inf" if bound == float("inf") else f"{bound:g}", running))
    return rows
