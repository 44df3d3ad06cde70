"""One document against its model: the checked manifest, or errors that say where and what in plain words."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from meshcache.policy.models import KINDS, Manifest
from meshcache.policy.schema import API_VERSION, Strict
from meshcache.policy.values import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic_core import ErrorDetails

    from meshcache.policy.documents import Document, Path
    from meshcache.policy.errors import PolicyError

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_FEW = 8
"""Fields of one mapping that are listed to those who have named another one."""
_BOUNDS = {"greater_than": ("gt", "more than"), "greater_than_equal": ("ge", "at least")}
_BOUNDS |= {"less_than": ("lt", "less than"), "less_than_equal": ("le", "at most")}


def check(document: Document) -> tuple[Manifest | None, list[PolicyError]]:
    """The manifest that `document` holds, or None and at least one error. Never raises."""
    kind = document.data.get("kind")
    version = document.data.get("apiVersion")
    if kind is None:
        return None, [document.error(("kind",), "required field is missing", f"one of {', '.join(KINDS)}")]
    model = KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        hint = nearest(str(kind), KINDS) or f"one of {', '.join(KINDS)}"
        return None, [document.error(("kind",), f"unknown kind {shown(kind)}", hint)]
    if version is not None and version != API_VERSION:
        return None, [document.error(("apiVersion",), f"unknown version {shown(version)}", f"write {API_VERSION}")]
    try:
        return model.model_validate(document.data), []
    except ValidationError as error:
        found = error.errors(include_url=False)
        unknown = {one["loc"][:-1] for one in found if one["type"] == "extra_forbidden"}
        # Beside a field that is unknown or not built yet, "required" is most often the same mistake told twice.
        told = [one for one in found if one["type"] != "missing" or one["loc"][:-1] not in unknown]
        return None, [_translate(document, model, one) for one in told]


def _translate(document: Document, model: type[Strict], error: ErrorDetails) -> PolicyError:
    path: Path = tuple(error["loc"])
    kind = error["type"]
    context: dict[str, Any] = error.get("ctx") or {}
    if kind == "extra_forbidden":
        return _unknown(document, model, path)
    if kind == "missing":
        return document.error(path, "required field is missing")
    if kind == "policy":
        return document.error((*path, *context["at"]), context["text"], context["hint"])
    if kind == "value_error":
        return document.error(path, str(context["error"]))
    value = error["input"]
    if kind in _EXPECTED:
        hint = "put it in quotes" if kind == "string_type" and isinstance(value, bool | int | float) else ""
        return document.error(path, f"expected {_EXPECTED[kind]}, got {_described(value)}", hint)
    if kind in ("literal_error", "enum"):
        hint = nearest(value, str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", "))
        return document.error(path, f"expected {context['expected']}, got {_described(value)}", hint)
    if kind == "too_long":
        return document.error(path, f"expected at most {context['max_length']} in the list")
    if kind == "too_short":
        return document.error(path, f"expected at least {context['min_length']} in the list")
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return document.error(path, f"expected {words} {context[key]:g}, got {_described(value)}")
    return document.error(path, error["msg"])


def _unknown(document: Document, model: type[Strict], path: Path) -> PolicyError:
    name = str(path[-1])
    holder = _model_at(model, path[:-1])
    if holder is None:
        return document.error(path, "unknown field", at_key=True)
    if name in holder.planned:
        return document.error(path, "not supported yet", at_key=True)
    known = [field.alias or key for key, field in holder.model_fields.items()]
    hint = holder.hints.get(name) or nearest(name, [*known, *holder.planned])
    if not hint and len(known) <= _FEW:
        hint = f"there {'is' if len(known) == 1 else 'are'} {', '.join(known)}"
    return document.error(path, "unknown field", hint, at_key=True)


def _model_at(model: type[Strict], path: Path) -> type[Strict] | None:
    """The model of the mapping at `path`, found by following the fields' types."""
    here: type[Strict] = model
    for part in path:
        if isinstance(part, int):
            continue
        inner = next((f.annotation for key, f in here.model_fields.items() if (f.alias or key) == part), None)
        found = _model_in(inner)
        if found is None:
            return None
        here = found
    return here


def _model_in(annotation: Any) -> type[Strict] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation if issubclass(annotation, Strict) else None
    return next((found for found in map(_model_in, get_args(annotation)) if found is not None), None)


def nearest(name: object, known: Iterable[str]) -> str:
    """A hint for a name that is not among `known`; empty when none is near."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.6) if isinstance(name, str) and len(name) < 100 else []
    return f"did you mean {close[0]}?" if close else ""


def _described(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return f"the text {shown(value)}" if isinstance(value, str) else shown(value).lower()
