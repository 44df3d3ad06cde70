"""How much memory one worker may use for what: a pod's budget divided among its workers.

`budgets.hot` sets the scale for everything else, so that one number fits a sidecar into a small pod. What this does not
bound: the interpreter (about 90 MiB for each idle worker), and answers on their way out to Envoy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_HOT_BYTES: Final = 256 << 20
DEFAULT_COLD_BYTES: Final = 10 << 30
WARM_FILE_BYTES: Final = 1 << 30
"""The largest that the warm LMDB file grows, for all workers together."""

LEAST_COPY_BYTES: Final = 16 << 20
"""A worker has room for copies of this size however small the budget: less would keep common answers out."""
MOST_QUEUE_BYTES: Final = 64 << 20
MOST_OPENING_BYTES: Final = 128 << 20


@dataclass(frozen=True, slots=True)
class Shares:
    """One worker's shares, in bytes."""

    hot: int
    """Entries in memory."""
    copies: int
    """Bodies on their way into the cache, together; so none that is larger is ever stored."""
    queue: int
    """Entries that wait to be written, for each of warm and cold."""
    opening: int
    """Large entries that were read from warm and cold and wait to be verified, together."""

    @classmethod
    def of(cls, hot_bytes: int, workers: int) -> Shares:
        """The shares under a budget for hot entries (0: `DEFAULT_HOT_BYTES`) that `workers` processes divide."""
        hot = (hot_bytes or DEFAULT_HOT_BYTES) // max(1, workers)
        copies = max(hot, LEAST_COPY_BYTES)
        return cls(hot, copies, queue=min(copies, MOST_QUEUE_BYTES), opening=min(copies, MOST_OPENING_BYTES))
