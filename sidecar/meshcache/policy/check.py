"""One document against its model: the checked manifest, or errors that say where and what in plain words."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from meshcache.policy.documents import dotted
from meshcache.policy.models import KINDS, Manifest
from meshcache.policy.schema import API_VERSION, Ref, Strict
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
_YES = frozenset({"yes", "on", "y", "true", "1"})
_NO = frozenset({"no", "off", "n", "false", "0"})


def check(document: Document) -> tuple[Manifest | None, list[PolicyError]]:
    """The manifest that `document` holds, or None and at least one error. Never raises."""
    kind = document.data.get("kind")
    version = document.data.get("apiVersion")
    if kind is None:
        otherwise = next((key for key in document.data if key.lower() == "kind"), None)
        hint = f"write kind, not {otherwise}" if otherwise else f"one of {', '.join(KINDS)}"
        return None, [document.error(("kind",), "required field is missing", hint)]
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
        return document.error(path, "required field is missing", _missing(model, path))
    if kind == "policy":
        return document.error((*path, *context["at"]), context["text"], context["hint"])
    if kind == "value_error":
        return document.error(path, str(context["error"]))
    value = error["input"]
    if kind in _EXPECTED:
        hint = _instead(kind, value, _model_at(model, path))
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
        return document.error(path, f"expected {words} {context[key]:.15g}, got {_described(value)}")
    return document.error(path, error["msg"])


def _unknown(document: Document, model: type[Strict], path: Path) -> PolicyError:
    name = str(path[-1])
    holder = _model_at(model, path[:-1])
    if holder is None:
        return document.error(path, "unknown field", at_key=True)
    if name in holder.planned:
        return document.error(path, "not supported yet", at_key=True)
    known = [field.alias or key for key, field in holder.model_fields.items()]
    hint = holder.hints.get(name) or nearest(name, known) or _elsewhere(document, model, path)
    hint = hint or nearest(name, holder.planned, cutoff=0.8)
    if not hint and len(known) <= _FEW:
        hint = f"there {'is' if len(known) == 1 else 'are'} {', '.join(known)}"
    return document.error(path, "unknown field", hint, at_key=True)


def _elsewhere(document: Document, model: type[Strict], path: Path) -> str:
    """Where a field of this name belongs: in this kind of document, or in another one."""
    name = str(path[-1])
    here = dotted(path[:-1])
    places = [place for place in _places(model, name) if place != here]
    if places:
        return f"it belongs to {' or '.join(places[:3])}"
    kinds = [kind for kind, other in KINDS.items() if "spec" in _places(other, name)] if path[:-1] == ("spec",) else []
    return f"it belongs to a {' or a '.join(kinds)}, this is a {document.data['kind']}" if kinds else ""


def _places(model: type[Strict], name: str, prefix: str = "") -> list[str]:
    """The mappings below `model` that have a field `name`, as error messages write them."""
    found = []
    for key, field in model.model_fields.items():
        alias = field.alias or key
        if alias == name:
            found.append(prefix or "the top of the document")
        inner = _model_in(field.annotation)
        if inner is not None and alias != "metadata":
            among = "[]" if _is_list(field.annotation) else ""
            found += _places(inner, name, f"{prefix}.{alias}{among}" if prefix else f"{alias}{among}")
    return found


def _is_list(annotation: Any) -> bool:
    return getattr(annotation, "__origin__", None) is list or any(map(_is_list, get_args(annotation)))


def _missing(model: type[Strict], path: Path) -> str:
    """What a required field looks like."""
    if path == ("apiVersion",):
        return f"write apiVersion: {API_VERSION}"
    if path in (("metadata",), ("metadata", "name")):
        return "write metadata: {name: ...}"
    holder = _model_at(model, path[:-1])
    fields = holder.model_fields.items() if holder is not None else ()
    annotation = next((field.annotation for key, field in fields if (field.alias or key) == path[-1]), None)
    inner = _model_in(annotation)
    if _is_list(annotation):
        return f"write {path[-1]}: [...]"
    if inner is None:
        return ""
    return f"write {path[-1]}: {{name: ...}}" if inner is Ref else f"write {path[-1]}: {{...}}"


def _instead(kind: str, value: object, model: type[Strict] | None) -> str:
    """What to write in place of a value of the wrong type."""
    if kind == "string_type" and isinstance(value, bool | int | float):
        return "put it in quotes"
    if kind == "list_type" and isinstance(value, str | int | float | bool):
        return f"write [{value}]"
    if kind == "list_type":
        return "put - in front of each member, or [ ] around them"
    if kind == "bool_type" and str(value).lower() in _YES | _NO:
        return f"write {'true' if str(value).lower() in _YES else 'false'}"
    if kind == "int_type" and isinstance(value, str):
        number = value.removesuffix("%")
        return f"write {int(number)}" if number.isdecimal() and number.isascii() and len(number) < 20 else ""
    if kind.startswith(("model", "dict")) and isinstance(value, str):
        if model is Ref:
            return f"write {{name: {value}}}"
        if re.fullmatch(r"[A-Za-z]+:[^\s/]\S*", value):
            return "put a blank behind the colon"
    if kind.startswith(("model", "dict")) and model is not None and len(model.model_fields) <= _FEW:
        names = [field.alias or key for key, field in model.model_fields.items()]
        return f"its field{'s are' if len(names) > 1 else ' is'} {', '.join(names)}"
    return ""


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


def nearest(name: object, known: Iterable[str], cutoff: float = 0.6) -> str:
    """A hint for a name that is not among `known`; empty when none is near, by the ratio of `difflib`."""
    near = isinstance(name, str) and len(name) < 100
    close = get_close_matches(str(name), list(known), n=1, cutoff=cutoff) if near else []
    return f"did you mean {close[0]}?" if close else ""


def _described(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return f"the text {shown(value)}" if isinstance(value, str) else shown(value).lower()
