"""Counters, gauges and histograms of one process: dictionary increments, no lock and no I/O.

A worker increments; about once a second its `Snapshot` goes to the supervisor, which adds the workers up
(`merge`) and renders the page (`meshcache.observe.exposition`). Everything here runs on one event loop.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

Labels = tuple[str, ...]

PREFIX: Final = "meshcache_"
OTHER: Final = "other"
"""The label value that stands for all that came after a metric's bound was reached."""

BUCKETS: Final[tuple[float, ...]] = (
    0.00005,
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
"""Upper bounds in seconds: from a hit in process memory (50 us) to a slow origin (10 s)."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric. `open_labels` are those whose values an operator chooses: beyond `limit` they become "other"."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    open_labels: frozenset[str] = frozenset()
    combine: Literal["sum", "max"] = "sum"
    """How a gauge of several workers becomes one value."""
    limit: int = 1000
    """The most label sets that are kept."""


_DEFINITIONS: Final = (
    Definition(
        "requests_total",
        "counter",
        "Requests by what was decided, why, by which tier, and for which route and experiment arm.",
        ("decision", "reason", "tier", "route", "arm"),
        open_labels=frozenset({"route", "arm"}),
        limit=4000,
    ),
    Definition("request_stage_seconds", "histogram", "Seconds spent in one stage of a request.", ("stage",)),
    Definition(
        "bytes_total",
        "counter",
        "Bytes of bodies sent from a tier (out) and of entries written to it (in).",
        ("direction", "tier"),
    ),
    Definition("chunks_total", "counter", "Chunks of large bodies, by what became of them.", ("tier", "event")),
    Definition("evictions_total", "counter", "Entries that left a tier before they were replaced.", ("tier", "reason")),
    Definition("tier_errors_total", "counter", "Tier operations that failed.", ("tier", "kind")),
    Definition(
        "tier_breaker_open", "gauge", "1 while a tier's breaker keeps requests away from it.", ("tier",), combine="max"
    ),
    Definition("policy_generation", "gauge", "Number of the policy set in force.", combine="max"),
    Definition("policy_refusals_total", "counter", "Policy edits that were refused; the last good set stayed."),
    Definition("store_total", "counter", "Responses that were stored, or why they were not.", ("outcome",)),
    Definition(
        "collapses_total",
        "counter",
        "Requests that met another one for the same key at the origin, by what became of them.",
        ("outcome",),
    ),
    Definition(
        "refreshes_total",
        "counter",
        "Background refreshes by how they ended and why they were begun.",
        ("outcome", "cause"),
    ),
    Definition("hot_bytes", "gauge", "Bytes held in process memory, over all workers."),
    Definition("hot_entries", "gauge", "Entries held in process memory, over all workers."),
    Definition("filter_workers", "gauge", "Workers of Envoy whose filter may answer by itself."),
    Definition("filter_entries", "gauge", "Entries held in the memory of Envoy's workers."),
    Definition("filter_bytes", "gauge", "Bytes that they take there."),
    Definition("filter_fills_total", "counter", "Answers that Envoy's workers have taken into their memory."),
    Definition("filter_evictions_total", "counter", "Those of them that had to go for others."),
    Definition("filter_plan_bytes", "gauge", "Size of the plan that filters work by."),
    Definition("filter_polls_total", "counter", "Polls of filters, by what they were answered.", ("answer",)),
    Definition(
        "filter_drops_total",
        "counter",
        "What filters were told to drop, by what made it invalid and how much it was.",
        ("cause", "extent"),
    ),
    Definition(
        "filter_asks_total", "counter", "What filters have asked of workers, and what they got.", ("why", "outcome")
    ),
    Definition(
        "arm_hot_bytes",
        "gauge",
        "Bytes that an experiment's arm holds in process memory, over all workers.",
        ("route", "arm"),
        open_labels=frozenset({"route", "arm"}),
    ),
    Definition(
        "arm_hot_budget_bytes",
        "gauge",
        "Bytes that it may hold there: its share, by the weights in force.",
        ("route", "arm"),
        open_labels=frozenset({"route", "arm"}),
    ),
    Definition(
        "arm_hot_entries",
        "gauge",
        "Entries that it holds there.",
        ("route", "arm"),
        open_labels=frozenset({"route", "arm"}),
    ),
    Definition(
        "arm_hot_evictions_total",
        "counter",
        "Entries that have left its share there for want of room.",
        ("route", "arm"),
        open_labels=frozenset({"route", "arm"}),
    ),
    Definition("worker_restarts_total", "counter", "Workers that had to be started again."),
    Definition(
        "missing_units_total",
        "counter",
        "Requests of an experiment that carried no unit to assign by.",
        ("experiment",),
        open_labels=frozenset({"experiment"}),
    ),
    Definition(
        "experiment_phase",
        "gauge",
        "1 for the phase that an experiment is in.",
        ("experiment", "phase"),
        open_labels=frozenset({"experiment"}),
        combine="max",
    ),
    Definition(
        "experiment_decisions_total",
        "counter",
        "Decisions about experiments that were made here, by a person's word among them.",
        ("experiment", "decision", "by"),
        open_labels=frozenset({"experiment"}),
    ),
    Definition(
        "experiment_verdict",
        "gauge",
        "Change of a metric from baseline to candidate, and the ends of its confidence sequence; the decider alone.",
        ("experiment", "role", "metric", "bound"),
        open_labels=frozenset({"experiment"}),
        combine="max",
    ),
    Definition("experiment_notices_total", "counter", "Messages to the webhook.", ("outcome",)),
    Definition(
        "experiment_requests_total",
        "counter",
        "Requests of this pod that an experiment has counted, by its arm.",
        ("experiment", "arm"),
        open_labels=frozenset({"experiment", "arm"}),
    ),
    Definition(
        "experiment_hits_total",
        "counter",
        "Those of them that were answered from the cache without asking the origin.",
        ("experiment", "arm"),
        open_labels=frozenset({"experiment", "arm"}),
    ),
    Definition(
        "experiment_errors_total",
        "counter",
        "Those of them whose client got an error.",
        ("experiment", "arm"),
        open_labels=frozenset({"experiment", "arm"}),
    ),
    Definition(
        "experiment_origin_requests_total",
        "counter",
        "Requests to the origin that they have caused, refreshes among them.",
        ("experiment", "arm"),
        open_labels=frozenset({"experiment", "arm"}),
    ),
    Definition(
        "experiment_units",
        "gauge",
        "Different units that this pod has seen in the present epoch, by arm; an estimate where there are many.",
        ("experiment", "arm"),
        open_labels=frozenset({"experiment", "arm"}),
        combine="max",
    ),
    Definition(
        "experiment_book_errors_total",
        "counter",
        "Times a worker could not open what it counts an experiment in; until it can, its requests are not counted.",
        ("experiment",),
        open_labels=frozenset({"experiment"}),
    ),
    Definition("filter_batches_total", "counter", "Batches of counts from the filter in Envoy.", ("outcome",)),
    Definition("filter_not_modified_total", "counter", "Requests that Envoy has answered 304 out of its own memory."),
    Definition(
        "filter_age_seconds_total", "counter", "Sum of the ages of what Envoy has answered out of its own memory."
    ),
    Definition(
        "filter_unbooked_total",
        "counter",
        "Hits in Envoy that count in an epoch that is not known here, and so are in no book.",
        ("experiment",),
        open_labels=frozenset({"experiment"}),
    ),
    Definition("stream_errors_total", "counter", "ext_proc streams that ended in an error.", ("kind",)),
    Definition("purges_total", "counter", "Purge rules that were made here.", ("kind", "mode")),
    Definition("purged_entries_total", "counter", "Stored entries that purges made here have matched."),
    Definition("purge_rules", "gauge", "Purge rules that are kept, those of other pods among them."),
    Definition("purges_owed", "gauge", "Purge rules that the other pods have not heard of yet."),
    Definition("entries_refused_total", "counter", "Stored entries that were found and not used.", ("tier", "reason")),
)

CATALOGUE: Final[dict[str, Definition]] = {definition.name: definition for definition in _DEFINITIONS}
"""Every metric by its name without the prefix."""


class HistogramState(msgspec.Struct, array_like=True):
    """Observations of one label set: how many fell into each bucket (the last is +Inf) and their sum in seconds."""

    counts: list[int]
    total: float


class Snapshot(msgspec.Struct, frozen=True):
    """The values of one process since it began, fit to be sent: metric name -> label values -> value."""

    counters: dict[str, dict[Labels, float]]
    gauges: dict[str, dict[Labels, float]]
    histograms: dict[str, dict[Labels, HistogramState]]


EMPTY: Final = Snapshot({}, {}, {})


class Metrics:
    """The metrics of this process.

    Metric names are those of `CATALOGUE`; label values stand in the order of `Definition.labels`. An unknown
    name is a programming error (`KeyError`), a wrong number of labels `ValueError` when the set is first seen.
    """

    __slots__ = ("_counters", "_gauges", "_histograms")

    def __init__(self) -> None:
        self._counters: dict[str, dict[Labels, float]] = {}
        self._gauges: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, HistogramState]] = {}
        for definition in _DEFINITIONS:
            if definition.kind == "counter":
                # A counter without labels exists from the start, so that its first increment is a rate.
                self._counters[definition.name] = {} if definition.labels else {(): 0}
            elif definition.kind == "gauge":
                self._gauges[definition.name] = {}
            else:
                self._histograms[definition.name] = {}

    def inc(self, metric: str, labels: Labels = (), n: float = 1) -> None:
        """Add `n` to a counter."""
        series = self._counters[metric]
        try:
            series[labels] += n
        except KeyError:
            labels = _admit(metric, labels, series)
            series[labels] = series.get(labels, 0) + n

    def set(self, metric: str, labels: Labels, value: float) -> None:
        """Set a gauge."""
        series = self._gauges[metric]
        if labels not in series:
            labels = _admit(metric, labels, series)
        series[labels] = value

    def observe(self, metric: str, labels: Labels, seconds: float) -> None:
        """Add one observation to a histogram."""
        series = self._histograms[metric]
        state = series.get(labels)
        if state is None:
            labels = _admit(metric, labels, series)
            state = series.setdefault(labels, HistogramState([0] * (len(BUCKETS) + 1), 0.0))
        state.counts[bisect_left(BUCKETS, seconds)] += 1
        state.total += seconds

    def get(self, metric: str, labels: Labels = ()) -> float:
        """The value of a counter or gauge, 0 when it was never touched."""
        series = self._counters.get(metric) or self._gauges.get(metric) or {}
        return series.get(labels, 0)

    def snapshot(self) -> Snapshot:
        """All values now. The inner dictionaries are live: encode it before anything is counted again."""
        return Snapshot(self._counters, self._gauges, self._histograms)


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """The values of several processes as one: counters and histograms add up, gauges as their definition says.

    Bounds hold for the result as well. Metrics that this release does not know are left out.
    """
    merged = Metrics()
    gauges: dict[str, dict[Labels, float]] = {}
    histograms: dict[str, dict[Labels, HistogramState]] = {}
    for snapshot in snapshots:
        for name, counters in snapshot.counters.items():
            if _is(name, "counter"):
                for labels, value in counters.items():
                    merged.inc(name, labels, value)
        for name, values in snapshot.gauges.items():
            if _is(name, "gauge"):
                _combine_gauges(CATALOGUE[name], gauges.setdefault(name, {}), values)
        for name, states in snapshot.histograms.items():
            if _is(name, "histogram"):
                _add_histograms(histograms.setdefault(name, {}), states)
    return Snapshot(merged.snapshot().counters, gauges, histograms)


def without_gauges(snapshot: Snapshot) -> Snapshot:
    """What stays of a process that has ended: its counts, not its states."""
    return Snapshot(snapshot.counters, {}, snapshot.histograms)


def _is(name: str, kind: str) -> bool:
    definition = CATALOGUE.get(name)
    return definition is not None and definition.kind == kind


def _combine_gauges(definition: Definition, into: dict[Labels, float], values: dict[Labels, float]) -> None:
    for labels, value in values.items():
        before = into.get(labels)
        if before is None:
            into[labels] = value
        else:
            into[labels] = before + value if definition.combine == "sum" else max(before, value)


def _add_histograms(into: dict[Labels, HistogramState], states: dict[Labels, HistogramState]) -> None:
    for labels, state in states.items():
        before = into.get(labels)
        if before is None:
            into[labels] = HistogramState(list(state.counts), state.total)
        elif len(before.counts) == len(state.counts):
            before.counts = [a + b for a, b in zip(before.counts, state.counts, strict=True)]
            before.total += state.total


def _admit(metric: str, labels: Labels, series: dict[Labels, float] | dict[Labels, HistogramState]) -> Labels:
    """The label set under which a new series is kept; runs once for each series, not for each increment."""
    definition = CATALOGUE[metric]
    if len(labels) != len(definition.labels):
        raise ValueError(f"{metric} has the labels {definition.labels}, not {len(labels)} values")
    # Lone surrogates can be neither sent nor rendered.
    labels = tuple(str(value).encode("utf-8", "replace").decode() for value in labels)
    if len(series) < definition.limit or labels in series:
        return labels
    folded = tuple(
        OTHER if name in definition.open_labels else value
        for name, value in zip(definition.labels, labels, strict=True)
    )
    # The closed labels are enums: their combinations are few, but a caller's mistake must not grow without end either.
    return folded if folded in series or len(series) < 2 * definition.limit else (OTHER,) * len(labels)
