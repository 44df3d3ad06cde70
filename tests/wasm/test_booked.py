"""A batch changes a book as its hits would have, one after the other."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filter_batches import ARMS, Hit, batch
from meshcache.experiment.bins import bin_of
from meshcache.experiment.counted import Folded, read
from meshcache.experiment.exposure import Exposure
from meshcache.experiment.ledger import Book, window_of
from meshcache.experiment.observation import Observation
from meshcache.wasm.booked import Words
from meshcache.wasm.numbers import decode

NOW = 1_700_000_005.0
UNITS = [Random(3).randbytes(16) for _ in range(6)]
HITS = st.builds(
    Hit,
    unit=st.sampled_from(UNITS) | st.binary(min_size=16, max_size=16),
    arm=st.integers(0, len(ARMS) - 1),
    stale=st.booleans(),
    latency_us=st.integers(0, 3_000_000),
    age_ms=st.integers(0, 10**7),
    cost=st.sampled_from((0.0, 0.002)),
)


def booked(into: Book, hits: list[Hit], now: float = NOW, random: Random | None = None) -> None:
    words = Words(into.buffer)
    for counts in decode(batch(1, 1, hits)).counted:
        words.add(counts, now, (random or Random(1)).random)
    words.store(*words.changes())


@settings(deadline=None)
@given(st.lists(st.lists(HITS, max_size=12), min_size=1, max_size=3))
def test_batches_change_a_book_as_their_hits_would(batches: list[list[Hit]]) -> None:
    one, other = Book.in_memory(len(ARMS)), Book.in_memory(len(ARMS))
    for hits in batches:
        booked(one, hits)
        for hit in hits:
            assert hit.unit
            seen = Observation(
                tier=1,
                stale=hit.stale,
                # A float is a little more or less than the whole number: what is counted is cut off.
                latency=(hit.latency_us + 1e-3) * 1e-6 if hit.latency_us else 0.0,
                age=hit.age_ms / 1000 + 1e-7,
                cost_saved=hit.cost,
            )
            other.count(Exposure("e", hit.arm, hit.unit), seen, NOW)
    mine, expected = read(one.buffer), read(other.buffer)
    assert np.array_equal(mine.counters, expected.counters)
    assert np.array_equal(mine.sample, expected.sample)
    # On a bin's very edge the float falls into the next one.
    assert np.array_equal(mine.latency.sum(axis=1), expected.latency.sum(axis=1))


def test_each_bin_has_what_the_batch_says() -> None:
    book = Book.in_memory(len(ARMS))
    booked(book, [Hit(UNITS[0], latency_us=latency) for latency in (1, 99, 3000, 3000, 10**9)])
    counts = read(book.buffer).latency[0]
    assert counts[bin_of(0.0)] == 2
    assert counts[bin_of(0.003)] == 2
    assert counts[bin_of(1e3)] == 1


def test_each_request_of_a_bucket_has_the_same_chance_to_be_the_windows() -> None:
    # One unit has made nine requests of 1 ms, and another one of the same bucket a single one of 2 ms, elsewhere.
    random = Random(8)
    slow = 0
    rounds = 2000
    for _ in range(rounds):
        book, worker = Book.in_memory(1), Book.in_memory(1, random.getrandbits(64))
        words = Words(book.buffer)
        (counts,) = decode(batch(1, 1, [Hit(bytes(16), latency_us=1000)] * 9)).counted
        words.add(counts, NOW, random.random)
        words.store(*words.changes())
        worker.count(Exposure("e", 0, bytes(15) + b"\1"), Observation(latency=0.002), NOW)
        folded = Folded.none(1)
        assert folded.fold([book.buffer, worker.buffer], window_of(NOW))
        assert folded.sampled.sum() == 1
        slow += int(folded.sampled.sum(axis=(0, 1))[bin_of(0.002)])
    assert slow / rounds == pytest.approx(0.1, abs=0.025)


def test_a_later_window_takes_the_place_of_an_earlier_one() -> None:
    book = Book.in_memory(len(ARMS))
    for turn in range(3):
        booked(book, [Hit(UNITS[0])], NOW + 40 * turn)
    folded = Folded.none(len(ARMS))
    folded.fold([book.buffer], window_of(NOW + 80))
    assert folded.sampled.sum() == 1


def test_what_is_stored_once_more_stays_as_it_is() -> None:
    book = Book.in_memory(len(ARMS))
    words = Words(book.buffer)
    for counts in decode(batch(1, 1, [Hit(unit) for unit in UNITS])).counted:
        words.add(counts, NOW, Random(1).random)
    assert not read(book.buffer).counters.any()
    for _ in range(2):
        words.store(*words.changes())
        assert read(book.buffer).counters[0, :, 0].sum() == len(UNITS)


def test_a_sum_that_has_reached_its_end_stays_there() -> None:
    book = Book.in_memory(len(ARMS))
    for _ in range(3):
        words = Words(book.buffer)
        for counts in decode(batch(1, 1, [Hit(UNITS[0], cost=9e12)])).counted:
            words.add(counts, NOW, Random(1).random)
        words.store(*words.changes())
    assert read(book.buffer).counters.max() == (1 << 63) - 1


@pytest.mark.parametrize("words", [b"\0" * 7, b"\xff" * 4 + bytes(8)])
def test_changes_of_another_book_are_not_stored(words: bytes) -> None:
    with pytest.raises(ValueError, match="changes"):
        Words(Book.in_memory(1).buffer).store(words, b"")


def test_only_a_book_has_words() -> None:
    with pytest.raises(ValueError, match="not a book"):
        Words(memoryview(bytearray(64)))
