"""A soak: of the hot tier in Envoy when the environment has `WASM`, else with clients and an origin that misbehave."""

from __future__ import annotations

import os
import sys

from soak.say import say


def main() -> int:
    """Run it; returns the exit status."""
    try:
        # Not at the top, so that a Ctrl-C while they are loaded ends it in one line as well.
        if os.environ.get("WASM"):
            from soak import hot

            return hot.main()
        from soak import misbehaving

        return misbehaving.main()
    except KeyboardInterrupt:
        say("soak: interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main())
