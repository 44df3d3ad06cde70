"""One experiment made ready for requests: who gets which arm, by the file and by what has been decided since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from meshcache.experiment.assignment import AssignedBy, Assigner, cookie_value
from meshcache.experiment.links import unit_in_use
from meshcache.experiment.overlay import Overlay, Phase
from meshcache.experiment.stages import weights_of
from meshcache.policy.identity import named

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshcache.experiment.assignment import Draws
    from meshcache.experiment.links import Links
    from meshcache.message import Request
    from meshcache.policy.compiled import Experiment, UnitSource
    from meshcache.policy.identity import IdentitySource
    from meshcache.policy.trust import TrustRule

FORCED, HASHED, NO_UNIT, DECIDED = range(4)
HOW: Final = (AssignedBy.FORCED, AssignedBy.HASHED, AssignedBy.NO_UNIT, AssignedBy.DECIDED)
"""By the number that `Layer.choose` gives."""

_BY_KEY: Final = b"cacheKey:\0"


def value_of(source: UnitSource, request: Request, subject: IdentitySource | None) -> bytes | None:
    """What `request` says of `source`, marked with kind and name; None for nothing.

    The mark keeps a cookie from standing for the header of the same value. `subject` is where it stands who a verified
    caller is; the issuer who vouches for him goes with his name.
    """
    if source.kind == "subject":
        person = named(subject, request)
        if person is None:
            return None
        issuer = person.issuer.encode("utf-8", "surrogatepass")
        return b"%b%d:%b%b" % (source.mark, len(issuer), issuer, person.value.encode("utf-8", "surrogatepass"))
    headers = request.headers
    value = headers.get(source.name) if source.kind == "header" else cookie_value(headers, source.name)
    return source.mark + value.encode("utf-8", "surrogatepass") if value else None


def unit_of(sources: Iterable[UnitSource], request: Request, subject: IdentitySource | None = None) -> bytes | None:
    """The first of `sources` that `request` carries."""
    for source in sources:
        # Said once more than in `value_of`, as it is what most requests are asked.
        if source.kind == "header":
            text = request.headers.get(source.name)
            if text:
                return source.mark + text.encode("utf-8", "surrogatepass")
            continue
        value = value_of(source, request, subject)
        if value:
            return value
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


class Account(NamedTuple):
    """How a request came to its arm in one experiment, for people."""

    experiment: Experiment
    how: AssignedBy
    arm: str
    source: UnitSource | None
    """What its unit was taken from, when it was hashed; None for a unit that another kind had been given before."""
    linked: bool
    """Whether the unit is not the preferred one of those that the request carries, but that of an earlier request."""
    overlay: Overlay | None
    weights: tuple[int, ...]


class Layer:
    """One experiment: chooses an arm for each request of its route."""

    __slots__ = (
        "_assigner",
        "_links",
        "_subject",
        "_units",
        "by_key",
        "counting",
        "everybody",
        "experiment",
        "forced",
        "overlay",
        "weights",
    )

    def __init__(
        self,
        experiment: Experiment,
        assigner: Assigner,
        subject: IdentitySource | None,
        links: Links | None,
        overlay: Overlay | None = None,
    ) -> None:
        """`overlay` is what has been decided; it must bind (`binds`)."""
        self.experiment = experiment
        self.overlay = overlay
        self._subject = subject
        self._units = experiment.units
        # Without a memory the kinds are taken by preference; where there is only one, nothing needs to be remembered.
        self._links = links if len(experiment.units) > 1 else None
        phase = None if overlay is None else overlay.phase
        self.everybody: int | None = None
        """The arm that all have, whatever their unit."""
        if phase in (Phase.STOPPED, Phase.ROLLED_BACK):
            self.everybody = 0
        elif overlay is not None and phase is Phase.PROMOTED:
            self.everybody = self.arms.index(overlay.winner)
        self.weights = weights_of(experiment, 0) if overlay is None else overlay.weights
        """The arms' shares in force, in any measure."""
        if self.everybody is not None:
            self.weights = tuple(int(index == self.everybody) for index in range(len(experiment.arms)))
        self._assigner = assigner.weighted(self.weights)
        self.counting = overlay is not None and overlay.counting and self.everybody is None
        """Whether requests are counted."""
        self.by_key = experiment.by_key and self.everybody is None
        """Whether the arm of a request that is not forced depends on its key (`choose_by_key`)."""
        forced = experiment.arms if phase is not Phase.ROLLED_BACK else ()
        self.forced = tuple((header, value, place) for place, arm in enumerate(forced) for header, value in arm.force)
        """Headers whose value sends a trusted caller to the arm at a place; the first that is there counts."""

    @property
    def arms(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(arm.name for arm in self.experiment.arms)

    @property
    def draws(self) -> Draws:
        """How units are assigned under the weights in force. Secret."""
        return self._assigner.draws

    def overlaid(self, overlay: Overlay | None) -> Layer:
        """The same with what has been decided, which must bind; None for nothing."""
        return Layer(self.experiment, self._assigner, self._subject, self._links, overlay)

    def choose(self, request: Request, canary: TrustRule) -> tuple[int, int, bytes]:
        """How the arm of `request` comes about (a place in `HOW`), its place, and the unit's digest if it counts.

        Where keys are assigned, one that is hashed is still to be chosen (`choose_by_key`).
        """
        headers = request.headers
        for header, value, place in self.forced:
            # A header sent twice reads "v1, v2" here and equals no value, since values hold no comma.
            if headers.get(header) == value and canary.trusts(request.peer):
                return FORCED, place, b""
        if self.everybody is not None:
            return DECIDED, self.everybody, b""
        if self.by_key:
            return HASHED, 0, b""
        assigner = self._assigner
        if self._links is None:
            unit = unit_of(self._units, request, self._subject)
            digest = None if unit is None else assigner.digest(unit)
        else:
            digest = self._linked(request, self._links)
        if digest is None:
            return NO_UNIT, 0, b""
        return HASHED, assigner.pick(digest), digest if self.counting else b""

    def choose_by_key(self, key: bytes) -> tuple[int, bytes]:
        """The place of the arm of `key`, and its digest as a unit if it counts."""
        digest = self._assigner.digest(_BY_KEY + key)
        return self._assigner.pick(digest), digest if self.counting else b""

    def _linked(self, request: Request, links: Links) -> bytes | None:
        """The digest of the unit in whose place the request's units are used."""
        digests = [self._assigner.digest(value) for _, value in self._carried(request)]
        return unit_in_use(digests, links) if digests else None

    def _carried(self, request: Request) -> list[tuple[UnitSource, bytes]]:
        """The units that the request carries, the preferred one first."""
        found = ((source, value_of(source, request, self._subject)) for source in self._units)
        return [(source, value) for source, value in found if value is not None]

    def account(self, request: Request, canary: TrustRule) -> Account:
        """The same as `choose` with the reasons."""
        how, place, _ = self.choose(request, canary)
        source, linked = None, False
        if how == HASHED and not self.by_key:
            carried = self._carried(request)
            source = carried[0][0]
            if self._links is not None:
                used = self._linked(request, self._links)
                by_digest = {self._assigner.digest(value): one for one, value in carried}
                preferred, source = source, by_digest.get(used or b"")
                linked = source is not preferred
        arm = "" if how == HASHED and self.by_key else self.experiment.arms[place].name
        return Account(self.experiment, HOW[how], arm, source, linked, self.overlay, self.weights)


def layer_of(experiment: Experiment, secret: bytes, subject: IdentitySource | None, links: Links | None) -> Layer:
    """The layer of `experiment` as its file has it."""
    compare = experiment.compare
    group = () if compare is None else (0, compare.candidate, compare.against)
    arms = [(arm.name, arm.weight) for arm in experiment.arms]
    return Layer(experiment, Assigner(secret, experiment.name, arms, group), subject, links)
