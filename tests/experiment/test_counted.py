"""Books added up: the sum of several is what one would have counted; samples of units and of requests."""

from __future__ import annotations

import zlib
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from books import ARMS, NOW, requests, unit
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcache.experiment import counted
from meshcache.experiment.bins import BINS, bin_of
from meshcache.experiment.counted import Counted, Folded, read, split, units_of
from meshcache.experiment.exposure import Exposure
from meshcache.experiment.ledger import RING, SAMPLE_BINS, WINDOW_SECONDS, Book, window_of
from meshcache.experiment.observation import Observation
from meshcache.experiment.totals import SAMPLE_GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshcache.experiment.counted import Sample

Asked = list[tuple[Exposure, Observation, float]]
ABOUT = b"e" * 16


def book_of(asked: Asked) -> Book:
    book = Book.in_memory(ARMS, seed=len(asked))
    for exposure, seen, now in asked:
        book.count(exposure, seen, now)
    return book


def together(parts: Iterable[Counted]) -> Counted:
    found = Counted.none(ARMS)
    for part in parts:
        found.add(part)
    return found


def same(one: Counted, other: Counted) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("counters", "latency", "sampled", "sample")
    )


@given(requests, st.integers(1, 4), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_the_sum_of_workers_is_what_one_would_have_counted(asked: Asked, workers: int, random: Random) -> None:
    mine: list[Asked] = [[] for _ in range(workers)]
    for request in asked:
        random.choice(mine).append(request)
    parts = [read(book_of(each).buffer) for each in mine]
    random.shuffle(parts)
    assert same(together(parts), read(book_of(asked).buffer))


@given(requests, requests, requests)
@settings(max_examples=25, deadline=None)
def test_samples_of_units_merge_in_any_order_and_never_twice(one: Asked, two: Asked, three: Asked) -> None:
    a, b, c = (read(book_of(asked).buffer).sample for asked in (one, two, three))

    def merge(x: Sample, y: Sample) -> Sample:
        return np.maximum(x, y)

    assert np.array_equal(merge(a, b), merge(b, a))
    assert np.array_equal(merge(merge(a, b), c), merge(a, merge(b, c)))
    assert np.array_equal(merge(merge(a, b), b), merge(a, b))


def sample_of(random: Random, shares: tuple[float, ...], units: int) -> Sample:
    """What `Book.count` makes of so many units, drawn at once."""
    generator = np.random.default_rng(random.getrandbits(64))
    sample = np.zeros(SAMPLE_BINS, np.uint32)
    places = generator.integers(0, SAMPLE_BINS, units)
    words = generator.integers(0, 1 << 24, units, dtype=np.uint32) << 8
    words += generator.choice(len(shares), units, p=shares).astype(np.uint32) + 1
    np.maximum.at(sample, places, words)
    return sample


@pytest.mark.parametrize("units", [300, 30_000])
def test_the_arms_of_a_sample_are_a_draw_by_their_shares(units: int) -> None:
    # Pearson's statistic over many samples has the mean and the variance of chi square: unbiased, and no less or more
    # scattered than independent draws.
    random = Random(units)
    shares = (0.8, 0.1, 0.1)
    found = []
    for _ in range(200):
        held = split(sample_of(random, shares, units), ARMS)
        expected = [share * sum(held) for share in shares]
        found.append(sum((count - mean) ** 2 / mean for count, mean in zip(held, expected, strict=True)))
    # Chi square of 2 degrees: mean 2, variance 4; of 200, the mean's standard error is 0.14, the variance's 0.8.
    assert np.mean(found) == pytest.approx(2, abs=0.6)
    assert np.var(found) == pytest.approx(4, abs=3)


@pytest.mark.parametrize("units", [0, 1, 40, 5000, 70_000, 2_000_000])
def test_units_are_estimated(units: int) -> None:
    sample = sample_of(Random(units), (0.5, 0.3, 0.2), units)
    found = units_of(sample, ARMS)
    # Four standard errors beyond the few that share no bin.
    assert sum(found) == pytest.approx(units, abs=0 if units <= 40 else max(4, 4 * units / SAMPLE_BINS**0.5))
    if units > 40:
        assert found[0] / sum(found) == pytest.approx(0.5, abs=0.04)


def test_books_hold_the_sample_that_was_simulated() -> None:
    random = Random(4)
    asked = [
        (Exposure("e", random.choices(range(ARMS), (8, 1, 1))[0], unit(random)), Observation(), NOW)
        for _ in range(4000)
    ]
    totals = read(book_of(asked).buffer).totals()
    exact = Counter(exposure.arm for exposure, _, _ in asked)
    assert sum(arm.units for arm in totals) == pytest.approx(4000, abs=50)
    assert [arm.units for arm in totals] == pytest.approx([exact[arm] for arm in range(ARMS)], rel=0.1)


# -- one request of each bucket and window ---------------------------------------------------------------------------


def test_one_request_of_each_bucket_and_window_is_folded_once() -> None:
    one, two = bytes(16), b"\0\1" + bytes(14)
    books = [Book.in_memory(ARMS, seed) for seed in (1, 2)]
    for number in range(60):
        for who in (one, two):
            books[number % 2].count(Exposure("e", 1, who), Observation(latency=0.1 + number / 1000), NOW + number)
    folded = Folded.none(ARMS)
    buffers = [book.buffer for book in books]
    # The ring holds four windows, of which the last is still open.
    last = window_of(NOW + 59) - 1
    assert folded.fold(buffers, last)
    assert folded.sampled.sum() == (RING - 1) * 2
    assert folded.sampled[1, 0].sum() == folded.sampled[1, 1].sum() == RING - 1
    assert not folded.fold(buffers, last)
    assert folded.fold(buffers, last + 1)
    assert folded.sampled.sum() == RING * 2
    assert set(np.nonzero(folded.sampled[1, 0])[0]) <= {bin_of(0.1 + number / 1000) for number in range(60)}


def test_each_request_of_a_window_is_as_likely() -> None:
    # 2,000 windows with five requests, shared among two workers.
    latencies = [0.01, 0.02, 0.04, 0.08, 0.16]
    books = [Book.in_memory(1, seed) for seed in (7, 8)]
    folded = Folded.none(1)
    for window in range(2000):
        now = NOW + window * WINDOW_SECONDS
        for number, latency in enumerate(latencies):
            books[number % 2].count(Exposure("e", 0, bytes(16)), Observation(latency=latency), now)
        folded.fold([book.buffer for book in books], window_of(now))
    found = [int(folded.sampled[0, 0, bin_of(latency)]) for latency in latencies]
    assert sum(found) == 2000
    # Five cells of 400: chi square of 4 degrees is above 18.5 once in a thousand.
    assert sum((count - 400) ** 2 / 400 for count in found) < 18.5


def test_a_clock_that_is_set_back_does_not_stop_the_samples() -> None:
    book = Book.in_memory(1)
    folded = Folded.none(1)
    for now in (NOW + 1e6, NOW):
        book.count(Exposure("e", 0, bytes(16)), Observation(latency=0.1), now)
        folded.fold([book.buffer], window_of(now))
    assert folded.sampled.sum() == 2


# -- records ---------------------------------------------------------------------------------------------------------


@given(requests)
@settings(max_examples=25, deadline=None)
def test_records_are_read_as_they_were_written(asked: Asked) -> None:
    book = book_of(asked)
    found = read(book.buffer)
    folded = Folded.none(ARMS)
    folded.fold([book.buffer], window_of(NOW + 200))
    found.sampled = folded.sampled
    again = counted.load_counts(counted.dump_counts(found, ABOUT), ABOUT)
    samples = counted.load_samples(counted.dump_samples(found, ABOUT), ABOUT)
    assert again is not None
    assert samples is not None
    again.add(samples)
    assert same(again, found)
    kept = Folded.load(folded.dump(ABOUT), ARMS, ABOUT)
    assert kept is not None
    assert kept.through == folded.through
    assert np.array_equal(kept.sampled, folded.sampled)


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_a_record_that_is_none_is_nothing(data: st.DataObject) -> None:
    found = read(book_of([(Exposure("e", 1, bytes(16)), Observation(latency=0.1), NOW)]).buffer)
    sample_whole = data.draw(st.booleans())
    whole = (counted.dump_samples if sample_whole else counted.dump_counts)(found, ABOUT)
    broken = data.draw(
        st.binary(max_size=200)
        | st.integers(0, len(whole) - 1).map(lambda size: whole[:size])
        | st.integers(0, 200).map(lambda at: whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
    )
    counts, sample = counted.load_counts(broken, ABOUT), counted.load_samples(broken, ABOUT)
    # Some changes of a packed text are none of the text.
    assert counts is None or (not sample_whole and np.array_equal(counts.counters, found.counters))
    assert sample is None or (sample_whole and np.array_equal(sample.sample, found.sample))
    assert Folded.load(broken, ARMS, ABOUT) is None
    assert counted.load_counts(whole, b"f" * 16) is None
    assert counted.load_samples(whole, b"f" * 16) is None


def test_an_empty_record_that_would_be_enormous_is_not_unpacked() -> None:
    bomb = counted.dump_samples(Counted.none(ARMS), ABOUT)[:64] + zlib.compress(bytes(1 << 26))
    assert counted.load_samples(bomb, ABOUT) is None
    assert counted.load_counts(bomb, ABOUT) is None


def test_shapes() -> None:
    arm = Counted.none(ARMS).totals()[0]
    assert arm.sampled.counts.shape == (SAMPLE_GROUPS, BINS)
    assert arm.units == 0
