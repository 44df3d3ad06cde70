"""Marks: what was written is read, and nothing else is, whoever has written it."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.decisions import AskedFor
from meshcache.wasm.marks import (
    ASK,
    DROP,
    KEEP,
    LATEST,
    MOST_LABELS,
    MOST_VARY,
    Ask,
    Drop,
    Keep,
    fits,
    parse_ask,
    parse_drop,
    parse_keep,
    proof,
    write_ask,
    write_drop,
    write_keep,
)

SECRET = bytes(range(32))
OTHER = bytes(range(1, 33))
TOKEN = "!#$%&'*+-.^_`|~" + string.digits + string.ascii_lowercase

asks = st.builds(Ask, st.binary(min_size=8, max_size=8), st.binary(min_size=32, max_size=32), st.sampled_from(AskedFor))
labels = st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=MOST_LABELS).map(tuple)
names = st.text(TOKEN, min_size=1, max_size=20).filter(lambda name: name != "-")
times = st.integers(0, LATEST)
keeps = st.builds(
    Keep,
    times,
    times,
    times,
    times,
    times,
    st.integers(0, 0xFFFF),
    labels,
    st.lists(names, max_size=MOST_VARY).map(tuple),
)
drops = st.builds(Drop, st.none() | st.lists(st.integers(0, (1 << 64) - 1), max_size=80).map(tuple))


@given(asks)
def test_an_ask_is_read_as_it_was_written(ask: Ask) -> None:
    assert parse_ask(write_ask(ask, SECRET), SECRET) == ask


@given(asks, keeps)
def test_so_is_a_keep(ask: Ask, keep: Keep) -> None:
    assert parse_keep(write_keep(ask, keep, SECRET), SECRET) == (ask.plan, ask.digest, keep)


@given(asks, drops)
def test_so_is_a_drop(ask: Ask, drop: Drop) -> None:
    assert parse_drop(write_drop(ask, drop, SECRET), SECRET) == (ask.plan, ask.digest, drop)


@given(asks, keeps, drops, st.data())
def test_whatever_is_changed_proves_nothing(ask: Ask, keep: Keep, drop: Drop, data: st.DataObject) -> None:
    for text, parse in (
        (write_ask(ask, SECRET), parse_ask),
        (write_keep(ask, keep, SECRET), parse_keep),
        (write_drop(ask, drop, SECRET), parse_drop),
    ):
        at = data.draw(st.integers(0, len(text) - 1))
        other = data.draw(st.characters(max_codepoint=255).filter(lambda one, here=text[at]: one != here))
        assert parse(text[:at] + other + text[at + 1 :], SECRET) is None
        assert parse(text[:at], SECRET) is None
        assert parse(text + other, SECRET) is None
        assert parse(text, OTHER) is None


@given(st.text(st.characters(max_codepoint=255), max_size=400))
def test_anything_else_is_nothing(text: str) -> None:
    for name, parse in ((ASK, parse_ask), (KEEP, parse_keep), (DROP, parse_drop)):
        assert parse(text, SECRET) is None
        # Proven, and of no form: a filter of another release.
        assert parse(f"{text} {proof(name, text, SECRET)}", SECRET) is None


@given(asks)
def test_a_mark_of_one_kind_is_none_of_another(ask: Ask) -> None:
    text = write_drop(ask, Drop(()), SECRET)
    assert parse_keep(text, SECRET) is None
    assert parse_ask(text, SECRET) is None


def test_the_bytes_are_as_the_filter_has_them() -> None:
    """Fixed values, by which both sides can be held to the same form."""
    ask = Ask(b"\x01\x02\x03\x04\x05\x06\x07\x08", bytes(32), AskedFor.MISS)
    zeros = "0" * 64
    assert write_ask(ask, SECRET) == f"v1 0102030405060708 {zeros} miss 29d365aaa725de4e3ba679dedb9376e0"
    keep = Keep(1000, 2000, 3000, 4000, 0, 1, (1, (1 << 64) - 1), ("accept-encoding", "origin"))
    assert write_keep(ask, keep, SECRET) == (
        f"v1 0102030405060708 {zeros} 1000 2000 3000 4000 0 1 0000000000000001,ffffffffffffffff"
        " accept-encoding,origin 4ef6a7674fb38bf07057839d39d2a799"
    )


@pytest.mark.parametrize(
    ("count", "vary", "fit"),
    [
        (1, (), True),
        (0, (), False),
        (MOST_LABELS, ("a",) * MOST_VARY, True),
        (MOST_LABELS + 1, (), False),
        (1, ("a",) * (MOST_VARY + 1), False),
        (1, ("a" * 256,), True),
        (1, ("a" * 257,), False),
        (1, ("a" * 128, "b" * 128), False),
        (1, ("-",), False),
    ],
)
def test_what_a_mark_has_room_for(count: int, vary: tuple[str, ...], fit: bool) -> None:
    assert fits(range(count), vary) is fit
