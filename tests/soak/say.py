"""What a soak tells on the way."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Tell it on stderr."""
    print(text, file=sys.stderr, flush=True)
