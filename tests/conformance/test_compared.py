"""The comparison of the suite's results with and without the filter."""

from __future__ import annotations

from conformance.compared import ALONE, Difference, confirmed, differing

WITHOUT = {"a": True, "b": ["Assertion", "age is 3"], "c": ["Setup", "no"], "d": True}


def test_the_same_outcomes_do_not_differ() -> None:
    # What is said of a failure holds what changes from run to run.
    assert differing({**WITHOUT, "b": ["Assertion", "age is 4"]}, WITHOUT) == []


def test_every_other_outcome_is_told() -> None:
    with_filter = {"a": ["Assertion", "no"], "b": True, "c": ["Assertion", "no"]}
    assert differing(with_filter, WITHOUT) == [
        Difference("a", "Assertion", "passed"),
        Difference("b", "passed", "Assertion"),
        Difference("c", "Assertion", "Setup"),
        Difference("d", "no result", "passed"),
    ]


def test_what_differs_only_under_load_is_run_again_by_itself() -> None:
    found = [Difference("a", "Assertion", "passed"), Difference("b", "passed", "Assertion")]
    asked: list[str] = []

    def alone(test_id: str) -> tuple[bool, bool]:
        asked.append(test_id)
        return (True, True) if test_id == "b" else (False, True)

    assert confirmed(found, alone) == found[:1]
    assert asked == ["a"] * ALONE + ["b"]
