"""What an edit of the policies changes, and for which traffic: two compiled sets, compared by what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

from meshcache.experiment.shares import moved_share
from meshcache.policy.changes import FieldChange, field_changes, meaning
from meshcache.policy.documents import Document, Position
from meshcache.policy.examples import Moved, moved
from meshcache.policy.hints import budget_warnings
from meshcache.policy.models import KINDS
from meshcache.policy.shadows import warnings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from meshcache.policy.compile import PolicySet
    from meshcache.policy.compiled import Experiment, Policy, Route
    from meshcache.policy.errors import PolicyError
    from meshcache.policy.models import Manifest
    from meshcache.policy.snapshot import Snapshot


class Happened(StrEnum):
    """What has become of a document."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    REACHED = "reached"
    """It is as it was, but something that it uses has changed."""


class Effect(StrEnum):
    """What a change does to traffic and to what is stored."""

    COLD = "starts-cold"
    """What was stored before is not found any more."""
    CACHED = "is-cached"
    """Requests that went to the origin are answered from cache from now on."""
    NOT_CACHED = "is-not-cached"
    SHORTER = "shorter-lifetime"
    """Binds at once, for what is stored as well."""
    LONGER = "longer-lifetime"
    JUDGED_ANEW = "judged-anew"
    """What is stored stays, and is judged by other rules."""
    NEWLY_STORED = "newly-stored"
    """Counts for what is stored from now on."""
    AT_ONCE = "at-once"
    AFTER_RESTART = "after-restart"
    UNITS_MOVE = "units-move"
    """Callers get another arm."""
    STARTS_ANEW = "starts-anew"
    """The experiment forgets what it has seen and decided."""
    UNUSED = "unused"
    """Nothing refers to it."""


@dataclass(frozen=True)
class Consequence:
    """One thing that a change does."""

    effect: Effect
    text: str


@dataclass(frozen=True)
class DocumentChange:
    """A document that is not what it was."""

    kind: str
    name: str
    happened: Happened
    file: str
    line: int
    fields: tuple[FieldChange, ...] = ()
    used_by: tuple[str, ...] = ()
    """For a policy: the routes and arms that work by it, after the change."""
    consequences: tuple[Consequence, ...] = ()


@dataclass(frozen=True)
class Difference:
    """All that an edit changes."""

    changes: tuple[DocumentChange, ...]
    """Configuration, policies, routes, experiments, each in document order; what is gone comes last."""
    traffic: tuple[Moved, ...]
    """Requests, one for each that a match names, that belong to another route or under another policy now."""
    warnings: tuple[PolicyError, ...]
    """Matches of the new set that no request can reach, and that could be reached before or were not there."""

    @property
    def same(self) -> bool:
        """Whether nothing changes for anybody."""
        return not self.changes and not self.traffic


_NEWLY_STORED: Final = ("tiers.hot.maxObjectBytes", "tiers.warm.maxObjectBytes", "tiers.cold.maxObjectBytes")
_LIFETIMES: Final = (
    *(f"freshness.{name}" for name in ("defaultTtl", "maxTtl", "staleWhileRevalidate", "staleIfError")),
    *("freshness.staleIfUnreachable", "freshness.heuristic", "tiers.hot.ttl", "tiers.warm.ttl", "tiers.cold.ttl"),
)
_RESTARTS: Final = ("stores.", "budgets.", "admin.")
_CONFIG: Final = "CacheConfig"
_Side = tuple["Document", "Manifest"]
N = TypeVar("N", "Route", "Experiment")


def difference(old: PolicySet, new: PolicySet) -> Difference:
    """What changes from `old` to `new`."""
    return _Comparison(old, new).difference()


def _by_name(policies: PolicySet) -> dict[tuple[str, str], _Side]:
    # Of configurations there is one at most: its name tells it from no other one.
    return {
        (manifest.kind, "" if manifest.kind == _CONFIG else manifest.metadata.name): (document, manifest)
        for document, manifest in policies.manifests
    }


def _silent(config: _Side) -> _Side:
    """A configuration that says nothing, which is what holds where there is none."""
    document, manifest = config
    data = document.data | {"spec": {}}
    return Document(document.file, data, values={(): Position(1, 1)}), type(manifest).model_validate(data)


class _Comparison:
    def __init__(self, old: PolicySet, new: PolicySet) -> None:
        self._old = old.snapshot
        self._new = new.snapshot
        self._sides = (_by_name(old), _by_name(new))

    def difference(self) -> Difference:
        before, after = self._sides
        order = list(KINDS)
        there = sorted(dict.fromkeys((*after, *before)), key=lambda one: order.index(one[0]))
        found = (self._document(kind, name) for kind, name in there)
        changes = tuple(one for one in found if one is not None)
        documents = [document for document, _ in after.values()]
        fresh = warnings(documents, self._new.routes, known=self._old.routes)
        if self._new.config.filter_bytes != self._old.config.filter_bytes:
            fresh += budget_warnings(documents, self._new.config)
        return Difference(changes, tuple(moved(self._old, self._new)), tuple(fresh))

    def _document(self, kind: str, name: str) -> DocumentChange | None:
        old, new = (side.get((kind, name)) for side in self._sides)
        there = new or old
        if there is None:
            return None
        happened = Happened.ADDED if old is None else Happened.REMOVED if new is None else Happened.CHANGED
        if kind == _CONFIG:
            old, new = old or _silent(there), new or _silent(there)
        fields = tuple(field_changes(kind, old, new)) if old is not None and new is not None else ()
        consequences = tuple(self._consequences(kind, name, fields))
        if (happened is Happened.CHANGED or kind == _CONFIG) and not fields:
            if not consequences:
                return None
            happened = Happened.REACHED
        used_by = tuple(self._users(name)) if kind == "CachePolicy" else ()
        if kind == "CachePolicy" and happened is not Happened.REMOVED and not used_by:
            consequences = (Consequence(Effect.UNUSED, "no route and no arm works by it"),)
        document, manifest = there
        file, (line, _) = document.place(("metadata", "name"))
        return DocumentChange(kind, manifest.metadata.name, happened, file, line, fields, used_by, consequences)

    def _users(self, policy: str) -> Iterator[str]:
        for route in self._new.routes:
            if route.policy is not None and route.policy.name == policy:
                yield f"route {route.name}"
        for experiment in self._new.experiments:
            for arm in experiment.arms:
                if arm.policy.name == policy:
                    yield f"arm {arm.name} of {experiment.name} on route {experiment.route}"

    def _consequences(self, kind: str, name: str, fields: Sequence[FieldChange]) -> Iterator[Consequence]:
        if kind == "CachePolicy":
            old, new = self._old.policies.get(name), self._new.policies.get(name)
            if old is not None and new is not None and fields:
                yield from _of_policy(old, new, fields, self._numbers(name))
        elif kind == "CacheRoute":
            yield from self._of_route(_named(self._old.routes, name), _named(self._new.routes, name))
        elif kind == "CacheExperiment":
            yield from self._of_experiment(_named(self._old.experiments, name), _named(self._new.experiments, name))
        else:
            yield from self._of_config(fields)

    def _numbers(self, policy: str) -> dict[str, tuple[float | None, float | None]]:
        """The lifetimes of a policy before and after, in seconds (`heuristic`: a share)."""
        was, now = (meaning(side[("CachePolicy", policy)][1]) for side in self._sides)
        return {
            name: (was[name].value if name in was else None, now[name].value if name in now else None)
            for name in _LIFETIMES
        }

    def _of_route(self, old: Route | None, new: Route | None) -> Iterator[Consequence]:
        if new is None:
            yield Consequence(Effect.COLD, "what it has stored is not used any more, by whichever route comes instead")
            return
        if old is None:
            if new.policy is not None:
                yield Consequence(Effect.COLD, "it begins with an empty cache, also for what another route has stored")
            return
        before, after = old.policy, new.policy
        if before is None and after is not None:
            yield Consequence(Effect.CACHED, "its answers are cached from now on")
        elif before is not None and after is None:
            yield Consequence(Effect.NOT_CACHED, "all of its requests go to the origin")
        elif before is not None and after is not None and before.name != after.name:
            if before.key.fingerprint != after.key.fingerprint:
                yield Consequence(Effect.COLD, f"{after.name} makes other keys than {before.name}: it begins empty")
            else:
                text = f"what is stored stays, and is judged by {after.name} from now on"
                yield Consequence(Effect.JUDGED_ANEW, text)

    def _of_experiment(self, old: Experiment | None, new: Experiment | None) -> Iterator[Consequence]:
        if new is None:
            if old is not None:
                yield Consequence(Effect.COLD, f"route {old.route} goes on without what the arms have stored")
                yield Consequence(Effect.UNITS_MOVE, f"all callers get the policy of route {old.route}")
            return
        weights = dict(zip((arm.name for arm in new.arms), self._new.weights[new.name], strict=True))
        if old is None:
            yield Consequence(Effect.UNITS_MOVE, f"divides route {new.route}: {_shares(weights)}")
            yield Consequence(Effect.COLD, "each arm begins with an empty cache of its own")
            return
        if (old.spec_hash, old.uid) != (new.spec_hash, new.uid):
            text = (
                "what was counted and decided about it before counts no more (its text or a policy of it has changed)"
            )
            yield Consequence(Effect.STARTS_ANEW, text)
        before = dict(zip((arm.name for arm in old.arms), self._old.weights[old.name], strict=True))
        if old.route != new.route:
            yield Consequence(Effect.COLD, f"its arms begin empty on route {new.route}")
        elif self._neighbours(self._old, new) != self._neighbours(self._new, new):
            beside = " and ".join(sorted(self._neighbours(self._new, new))) or "no other experiment"
            text = f"its arms begin empty, as it stands beside {beside} on route {new.route} from now on"
            yield Consequence(Effect.COLD, text)
        if old.units != new.units:
            text = "who a caller is, is read from elsewhere: callers may get another arm"
            yield Consequence(Effect.UNITS_MOVE, text)
        share = moved_share(before, weights)
        if share > 0.00005:
            text = f"{share:.1%} of the units change their arm: {_shares(before)}, then {_shares(weights)}"
            yield Consequence(Effect.UNITS_MOVE, text)
        added = [name for name in weights if name not in before]
        if added:
            yield Consequence(Effect.COLD, f"{', '.join(added)} begin{'s' if len(added) == 1 else ''} empty")
        policies = {arm.name: arm.policy for arm in old.arms}
        for arm in new.arms:
            other = policies.get(arm.name)
            if other is not None and other.key.fingerprint != arm.policy.key.fingerprint:
                yield Consequence(Effect.COLD, f"the policy of {arm.name} makes other keys: it begins empty")

    @staticmethod
    def _neighbours(snapshot: Snapshot, experiment: Experiment) -> set[str]:
        """The other experiments on its route: they are part of where its arms store."""
        on_it = (one.name for one in snapshot.experiments if one.route == experiment.route)
        return {name for name in on_it if name != experiment.name}

    def _of_config(self, fields: Sequence[FieldChange]) -> Iterator[Consequence]:
        names = [one.field for one in fields]
        late = [name for name in names if name.startswith(_RESTARTS)]
        if late:
            yield Consequence(Effect.AFTER_RESTART, f"{', '.join(late)}: in effect after a restart of the sidecar")
        if any(name.startswith("revision") for name in names):
            yield Consequence(Effect.COLD, "the revision is in every key: everything begins empty if it is another one")
        borders = [word for word in ("tenant", "subject", "session") if any(f"identity.{word}" in n for n in names)]
        for word in borders:
            behind = [one.name for one in self._new.policies.values() if getattr(one.key, f"partition_{word}")]
            if behind:
                text = f"who a {word} is, is read from elsewhere: {', '.join(behind)} begin empty"
                yield Consequence(Effect.COLD, text)
        soon = [name for name in names if name not in late and not name.startswith(("revision", "identity"))]
        if soon:
            yield Consequence(Effect.AT_ONCE, f"{', '.join(soon)}: in effect at once")


def _of_policy(
    old: Policy,
    new: Policy,
    fields: Sequence[FieldChange],
    numbers: Mapping[str, tuple[float | None, float | None]],
) -> Iterator[Consequence]:
    names = [one.field for one in fields]
    if old.key.fingerprint != new.key.fingerprint:
        yield Consequence(Effect.COLD, "its keys are made in another way: all that works by it begins empty")
    shorter: list[str] = []
    longer: list[str] = []
    for name, (before, after) in numbers.items():
        if name in names:
            # Without a longest lifetime there is no bound; without a default there is no lifetime.
            missing = float("inf") if name == "freshness.maxTtl" else 0.0
            was, now = (missing if value is None else value for value in (before, after))
            (shorter if now < was else longer).append(name)
    if shorter:
        yield Consequence(Effect.SHORTER, f"{', '.join(shorter)}: shorter, at once for what is stored as well")
    if longer:
        yield Consequence(Effect.LONGER, f"{', '.join(longer)}: longer, also for what is still stored")
    anew = [n for n in names if n.startswith("freshness.") and n not in numbers and n != "freshness.refreshAhead"]
    if anew:
        yield Consequence(
            Effect.JUDGED_ANEW, f"{', '.join(anew)}: what is stored stays, and is judged by the new rules"
        )
    later = [name for name in names if name in _NEWLY_STORED or name.startswith("placement.")]
    if later:
        yield Consequence(Effect.NEWLY_STORED, f"{', '.join(later)}: for what is stored from now on")
    told = {*shorter, *longer, *anew, *later}
    rest = [name for name in names if name not in told and (not name.startswith("key.") or name == "key.methods")]
    if rest:
        yield Consequence(Effect.AT_ONCE, f"{', '.join(rest)}: in effect at once")


def _named(among: Iterable[N], name: str) -> N | None:
    return next((one for one in among if one.name == name), None)


def _shares(weights: Mapping[str, float]) -> str:
    total = sum(weights.values())
    return ", ".join(f"{name} {100 * weight / total:.3g}%" for name, weight in weights.items())
