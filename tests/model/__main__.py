"""Many histories: `python -m model`. `HISTORIES` (5000) says how many; the last line is JSON."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback

from hypothesis import Phase

from model.machine import Histories
from model.running import run


def main() -> int:
    """Run the histories; returns the exit status."""
    text = os.environ.get("HISTORIES") or "5000"
    if not (text.isascii() and text.isdigit() and int(text)):
        print(f"model: HISTORIES is {text!r}; it has to be a whole number from 1 on", file=sys.stderr)
        return 2
    began = time.monotonic()
    difference = ""
    try:
        run(int(text), Phase.generate, Phase.shrink)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        traceback.print_exception(error)
        difference = str(error)[:2000]
    found = {"seconds": round(time.monotonic() - began, 1), "difference": difference, **Histories.tally}
    print(json.dumps(found))
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
