"""The comparison of the documented failures with the measured ones."""

from __future__ import annotations

import pytest

from conformance.counting import Case, count
from conformance.listed import differences, listed, tried_again

DOCUMENT = """
# Conformance
### What fails in edition 1
| case | reason |
|---|---|
| `a` | one |
| `b-c=2` | `d` is not meant |
### What fails in the newest edition
| `e` | two |
"""

CATALOGUE = [Case("a", "required", "A"), Case("b-c=2", "check", "B"), Case("e", "optimal", "E")]


def test_reads_the_table_of_one_edition() -> None:
    assert listed(DOCUMENT, "edition 1") == {"a", "b-c=2"}
    assert listed(DOCUMENT, "newest edition") == {"e"}


def test_an_edition_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="edition 2"):
        listed(DOCUMENT, "edition 2")


def test_the_list_that_is_right_has_no_differences() -> None:
    assert differences(count(CATALOGUE, {"e": True}), {"a", "b-c=2"}) == []


def test_both_kinds_of_difference_are_told() -> None:
    assert differences(count(CATALOGUE, {"a": True}), {"a", "b-c=2"}) == [
        "e fails and is not listed",
        "a is listed and passes",
    ]


def test_what_fails_and_is_not_listed_is_tried_once_more() -> None:
    tried: list[str] = []

    def passes(test_id: str) -> bool:
        tried.append(test_id)
        return test_id == "e"

    results = {"a": ["Assertion", "no"], "b-c=2": True, "e": ["Setup", "no"], "f": ["Setup", "no"]}
    assert tried_again(results, {"a"}, passes) == results | {"e": True}
    assert sorted(tried) == ["e", "f"]
