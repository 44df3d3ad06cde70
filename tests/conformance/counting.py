"""Counting as the suite's published results are counted: what has `true` as its result has passed.

Whether a test on which it depends has passed does not matter to the count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KINDS = ("required", "optimal", "check")
"""required: the specification demands it; optimal: a good cache does it; check: either way is right."""


@dataclass(frozen=True, slots=True)
class Case:
    """A test of the suite."""

    id: str
    kind: str
    name: str


@dataclass(slots=True)
class Tally:
    """The outcome for one kind of test; `failed` holds each test that did not pass, with the suite's reason."""

    passed: int = 0
    failed: list[tuple[Case, str]] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many tests of this kind there are."""
        return self.passed + len(self.failed)


def parse_catalogue(text: str) -> list[Case]:
    """Read what `suite/catalogue.mjs` prints; raises `ValueError` for a kind that is not in `KINDS`."""
    cases = [Case(**entry) for entry in json.loads(text)]
    for case in cases:
        if case.kind not in KINDS:
            raise ValueError(f"test {case.id} is of the unknown kind {case.kind!r}")
    return cases


def count(catalogue: Sequence[Case], results: Mapping[str, Any]) -> dict[str, Tally]:
    """Count by kind results by test id: `true`, or `[error name, message]`. A test without one has not passed."""
    tallies = {kind: Tally() for kind in KINDS}
    for case in catalogue:
        result = results.get(case.id, ["Untested", "no result"])
        if result is True:
            tallies[case.kind].passed += 1
        else:
            tallies[case.kind].failed.append((case, _reason(result)))
    return tallies


def report(tallies: Mapping[str, Tally]) -> str:
    """Return the failing required and optimal tests, one a line, and as the last line the counts as JSON."""
    lines: list[str] = []
    for kind in ("required", "optimal"):
        failed = tallies[kind].failed
        lines += [f"{kind}: {len(failed)} of {tallies[kind].total} failed", ""]
        lines += [f"  {case.id:<44} {reason}" for case, reason in failed]
        lines += [""] if failed else []
    lines.append(json.dumps({kind: [tallies[kind].passed, tallies[kind].total] for kind in KINDS}))
    return "\n".join(lines)


def _reason(result: Any) -> str:
    # What a cache sent back stands in the message: printable, and on one line.
    text = ": ".join(str(part) for part in result) if isinstance(result, list) else str(result)
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:200]
