"""The list of failing cases in `docs/conformance.md`: it has to be what was measured, no case more and none less."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.counting import Tally

_ROW = re.compile(r"\| `([^`]+)` \|")


def listed(document: str, edition: str) -> set[str]:
    """The ids in the table below the heading that ends with `edition`; raises `ValueError` when there is none."""
    found: set[str] | None = None
    for line in document.splitlines():
        if line.startswith("#"):
            if found is not None:
                break
            if line.endswith(edition):
                found = set()
        elif found is not None and (row := _ROW.match(line)):
            found.add(row[1])
    if found is None:
        raise ValueError(f"no heading ends with {edition!r}")
    return found


def tried_again(results: Mapping[str, Any], known: set[str], passes_alone: Callable[[str], bool]) -> dict[str, Any]:
    """The results once each case that failed and is not known to has been run once more, by itself.

    Many of the suite's cases wait for seconds to pass, and a machine that is busy lets them pass at the wrong moment.
    """
    unexpected = [test_id for test_id, result in results.items() if result is not True and test_id not in known]
    return {**results, **{test_id: True for test_id in unexpected if passes_alone(test_id)}}


def differences(tallies: Mapping[str, Tally], known: set[str]) -> list[str]:
    """What the list says and the measurement does not, one line each."""
    failed = {case.id for tally in tallies.values() for case, _ in tally.failed}
    lines = [f"{test_id} fails and is not listed" for test_id in sorted(failed - known)]
    lines += [f"{test_id} is listed and passes" for test_id in sorted(known - failed)]
    return lines
