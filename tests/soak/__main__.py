"""A soak: of the hot tier in Envoy when the environment has `WASM`, else with clients and an origin that misbehave."""

from __future__ import annotations

import json
import os
import sys

from soak.say import say


def main() -> int:
    """Run it; returns the exit status."""
    try:
        # Not at the top, so that a Ctrl-C while they are loaded ends it in one line as well.
        from bench.processes import MeasurementError, raise_on_termination
        from soak import hot, misbehaving

        raise_on_termination()
        try:
            found = hot.run() if os.environ.get("WASM") else misbehaving.run()
        except MeasurementError as error:
            say(f"soak: {error}")
            return 1
        for problem in found["problems"]:
            say(f"soak: {problem}")
        print(json.dumps(found))
    except KeyboardInterrupt:
        say("soak: interrupted")
        # Python ends a module by the signal itself, whatever is returned here, when the Ctrl-C came within an `exec`,
        # as imports have them. All that was started is gone by now.
        os._exit(130)
    return 130 if found.get("interrupted") else 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
