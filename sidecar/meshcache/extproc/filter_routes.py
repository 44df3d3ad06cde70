"""What an edit of the policies means for what filters have kept: on which routes answers are judged otherwise now.

A plan says how route, arm and key of a request are found. For how long an answer may be kept was said with the answer,
by the policies of then; so where those have changed it is dropped, and asked for again. On other routes all stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshcache.policy.snapshot import Snapshot


def changed_routes(before: Snapshot, after: Snapshot) -> tuple[str, ...] | None:
    """The routes, of `before`, whose answers are judged otherwise by `after`; None for all."""
    if before.config != after.config:
        # It says by which way answers are refreshed, who is trusted, who callers are.
        return None
    now = _judged_by(after)
    return tuple(name for name, policies in _judged_by(before).items() if now.get(name) != policies)


def _judged_by(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """For each route the digests of all policies that its answers may be judged by, in order."""
    found = {route.name: [] if route.policy is None else [route.policy.digest] for route in snapshot.routes}
    for experiment in snapshot.experiments:
        arms = found.setdefault(experiment.route, [])
        arms.append(experiment.spec_hash)
    return {name: tuple(digests) for name, digests in found.items()}
