"""Batches for tests: made of hits, as the filter makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshcache.experiment.bins import bin_of
from meshcache.experiment.exposure import CountedExperiment
from meshcache.wasm.numbers import ArmCounts, Batch, PlainCounts, Row, encode
from meshcache.wasm.tags import ExperimentTag, PlainTag, encode_experiment, encode_plain

if TYPE_CHECKING:
    from collections.abc import Iterable

ARMS = ("control", "candidate", "baseline")
ONE = CountedExperiment("e", "0123", 1, ARMS, "e")


@dataclass(frozen=True)
class Hit:
    """One request that was answered in Envoy."""

    unit: bytes | None = None
    """None: it counts in no experiment."""
    arm: int = 0
    stale: bool = False
    latency_us: int = 50
    age_ms: int = 1000
    size: int = 500
    route: str = "route"
    missing: str = ""
    counted: CountedExperiment = ONE
    cost: float = 0.0


def batch(worker: int, sequence: int, hits: Iterable[Hit]) -> bytes:
    """What a filter worker sends of these."""
    plain: dict[PlainTag, list[Hit]] = {}
    arms: dict[tuple[ExperimentTag, int], list[Hit]] = {}
    for hit in hits:
        named = hit.counted.arms[hit.arm] if hit.unit else ""
        plain.setdefault(PlainTag(hit.route, named, "policy", hit.missing), []).append(hit)
        if hit.unit:
            arms.setdefault((ExperimentTag(hit.counted, round(hit.cost * 1e6)), hit.arm), []).append(hit)
    made = Batch(
        worker,
        sequence,
        bytes(8),
        tuple(_plain(tag, those) for tag, those in plain.items()),
        tuple(_counted(tag, arm, those) for (tag, arm), those in arms.items()),
    )
    return encode(made, [*map(_plain_tag, made.plain), *map(_counted_tag, made.counted)])


def _plain(tag: PlainTag, hits: list[Hit]) -> PlainCounts:
    stale = sum(hit.stale for hit in hits)
    sizes, ages = sum(hit.size for hit in hits), sum(hit.age_ms for hit in hits)
    return PlainCounts(tag, len(hits) - stale, stale, 0, sizes, ages, 0)


def _counted(tag: ExperimentTag, arm: int, hits: list[Hit]) -> ArmCounts:
    bins: dict[int, int] = {}
    units: dict[bytes, list[Hit]] = {}
    for hit in hits:
        found = bin_of(hit.latency_us * 1e-6)
        bins[found] = bins.get(found, 0) + 1
        units.setdefault(hit.unit or b"", []).append(hit)
    rows = tuple(
        Row(
            unit,
            len(those),
            sum(hit.stale for hit in those),
            sum(hit.latency_us for hit in those),
            sum(hit.latency_us**2 // 10**6 for hit in those),
            those[0].latency_us,
            sum(hit.age_ms for hit in those),
        )
        for unit, those in units.items()
    )
    return ArmCounts(tag, arm, tuple(bins.items()), rows)


def _plain_tag(counts: PlainCounts) -> bytes:
    return encode_plain(*counts.tag)


def _counted_tag(counts: ArmCounts) -> bytes:
    return encode_experiment(counts.tag.counted, counts.tag.cost_micros / 1e6)
