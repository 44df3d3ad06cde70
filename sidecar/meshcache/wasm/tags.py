"""What the plan has the filter put on its counts, so that the sidecar knows what they are counts of.

To the filter a tag is opaque: bytes that it copies into its batches (`numbers`). Here they get their meaning. Two tags
of equal bytes are one tag: whoever makes a plan keeps each once.

    plain tag       "P1" | route | arm | policy | experiment for which no unit is carried
    experiment tag  "X1" | experiment | uid | spec hash | u64 epoch | u64 cost | u8 n | n * arm

Little endian; a text is a u16 length and so many bytes of UTF-8.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from meshcache.experiment.exposure import CountedExperiment
from meshcache.experiment.ledger import MOST_ARMS

MOST_TAG_BYTES: Final = 0xFFFF
"""The longest tag that a batch can carry."""
_PLAIN: Final = b"P1"
_EXPERIMENT: Final = b"X1"
_LENGTH: Final = struct.Struct("<H")
_NUMBERS: Final = struct.Struct("<QQB")
_MICROS: Final = 1e6


class PlainTag(NamedTuple):
    """Of every hit: the labels that the sidecar's own metrics would give it."""

    route: str
    arm: str
    policy: str
    missing: str = ""
    """The experiment for which those requests carry no unit; empty for none."""


class ExperimentTag(NamedTuple):
    """Of hits that count in an experiment; one tag for all of its arms, or one for each cost."""

    counted: CountedExperiment
    cost_micros: int
    """What one request to the origin would have cost, in millionths of the policy's currency: what a hit has saved."""


def encode_plain(route: str, arm: str, policy: str, missing: str = "") -> bytes:
    """Raises `ValueError` for names that are too long for a tag, or no text."""
    return _bounded(_PLAIN + b"".join(_text(name) for name in (route, arm, policy, missing)))


def encode_experiment(counted: CountedExperiment, cost: float = 0.0) -> bytes:
    """`cost` is that of the policy which answers (`cost.perOriginRequest`).

    Raises `ValueError` for what cannot be said in a tag; such requests are for the sidecar to count.
    """
    if not 0 < len(counted.arms) <= MOST_ARMS:
        raise ValueError(f"an experiment has 1 to {MOST_ARMS} arms, not {len(counted.arms)}")
    try:
        numbers = _NUMBERS.pack(counted.epoch, round(cost * _MICROS), len(counted.arms))
    except (struct.error, OverflowError, ValueError) as error:
        raise ValueError(f"no epoch or no cost: {error}") from error
    names = b"".join(_text(name) for name in (counted.experiment, counted.uid, counted.spec_hash))
    return _bounded(_EXPERIMENT + names + numbers + b"".join(_text(arm) for arm in counted.arms))


def decode_plain(tag: bytes) -> PlainTag:
    """What `encode_plain` has made. Raises `ValueError` for anything else."""
    texts, at = _texts(tag, _begin(tag, _PLAIN), 4)
    _end(tag, at)
    return PlainTag(*texts)


def decode_experiment(tag: bytes) -> ExperimentTag:
    """What `encode_experiment` has made. Raises `ValueError` for anything else."""
    (experiment, uid, spec_hash), at = _texts(tag, _begin(tag, _EXPERIMENT), 3)
    if len(tag) - at < _NUMBERS.size:
        raise ValueError("a tag ends too early")
    epoch, cost, count = _NUMBERS.unpack_from(tag, at)
    if not 0 < count <= MOST_ARMS:
        raise ValueError(f"a tag of {count} arms")
    arms, at = _texts(tag, at + _NUMBERS.size, count)
    _end(tag, at)
    return ExperimentTag(CountedExperiment(experiment, spec_hash, epoch, tuple(arms), uid), cost)


def _text(text: str) -> bytes:
    data = text.encode("utf-8")
    if len(data) > MOST_TAG_BYTES:
        raise ValueError(f"a name of {len(data)} bytes is too long for a tag")
    return _LENGTH.pack(len(data)) + data


def _bounded(tag: bytes) -> bytes:
    if len(tag) > MOST_TAG_BYTES:
        raise ValueError(f"{len(tag)} bytes are too many for a tag")
    return tag


def _begin(tag: bytes, kind: bytes) -> int:
    if not tag.startswith(kind):
        raise ValueError("a tag of another kind")
    return len(kind)


def _end(tag: bytes, at: int) -> None:
    if at != len(tag):
        raise ValueError("a tag goes on behind its end")


def _texts(tag: bytes, at: int, count: int) -> tuple[list[str], int]:
    """So many texts from `at` on, and where the last one ends."""
    found = []
    for _ in range(count):
        start = at + _LENGTH.size
        if len(tag) < start:
            raise ValueError("a tag ends too early")
        at = start + _LENGTH.unpack_from(tag, start - _LENGTH.size)[0]
        if len(tag) < at:
            raise ValueError("a tag ends too early")
        found.append(tag[start:at].decode("utf-8"))
    return found, at
