"""A soak: of the hot tier in Envoy when the environment has `WASM`, else with clients and an origin that misbehave."""

from __future__ import annotations

import json
import os
import signal
import sys
from types import FrameType

from soak.say import say


def interrupted(_signal: int = 0, _frame: FrameType | None = None) -> None:
    """End at once. All that was started is gone by now."""
    say("soak: interrupted")
    # Python ends a module by the signal itself, whatever is returned, when the Ctrl-C came within an `exec`, as imports
    # have them.
    os._exit(130)


def main() -> int:
    """Run it; returns the exit status."""
    # As an exception it would be lost where Python ignores those, as in its bookkeeping of imports.
    signal.signal(signal.SIGINT, interrupted)
    say("soak: loading")
    try:
        # Not at the top, so that a Ctrl-C while they are loaded ends it in one line as well.
        from bench.processes import MeasurementError, raise_on_termination
        from soak import hot, misbehaving

        signal.signal(signal.SIGINT, signal.default_int_handler)
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
        interrupted()
    return 130 if found.get("interrupted") else 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
