"""What a route's experiments make of a request: selections that are built beforehand as far as they can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from meshcache.experiment.assignment import AssignedBy
from meshcache.experiment.exposure import Exposure
from meshcache.policy.layers import HASHED, HOW, NO_UNIT
from meshcache.policy.selection import Selection, layered_namespace, namespace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshcache.message import Request
    from meshcache.policy.compiled import Policy
    from meshcache.policy.layers import Layer
    from meshcache.policy.trust import TrustRule


class Assignment(Protocol):
    """The experiments of one route."""

    layers: tuple[Layer, ...]

    def select(self, request: Request, canary: TrustRule) -> Selection:
        """The selection for `request`; `canary` says whose headers may force an arm."""
        ...

    def everybody(self, experiment: str, arm: int) -> Selection:
        """What all get that have that arm of `experiment`, and of others what is decided, or control."""
        ...


class SingleAssignment:
    """The only experiment of a route: an arm's policy counts as a whole."""

    __slots__ = ("_layer", "_pending", "_selections", "layers")

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self.layers: tuple[Layer, ...] = (layer,)
        experiment = layer.experiment
        self._selections = tuple(
            tuple(
                Selection(
                    route=experiment.route,
                    policy=arm.policy,
                    experiment=experiment.name,
                    arm=arm.name,
                    how=how,
                    namespace=namespace(experiment.route, experiment.name, arm.name),
                    missing=(experiment.name,) if how is AssignedBy.NO_UNIT else (),
                )
                for arm in experiment.arms
            )
            for how in HOW
        )
        control = self._selections[HASHED][0]
        self._pending = control._replace(arm="", namespace=b"", by_key=self) if layer.by_key else None

    def select(self, request: Request, canary: TrustRule) -> Selection:
        """See `Assignment`."""
        how, arm, unit = self._layer.choose(request, canary)
        if how == HASHED and self._pending is not None:
            return self._pending
        selection = self._selections[how][arm]
        if unit:
            return selection._replace(exposures=(Exposure(selection.experiment, arm, unit),))
        return selection

    def choose(self, key: bytes) -> Selection:
        """See `ByKey`."""
        arm, unit = self._layer.choose_by_key(key)
        selection = self._selections[HASHED][arm]
        if unit:
            return selection._replace(exposures=(Exposure(selection.experiment, arm, unit),))
        return selection

    def everybody(self, experiment: str, arm: int) -> Selection:  # noqa: ARG002 - there is one
        """See `Assignment`."""
        return self._selections[HASHED][arm]


class LayeredAssignment:
    """Several experiments on one route, each with a hash of its own: of each, what its arm changes counts."""

    __slots__ = ("_combined", "_experiments", "_route", "layers")

    def __init__(self, route: str, layers: Sequence[Layer], policies: Mapping[tuple[int, ...], Policy]) -> None:
        """`policies`: what comes out by the arms' places, one for each of `layers`."""
        self._route = route
        self.layers = tuple(layers)
        self._experiments = "+".join(layer.experiment.name for layer in layers)
        self._combined: dict[tuple[int, ...], tuple[Policy, str, bytes]] = {}
        for places, policy in policies.items():
            arms = [layer.experiment.arms[place].name for layer, place in zip(layers, places, strict=True)]
            pairs = [(layer.experiment.name, arm) for layer, arm in zip(layers, arms, strict=True)]
            self._combined[places] = policy, "+".join(arms), layered_namespace(route, pairs)

    def select(self, request: Request, canary: TrustRule) -> Selection:
        """See `Assignment`."""
        places: list[int] = []
        hows: set[int] = set()
        exposures: tuple[Exposure, ...] = ()
        missing: tuple[str, ...] = ()
        for layer in self.layers:
            how, place, unit = layer.choose(request, canary)
            places.append(place)
            hows.add(how)
            if unit:
                exposures += (Exposure(layer.experiment.name, place, unit),)
            elif how == NO_UNIT:
                missing += (layer.experiment.name,)
        how_all = HOW[hows.pop()] if len(hows) == 1 else AssignedBy.LAYERED
        return self._selection(tuple(places), how_all, exposures, missing)

    def everybody(self, experiment: str, arm: int) -> Selection:
        """See `Assignment`."""
        places = (arm if layer.experiment.name == experiment else layer.everybody or 0 for layer in self.layers)
        return self._selection(tuple(places), AssignedBy.DECIDED)

    def _selection(
        self,
        places: tuple[int, ...],
        how: AssignedBy,
        exposures: tuple[Exposure, ...] = (),
        missing: tuple[str, ...] = (),
    ) -> Selection:
        policy, arms, home = self._combined[places]
        return Selection(self._route, policy, self._experiments, arms, how, None, home, exposures, missing)
