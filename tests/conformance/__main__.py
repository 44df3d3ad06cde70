"""Runs the suite and prints the failing tests and the counts.

Environment: `TARGET` meshcache, envoy-cache or proxy; `RESULTS` a file for the suite's raw results; `ID` one test only.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from bench.processes import MeasurementError, raise_on_termination
from conformance import suite
from conformance.counting import count, parse_catalogue, report
from conformance.targets import TARGETS, target


def main() -> int:
    """Run the suite as the environment says; returns the exit status."""
    name = os.environ.get("TARGET") or "meshcache"
    if name not in TARGETS:
        print(f"TARGET is {name!r}; choose one of {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    raise_on_termination()
    try:
        package = suite.fetch()
        with tempfile.TemporaryDirectory(prefix="meshcache-conformance-") as temporary:
            folder = Path(temporary)
            with suite.origin(package, folder) as port, target(name, port, folder) as base:
                _run(package, base, name)
    except MeasurementError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _run(package: Path, base: str, name: str) -> None:
    if test_id := os.environ.get("ID"):
        print(suite.run_one(package, base, test_id))
        return
    print(
        f"Running http-cache-tests {suite.VERSION} against {name}: a minute, or several where requests time out",
        file=sys.stderr,
    )
    results = suite.run(package, base)
    if path := os.environ.get("RESULTS"):
        Path(path).write_text(json.dumps(results, indent=2) + "\n")
    print(report(count(parse_catalogue(suite.catalogue(package)), results)))


if __name__ == "__main__":
    sys.exit(main())
