"""What the policies in force say about one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from meshcache.experiment.assignment import AssignedBy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshcache.experiment.exposure import Exposure
    from meshcache.policy.compiled import Policy


class Selection(NamedTuple):
    """What the policies in force say about one request."""

    route: str = ""
    """Empty when no route matches."""
    policy: Policy | None = None
    """None: the request is not cached."""
    experiment: str = ""
    """Empty when the route has no experiment; the names of several are joined by `+`."""
    arm: str = ""
    """Empty when the route has no experiment, and as long as `by_key` is to choose; joined like the experiments."""
    how: AssignedBy = AssignedBy.NONE
    score: float | None = None
    """The caller's score between 0 and 1; None when absent, not one number, or from an untrusted peer."""
    namespace: bytes = b""
    """Part of every storage key: route, experiments and arms, so that arms never share entries."""
    exposures: tuple[Exposure, ...] = ()
    """The experiments in which the request counts."""
    missing: tuple[str, ...] = ()
    """The experiments for which the request carries no unit."""
    by_key: ByKey | None = None
    """Chooses the arm once the key is known, apart from which the selection holds already."""


class ByKey(Protocol):
    """Chooses an arm by what is asked for."""

    def __hash__(self) -> int:
        """It is remembered by what it is, not by what it holds."""
        ...

    def choose(self, key: bytes) -> Selection:
        """The selection for `key`, which is the same in all arms."""
        ...


def namespace(route: str, experiment: str = "", arm: str = "") -> bytes:
    """The three names, each behind its length (2 bytes, big endian), so that no two sets of names give one value."""
    return _joined(route, experiment, arm)


def layered_namespace(route: str, arms: Iterable[tuple[str, str]]) -> bytes:
    """The same for a route with several experiments: `arms` are pairs of experiment and arm, in any order."""
    return _joined(route, *(name for pair in sorted(arms) for name in pair))


def _joined(*names: str) -> bytes:
    return b"".join(len(part).to_bytes(2, "big") + part for part in (name.encode() for name in names))
