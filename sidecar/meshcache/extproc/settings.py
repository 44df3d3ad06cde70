"""What a supervisor was told: by the command line first, then by the CacheConfig."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from meshcache.policy.values import LMDB

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from meshcache.extproc.control import WorkerOptions
    from meshcache.policy.compiled import Config

FILTER_SOCKET: Final = "filter.sock"


@dataclass(frozen=True, slots=True)
class SupervisorOptions:
    """What `meshcache serve` was told."""

    data: Path
    socket_dir: Path
    """Worker i listens on `worker-<i>.sock` in it."""
    workers: int
    worker: WorkerOptions
    """A pattern for every worker; what the CacheConfig may say, `index`, `socket_path` and so on are filled in."""
    message_timeout: Callable[[float, float], float]
    """How many seconds Envoy should wait for a reply, given what all look-ups of one request may take together, and for
    how long one may wait for another's answer."""
    lookup_timeout: float | None = None
    """How many seconds it does wait, when that was told; else what `message_timeout` says of the first set."""
    metrics_listen: str = ""
    """Where metrics are served, when it was told; else the CacheConfig says it."""

    def socket_path(self, index: int) -> Path:
        """The socket of worker `index`."""
        return self.socket_dir / f"worker-{index}.sock"

    @property
    def filter_socket(self) -> Path:
        """The socket on which filters in Envoy ask."""
        return self.socket_dir / FILTER_SOCKET


def with_stores(given: WorkerOptions, config: Config) -> WorkerOptions:
    """`given` with stores and budgets filled in: the command line comes first, then the CacheConfig."""
    warm = given.warm_url or config.warm_url or ""
    return msgspec.structs.replace(
        given,
        # Named on the command line, the LMDB file is used even when the CacheConfig names a Redis.
        warm_url="" if warm == LMDB else warm,
        cold_url=given.cold_url or config.cold_url or "",
        cold_max_bytes=given.cold_max_bytes or config.cold_max_bytes or 0,
        hot_bytes=given.hot_bytes or config.hot_bytes or 0,
    )
