"""What books hold (`ledger`), read and added up: over the workers of a pod, then over pods. Needs numpy.

Counters and histograms add up, samples of units merge by the greater word: in any order, and never twice, since each
book is read as it stands.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from meshcache.experiment.bins import BINS
from meshcache.experiment.ledger import (
    BUCKETS,
    FIELDS,
    HEAD_BYTES,
    LATENCY_MASK,
    RING,
    SAMPLE_BINS,
    WINDOW_SHIFT,
    Layout,
    arms_of,
    head,
)
from meshcache.experiment.totals import COUNTERS, SAMPLE_GROUPS, ArmTotals, Counts, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


Sample = NDArray[np.uint32]

_RANKS: Final = float(1 << 24)
_FOLDED: Final = struct.Struct("<q")


@dataclass
class Counted:
    """What one book holds, or several together."""

    counters: Counts
    """int64, shape (arms, BUCKETS, FIELDS)."""
    latency: Counts
    """int64, shape (arms, BINS)."""
    sampled: Counts
    """int64, shape (arms, SAMPLE_GROUPS, BINS)."""
    sample: Sample
    """uint32, shape (SAMPLE_BINS,)."""

    @classmethod
    def none(cls, arms: int) -> Counted:
        """Nothing yet."""
        return cls(
            np.zeros((arms, BUCKETS, len(FIELDS)), np.int64),
            np.zeros((arms, BINS), np.int64),
            np.zeros((arms, SAMPLE_GROUPS, BINS), np.int64),
            np.zeros(SAMPLE_BINS, np.uint32),
        )

    @property
    def arms(self) -> int:
        """How many arms there are."""
        return int(self.counters.shape[0])

    def add(self, other: Counted) -> None:
        """Add what another worker, or another pod, has counted of the same arms."""
        self.counters += other.counters
        self.latency += other.latency
        self.sampled += other.sampled
        np.maximum(self.sample, other.sample, out=self.sample)

    def totals(self) -> tuple[ArmTotals, ...]:
        """By arm, in order."""
        units = units_of(self.sample, self.arms)
        return tuple(
            ArmTotals(
                units=units[arm],
                latency=Histogram(self.latency[arm].copy()),
                sampled=Histogram(self.sampled[arm].copy()),
                **{name: self.counters[arm, :, place].copy() for place, name in enumerate(COUNTERS)},
            )
            for arm in range(self.arms)
        )


def read(buffer: memoryview) -> Counted:
    """What a book in `buffer` holds now, copied; but for `sampled`, see `Folded`. Raises `ValueError` for no book."""
    arms = arms_of(bytes(buffer[:HEAD_BYTES]))
    if arms is None or len(buffer) != Layout.of(arms).size:
        raise ValueError("not a book of this form")
    layout = Layout.of(arms)
    found = Counted.none(arms)
    found.counters[...] = np.frombuffer(buffer[layout.counters : layout.latency], np.int64).reshape(
        found.counters.shape
    )
    found.latency[...] = np.frombuffer(buffer[layout.latency : layout.windows], np.int64).reshape(found.latency.shape)
    found.sample[...] = np.frombuffer(buffer[layout.sample : layout.size], np.uint32)
    return found


@dataclass
class Folded:
    """The sampled latencies of windows that have closed, of one pod."""

    sampled: Counts
    """int64, shape (arms, SAMPLE_GROUPS, BINS)."""
    through: int = 0
    """The last window that is among them."""

    @classmethod
    def none(cls, arms: int) -> Folded:
        """No window yet."""
        return cls(np.zeros((arms, SAMPLE_GROUPS, BINS), np.int64))

    def fold(self, buffers: Sequence[memoryview], last: int) -> bool:
        """Add the windows up to `last`, which have closed, from the pod's books; whether there was anything to add.

        Of each arm, bucket and window the lowest of the books' lowest draws is taken: one request, whichever worker
        it came to.
        """
        if self.through > last + RING:
            # The clock has been set back by more than a moment.
            self.through = last - RING
        arms = self.sampled.shape[0]
        layout = Layout.of(arms)
        found = False
        words = [
            np.frombuffer(buffer[layout.windows : layout.sample], np.int64).reshape(arms, BUCKETS, RING).copy()
            for buffer in buffers
        ]
        for window in range(max(self.through, last - RING) + 1, last + 1):
            lowest = np.full((arms, BUCKETS), np.iinfo(np.int64).max)
            for each in words:
                word = each[:, :, window % RING]
                np.minimum(lowest, np.where(word >> WINDOW_SHIFT == window, word, lowest), out=lowest)
            arm, bucket = np.nonzero(lowest >> WINDOW_SHIFT == window)
            if len(arm):
                found = True
                np.add.at(self.sampled, (arm, bucket % SAMPLE_GROUPS, lowest[arm, bucket] & LATENCY_MASK), 1)
        self.through = max(self.through, last)
        return found

    def dump(self, counted: bytes) -> bytes:
        """As bytes, about `counted` (16 bytes), for `load`."""
        arms = self.sampled.shape[0]
        packed = zlib.compress(_FOLDED.pack(self.through) + self.sampled.astype("<i8").tobytes(), 1)
        return head(arms, counted) + packed

    @classmethod
    def load(cls, data: bytes, arms: int, counted: bytes) -> Folded | None:
        """What `dump` has made of so many arms; None for anything else."""
        if data[:HEAD_BYTES] != head(arms, counted):
            return None
        shape = (arms, SAMPLE_GROUPS, BINS)
        plain = _inflated(data[HEAD_BYTES:], _FOLDED.size + 8 * arms * SAMPLE_GROUPS * BINS)
        if plain is None:
            return None
        sampled = np.frombuffer(plain, "<i8", offset=_FOLDED.size).astype(np.int64).reshape(shape)
        return cls(sampled, _FOLDED.unpack_from(plain)[0])


def units_of(sample: Sample, arms: int) -> tuple[int, ...]:
    """How many different units of each arm there are, estimated from a sample.

    The ranks of n units over B bins, as uniform numbers in (0, 1): the gap between 1 and the highest of a bin is
    exponential with rate n / B, cut off at 1 where the bin is empty. The rate's maximum likelihood estimate is the
    number of bins that are not empty over the sum of all gaps (Lawless, "Statistical Models and Methods for Lifetime
    Data", 2nd ed., eq. 4.1.2; sketches of this kind: Chassaing and Gerin 2006). The arms' shares are those of the bins.
    Few units hardly ever share a bin, and then the number is that of the bins.
    """
    held = split(sample, arms)
    bins = sum(held)
    if bins == 0:
        return (0,) * arms
    gaps = float((1.0 - (sample >> 8).astype(np.float64) / _RANKS).sum())
    scale = SAMPLE_BINS / gaps
    return tuple(round(count * scale) for count in held)


def split(sample: Sample, arms: int) -> tuple[int, ...]:
    """How many bins of a sample each arm holds."""
    counts = np.bincount(sample & 0xFF, minlength=arms + 1)
    return tuple(int(count) for count in counts[1 : arms + 1])


# -- records: what a pod tells the others ------------------------------------------------------------------------


def dump_counts(found: Counted, counted: bytes) -> bytes:
    """Counters and latencies, which change with every request, as bytes for `load_counts`."""
    return _dump(counted, found.arms, (found.counters, found.latency))


def dump_samples(found: Counted, counted: bytes) -> bytes:
    """The samples of requests and of units, as bytes for `load_samples`."""
    return _dump(counted, found.arms, (found.sampled, found.sample))


def load_counts(data: bytes, counted: bytes) -> Counted | None:
    """What `dump_counts` has made about `counted`, with empty samples; None for anything else."""
    found = _none(data, counted)
    return found if found is not None and _load(data, (found.counters, found.latency)) else None


def load_samples(data: bytes, counted: bytes) -> Counted | None:
    """What `dump_samples` has made about `counted`, with nothing else counted; None for anything else."""
    found = _none(data, counted)
    return found if found is not None and _load(data, (found.sampled, found.sample)) else None


def _none(data: bytes, counted: bytes) -> Counted | None:
    arms = arms_of(data)
    return Counted.none(arms) if arms is not None and data[:HEAD_BYTES] == head(arms, counted) else None


def _dump(counted: bytes, arms: int, parts: Iterable[NDArray[Any]]) -> bytes:
    plain = b"".join(part.astype(part.dtype.newbyteorder("<")).tobytes() for part in parts)
    return head(arms, counted) + zlib.compress(plain, 1)


def _load(data: bytes, parts: Sequence[NDArray[Any]]) -> bool:
    """Fill `parts` from a record; False, and they are as they were, when it holds something else."""
    plain = _inflated(data[HEAD_BYTES:], sum(part.nbytes for part in parts))
    if plain is None:
        return False
    at = 0
    for part in parts:
        part[...] = np.frombuffer(plain, part.dtype.newbyteorder("<"), part.size, at).reshape(part.shape)
        at += part.nbytes
    return True


def _inflated(packed: bytes, size: int) -> bytes | None:
    """Exactly `size` bytes; None for anything else, however much it would be."""
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(packed, size + 1)
    except zlib.error:
        return None
    return plain if len(plain) == size and stream.eof else None
