"""One compiled set of policies, and what it says about a request. A request keeps the snapshot it began with."""

from __future__ import annotations

import re
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from meshcache.experiment.assignment import AssignedBy, Assigner, cookie_value
from meshcache.policy.identity import Identities
from meshcache.policy.routing import RouteIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from meshcache.experiment.exposure import Exposure
    from meshcache.message import Headers, Request
    from meshcache.policy.compiled import CacheStatus, Config, Experiment, Policy, Route, UnitSource

__all__ = ["SCORE_HEADER", "AssignedBy", "Selection", "Snapshot", "namespace", "parse_score", "unit_of"]

SCORE_HEADER = "x-user-score"
_SCORE = re.compile(r"[-+]?(?:[0-9]{1,20}\.?[0-9]{0,30}|\.[0-9]{1,30})(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)


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


def parse_score(text: str) -> float | None:
    """A score clamped to 0..1; None for anything that is not one finite decimal number."""
    if not _SCORE.fullmatch(text):
        return None
    value = float(text)
    if not isfinite(value):
        return None
    return min(max(value, 0.0), 1.0)


def unit_of(sources: Iterable[UnitSource], headers: Headers) -> bytes | None:
    """The request's unit: the first source that is present and not empty, marked with its kind and name.

    The mark keeps a cookie from standing for the header of the same value.
    """
    for source in sources:
        value = headers.get(source.name) if source.kind == "header" else cookie_value(headers, source.name)
        if value:
            return source.mark + value.encode("utf-8", "surrogatepass")
    return None


class _Assignment:
    """An experiment made ready for requests: every selection it can give is built beforehand."""

    __slots__ = ("assigner", "forced", "hashed", "no_unit", "units")

    def __init__(self, experiment: Experiment, secret: bytes) -> None:
        def selections(how: AssignedBy) -> tuple[Selection, ...]:
            return tuple(
                Selection(
                    route=experiment.route,
                    policy=arm.policy,
                    experiment=experiment.name,
                    arm=arm.name,
                    how=how,
                    namespace=namespace(experiment.route, experiment.name, arm.name),
                )
                for arm in experiment.arms
            )

        self.units = experiment.units
        self.assigner = Assigner(secret, experiment.name, [(arm.name, arm.weight) for arm in experiment.arms])
        self.hashed = selections(AssignedBy.HASHED)
        self.no_unit = selections(AssignedBy.NO_UNIT)[0]
        self.forced = tuple(
            (header, value, selection)
            for arm, selection in zip(experiment.arms, selections(AssignedBy.FORCED), strict=True)
            for header, value in arm.force
        )


class _Target:
    """Where a match leads: a route and what is decided on it."""

    __slots__ = ("assignment", "plain")

    def __init__(self, route: Route, assignment: _Assignment | None) -> None:
        self.plain = Selection(route=route.name, policy=route.policy, namespace=namespace(route.name))
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
    ) -> None:
        """`routes` stand in document order; `secret` keys the assignment to arms and borders, and is not kept."""
        self.generation = generation
        self.digest = digest
        self.config = config
        shows = config.trust.cache_status
        # Who the peer is need not be asked where it makes no difference.
        self._shown: CacheStatus | None = "full" if shows.anyone else config.cache_status if shows.nobody else None
        self.identities = Identities(config.identity, secret)
        """Who the callers are."""
        self.policies: Mapping[str, Policy] = MappingProxyType(dict(policies))
        self._lookup_budget = max((policy.tiers.deadline() for policy in policies.values()), default=0.0)
        self.routes = routes
        self.experiments = experiments
        assignments = {experiment.route: _Assignment(experiment, secret) for experiment in experiments}
        targets = [(route, _Target(route, assignments.get(route.name))) for route in routes]
        self._index = RouteIndex((match, target) for route, target in targets for match in route.matches)

    def select(self, request: Request) -> Selection:
        """Route, arm, policy and score of `request`. Never raises, whatever the request holds."""
        headers = request.headers
        target = self._index.find(request.authority, request.path, request.method, headers)
        if target is None:
            selection = _NO_ROUTE
        elif target.assignment is None:
            selection = target.plain
        else:
            selection = self._assign(target.assignment, request)
        score_text = headers.get(SCORE_HEADER)
        if score_text is not None and self.config.trust.score.trusts(request.peer):
            score = parse_score(score_text)
            if score is not None:
                return selection._replace(score=score)
        return selection

    def _assign(self, assignment: _Assignment, request: Request) -> Selection:
        headers = request.headers
        for header, value, selection in assignment.forced:
            # A header sent twice reads "v1, v2" here and equals no value, since values hold no comma.
            if headers.get(header) == value and self.config.trust.canary.trusts(request.peer):
                return selection
        unit = unit_of(assignment.units, headers)
        if unit is None:
            return assignment.no_unit
        return assignment.hashed[assignment.assigner.choose(unit)]

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

    def lookup_budget(self) -> float:
        """The longest that a look-up through all tiers may take under any policy, in seconds; 0 without policies."""
        return self._lookup_budget
