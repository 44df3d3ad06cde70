"""Cookies that an origin may take for one another, and what every origin sees."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshcache.lookalikes import cookie, hides, one_value, parameter
from meshcache.message import Headers

PIECES = st.sampled_from(["sid", "SID", "s%69d", "sid[]", "x", "=", "=", "1", "2", ";", ";", " ", ",", '"', "\\"])


@given(st.lists(PIECES, max_size=12).map("".join))
def test_what_every_origin_sees_is_one_value_under_one_name(text: str) -> None:
    headers = Headers([("cookie", text)])
    value = one_value(headers, "sid")
    alike = [(name, said) for name, said in headers.cookies() if parameter(name) == "sid"]
    if value:
        assert set(alike) == {("sid", value)}
        assert not hides(headers, ("sid",))
        # Whoever splits at commas or blanks as well sees no other.
        for mark in ", ":
            pieces = [piece.strip() for piece in text.replace(mark, ";").split(";")]
            assert {piece for piece in pieces if piece.lower().startswith("sid=")} <= {
                piece for piece in pieces if value.startswith(piece.partition("=")[2])
            }
    elif len(set(alike)) == 1 and alike[0][0] == "sid" and alike[0][1]:
        assert hides(headers, ("sid",))


def test_the_form_of_a_name_is_the_same_however_long_it_is() -> None:
    for name in ("Sid", "a" * 100 + "[x]"):
        assert cookie(name) == parameter(name)
