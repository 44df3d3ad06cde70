"""Several experiments on one route: what each changes of its policy, and what comes out of all together.

A policy is compared with the route's by its fields, as they count after `extends` and defaults. What an experiment's
arms change belongs to it alone, so that arms of different experiments go together in every combination.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Final

from meshcache.policy.check import check
from meshcache.policy.compile_policy import compile_policy
from meshcache.policy.documents import Document, Position, dotted
from meshcache.policy.models import CachePolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from meshcache.policy import compiled as c
    from meshcache.policy.documents import Path
    from meshcache.policy.extends import Refuse
    from meshcache.policy.models import PolicySpec

MAX_COMBINATIONS: Final = 64
"""Of the arms of all experiments on one route: each is a policy and a cache of its own."""

Changes = dict["Path", object]
"""By field: the value as it is written, or `_DEFAULT`."""

_DEFAULT: Final = object()
"""What a policy leaves out, or has without saying so."""


class Combiner:
    """Combines the policies of one set."""

    def __init__(
        self,
        policies: Mapping[str, c.Policy],
        documents: Mapping[str, tuple[Document, CachePolicy]],
        refuse: Refuse,
    ) -> None:
        """`documents`: each policy by name, with what it inherits."""
        self._policies = policies
        self._documents = documents
        self._refuse = refuse
        self._by_digest = {policy.digest: policy for policy in reversed([*policies.values()])}

    def combine_all(
        self, routes: Iterable[c.Route], experiments: Sequence[tuple[Document, c.Experiment]]
    ) -> dict[str, dict[tuple[int, ...], c.Policy]]:
        """By name of each route with several experiments: the policy for every combination of their arms."""
        found = {}
        for route in routes:
            on_it = [pair for pair in experiments if pair[1].route == route.name]
            if len(on_it) > 1:
                found[route.name] = self._combine(route, on_it)
        return found

    def _combine(
        self, route: c.Route, experiments: Sequence[tuple[Document, c.Experiment]]
    ) -> dict[tuple[int, ...], c.Policy]:
        """The policy for every combination of arms, by their places; errors are reported, and then some are missing."""
        name_path: Path = ("spec", "routeRef", "name")
        second = experiments[1][0]
        if route.policy is None:
            message = f"several experiments change the policy of the route {route.name}, which has none"
            self._refuse(second, name_path, message, "give the route a policyRef")
            return {}
        for document, experiment in experiments:
            if experiment.by_key:
                message = f"where keys are assigned, there can be no other experiment on the route {route.name}"
                self._refuse(document, name_path, message, "assign callers in both")
                return {}
        base = route.policy.name
        changes = [[self._changes(base, arm.policy.name) for arm in one.arms] for _, one in experiments]
        if self._conflicts(base, experiments, changes):
            return {}
        for count in range(2, len(experiments) + 1):
            number = prod(len(one.arms) for _, one in experiments[:count])
            if number > MAX_COMBINATIONS:
                message = (
                    f"the arms on the route {route.name} make {number} combinations; the limit is {MAX_COMBINATIONS}"
                )
                self._refuse(experiments[count - 1][0], name_path, message, "let one experiment end first")
                return {}
        return self._all(base, experiments, changes)

    def _changes(self, base: str, name: str) -> Changes:
        """What the policy `name` has other than the policy `base`."""
        if name == base or name not in self._documents or base not in self._documents:
            return {}
        document, manifest = self._documents[name]
        mine, theirs = _fields(manifest.spec), _fields(self._documents[base][1].spec)
        return {
            path: _written(document, path) if path in mine else _DEFAULT
            for path in {**mine, **theirs}
            if path not in mine or path not in theirs or mine[path] != theirs[path]
        }

    def _conflicts(
        self, base: str, experiments: Sequence[tuple[Document, c.Experiment]], changes: Sequence[Sequence[Changes]]
    ) -> bool:
        """Whether two experiments change one field; each is reported, at the arm of the second."""
        owners: dict[Path, str] = {}
        found = False
        for (document, experiment), by_arm in zip(experiments, changes, strict=True):
            told = False
            mine: dict[Path, str] = {}
            for place, changed in enumerate(by_arm):
                for path in changed:
                    other = next((owners[one] for one in owners if _touch(one, path)), None)
                    mine[path] = experiment.name
                    if other is None or told:
                        continue
                    # A baseline that was made by itself has control's policy, and stands nowhere.
                    at: Path = ("spec", "arms", place, "policyRef", "name")
                    message = f"changes {dotted(path)} of the policy {base}, as the experiment {other} does"
                    hint = "experiments on one route have to change different fields"
                    self._refuse(document, at, message, hint)
                    told = found = True
            owners |= mine
        return found

    def _all(
        self, base: str, experiments: Sequence[tuple[Document, c.Experiment]], changes: Sequence[Sequence[Changes]]
    ) -> dict[tuple[int, ...], c.Policy]:
        made: dict[tuple[str, ...], c.Policy | None] = {}
        found: dict[tuple[int, ...], c.Policy] = {}
        for places in product(*(range(len(by_arm)) for by_arm in changes)):
            changed = [by_arm[place] for by_arm, place in zip(changes, places, strict=True)]
            arms = [one.arms[place] for (_, one), place in zip(experiments, places, strict=True)]
            names = tuple(dict.fromkeys(arm.policy.name for arm, change in zip(arms, changed, strict=True) if change))
            if names not in made:
                made[names] = self._one(base, names, changed, experiments[-1][0])
            policy = made[names]
            if policy is not None:
                found[places] = policy
        return found

    def _one(self, base: str, names: tuple[str, ...], changed: Sequence[Changes], last: Document) -> c.Policy | None:
        """The policy `base` with all that is `changed`; None when it would be refused, which is reported."""
        if not names:
            return self._policies[base]
        if len(names) == 1:
            # Everything that this policy has other than the base's is changed: it is this policy.
            return self._policies[names[0]]
        document, _ = self._documents[base]
        written = document.data.get("spec")
        spec = _copied(written) if isinstance(written, dict) else {}
        spec.pop("extends", None)
        # What is left out first: it may make room for what is put in its place.
        settings = [item for change in changed for item in change.items()]
        for path, value in sorted(settings, key=lambda item: item[1] is not _DEFAULT):
            _set(spec, path, value)
        data = {**document.data, "spec": spec}
        manifest, errors = check(Document(document.file, data, values={(): Position(1, 1)}))
        if not isinstance(manifest, CachePolicy):
            told = "; ".join(f"{error.field}: {error.message}" for error in errors)
            message = f"{' and '.join(names)} do not go together on the policy {base}: {told}"
            self._refuse(last, ("spec", "routeRef", "name"), message)
            return None
        policy = compile_policy(manifest)
        return self._by_digest.get(policy.digest) or replace(policy, name="+".join(names))


def _fields(spec: PolicySpec) -> dict[Path, object]:
    """The values of a policy, defaults among them, by path; a list is one value."""
    found: dict[Path, object] = {}

    def visit(value: object, path: Path) -> None:
        if isinstance(value, dict) and (value or not path):
            for key, inner in value.items():
                visit(inner, (*path, key))
        else:
            found[path] = value

    visit(spec.model_dump(mode="json", by_alias=True, exclude={"extends"}), ())
    return found


def _written(document: Document, path: Path) -> object:
    """What stands at `path` below `spec`."""
    here: object = document.data.get("spec")
    for part in path:
        if not isinstance(here, dict) or part not in here:
            return _DEFAULT
        here = here[part]
    return here


def _set(spec: dict[str, object], path: Path, value: object) -> None:
    """Put `value` at `path`, or take out what is there."""
    *parents, last = (str(part) for part in path)
    chain = [spec]
    for part in parents:
        inner = chain[-1].get(part)
        if not isinstance(inner, dict):
            if value is _DEFAULT:
                return
            inner = chain[-1][part] = {}
        chain.append(inner)
    if value is not _DEFAULT:
        chain[-1][last] = _copied(value) if isinstance(value, dict) else value
        return
    chain[-1].pop(last, None)
    for holder, part in zip(reversed(chain[:-1]), reversed(parents), strict=True):
        # An empty mapping would be there, and so more than nothing.
        if holder[part] == {}:
            del holder[part]


def _copied(value: dict[str, object]) -> dict[str, object]:
    return {key: _copied(inner) if isinstance(inner, dict) else inner for key, inner in value.items()}


def _touch(one: Path, other: Path) -> bool:
    """Whether two paths are one field, or one is within the other."""
    return one[: len(other)] == other[: len(one)]
