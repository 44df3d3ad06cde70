"""Batches of counts, as the filter sends them: `POST /v1/numbers`. The form is told in `wasm/src/numbers.zig`.

They come over a socket that only Envoy has, from a module that may be of another release: every bound is checked, and
whatever is odd is refused as a whole, so that nothing is counted in part.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from meshcache.experiment.bins import BINS, HIGHEST
from meshcache.wasm.tags import ExperimentTag, PlainTag, decode_experiment, decode_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMAT: Final = 1
MOST_BATCH_BYTES: Final = 2 << 20
"""The longest batch that is read; the filter's longest have 1.6 MiB."""
HIGHEST_US: Final = int(HIGHEST * 1e6)
"""Microseconds; a latency above it counts as this, as in a worker's book."""

_MAGIC: Final = b"MCN1"
_HEAD: Final = struct.Struct("<4sHQQ8sI")
_KIND: Final = struct.Struct("<BH")
_PLAIN: Final = struct.Struct("<QQQQQQ")
_ARM: Final = struct.Struct("<HI")
_BIN: Final = struct.Struct("<HI")
_ROWS: Final = struct.Struct("<I")
_ROW: Final = struct.Struct("<16sIIQQIQ")
_KIND_PLAIN: Final = 1
_KIND_COUNTED: Final = 2
_WORD: Final = 1 << 63
"""Sums are kept as signed words of 8 bytes."""


class PlainCounts(NamedTuple):
    """Every request of one route, arm and policy, whether or not it counts in an experiment."""

    tag: PlainTag
    fresh: int
    stale: int
    not_modified: int
    """Those of them that were answered 304."""
    body_bytes: int
    age_ms: int
    passed: int
    """Requests that can never be answered from a cache, and were sent past the sidecar to the origin."""


class Row(NamedTuple):
    """The hits of one unit."""

    unit: bytes
    """Its keyed digest, 16 bytes."""
    requests: int
    stale: int
    latency_us: int
    """Sum of latencies, in microseconds."""
    latency_square: int
    """Sum of squared latencies, in square milliseconds."""
    sampled_us: int
    """The latency of one of them, each with the same chance."""
    age_ms: int


class ArmCounts(NamedTuple):
    """The hits of one arm that count in one experiment."""

    tag: ExperimentTag
    arm: int
    """Its place among the experiment's arms."""
    bins: tuple[tuple[int, int], ...]
    """Bins of `experiment.bins` and how many latencies they hold."""
    rows: tuple[Row, ...]


class Batch(NamedTuple):
    """One table of one filter worker."""

    worker: int
    """64 bits, drawn at the beginning of the worker's life."""
    sequence: int
    """From 1 on, one more for each batch of the worker."""
    plan_id: bytes
    """Of the plan that was in force at the end, 8 bytes."""
    plain: tuple[PlainCounts, ...]
    counted: tuple[ArmCounts, ...]


def decode(body: bytes) -> Batch:
    """Raises `ValueError` for anything but a batch of this form. Takes linear time."""
    if len(body) > MOST_BATCH_BYTES:
        raise ValueError(f"a batch of {len(body)} bytes is too long")
    try:
        return _decode(body)
    except struct.error as error:
        raise ValueError("a batch ends too early") from error


def encode(batch: Batch, tags: Sequence[bytes]) -> bytes:
    """The batch as the filter would send it; `tags` are those of its groups, plain ones first, as the plan gave them.

    Raises `ValueError` or `struct.error` for what no batch can hold.
    """
    parts = [
        _HEAD.pack(_MAGIC, FORMAT, batch.worker, batch.sequence, batch.plan_id, len(batch.plain) + len(batch.counted))
    ]
    of_plain, of_counted = tags[: len(batch.plain)], tags[len(batch.plain) :]
    for plain, tag in zip(batch.plain, of_plain, strict=True):
        parts += _KIND.pack(_KIND_PLAIN, len(tag)), tag, _PLAIN.pack(*plain[1:])
    for arm, tag in zip(batch.counted, of_counted, strict=True):
        parts += _KIND.pack(_KIND_COUNTED, len(tag)), tag, _ARM.pack(arm.arm, len(arm.bins))
        parts += (_BIN.pack(*each) for each in arm.bins)
        parts.append(_ROWS.pack(len(arm.rows)))
        parts += (_ROW.pack(*row) for row in arm.rows)
    return b"".join(parts)


def _decode(body: bytes) -> Batch:
    magic, form, worker, sequence, plan_id, groups = _HEAD.unpack_from(body)
    if magic != _MAGIC or form != FORMAT:
        raise ValueError("not a batch of this form")
    if sequence == 0:
        raise ValueError("batches are numbered from 1 on")
    plain: list[PlainCounts] = []
    counted: list[ArmCounts] = []
    at = _HEAD.size
    # Each group takes bytes, so there are never more of them than the body can hold.
    for _ in range(groups):
        kind, length = _KIND.unpack_from(body, at)
        at += _KIND.size
        tag = body[at : at + length]
        at += length
        if kind == _KIND_PLAIN:
            plain.append(_plain(decode_plain(tag), body, at))
            at += _PLAIN.size
        elif kind == _KIND_COUNTED:
            arm, at = _counted(decode_experiment(tag), body, at)
            counted.append(arm)
        else:
            raise ValueError(f"a group of kind {kind}")
    if at != len(body):
        raise ValueError("a batch goes on behind its end")
    return Batch(worker, sequence, plan_id, tuple(plain), tuple(counted))


def _plain(tag: PlainTag, body: bytes, at: int) -> PlainCounts:
    found = PlainCounts(tag, *_PLAIN.unpack_from(body, at))
    hits = found.fresh + found.stale
    if max(hits, found.body_bytes, found.age_ms, found.passed) >= _WORD or found.not_modified > hits:
        raise ValueError("counts that cannot be")
    return found


def _counted(tag: ExperimentTag, body: bytes, at: int) -> tuple[ArmCounts, int]:
    """The arm's counts, and where they end."""
    arm, length = _ARM.unpack_from(body, at)
    if arm >= len(tag.counted.arms):
        raise ValueError(f"arm {arm} of {len(tag.counted.arms)}")
    at += _ARM.size
    bins = tuple(_BIN.iter_unpack(_cut(body, at, length, _BIN.size)))
    if any(place >= BINS for place, _ in bins) or len({place for place, _ in bins}) != len(bins):
        raise ValueError("bins that there are none of, or twice")
    at += length * _BIN.size
    (length,) = _ROWS.unpack_from(body, at)
    at += _ROWS.size
    rows = tuple(map(Row._make, _ROW.iter_unpack(_cut(body, at, length, _ROW.size))))
    _check(rows)
    if sum(count for _, count in bins) != sum(row.requests for row in rows):
        raise ValueError("bins and rows do not agree")
    return ArmCounts(tag, arm, bins, rows), at + length * _ROW.size


def _cut(body: bytes, at: int, count: int, size: int) -> bytes:
    """So many records of so many bytes."""
    end = at + count * size
    if end > len(body):
        raise ValueError("a batch ends too early")
    return body[at:end]


def _check(rows: Sequence[Row]) -> None:
    for _, requests, stale, latency, square, sampled, age in rows:
        if not (requests and stale <= requests and sampled <= latency <= requests * HIGHEST_US):
            raise ValueError("counts that cannot be")
        if square >= _WORD or age >= _WORD:
            raise ValueError("counts that cannot be")
