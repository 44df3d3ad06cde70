"""`extends` of policies: what a policy does not say, its base says.

Mappings are merged field by field, all the way down; a list or a single value of the policy takes the place of the
base's. The result is a document like any other, in which every value knows the file and line where it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from meshcache.policy.documents import Document, dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from meshcache.policy.documents import Path

MAX_CHAIN: Final = 16
"""Most policies in a row of which each extends the next."""
MAX_INHERITED: Final = 500_000
"""Most keys and values that all policies of a set together take from their bases."""

_NAME: Final[Path] = ("spec", "extends", "name")


class Refuse(Protocol):
    """Reports an error at a place of a document."""

    def __call__(self, document: Document, path: Path, message: str, hint: str = "") -> None:
        """Report it."""
        ...


class Resolve(Protocol):
    """Whether a reference leads somewhere; reports it when it does not."""

    def __call__(self, document: Document, path: Path, kind: str, name: str) -> bool:
        """Look it up."""
        ...


def base_of(document: Document) -> str:
    """The name of the policy that `document` extends; empty for none, or when it is not written as a reference."""
    spec = document.data.get("spec")
    extends = spec.get("extends") if isinstance(spec, dict) else None
    name = extends.get("name") if isinstance(extends, dict) else None
    return name if isinstance(name, str) else ""


class Extension:
    """Merges the policies of one set with what they extend."""

    def __init__(self, policies: Mapping[str, Document], resolve: Resolve, refuse: Refuse) -> None:
        """`policies`: each by its name, as they are written."""
        self._policies = policies
        self._resolve = resolve
        self._refuse = refuse
        self._merged: dict[str, Document | None] = {}
        self._inherited = 0

    def merge(self, document: Document, name: str) -> Document | None:
        """`document`, the policy `name`, with what it inherits; None when its base is refused, which is reported."""
        if name in self._merged:
            return self._merged[name]
        chain: list[tuple[str, Document]] = []
        here: Document | None = document
        while here is not None and name not in self._merged:
            if any(name == earlier for earlier, _ in chain):
                self._refuse_cycle([earlier for earlier, _ in chain], name)
                return None
            chain.append((name, here))
            name = base_of(here)
            if name and not self._resolve(here, ("spec", "extends"), "CachePolicy", name):
                self._merged.update((earlier, None) for earlier, _ in chain)
                return None
            here = self._policies.get(name) if name else None
        merged = self._merged.get(name) if name else None
        sound = not name or merged is not None
        for earlier, one in reversed(chain):
            merged = self._onto(merged, one) if sound else None
            sound = merged is not None
            self._merged[earlier] = merged
        return merged

    def _refuse_cycle(self, chain: Sequence[str], name: str) -> None:
        """All in the cycle are refused, and what leads into it; it is told at the first of its members."""
        cycle = [*chain[chain.index(name) :]]
        self._merged.update((member, None) for member in chain)
        order = [*self._policies]
        first = min(cycle, key=order.index)
        turn = cycle.index(first)
        path = " -> ".join([*cycle[turn:], *cycle[:turn], first])
        self._refuse(self._policies[first], _NAME, f"extends itself: {path}", "take one of these extends out")

    def _onto(self, base: Document | None, document: Document) -> Document | None:
        """`document` with what it does not say taken from `base`."""
        spec = document.data.get("spec")
        if base is None or not isinstance(spec, dict):
            return document
        if len(base.bases) + 1 >= MAX_CHAIN:
            message = f"more than {MAX_CHAIN} policies in a row extend one another"
            self._refuse(document, _NAME, message, "let it extend one further down")
            return None
        if self._inherited > MAX_INHERITED:
            return None
        merged = Document(
            document.file, document.data.copy(), document.keys.copy(), document.values.copy(), document.places.copy()
        )
        merged.bases = (base_of(document), *base.bases)
        inherited = base.data.get("spec")
        if isinstance(inherited, dict):
            merged.data["spec"] = self._fields(inherited, spec, ("spec",), base, merged)
        if self._inherited > MAX_INHERITED:
            message = f"with this policy more than {MAX_INHERITED} values are inherited in all"
            self._refuse(document, _NAME, message, "let fewer policies extend one with long lists")
            return None
        return merged

    def _fields(
        self, inherited: dict[str, object], own: dict[str, object], path: Path, base: Document, into: Document
    ) -> dict[str, object]:
        result = own.copy()
        for key, value in inherited.items():
            here = (*path, key)
            if here == ("spec", "extends"):
                continue
            mine = own.get(key)
            if key not in own:
                result[key] = value
                self._place(value, here, base, into)
            elif isinstance(mine, dict) and isinstance(value, dict):
                result[key] = self._fields(value, mine, here, base, into)
        return result

    def _place(self, value: object, path: Path, base: Document, into: Document) -> None:
        """Say of a value of the base, and of all in it, where it stands."""
        self._inherited += 1
        if self._inherited > MAX_INHERITED:
            return
        at = base.place(path)
        into.places[path] = at.file
        into.values[path] = at.position
        if path in base.keys:
            into.keys[path] = base.keys[path]
        if isinstance(value, dict):
            for key, inner in value.items():
                self._place(inner, (*path, key), base, into)
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                self._place(inner, (*path, index), base, into)


class Origin(NamedTuple):
    """A value of a policy as it counts, and where it stands."""

    field: str
    """Its path below `spec`."""
    value: object
    file: str
    line: int


def origins(documents: Iterable[Document], name: str) -> list[Origin]:
    """What the policy `name` says and inherits, of a set that has been found sound; defaults are not in it."""
    policies = {
        metadata["name"]: document
        for document in documents
        if document.data.get("kind") == "CachePolicy" and isinstance(metadata := document.data.get("metadata"), dict)
    }
    merged = Extension(policies, lambda *_: True, lambda *_: None).merge(policies[name], name)
    found: list[Origin] = []

    def visit(value: object, path: Path, of: Document) -> None:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                if (*path, key) != ("spec", "extends"):
                    visit(inner, (*path, key), of)
        elif path != ("spec",):
            file, position = of.place(path)
            found.append(Origin(dotted(path[1:]), value, file, position.line))

    if merged is not None:
        visit(merged.data.get("spec"), ("spec",), merged)
    return found
