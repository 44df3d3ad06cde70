from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.rfc.negotiation import NEGOTIATED, accepts_codings, canonical, content_codings


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("accept-language", ["en, de", "de, en", " De ,   eN", "en;q=1, de;q=1.000", "de,,en,", "en, de, en"]),
        ("accept-language", ["fr;q=0.5, de", "de;q=1.0,fr; q=0.50", "de, fr;Q=.5".replace(".5", "0.5")]),
        ("accept-encoding", ["gzip, br;q=0", "br;q=0.000, x-gzip"]),
        ("accept", ["text/html;level=1;q=0.4, */*;q=0.1", "*/*;q=0.1, TEXT/html; Level=1 ;q=0.40"]),
        ("accept-charset", ["utf-8", "UTF-8;q=1"]),
    ],
)
def test_values_of_the_same_meaning_have_one_form(name: str, values: list[str]) -> None:
    assert len({canonical(name, value) for value in values}) == 1


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("accept-language", "en, de", "en, de;q=0.9"),
        ("accept-language", "en", "en-gb"),
        ("accept-encoding", "gzip", "gzip;q=0"),
        ("accept-encoding", "", "identity"),
        ("accept", "text/html;level=1", "text/html;level=2"),
        ("accept", "text/html;v=A", "text/html;v=a"),
        # What nobody can be sure to understand is told apart by every letter.
        ("accept-language", "en;q=2, de", "de, en;q=2"),
        ("accept-language", "en;q=0.5, en", "en, en;q=0.5"),
        ("accept-language", "en;q=0.5;x=1, de", "de, en;q=0.5;x=1"),
        ("accept", 'text/html;v="a, b", x', 'x, text/html;v="a, b"'),
    ],
)
def test_values_of_different_meaning_differ(name: str, one: str, other: str) -> None:
    assert canonical(name, one) != canonical(name, other)


@given(st.sampled_from(sorted(NEGOTIATED)), st.text(max_size=60))
def test_a_form_is_its_own_form(name: str, value: str) -> None:
    assert canonical(name, canonical(name, value)) == canonical(name, value)


members = st.lists(st.sampled_from(["en", "de;q=0.3", "fr;q=1", "*;q=0", "EN-gb"]), max_size=4, unique=True)


@given(members)
def test_no_order_counts(listed: list[str]) -> None:
    assert len({canonical("accept-language", ", ".join(order)) for order in permutations(listed)}) == 1


def test_very_long_lists_keep_their_order() -> None:
    many = ",".join(f"l{number:03}" for number in range(200, 0, -1))
    assert canonical("accept-language", many) == many


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (None, ()),
        ("", ()),
        ("gzip", ("gzip",)),
        ("X-Gzip , br", ("gzip", "br")),
        ("identity", ()),
        ("homemade", ()),
    ],
)
def test_content_codings(field: str | None, expected: tuple[str, ...]) -> None:
    assert content_codings(field) == expected


@pytest.mark.parametrize(
    ("accept_encoding", "codings", "expected"),
    [
        (None, ("gzip",), True),
        ("", ("gzip",), False),
        ("", (), True),
        ("gzip", ("gzip",), True),
        ("GZIP;Q=0.5", ("gzip",), True),
        ("x-gzip", ("gzip",), True),
        ("gzip;q=0", ("gzip",), False),
        ("gzip;q=0.000", ("gzip",), False),
        ("gzip;q=x", ("gzip",), False),
        ("gzip;q=1, gzip;q=0", ("gzip",), False),
        ("identity", ("gzip",), False),
        ("*", ("gzip",), True),
        ("*;q=0, gzip", ("gzip",), True),
        ("gzip;q=0, *", ("gzip",), False),
        ("*;q=0", ("gzip",), False),
        ("gzip", ("gzip", "br"), False),
        ("gzip, br", ("gzip", "br"), True),
    ],
)
def test_who_takes_what(accept_encoding: str | None, codings: tuple[str, ...], expected: bool) -> None:
    assert accepts_codings(accept_encoding, codings) is expected


@given(st.text(max_size=60))
def test_accepting_is_total(value: str) -> None:
    accepts_codings(value, content_codings(value))
