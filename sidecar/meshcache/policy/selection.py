"""What the policies in force say about one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from meshcache.experiment.assignment import AssignedBy

if TYPE_CHECKING:
    from meshcache.experiment.exposure import Exposure
    from meshcache.policy.compiled import Policy


class Selection(NamedTuple):
    """What the policies in force say about one request."""

    route: str = ""
    """Empty when no route matches."""
    policy: Policy | None = None
    """None: the request is not cached."""
    experiment: str = ""
    """Empty when the route has no experiment."""
    arm: str = ""
    """Empty when the route has no experiment."""
    how: AssignedBy = AssignedBy.NONE
    score: float | None = None
    """The caller's score between 0 and 1; None when absent, not one number, or from an untrusted peer."""
    namespace: bytes = b""
    """Part of every storage key: route, experiment and arm, so that arms never share entries."""
    exposures: tuple[Exposure, ...] = ()
    """The experiments in which the request counts."""


def namespace(route: str, experiment: str = "", arm: str = "") -> bytes:
    """The three names, each behind its length (2 bytes, big endian), so that no two sets of names give one value."""
    return b"".join(len(part).to_bytes(2, "big") + part for part in (route.encode(), experiment.encode(), arm.encode()))
