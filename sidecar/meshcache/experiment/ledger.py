"""What is counted of an experiment, in a buffer that several processes may read while one writes.

A book belongs to one process, one experiment and one epoch, and holds for each arm
- counters by bucket of units (`FIELDS`): buckets are the independent clusters of the statistics;
- the latencies of all requests by bin (`bins`);
- for each bucket and window of `WINDOW_SECONDS` the latency of one request, chosen uniformly among the bucket's
  requests of that window: each request draws a number, and the lowest stays. The lowest of several books' lowest is the
  lowest of all, so the books of a pod merge into one choice. `RING` windows are kept, for a reader to fold what has
  closed (`counted.fold`): a reader that is away for less than `RING` - 2 windows misses nothing.

And over all arms a sample of units: `SAMPLE_BINS` bins, each with the arm of that unit, among all whose digest leads
to the bin, whose rank (24 more bits of the digest) is highest, as `rank << 8 | arm + 1`; 0 is empty.
- Books merge by the greater word: the order of requests, workers and pods does not matter, nor how often a unit comes.
- The bin and the rank come from other bits of the digest than the bucket, and the arm from a hash of the digest under
  a key of its own. So given the units that came, which of them is the highest of a bin says nothing of its arm: each
  bin that is not empty is one independent draw of an arm by the arms' shares, and the numbers of bins by arm are
  multinomial, exactly, for any number of units. (Two units of one bin and one rank are told apart by their arm, which
  happens to one unit in 2^24.) A bin goes to another arm when a higher unit comes, which is a new draw: with n units it
  has happened about log(n / SAMPLE_BINS) times. A sequential test takes no harm from that, as was seen in simulation:
  of 240 fair splits, looked at 120 times while units came to 64 for each bin, one at 1 % flagged 2.
- With n units the ranks of a bin are the greatest of about n / SAMPLE_BINS uniform numbers, from which
  `counted.units_of` estimates n: exact while no two units share a bin, within 0.4 % (one standard error) beyond.

Nothing in a book tells who a unit is: the digests are keyed, and 24 bits of them are kept, until the epoch is removed.

Counts are written in place by 8-byte stores. A process that is killed loses at most the rest of the request that it
was counting.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from meshcache.experiment.bins import BINS, HIGHEST, bin_of

if TYPE_CHECKING:
    from meshcache.experiment.exposure import Exposure
    from meshcache.experiment.observation import Observation

BUCKETS: Final = 1024
"""Units are spread over so many buckets by their keyed hash: buckets are independent of each other, requests not."""
WINDOW_SECONDS: Final = 10.0
"""One request of each bucket is sampled in each window."""
RING: Final = 4
"""Windows that are kept."""
SAMPLE_BINS: Final = 1 << 16
"""Bins of the sample of units."""
MOST_ARMS: Final = 64
"""An arm's place has to fit beside the rank of a unit, and a file into memory."""

FIELDS: Final = (
    "requests",
    "hits_hot",
    "hits_warm",
    "hits_cold",
    "stale",
    "origin_requests",
    "origin_bytes",
    "errors",
    "latency_us",
    "latency_square",
    "age_ms",
    "cost_micros",
)
"""The counters of a bucket, in order; their units are those of `totals.ArmTotals`."""
WIDTH: Final = len(FIELDS)
"""Counters of a bucket; below, the places of some."""
STALE: Final = FIELDS.index("stale")
ORIGIN_REQUESTS: Final = FIELDS.index("origin_requests")
ORIGIN_BYTES: Final = FIELDS.index("origin_bytes")
ERRORS: Final = FIELDS.index("errors")
LATENCY: Final = FIELDS.index("latency_us")
SQUARE: Final = FIELDS.index("latency_square")
AGE: Final = FIELDS.index("age_ms")
COST: Final = FIELDS.index("cost_micros")

_MAGIC: Final = b"MCLEDGER"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sII16sI4x")
"""Magic, version, arms, what is counted, checksum of the shape."""
HEAD_BYTES: Final = 64

UNIT: Final = struct.Struct(">HHI")
"""Of a unit's digest: its bucket, its bin, and its rank (the upper 24 bits)."""

# A window's word: its number, the lowest draw so far, and the bin of that request's latency.
WINDOW_SHIFT: Final = 32
DRAW_SHIFT: Final = 10
DRAW_BITS: Final = 22
LATENCY_MASK: Final = (1 << DRAW_SHIFT) - 1
_MULTIPLIER: Final = 6364136223846793005
_INCREMENT: Final = 1442695040888963407
_WORD: Final = (1 << 64) - 1
"""The draws are the upper bits of a linear congruential generator (Knuth, MMIX): uniform, and that is all they need."""


def about(experiment: str, spec_hash: str, epoch: int, uid: str = "") -> bytes:
    """16 bytes that stand for one epoch of one experiment. Its name stands in for an empty `uid`."""
    named = "\0".join((experiment, uid or experiment, spec_hash, str(epoch)))
    return blake2b(named.encode("utf-8", "surrogatepass"), digest_size=16, person=b"meshcache ledger").digest()


class Layout(NamedTuple):
    """Where the parts of a book lie, in bytes from its beginning; each is as long as its arrays say."""

    arms: int
    counters: int
    """int64 [arms][BUCKETS][FIELDS]."""
    latency: int
    """int64 [arms][BINS]."""
    windows: int
    """int64 [arms][BUCKETS][RING]."""
    sample: int
    """uint32 [SAMPLE_BINS]."""
    size: int

    @classmethod
    def of(cls, arms: int) -> Layout:
        """The layout for so many arms. Raises `ValueError` for none and for too many."""
        if not 0 < arms <= MOST_ARMS:
            raise ValueError(f"an experiment has 1 to {MOST_ARMS} arms, not {arms}")
        latency = HEAD_BYTES + 8 * arms * BUCKETS * WIDTH
        windows = latency + 8 * arms * BINS
        sample = windows + 8 * arms * BUCKETS * RING
        return cls(arms, HEAD_BYTES, latency, windows, sample, sample + 4 * SAMPLE_BINS)


def head(arms: int, counted: bytes) -> bytes:
    """The first `HEAD_BYTES` of a book of this form about `counted` (16 bytes); everything behind it begins as zero."""
    shape = repr((_VERSION, FIELDS, BUCKETS, BINS, RING, WINDOW_SECONDS, SAMPLE_BINS, Layout.of(arms)))
    checksum = int.from_bytes(blake2b(shape.encode(), digest_size=4).digest(), "little")
    return _HEAD.pack(_MAGIC, _VERSION, arms, counted, checksum).ljust(HEAD_BYTES, b"\0")


def arms_of(found: bytes) -> int | None:
    """How many arms the book has that begins with `found`; None for what is none of this form."""
    if len(found) < HEAD_BYTES:
        return None
    magic, version, arms, counted, _ = _HEAD.unpack_from(found)
    if magic != _MAGIC or version != _VERSION or not 0 < arms <= MOST_ARMS:
        return None
    return int(arms) if found[:HEAD_BYTES] == head(arms, counted) else None


def window_of(now: float) -> int:
    """The number of the window that is open at `now`, Unix seconds."""
    return int(now / WINDOW_SECONDS)


class Book:
    """Counts into a buffer of `Layout.size` bytes that begins with `head` and is zero, or was counted into before.

    Several requests may be counted by one process only, one after the other.
    """

    __slots__ = ("__weakref__", "_arms", "_counters", "_draw", "_latency", "_sample", "_windows", "buffer")

    def __init__(self, buffer: memoryview, seed: int) -> None:
        """`buffer` is writable, of single bytes; `seed` is of this process alone. Raises `ValueError` for another form.

        The buffer is in use as long as the book is.
        """
        arms = arms_of(bytes(buffer[:HEAD_BYTES]))
        if arms is None or len(buffer) != Layout.of(arms).size:
            raise ValueError("not a book of this form")
        layout = Layout.of(arms)
        self.buffer = buffer
        self._arms = arms
        self._counters = buffer[layout.counters : layout.latency].cast("q")
        self._latency = buffer[layout.latency : layout.windows].cast("q")
        self._windows = buffer[layout.windows : layout.sample].cast("q")
        self._sample = buffer[layout.sample : layout.size].cast("I")
        self._draw = seed & _WORD

    @classmethod
    def in_memory(cls, arms: int, seed: int = 0) -> Book:
        """A book that no other process sees."""
        buffer = memoryview(bytearray(Layout.of(arms).size))
        buffer[:HEAD_BYTES] = head(arms, bytes(16))
        return cls(buffer, seed)

    @property
    def arms(self) -> int:
        """How many arms it counts."""
        return self._arms

    def count(self, exposure: Exposure, seen: Observation, now: float) -> None:
        """Count one request that came to its end at `now`, Unix seconds. An arm that there is none of is left out.

        A latency above `bins.HIGHEST` counts as that in every respect.
        """
        arm = exposure.arm
        if not 0 <= arm < self._arms:
            return
        try:
            self._count(arm, exposure.unit, seen, now)
        except (ValueError, OverflowError):
            # A sum that has reached its end, or a number that is none: the rest of what was seen is lost, and that is
            # all. The request has its answer.
            return

    def _count(self, arm: int, unit: bytes, seen: Observation, now: float) -> None:
        spread, place, rest = UNIT.unpack_from(unit)
        row = arm * BUCKETS + spread % BUCKETS
        counters = self._counters
        at = row * WIDTH
        counters[at] += 1
        latency = min(seen.latency, HIGHEST)
        counters[at + LATENCY] += int(latency * 1e6)
        counters[at + SQUARE] += int(latency * latency * 1e6)
        tier = seen.tier
        if tier:
            counters[at + tier] += 1
        age = seen.age
        if age:
            counters[at + AGE] += int(age * 1000)
        if seen.stale:
            counters[at + STALE] += 1
        if seen.origin_requests:
            counters[at + ORIGIN_REQUESTS] += seen.origin_requests
            counters[at + ORIGIN_BYTES] += seen.origin_bytes
        if seen.error:
            counters[at + ERRORS] += 1
        if seen.cost_saved:
            counters[at + COST] += round(seen.cost_saved * 1e6)
        found = bin_of(latency)
        self._latency[arm * BINS + found] += 1
        # One request of the bucket and window.
        self._draw = draw = (self._draw * _MULTIPLIER + _INCREMENT) & _WORD
        window = int(now / WINDOW_SECONDS)
        word = window << WINDOW_SHIFT | draw >> 64 - DRAW_BITS << DRAW_SHIFT | found
        windows = self._windows
        slot = row * RING + window % RING
        held = windows[slot]
        if word < held or held >> WINDOW_SHIFT != window:
            windows[slot] = word
        # The unit.
        word = rest & 0xFFFFFF00 | arm + 1
        if word > self._sample[place]:
            self._sample[place] = word

    def charge(self, exposure: Exposure, requests: int, size: int, cost: float) -> None:
        """Count what a request that has been counted has caused since: `requests` to the origin, `size` bytes from it.

        `cost` is what these cost, in the policy's currency.
        """
        arm = exposure.arm
        if not 0 <= arm < self._arms:
            return
        at = (arm * BUCKETS + UNIT.unpack_from(exposure.unit)[0] % BUCKETS) * WIDTH
        try:
            self._counters[at + ORIGIN_REQUESTS] += requests
            self._counters[at + ORIGIN_BYTES] += size
            self._counters[at + COST] -= round(cost * 1e6)
        except (ValueError, OverflowError):
            # As for `count`.
            return
