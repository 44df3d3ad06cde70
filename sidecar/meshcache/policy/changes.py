"""Which fields of two versions of a document differ in what they mean, with the old and the new text and its place."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meshcache.policy.descriptions import descriptions
from meshcache.policy.values import told_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshcache.policy.documents import Document, Path
    from meshcache.policy.models import Manifest

_DEFAULT = re.compile(r" Default: (.*)\.$")


@dataclass(frozen=True)
class FieldChange:
    """One field that says something else."""

    field: str
    """Its path below `spec`; members of a list of named things by their names: `arms[candidate].weight`."""
    old: str | None
    """As it was written, or the default; None: there was none."""
    new: str | None
    file: str
    """Where the new value stands, or stood when it is gone."""
    line: int
    inherited: bool
    """Whether that is in a policy that this one extends."""


@dataclass(frozen=True)
class _Leaf:
    value: Any
    path: Path


def leaves(value: Any) -> dict[str, _Leaf]:
    """Single values and plain lists of a spec by their names, each with its path in the document."""

    def visit(value: Any, name: str, path: Path) -> Iterator[tuple[str, _Leaf]]:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                yield from visit(inner, f"{name}.{key}" if name else key, (*path, key))
        elif isinstance(value, list) and value and all(isinstance(inner, dict) for inner in value):
            names = [inner.get("name") for inner in value]
            named = None not in names and len(set(map(str, names))) == len(names)
            for index, inner in enumerate(value):
                yield from visit(inner, f"{name}[{names[index] if named else index}]", (*path, index))
        elif value is not None:
            yield name, _Leaf(value, path)

    return dict(visit(value, "", ("spec",)))


def meaning(manifest: Manifest) -> dict[str, _Leaf]:
    """The fields of a manifest as they count, defaults among them."""
    return leaves(manifest.spec.model_dump(mode="json", by_alias=True, exclude={"extends"}))


def field_changes(kind: str, old: tuple[Document, Manifest], new: tuple[Document, Manifest]) -> list[FieldChange]:
    """The fields in which two versions of a document differ, however they are written, in the order of the new one."""
    was, now = meaning(old[1]), meaning(new[1])
    wrote, writes = leaves(old[0].data["spec"]), leaves(new[0].data["spec"])
    found = []
    for name in dict.fromkeys((*now, *was)):
        before, after = was.get(name), now.get(name)
        if before is not None and after is not None and before.value == after.value:
            continue
        document, path = (new[0], writes[name].path) if name in writes else (old[0], ())
        if name not in writes and name in wrote:
            path = wrote[name].path
        at = document.place(path)
        found.append(
            FieldChange(
                name,
                _written(kind, name, wrote, before),
                _written(kind, name, writes, after),
                at.file,
                at.position.line,
                path in document.places,
            )
        )
    return found


def _written(kind: str, name: str, texts: dict[str, _Leaf], parsed: _Leaf | None) -> str | None:
    if name in texts:
        value = texts[name].value
        if isinstance(value, str):
            return told_url(value) if name.endswith("url") else value
        return json.dumps(value, ensure_ascii=False)
    default = _DEFAULT.search(descriptions(kind).get(re.sub(r"\[[^\]]*\]", "[]", name), ""))
    if default is not None:
        return f"{default[1].replace('`', '')} (default)"
    return None if parsed is None else f"{json.dumps(parsed.value)} (default)"
