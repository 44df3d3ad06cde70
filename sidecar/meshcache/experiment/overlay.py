"""What has been decided about an experiment, on top of what its file says."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Phase(StrEnum):
    """Where an experiment stands."""

    WARMING = "Warming"
    """A stage has begun; its caches fill and nothing is counted yet."""
    RUNNING = "Running"
    PAUSED = "Paused"
    """Shares stay as they are, ramp and verdicts stand still, until a person decides."""
    STOPPED = "Stopped"
    """Everybody is on control, by a person's word."""
    ROLLED_BACK = "RolledBack"
    """Everybody is on control, those whose requests force an arm as well."""
    PROMOTED = "Promoted"
    """Everybody is on the winner, which keeps its entries."""


class Overlay(msgspec.Struct, frozen=True):
    """One experiment's arms as they are in force. It binds only where `spec_hash` is that of the file in force."""

    experiment: str
    spec_hash: str
    phase: Phase
    weights: tuple[int, ...]
    """One for each compiled arm, in their order."""
    epoch: int
    """Counts from different epochs are kept apart."""
    counting: bool
    """Whether requests are counted now."""
    winner: str = ""
    """The arm that has been promoted."""


class Adoption(msgspec.Struct, frozen=True):
    """Where a route keeps its entries since an arm was promoted on it: where that arm had kept them.

    So the winner's cache stays when its policy is written into the route and the experiment's file is deleted.
    """

    route: str
    policy: str
    """Digest of the policy that has won (`Policy.digest`). It binds as long as the route has that policy."""
    namespace: bytes
