"""What this process knows of the pod it runs in, read the same way by the supervisor and by its workers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from meshcache.policy.compile import Surroundings
from meshcache.policy.sources import read_pod_labels

if TYPE_CHECKING:
    from meshcache.extproc.control import WorkerOptions


def surroundings(options: WorkerOptions) -> Surroundings:
    """The pod's labels, the environment, and what the command line says, as they are now."""
    return Surroundings(
        revision=options.revision,
        shows_all=options.shows_all,
        labels=read_pod_labels(options.pod_labels_path),
        environ=dict(os.environ),
        refresh_clusters=frozenset(options.refresh_clusters),
    )
