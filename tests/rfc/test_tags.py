"""Tags of responses."""

from __future__ import annotations

import pytest

from meshcache.message import Headers
from meshcache.rfc.tags import is_tag, response_tags


def tags(*fields: tuple[str, str]) -> tuple[str, ...] | None:
    return response_tags(Headers(fields))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("cache-tag", "a,b, c d ,,a", ("a", "b", "c d")),
        ("surrogate-key", "a  b,c\ta", ("a", "b,c")),
        ("xkey", "a b,c, d", ("a", "b", "c", "d")),
        ("cache-tag", " , ", ()),
        ("x-tag", "a", ()),
        # As UTF-8 has them, letters end in bytes that other encodings have for blanks.
        ("cache-tag", "voil\xc3\xa0, \xc3\x85", ("voil\xc3\xa0", "\xc3\x85")),
    ],
)
def test_each_field_has_its_separators(name, value, expected):
    assert tags((name, value)) == expected


def test_all_fields_and_all_their_lines_count():
    found = tags(("surrogate-key", "a"), ("xkey", "b"), ("surrogate-key", "c"), ("cache-tag", "d"), ("cache-tag", "e"))
    assert sorted(found or ()) == ["a", "b", "c", "d", "e"]


def test_case_tells_tags_apart():
    assert tags(("cache-tag", "A,a")) == ("A", "a")


@pytest.mark.parametrize(
    "value", ["x" * 1025, ",".join(map(str, range(1001))), ",".join(["y" * 1000] * 17)], ids=["long", "many", "sum"]
)
def test_more_than_can_be_kept_is_none(value):
    assert tags(("cache-tag", value)) is None


def test_what_can_be_a_tag():
    assert is_tag("product-1")
    assert is_tag("\xc3\xa9")
    assert is_tag("voil\xc3\xa0")
    assert not any(map(is_tag, ["", " a", "a ", "a,b", "a\nb", "x" * 1025, "\u20ac"]))
