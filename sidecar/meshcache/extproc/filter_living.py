"""Which filters may answer by themselves, for a supervisor that begins again: those of before are waited for as well.

A filter that has asked the one before goes on for the rest of its lease, and knows nothing of a purge that is made
meanwhile. The file, `<data>/filters/living`, is written about once a second, so each of them may have asked a little
later than it says.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from meshcache.tiers.whole_file import replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE_NAME: Final = "living"
"""In the folder `filter_state.FOLDER`."""
WRITTEN_EVERY: Final = 1.0
SLACK: Final = 2.0
"""Seconds by which a filter may have asked later than the file says."""


def read(path: Path, now: float | None = None) -> dict[str, float]:
    """By id of the filter, how many seconds ago it asked last; never less than none. Blocks."""
    now = time.time() if now is None else now
    try:
        held = msgspec.msgpack.decode(path.read_bytes(), type=dict[str, float])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return {name: max(0.0, now - at - SLACK) for name, at in held.items()}


def write(path: Path, ago: Mapping[str, float], now: float | None = None) -> None:
    """Keep what `read` gives, in a folder that is made if need be. Blocks; raises `OSError`."""
    now = time.time() if now is None else now
    path.parent.mkdir(mode=0o700, exist_ok=True)
    replace_file(path, msgspec.msgpack.encode({name: now - seconds for name, seconds in ago.items()}), synced=False)
