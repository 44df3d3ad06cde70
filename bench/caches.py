"""A cache that is measured beside others, and what it says when requests fail."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.envoys import FLUSHED
from bench.processes import MeasurementError, tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOG_LINES = 3
MOST_KINDS = 8
"""Of failures, that an error tells."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache that runs."""

    name: str
    url: str
    log: Path
    """What its process has written."""
    failed: Callable[[], list[str]]
    """A line for each request that it has answered by a status of 400 or above: that, and what it says of it."""

    @contextmanager
    def doing(self, phase: str) -> Iterator[None]:
        """Puts into the `MeasurementError`s of the block whose they are, in which phase, and what the cache says."""
        try:
            yield
        except MeasurementError as error:
            time.sleep(FLUSHED)
            told = "; ".join([str(error), statuses(self.failed())])
            wrote = tail(self.log, LOG_LINES)
            raise MeasurementError(
                f"{self.name}, {phase}: {told}" + (f"\nits log:\n{wrote}" if wrote else "")
            ) from error


def statuses(failed: list[str]) -> str:
    """For an error message: how many answers there were of each kind, the most frequent first."""
    if not failed:
        return "it has answered nothing by a status of 400 or above"
    kinds = Counter(failed).most_common()
    told = ", ".join(f"{number} x {kind}" for kind, number in kinds[:MOST_KINDS])
    return f"it has answered {told}" + (f", {len(kinds) - MOST_KINDS} other kinds" if len(kinds) > MOST_KINDS else "")


def lines(path: Path) -> list[str]:
    """What a file that may not be there holds."""
    return path.read_text(errors="replace").splitlines() if path.exists() else []
