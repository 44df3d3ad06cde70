"""Errors that should not happen: counted each time, logged once in a while for each place they come from."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from meshcache.observe.metrics import Metrics

QUIET_SECONDS: Final = 60.0
"""After a line about one kind of error, how long more of the kind are only counted."""
_MOST_KINDS: Final = 256


class FaultLog:
    """Where the request path reports an exception that it has survived."""

    def __init__(self, metrics: Metrics, log: FilteringBoundLogger) -> None:
        self._metrics = metrics
        self._log = log
        self._quiet_until: dict[tuple[str, str, int], float] = {}

    def report(self, stage: str, error: BaseException) -> None:
        """Count `error`, which happened in `stage`; log it with its traceback unless its like was logged just now."""
        self._metrics.inc("stream_errors_total", (stage,))
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
        kind = (stage, type(error).__name__, 0 if traceback is None else traceback.tb_lineno)
        now = time.monotonic()
        if now < self._quiet_until.get(kind, 0.0):
            return
        if len(self._quiet_until) >= _MOST_KINDS:
            self._quiet_until.clear()
        self._quiet_until[kind] = now + QUIET_SECONDS
        self._log.error("request went on without the cache", stage=stage, error=repr(error), exc_info=error)
