"""Batches of the filter's counts: what goes in comes out, and hostile bytes are refused."""

from __future__ import annotations

import struct
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filter_batches import ARMS, ONE, Hit, batch
from meshcache.wasm.numbers import MOST_BATCH_BYTES, Batch, decode, encode
from meshcache.wasm.tags import encode_experiment, encode_plain

HITS = st.builds(
    Hit,
    unit=st.none() | st.binary(min_size=16, max_size=16),
    arm=st.integers(0, len(ARMS) - 1),
    stale=st.booleans(),
    latency_us=st.integers(0, 10**9),
    age_ms=st.integers(0, 10**9),
    size=st.integers(0, 10**9),
    route=st.sampled_from(("", "a", "b")),
    cost=st.sampled_from((0.0, 0.002)),
)
WHOLE = batch(7, 3, [Hit(), Hit(b"u" * 16, 1, latency_us=3000), Hit(b"v" * 16, 2, stale=True, cost=0.5)])


def again(found: Batch) -> bytes:
    tags = [encode_plain(*one.tag) for one in found.plain]
    tags += [encode_experiment(one.tag.counted, one.tag.cost_micros / 1e6) for one in found.counted]
    return encode(found, tags)


@given(st.lists(HITS, max_size=20), st.integers(0, (1 << 64) - 1), st.integers(1, (1 << 64) - 1))
def test_a_batch_comes_back(hits: list[Hit], worker: int, sequence: int) -> None:
    body = batch(worker, sequence, hits)
    found = decode(body)
    assert (found.worker, found.sequence) == (worker, sequence)
    assert sum(one.fresh + one.stale for one in found.plain) == len(hits)
    counted = [hit for hit in hits if hit.unit]
    assert sum(row.requests for one in found.counted for row in one.rows) == len(counted)
    assert sum(row.latency_us for one in found.counted for row in one.rows) == sum(hit.latency_us for hit in counted)
    assert all(one.tag.counted == ONE for one in found.counted)
    assert again(found) == body


def is_that(found: Batch, body: bytes) -> bool:
    """Whether `body` says what was found in it. Costs without end are no floats."""
    return any(one.tag.cost_micros > 10**12 for one in found.counted) or again(found) == body


def test_what_is_cut_off_or_goes_on_is_refused() -> None:
    for end in range(len(WHOLE)):
        with pytest.raises(ValueError, match=r"batch|tag|form|kind"):
            decode(WHOLE[:end])
    with pytest.raises(ValueError, match="behind its end"):
        decode(WHOLE + b"\0")


@given(st.binary(max_size=300), st.integers(0, 60))
def test_other_bytes_raise_nothing_else(tail: bytes, kept: int) -> None:
    try:
        found = decode(WHOLE[:kept] + tail)
    except ValueError:
        return
    assert is_that(found, WHOLE[:kept] + tail)


def test_a_byte_that_is_another_raises_nothing_else() -> None:
    random = Random(5)
    for at in range(len(WHOLE)):
        for bit in random.sample(range(8), 3):
            body = bytearray(WHOLE)
            body[at] ^= 1 << bit
            try:
                found = decode(bytes(body))
            except ValueError:
                continue
            assert is_that(found, bytes(body))


def test_numbers_that_promise_more_than_there_is_are_refused_at_once() -> None:
    for at in (30, len(WHOLE) - 52 - 4):
        body = bytearray(WHOLE)
        struct.pack_into("<I", body, at, 0xFFFFFFFF)
        with pytest.raises(ValueError, match=r"batch|kind"):
            decode(bytes(body))
    with pytest.raises(ValueError, match="too long"):
        decode(bytes(MOST_BATCH_BYTES + 1))


@pytest.mark.parametrize(
    ("column", "value"),
    [(1, 0), (1, 2), (2, 2), (3, 10**9 + 1), (4, 1 << 63), (5, 51), (6, 1 << 63)],
    ids=["none", "not as the bins", "staler", "longer", "square", "sampled", "age"],
)
def test_counts_that_cannot_be_are_refused(column: int, value: int) -> None:
    found = decode(batch(1, 1, [Hit(b"u" * 16)]))
    (arm,) = found.counted
    row = list(arm.rows[0])
    row[column] = value
    made = found._replace(counted=(arm._replace(rows=(type(arm.rows[0])(*row),)),))
    with pytest.raises(ValueError, match=r"cannot be|agree"):
        decode(again(made))


def test_an_arm_or_a_bin_that_there_is_none_of_is_refused() -> None:
    found = decode(batch(1, 1, [Hit(b"u" * 16)]))
    (arm,) = found.counted
    for odd in (
        arm._replace(arm=3),
        arm._replace(bins=((807, 1),)),
        arm._replace(bins=((0, 1), (0, 0))),
    ):
        with pytest.raises(ValueError, match=r"arm|bins"):
            decode(again(found._replace(counted=(odd,))))
