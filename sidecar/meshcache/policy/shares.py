"""Which share of every tier's capacity each arm of an experiment has.

Arms that lived off one pool would be no arms: the one with more traffic pushes out what the other has stored, so that a
difference between two policies could be one between two neighbours. So capacity is divided as traffic is: first equally
among consumers, which are the routes with experiments, each by itself, and all other cached routes together; then, on a
route with experiments, by the weights in force.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from meshcache.experiment.overlay import Phase
from meshcache.policy.selection import layered_namespace, namespace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from meshcache.policy.compiled import Experiment
    from meshcache.policy.snapshot import Snapshot

LEAST: Final = 0.01
"""Of its route's share, that an arm has at least that gets any requests: also one of weight 0 may get those that are
forced, and the first arm those without a unit."""


class ArmShare(NamedTuple):
    """The share of one arm, or of one combination of arms where several experiments are on a route."""

    pool: bytes
    """Names its pool (8 bytes)."""
    fraction: float
    """Of the capacity of every tier, above 0."""
    route: str
    arm: str


class CapacityShares(NamedTuple):
    """How capacity is divided. The sum of all fractions is 1."""

    common: float
    """For all cached routes without an experiment together."""
    arms: tuple[ArmShare, ...] = ()
    joined: frozenset[bytes] = frozenset()
    """Pools of arms that have been promoted and whose experiment is gone: what is in them is common now, and in use."""


class Claim(NamedTuple):
    """An arm that is to have a share."""

    namespace: bytes
    route: str
    arm: str
    weight: float
    """Its share of the route's units; 0 for one that gets forced requests alone."""


def pool_id(of: bytes) -> bytes:
    """The pool of what is stored in a namespace: 8 bytes for an arm's, none for a route's own."""
    # A route's own ends with two empty names (`selection.namespace`), and no name of an arm is empty.
    return b"" if of.endswith(bytes(4)) or not of else blake2b(of, digest_size=8, person=b"meshcache pool").digest()


def divided(claims: Iterable[Claim], *, common: bool) -> CapacityShares:
    """The shares of these arms, `common` telling whether there are cached routes without an experiment beside them.

    The weights of one route add up to more than 0.
    """
    routes: dict[str, list[Claim]] = {}
    for claim in claims:
        routes.setdefault(claim.route, []).append(claim)
    if not routes:
        return CapacityShares(1.0)
    consumer = 1.0 / (len(routes) + common)
    arms = []
    for claimed in routes.values():
        total = sum(claim.weight for claim in claimed)
        parts = [max(claim.weight / total, LEAST) for claim in claimed]
        scale = consumer / sum(parts)
        arms += [
            ArmShare(pool_id(claim.namespace), part * scale, claim.route, claim.arm)
            for claim, part in zip(claimed, parts, strict=True)
        ]
    return CapacityShares(consumer if common else 0.0, tuple(arms))


def capacity_shares(snapshot: Snapshot) -> CapacityShares:
    """The shares under these policies and the weights in force."""
    on_route: dict[str, list[Experiment]] = {}
    for experiment in snapshot.experiments:
        on_route.setdefault(experiment.route, []).append(experiment)
    claims = [claim for route, experiments in on_route.items() for claim in _claims(snapshot, route, experiments)]
    shares = divided(claims, common=bool(snapshot.homes))
    joined = frozenset(filter(None, map(pool_id, snapshot.homes.values())))
    return shares._replace(joined=joined - {arm.pool for arm in shares.arms})


def _claims(snapshot: Snapshot, route: str, experiments: list[Experiment]) -> Iterator[Claim]:
    """One for each arm of a route that can get a request; of several experiments, one for each combination of arms."""
    live = []
    for one in experiments:
        weights = snapshot.weights[one.name]
        live.append(
            [
                (one.name, one.arms[place].name, weight / sum(weights))
                for place, weight in enumerate(weights)
                if _gets_any(snapshot, one, place)
            ]
        )
    for chosen in product(*live):
        home = _home(route, [(experiment, arm) for experiment, arm, _ in chosen])
        yield Claim(home, route, "+".join(arm for _, arm, _ in chosen), prod(part for *_, part in chosen))


def _gets_any(snapshot: Snapshot, experiment: Experiment, place: int) -> bool:
    overlay = snapshot.overlays.get(experiment.name)
    phase = None if overlay is None else overlay.phase
    if snapshot.weights[experiment.name][place]:
        return True
    if phase is not Phase.ROLLED_BACK and experiment.arms[place].force:
        return True
    # Requests without a unit are on control, unless an arm has been promoted.
    return place == 0 and phase is not Phase.PROMOTED


def _home(route: str, arms: list[tuple[str, str]]) -> bytes:
    if len(arms) > 1:
        return layered_namespace(route, arms)
    ((experiment, arm),) = arms
    return namespace(route, experiment, arm)
