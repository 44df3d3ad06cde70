"""Experiments made ready for requests: who gets which arm, by the file and by what has been decided since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from meshcache.experiment.assignment import AssignedBy, Assigner, cookie_value
from meshcache.experiment.exposure import Exposure
from meshcache.experiment.overlay import Overlay, Phase
from meshcache.experiment.stages import stage_weights
from meshcache.policy.selection import Selection, namespace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshcache.message import Headers, Request
    from meshcache.policy.compiled import Experiment, UnitSource
    from meshcache.policy.trust import TrustRule

_FORCED, _HASHED, _NO_UNIT, _DECIDED = range(4)
HOW: Final = (AssignedBy.FORCED, AssignedBy.HASHED, AssignedBy.NO_UNIT, AssignedBy.DECIDED)
"""By the number that `Layer.choose` gives."""


def unit_of(sources: Iterable[UnitSource], headers: Headers) -> bytes | None:
    """The request's unit: the first source that is present and not empty, marked with its kind and name.

    The mark keeps a cookie from standing for the header of the same value.
    """
    for source in sources:
        value = headers.get(source.name) if source.kind == "header" else cookie_value(headers, source.name)
        if value:
            return source.mark + value.encode("utf-8", "surrogatepass")
    return None


def binds(overlay: Overlay, experiment: Experiment) -> bool:
    """Whether what was decided is about the experiment as the file in force has it, and can be carried out."""
    arms = experiment.arms
    return (
        overlay.spec_hash == experiment.spec_hash
        and len(overlay.weights) == len(arms)
        and all(weight >= 0 for weight in overlay.weights)
        and any(overlay.weights)
        and (overlay.phase is not Phase.PROMOTED or any(arm.name == overlay.winner for arm in arms))
    )


def written_weights(experiment: Experiment) -> tuple[int, ...]:
    """The arms' weights while nothing has been decided: those of the file, or those of its ramp's first stage."""
    weights = tuple(arm.weight for arm in experiment.arms)
    compare = experiment.compare
    if compare is None or not experiment.ramp:
        return weights
    return stage_weights(weights, compare.candidate, compare.against, experiment.ramp[0].share)


class Layer:
    """One experiment: chooses an arm for each request of its route."""

    __slots__ = ("_assigner", "_counting", "_everybody", "_forced", "_units", "experiment", "overlay", "weights")

    def __init__(self, experiment: Experiment, assigner: Assigner, overlay: Overlay | None = None) -> None:
        """`overlay` is what has been decided; it must bind (`binds`)."""
        self.experiment = experiment
        self.overlay = overlay
        phase = None if overlay is None else overlay.phase
        self._everybody: int | None = None
        """The arm that all have, whatever their unit."""
        if phase in (Phase.STOPPED, Phase.ROLLED_BACK):
            self._everybody = 0
        elif overlay is not None and phase is Phase.PROMOTED:
            self._everybody = self.arms.index(overlay.winner)
        self.weights = written_weights(experiment) if overlay is None else overlay.weights
        """The arms' shares in force, in any measure."""
        if self._everybody is not None:
            self.weights = tuple(int(index == self._everybody) for index in range(len(experiment.arms)))
        self._units = experiment.units
        self._assigner = assigner.weighted(self.weights)
        self._counting = overlay is not None and overlay.counting and self._everybody is None
        self._forced = (
            ()
            if phase is Phase.ROLLED_BACK
            else tuple(
                (header, value, index) for index, arm in enumerate(experiment.arms) for header, value in arm.force
            )
        )

    @property
    def arms(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(arm.name for arm in self.experiment.arms)

    def overlaid(self, overlay: Overlay | None) -> Layer:
        """The same with what has been decided, which must bind; None for nothing."""
        return Layer(self.experiment, self._assigner, overlay)

    @property
    def counting(self) -> bool:
        """Whether requests are counted."""
        return self._counting

    def choose(self, request: Request, canary: TrustRule) -> tuple[int, int, bytes]:
        """How the arm of `request` comes about (a place in `HOW`), its place, and the unit's digest if it counts."""
        headers = request.headers
        for header, value, index in self._forced:
            # A header sent twice reads "v1, v2" here and equals no value, since values hold no comma.
            if headers.get(header) == value and canary.trusts(request.peer):
                return _FORCED, index, b""
        if self._everybody is not None:
            return _DECIDED, self._everybody, b""
        unit = unit_of(self._units, headers)
        if unit is None:
            return _NO_UNIT, 0, b""
        digest = self._assigner.digest(unit)
        return _HASHED, self._assigner.pick(digest), digest if self._counting else b""


def layer_of(experiment: Experiment, secret: bytes) -> Layer:
    """The layer of `experiment` as its file has it."""
    compare = experiment.compare
    group = () if compare is None else (0, compare.candidate, compare.against)
    arms = [(arm.name, arm.weight) for arm in experiment.arms]
    return Layer(experiment, Assigner(secret, experiment.name, arms, group))


class SingleAssignment:
    """The only experiment of a route: every selection that it can give is built beforehand."""

    __slots__ = ("_layer", "_selections")

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
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
                )
                for arm in experiment.arms
            )
            for how in HOW
        )

    def select(self, request: Request, canary: TrustRule) -> Selection:
        """The selection for `request`."""
        how, arm, unit = self._layer.choose(request, canary)
        selection = self._selections[how][arm]
        if unit:
            return selection._replace(exposures=(Exposure(selection.experiment, arm, unit),))
        return selection

    def promoted(self, arm: int) -> Selection:
        """What a request of `arm` gets."""
        return self._selections[_DECIDED][arm]
