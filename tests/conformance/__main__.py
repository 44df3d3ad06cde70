"""Runs the suite and prints the failing tests and the counts.

Environment: `TARGET` meshcache, meshcache-no-wasm, envoy-cache or proxy; or `compare`: the first two, and the cases in
which they differ; `SUITE` a checkout of the suite's repository in place of the
edition that npm has; `RESULTS` a file for the suite's raw results; `ID` one test only; `LISTED` the document whose
list of failing cases has to be right.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.processes import MeasurementError, raise_on_termination
from conformance import editions, suite
from conformance.compared import confirmed, differing
from conformance.counting import count, parse_catalogue, report
from conformance.listed import differences, listed, tried_again
from conformance.targets import TARGETS, WITHOUT_FILTER, filter_answers, target

if TYPE_CHECKING:
    from conformance.editions import Edition


COMPARE = "compare"


def main() -> int:
    """Run the suite as the environment says; returns the exit status."""
    name = os.environ.get("TARGET") or "meshcache"
    if name not in (*TARGETS, COMPARE):
        print(f"TARGET is {name!r}; choose one of {', '.join((*TARGETS, COMPARE))}", file=sys.stderr)
        return 2
    raise_on_termination()
    try:
        with tempfile.TemporaryDirectory(prefix="meshcache-conformance-") as temporary:
            folder = Path(temporary)
            source = os.environ.get("SUITE")
            edition = editions.checkout(Path(source), folder) if source else editions.fetch()
            with suite.origin(edition, folder) as port:
                if name == COMPARE:
                    return _compare(edition, port, folder)
                with target(name, port, folder) as base:
                    return _run(edition, base, name)
    except MeasurementError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _compare(edition: Edition, port: int, folder: Path) -> int:
    """Run the suite with the filter and without; 1 when a case differs, or the filter has answered nothing."""
    with target("meshcache", port, folder) as with_filter, target(WITHOUT_FILTER, port, folder) as without:
        results = []
        for base in (with_filter, without):
            print(f"Running {edition.name} {'with' if base == with_filter else 'without'} the filter", file=sys.stderr)
            results.append(suite.run(edition, base))

        def alone(test_id: str) -> tuple[bool, bool]:
            return suite.passes_alone(edition, with_filter, test_id), suite.passes_alone(edition, without, test_id)

        found = confirmed(differing(*results), alone)
        answered = filter_answers(folder)
    for each in found:
        print(f"{each.id}: {each.with_filter} with the filter, {each.without} without")
    print(json.dumps({"cases": len(results[1]), "differ": len(found), "answeredByFilter": answered}))
    return 0 if answered and not found else 1


def _run(edition: Edition, base: str, name: str) -> int:
    if test_id := os.environ.get("ID"):
        print(suite.run_one(edition, base, test_id))
        return 0
    print(f"Running {edition.name} against {name}: a minute, or several where requests time out", file=sys.stderr)
    results = suite.run(edition, base)
    if path := os.environ.get("RESULTS"):
        Path(path).write_text(json.dumps(results, indent=2) + "\n")
    cases = parse_catalogue(suite.catalogue(edition))
    document = os.environ.get("LISTED")
    if not document:
        print(report(count(cases, results)))
        return 0
    known = listed(Path(document).read_text(), edition.name)
    results = tried_again(results, known, lambda test_id: suite.passes_alone(edition, base, test_id))
    tallies = count(cases, results)
    wrong = differences(tallies, known)
    for line in wrong:
        print(f"{document}: {line}", file=sys.stderr)
    print(report(tallies))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
