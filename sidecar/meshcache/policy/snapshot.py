"""One compiled set of policies, and what it says about a request. A request keeps the snapshot it began with."""

from __future__ import annotations

import re
from copy import copy
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING

from meshcache.experiment.assignment import AssignedBy
from meshcache.experiment.exposure import CountedExperiment
from meshcache.experiment.overlay import Adoption, Overlay
from meshcache.policy.assignments import Assignment, LayeredAssignment, SingleAssignment
from meshcache.policy.identity import Identities
from meshcache.policy.layers import binds, layer_of, unit_of
from meshcache.policy.routing import RouteIndex
from meshcache.policy.selection import Selection, namespace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from meshcache.experiment.links import Links
    from meshcache.experiment.observation import Tally
    from meshcache.message import Request
    from meshcache.policy.compiled import CacheStatus, Config, Experiment, Policy, Route
    from meshcache.policy.layers import Account, Layer

__all__ = ["SCORE_HEADER", "AssignedBy", "Selection", "Snapshot", "namespace", "parse_score", "unit_of"]

SCORE_HEADER = "x-user-score"
_SCORE = re.compile(r"[-+]?(?:[0-9]{1,20}\.?[0-9]{0,30}|\.[0-9]{1,30})(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)


def parse_score(text: str) -> float | None:
    """A score clamped to 0..1; None for anything that is not one finite decimal number."""
    if not _SCORE.fullmatch(text):
        return None
    value = float(text)
    if not isfinite(value):
        return None
    return min(max(value, 0.0), 1.0)


class _Target:
    """Where a match leads: a route and what is decided on it."""

    __slots__ = ("assignment", "plain")

    def __init__(self, route: Route, assignment: Assignment | None, adoption: Adoption | None) -> None:
        home = namespace(route.name)
        if adoption is not None and route.policy is not None and adoption.policy == route.policy.digest:
            home = adoption.namespace
        self.plain = Selection(route=route.name, policy=route.policy, namespace=home)
        self.assignment = assignment


_NO_ROUTE = Selection()


class Snapshot:
    """An immutable compiled policy set."""

    def __init__(
        self,
        *,
        generation: int,
        digest: str,
        config: Config,
        policies: Mapping[str, Policy],
        routes: tuple[Route, ...],
        experiments: tuple[Experiment, ...],
        secret: bytes,
        combinations: Mapping[str, Mapping[tuple[int, ...], Policy]] = MappingProxyType({}),
        links: Links | None = None,
    ) -> None:
        """`routes` stand in document order; `secret` keys the assignment to arms and borders, and is not kept.

        `combinations`: for each route with several experiments, the policies that come out by their arms' places.
        `links` remembers who callers are to experiments with several kinds of units; None: the first kind counts.
        """
        self.generation = generation
        self.digest = digest
        self.config = config
        shows = config.trust.cache_status
        # Who the peer is need not be asked where it makes no difference.
        self._shown: CacheStatus | None = "full" if shows.anyone else config.cache_status if shows.nobody else None
        self.identities = Identities(config.identity, secret)
        """Who the callers are."""
        self.policies: Mapping[str, Policy] = MappingProxyType(dict(policies))
        combined = (policy for by_arms in combinations.values() for policy in by_arms.values())
        self.in_use: tuple[Policy, ...] = tuple({id(one): one for one in (*policies.values(), *combined)}.values())
        """Every policy that a request may get: those of the files, and what experiments on one route make of them."""
        self.warm_deadline = max((policy.tiers.warm.deadline for policy in self.in_use), default=0.0)
        """The longest that a read of warm may take under any policy, in seconds."""
        self._lookup_budget = max((policy.tiers.deadline() for policy in self.in_use), default=0.0)
        self._longest_wait = max((policy.collapse_wait for policy in self.in_use), default=0.0)
        self.routes = routes
        self.experiments = experiments
        self.remembers = any(len(experiment.units) > 1 for experiment in experiments)
        """Whether units have to be remembered, since an experiment has several kinds of them."""
        # Matches lead to a place, so that what stands there can be exchanged without a new index.
        self._index = RouteIndex((match, place) for place, route in enumerate(routes) for match in route.matches)
        subject = config.identity.subject
        self._layers = {one.name: layer_of(one, secret, subject, links) for one in experiments}
        self._combinations = combinations
        self._lay({})

    def with_overlays(self, overlays: Mapping[str, Overlay], adoptions: Iterable[Adoption] = ()) -> Snapshot:
        """The same policies with what has been decided about experiments (by name) on top. Cheap: nothing is compiled.

        What was decided about another text of an experiment than the one in force does not bind; what bound before
        then goes on, since it is this set that is behind.
        """
        made = copy(self)
        layers = {}
        for name, layer in self._layers.items():
            overlay = overlays.get(name)
            if overlay is not None and not binds(overlay, layer.experiment):
                overlay = layer.overlay
            layers[name] = layer.overlaid(overlay)
        made._layers = layers
        made._lay({adoption.route: adoption for adoption in adoptions})
        return made

    def untold(self) -> Snapshot:
        """The same policies for where nobody reads `cache-status`, which is then not made."""
        made = copy(self)
        made._shown = "off"
        return made

    def _lay(self, adoptions: Mapping[str, Adoption]) -> None:
        self.tallies: Mapping[str, Tally] = {}
        """What counts the requests of `counted`, by experiment, as far as it is at hand: whoever installs it sees to
        that, and may do so later."""
        on_route: dict[str, list[Layer]] = {}
        for layer in self._layers.values():
            on_route.setdefault(layer.experiment.route, []).append(layer)
        self._assignments: dict[str, Assignment] = {
            route: SingleAssignment(layers[0])
            if len(layers) == 1
            else LayeredAssignment(route, layers, self._combinations[route])
            for route, layers in on_route.items()
        }
        self._targets = tuple(
            _Target(route, self._assignments.get(route.name), adoptions.get(route.name)) for route in self.routes
        )
        self.weights = MappingProxyType({name: layer.weights for name, layer in self._layers.items()})
        """The shares of each experiment's arms in force, in any measure, in the order of its arms."""
        self.overlays = MappingProxyType(
            {name: layer.overlay for name, layer in self._layers.items() if layer.overlay is not None}
        )
        """What has been decided and binds, by experiment."""
        self.counted: Mapping[str, CountedExperiment] = MappingProxyType(
            {
                name: CountedExperiment(
                    name, layer.experiment.spec_hash, layer.overlay.epoch, layer.arms, layer.experiment.uid
                )
                for name, layer in self._layers.items()
                if layer.counting and layer.overlay is not None
            }
        )
        """The experiments whose requests are counted now."""

    def adoption(self, experiment: str, arm: str) -> Adoption | None:
        """What is to be remembered when `arm` is promoted, so that its entries stay; None when there is no such arm."""
        layer = self._layers.get(experiment)
        if layer is None or arm not in layer.arms:
            return None
        selection = self._assignments[layer.experiment.route].everybody(experiment, layer.arms.index(arm))
        policy = selection.policy
        return None if policy is None else Adoption(selection.route, policy.digest, selection.namespace)

    def account(self, request: Request, route: str) -> list[Account]:
        """How `request`, which is on `route`, came to its arm in each experiment that is on it."""
        assignment = self._assignments.get(route)
        canary = self.config.trust.canary
        return [] if assignment is None else [layer.account(request, canary) for layer in assignment.layers]

    def select(self, request: Request) -> Selection:
        """Route, arm, policy and score of `request`. Never raises, whatever the request holds."""
        headers = request.headers
        place = self._index.find(request.authority, request.path, request.method, headers)
        if place is None:
            selection = _NO_ROUTE
        else:
            target = self._targets[place]
            if target.assignment is None:
                selection = target.plain
            else:
                selection = target.assignment.select(request, self.config.trust.canary)
        score_text = headers.get(SCORE_HEADER)
        if score_text is not None and self.config.trust.score.trusts(request.peer):
            score = parse_score(score_text)
            if score is not None:
                return selection._replace(score=score)
        return selection

    def shown_to(self, request: Request) -> CacheStatus:
        """How much of `cache-status` the caller sees."""
        if self._shown is not None:
            return self._shown
        return "full" if self.config.trust.cache_status.trusts(request.peer) else self.config.cache_status

    def revision(self, request: Request) -> str:
        """The revision of the application that answers `request`: part of every key."""
        source = self.config.revision
        if source.kind == "envoyCluster" and request.cluster:
            return request.cluster
        return source.value

    @property
    def homes(self) -> Mapping[str, bytes]:
        """The namespace of each cached route without an experiment: that of an arm which has been promoted there, or
        its own."""
        plain = {target.plain.route: target.plain for target in self._targets if target.assignment is None}
        return {route: selection.namespace for route, selection in plain.items() if selection.policy is not None}

    @property
    def leads(self) -> tuple[tuple[Selection, tuple[Layer, ...]], ...]:
        """Where each of `routes` leads: the selection as it is without experiments, and the experiments on it."""
        return tuple(
            (target.plain, () if target.assignment is None else target.assignment.layers) for target in self._targets
        )

    def lookup_budget(self) -> float:
        """The longest that a look-up through all tiers may take under any policy, in seconds; 0 without policies."""
        return self._lookup_budget

    def longest_wait(self) -> float:
        """The longest that a request may wait for another's answer under any policy, in seconds; 0 for not at all."""
        return self._longest_wait
