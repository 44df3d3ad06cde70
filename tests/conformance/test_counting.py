"""The counter against results whose counts are known."""

from __future__ import annotations

import json

import pytest

from conformance import editions, suite
from conformance.counting import Case, count, parse_catalogue, report

CATALOGUE = [
    Case("a", "required", "A"),
    Case("b", "required", "B"),
    Case("c", "optimal", "C"),
    Case("d", "check", "D"),
]


def test_only_true_passes() -> None:
    results = {"a": True, "b": ["Setup", "Response 1 status is 502, not 200"], "c": True, "d": ["Assertion", "no"]}
    tallies = count(CATALOGUE, results)
    assert {kind: (tally.passed, tally.total) for kind, tally in tallies.items()} == {
        "required": (1, 2),
        "optimal": (1, 1),
        "check": (0, 1),
    }


def test_a_test_without_a_result_counts_as_not_passed() -> None:
    tallies = count(CATALOGUE, {"a": True, "c": True, "d": True})
    assert (tallies["required"].passed, tallies["required"].total) == (1, 2)
    assert tallies["required"].failed == [(CATALOGUE[1], "Untested: no result")]


def test_results_of_unknown_tests_are_ignored() -> None:
    assert count(CATALOGUE, {"zzz": True})["required"].passed == 0


def test_the_last_line_is_the_counts() -> None:
    text = report(count(CATALOGUE, {"a": True}))
    assert json.loads(text.splitlines()[-1]) == {"required": [1, 2], "optimal": [0, 1], "check": [0, 1]}


def test_reasons_stay_on_one_line_and_printable() -> None:
    text = report(count(CATALOGUE, {"b": ["Assertion", 'body is "one\ntwo\x1b[31m"']}))
    line = next(line for line in text.splitlines() if line.startswith("  b "))
    assert line.endswith('Assertion: body is "one two [31m"')


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind 'hopeful'"):
        parse_catalogue('[{"id": "x", "kind": "hopeful", "name": "X"}]')


@pytest.mark.parametrize(
    ("cache", "counts"),
    [
        ("apache", {"required": [128, 165], "optimal": [60, 95], "check": [53, 90]}),
        ("nginx", {"required": [100, 165], "optimal": [57, 95], "check": [29, 90]}),
        ("squid", {"required": [141, 165], "optimal": [49, 95], "check": [53, 90]}),
        ("varnish", {"required": [123, 165], "optimal": [44, 95], "check": [21, 90]}),
    ],
)
def test_counts_the_suites_published_results_as_published(cache: str, counts: dict[str, list[int]]) -> None:
    package = editions.NPM_CACHE / "package"
    if not package.is_dir():
        pytest.skip("http-cache-tests is not fetched; `make conformance` does that")
    results = json.loads((package / "results" / f"{cache}.json").read_text())
    text = report(count(parse_catalogue(suite.catalogue(editions.Edition.of_npm(package))), results))
    assert json.loads(text.splitlines()[-1]) == counts
