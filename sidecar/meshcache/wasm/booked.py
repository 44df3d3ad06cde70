"""What a batch of the filter changes in the book of an epoch: as if each of its hits had been counted there.

A batch holds sums, and `experiment.ledger.Book` counts one request after the other. Here the one becomes the other:
which words of the book get which values, computed first and stored afterwards, so that whoever was killed while storing
can store them once more (`extproc.filter_numbers`).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from meshcache.experiment.bins import BINS, bin_of
from meshcache.experiment.ledger import (
    AGE,
    BUCKETS,
    COST,
    DRAW_BITS,
    DRAW_SHIFT,
    FIELDS,
    HEAD_BYTES,
    LATENCY,
    RING,
    SQUARE,
    STALE,
    UNIT,
    WIDTH,
    WINDOW_SHIFT,
    Layout,
    arms_of,
    window_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshcache.wasm.numbers import ArmCounts

_REQUESTS: Final = FIELDS.index("requests")
_HOT: Final = FIELDS.index("hits_hot")
_MOST: Final = (1 << 63) - 1
_RANK: Final = 0xFFFFFF00
_DRAWS: Final = 1 << DRAW_BITS


class Words:
    """A book as words, and those of them that are to change. The buffer is in use as long as this is."""

    __slots__ = ("_changed", "_counters", "_latency", "_sample", "_sampled", "_windows", "_words", "head")

    def __init__(self, buffer: memoryview) -> None:
        """`buffer` is a book, see `ledger.Book`; writable for `store`. Raises `ValueError` for another form."""
        arms = arms_of(bytes(buffer[:HEAD_BYTES]))
        if arms is None or len(buffer) != Layout.of(arms).size:
            raise ValueError("not a book of this form")
        layout = Layout.of(arms)
        self.head = bytes(buffer[:HEAD_BYTES])
        """How the book begins."""
        self._words = buffer[: layout.sample].cast("q")
        self._sample = buffer[layout.sample :].cast("I")
        self._counters = layout.counters // 8
        self._latency = layout.latency // 8
        self._windows = layout.windows // 8
        self._changed: dict[int, int] = {}
        self._sampled: dict[int, int] = {}

    def add(self, counts: ArmCounts, now: float, draw: Callable[[], float]) -> None:
        """Count the hits of `counts`, which came in at `now`, Unix seconds; `draw` gives numbers from 0 up to 1.

        In the window's sample each of them has the chance that it would have had by itself.
        """
        window = window_of(now)
        place_of_arm = counts.arm * BUCKETS
        word_of_arm = counts.arm + 1
        sampled, sample, unpack = self._sampled, self._sample, UNIT.unpack_from
        buckets: dict[int, list[int]] = {}
        for unit, requests, stale, latency, square, sampled_us, age in counts.rows:
            spread, place, rest = unpack(unit)
            bucket = place_of_arm + spread % BUCKETS
            # The lowest of so many numbers drawn from 0 up to 1, by its distribution: P(lowest > x) = (1 - x)^n.
            drawn = draw() if requests == 1 else 1.0 - (1.0 - draw()) ** (1.0 / requests)
            sums = buckets.get(bucket)
            if sums is None:
                buckets[bucket] = [requests, stale, latency, square, age, int(drawn * _DRAWS), sampled_us]
            else:
                sums[0] += requests
                sums[1] += stale
                sums[2] += latency
                sums[3] += square
                sums[4] += age
                if drawn * _DRAWS < sums[5]:
                    sums[5:] = int(drawn * _DRAWS), sampled_us
            word = rest & _RANK | word_of_arm
            if word > sampled.get(place, sample[place]):
                sampled[place] = word
        for bucket, sums in buckets.items():
            self._add(bucket, sums, window, counts.tag.cost_micros)
        histogram = self._latency + counts.arm * BINS
        for found, count in counts.bins:
            self._increase(histogram + found, count)

    def changes(self) -> tuple[bytes, bytes]:
        """What `store` needs: the words that change, and those of the sample of units. For this machine alone."""
        return _packed("q", self._changed), _packed("I", self._sampled)

    def store(self, words: bytes, sample: bytes) -> None:
        """Give what changes its values. Raises `ValueError`, and nothing is stored, for changes of another book."""
        parts = [
            (target, *_unpacked(target.format, packed))
            for target, packed in ((self._words, words), (self._sample, sample))
        ]
        if any(places and max(places) >= len(target) for target, places, _ in parts):
            raise ValueError("changes of another book")
        for target, places, values in parts:
            for place, value in zip(places, values, strict=True):
                target[place] = value

    def _add(self, bucket: int, sums: list[int], window: int, cost: int) -> None:
        """Add a bucket's sums: requests, stale, latency, square, age; then the lowest draw, and its latency."""
        requests, stale, latency, square, age, drawn, sampled_us = sums
        at = self._counters + bucket * WIDTH
        for field, by in (
            (_REQUESTS, requests),
            (_HOT, requests),
            (STALE, stale),
            (LATENCY, latency),
            (SQUARE, square),
            (AGE, age),
            (COST, requests * cost),
        ):
            self._increase(at + field, by)
        word = window << WINDOW_SHIFT | drawn << DRAW_SHIFT | bin_of(sampled_us * 1e-6)
        slot = self._windows + bucket * RING + window % RING
        held = self._changed.get(slot, self._words[slot])
        if word < held or held >> WINDOW_SHIFT != window:
            self._changed[slot] = word

    def _increase(self, at: int, by: int) -> None:
        if by:
            self._changed[at] = min(self._changed.get(at, self._words[at]) + by, _MOST)


def _packed(typecode: str, changed: dict[int, int]) -> bytes:
    """Their places, then their values."""
    return array("I", changed.keys()).tobytes() + array(typecode, changed.values()).tobytes()


def _unpacked(typecode: str, packed: bytes) -> tuple[array[int], array[int]]:
    places, values = array("I"), array(typecode)
    count, rest = divmod(len(packed), places.itemsize + values.itemsize)
    if rest:
        raise ValueError("changes that are cut off")
    places.frombytes(packed[: count * places.itemsize])
    values.frombytes(packed[count * places.itemsize :])
    return places, values
