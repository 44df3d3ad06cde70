"""Books: what one request adds, and what is refused."""

from __future__ import annotations

from math import inf, nan
from random import Random

import pytest
from books import ARMS, NOW, requests, unit
from hypothesis import given, settings

from meshcache.experiment.bins import bin_of
from meshcache.experiment.counted import read
from meshcache.experiment.exposure import Exposure
from meshcache.experiment.ledger import BUCKETS, FIELDS, HEAD_BYTES, MOST_ARMS, Book, Layout, arms_of, head
from meshcache.experiment.observation import Observation
from meshcache.experiment.totals import COUNTERS, ArmTotals

UNIT = bytes([0x12, 0x34, *range(14)])
BUCKET = 0x1234 % BUCKETS


def totals(book: Book) -> tuple[ArmTotals, ...]:
    return read(book.buffer).totals()


def test_the_fields_are_those_of_the_totals() -> None:
    assert FIELDS == COUNTERS


def test_a_request_is_counted_in_its_bucket() -> None:
    book = Book.in_memory(ARMS)
    seen = Observation(2, True, 1, 500, True, 0.25, 1.5, 0.002)
    book.count(Exposure("e", 1, UNIT), seen, NOW)
    arm = totals(book)[1]
    assert {name: int(getattr(arm, name)[BUCKET]) for name in COUNTERS} == {
        "requests": 1,
        "hits_hot": 0,
        "hits_warm": 1,
        "hits_cold": 0,
        "stale": 1,
        "origin_requests": 1,
        "origin_bytes": 500,
        "errors": 1,
        "latency_us": 250_000,
        "latency_square": 62_500,
        "age_ms": 1500,
        "cost_micros": 2000,
    }
    assert arm.units == 1
    assert arm.latency.counts[bin_of(0.25)] == arm.latency.total == 1
    others = totals(book)[::2]
    assert sum(int(getattr(other, name).sum()) for other in others for name in COUNTERS) == 0
    assert [other.units for other in others] == [0, 0]


def test_what_is_caused_later_is_no_request() -> None:
    book = Book.in_memory(ARMS)
    book.count(Exposure("e", 0, UNIT), Observation(tier=1, stale=True, cost_saved=0.25), NOW)
    book.charge(Exposure("e", 0, UNIT), 2, 100, 0.5)
    arm = totals(book)[0]
    assert [int(getattr(arm, name).sum()) for name in ("requests", "origin_requests", "origin_bytes")] == [1, 2, 100]
    assert int(arm.cost_micros[BUCKET]) == -250_000


def test_an_arm_that_there_is_none_of_is_left_out() -> None:
    book = Book.in_memory(ARMS)
    for arm in (-1, ARMS, 1000):
        book.count(Exposure("e", arm, UNIT), Observation(), NOW)
        book.charge(Exposure("e", arm, UNIT), 1, 1, 1.0)
    assert bytes(book.buffer[HEAD_BYTES:]).count(0) == len(book.buffer) - HEAD_BYTES


@given(requests)
@settings(max_examples=25, deadline=None)
def test_the_parts_of_a_book_agree(asked: list[tuple[Exposure, Observation, float]]) -> None:
    book = Book.in_memory(ARMS)
    for exposure, seen, now in asked:
        book.count(exposure, seen, now)
    for place, arm in enumerate(totals(book)):
        mine = [(exposure, seen) for exposure, seen, _ in asked if exposure.arm == place]
        assert int(arm.requests.sum()) == arm.latency.total == len(mine)
        assert int(arm.errors.sum()) == sum(seen.error for _, seen in mine)
        assert int((arm.hits_hot + arm.hits_warm + arm.hits_cold).sum()) == sum(seen.tier > 0 for _, seen in mine)


def test_a_unit_counts_once() -> None:
    book = Book.in_memory(ARMS)
    random = Random(1)
    units = [unit(random) for _ in range(50)]
    for one in units * 3:
        book.count(Exposure("e", 2, one), Observation(), NOW)
    assert [arm.units for arm in totals(book)] == [0, 0, 50]


def test_a_book_of_another_form_is_refused() -> None:
    layout = Layout.of(ARMS)
    sound = head(ARMS, bytes(16))
    assert arms_of(sound) == ARMS
    for place in range(len(sound)):
        other = bytearray(layout.size)
        other[:HEAD_BYTES] = sound
        other[place] ^= 1
        # What is counted, and the padding behind, may be anything to who only reads.
        if not (16 <= place < 32):
            assert arms_of(bytes(other)) is None, place
            with pytest.raises(ValueError, match="not a book"):
                Book(memoryview(other), 0)
    for size in (0, HEAD_BYTES, layout.size - 8, layout.size + 8):
        with pytest.raises(ValueError, match="not a book"):
            Book(memoryview((sound + bytes(layout.size))[:size]), 0)
    for arms in (0, MOST_ARMS + 1):
        with pytest.raises(ValueError, match="1 to 64 arms"):
            Layout.of(arms)


@pytest.mark.parametrize(
    "seen",
    [
        Observation(latency=nan),
        Observation(latency=-inf),
        Observation(age=inf),
        Observation(origin_requests=1, origin_bytes=1 << 63),
        Observation(cost_saved=1e13),
        Observation(cost_saved=nan),
    ],
)
def test_counting_raises_nothing_whatever_was_seen(seen: Observation) -> None:
    book = Book.in_memory(ARMS)
    for _ in range(2):
        book.count(Exposure("e", 1, UNIT), seen, NOW)
    book.charge(Exposure("e", 1, UNIT), 1, 1 << 63, inf)
    book.count(Exposure("e", 1, UNIT), Observation(), NOW)
    assert totals(book)[1].requests[BUCKET] == 3
