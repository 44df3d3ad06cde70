"""Field names that an origin may take for one another."""

from __future__ import annotations

from meshcache.message import Headers
from meshcache.rfc.spelling import among, lookalikes, spellings


def test_all_spellings_of_a_name() -> None:
    assert spellings(["a-b-c", "d"]) == {"a-b-c", "a-b_c", "a_b-c", "a_b_c", "d"}


def test_names_that_may_be_taken_for_minded_ones() -> None:
    assert among({"a_b", "a-b", "a_c", "b", "_"}, {"a-b", "a_c"}) == {"a_b", "a-b", "a_c"}


def test_what_is_said_in_them() -> None:
    headers = Headers([("a-b", "1"), ("a_b", "2"), ("a_b", "3"), ("a_c", "4"), ("d", "5")])
    assert lookalikes("a-b", headers) == "\0a_b\x002, 3"
    assert lookalikes("d", headers) == lookalikes("a_b", headers) == lookalikes("x-y", headers) == ""
