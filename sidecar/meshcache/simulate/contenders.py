"""What is compared: whole policy sets, or single policies for every request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.policy.compiled import Match, Route
from meshcache.policy.snapshot import Snapshot

if TYPE_CHECKING:
    from meshcache.policy.compiled import Policy


def under(snapshot: Snapshot, policy: Policy) -> Snapshot:
    """The set in which every request is under `policy`, with what operators say in `snapshot`."""
    return Snapshot(
        generation=snapshot.generation,
        digest=snapshot.digest,
        config=snapshot.config,
        policies={policy.name: policy},
        routes=(Route(policy.name, (Match(),), policy),),
        experiments=(),
        secret=b"",
    )
