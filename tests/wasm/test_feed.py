"""The feed's body: what was written is read, and damaged ones are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.wasm.feed import MOST_LABELS, News, decode, encode

numbers = st.integers(0, (1 << 64) - 1)
news = st.builds(News, numbers, st.none() | st.lists(numbers, max_size=50).map(tuple), st.binary(max_size=200))


@given(news)
def test_read_as_written(one: News) -> None:
    assert decode(encode(*one)) == one


@given(news, st.data())
def test_what_is_cut_off_or_too_long_is_refused(one: News, data: st.DataObject) -> None:
    body = encode(*one)
    with pytest.raises(ValueError, match=r"cut off|announced"):
        decode(body[: data.draw(st.integers(0, len(body) - 1))])
    with pytest.raises(ValueError, match="announced"):
        decode(body + b"\0")


def test_too_many_labels_are_everything() -> None:
    assert decode(encode(7, range(MOST_LABELS))).labels == tuple(range(MOST_LABELS))
    assert decode(encode(7, range(MOST_LABELS + 1))).labels is None


@pytest.mark.parametrize("body", [b"", b"MCF2" + bytes(20), b"MCF1\x02\0" + bytes(20)])
def test_other_forms_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"cut off|format"):
        decode(body)


def test_more_labels_than_there_may_be_are_refused() -> None:
    body = encode(1, (2,), b"plan")
    with pytest.raises(ValueError, match="more than"):
        decode(body[:14] + (MOST_LABELS + 1).to_bytes(4, "little") + body[18:])


def test_the_bytes_are_as_documented() -> None:
    assert encode(0x0102030405060708, (1,), b"p") == (
        b"MCF1\x01\0\x08\x07\x06\x05\x04\x03\x02\x01\x01\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0p"
    )
