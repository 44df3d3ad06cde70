"""JSON Schema (2020-12) of policy documents, for editors, made from the models that check them.

It accepts every document that the parser accepts, and of durations, quantities, percentages and names nothing else.
What depends on several fields at once, or on other documents, is left to `meshcache validate`.
"""

from __future__ import annotations

from collections import defaultdict
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue

from meshcache.policy import models as m
from meshcache.policy import units
from meshcache.policy import values as v
from meshcache.policy.config_models import NamedBy, SessionBy, TrustSource
from meshcache.policy.descriptions import descriptions
from meshcache.policy.experiment_models import Bound, GuardrailModel, Unit
from meshcache.policy.patterns import MAX_PATTERN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic_core import core_schema

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def _text(pattern: str, **more: Any) -> JsonSchemaValue:
    return {"type": "string", "pattern": pattern, **more}


def _whole(pattern: Any, **more: Any) -> JsonSchemaValue:
    return _text(f"^(?:{pattern.pattern})$", **more)


def _any_case(word: str) -> str:
    """A pattern for `word` in any case; JSON Schema knows no flag for that."""
    return "".join(f"[{one.lower()}{one.upper()}]" if one.isalpha() else one for one in word)


_TOKEN = v.TOKEN.pattern
_INTERNAL = f"(?!{_any_case('x-meshcache-')})"
_KEPT = "|".join(map(_any_case, sorted(v.NEVER_STRIPPED)))
_OBEYED = "|".join(map(_any_case, v.OBEYED))
_QUANTITY: Final[JsonSchemaValue] = {
    "anyOf": [{"type": "integer", "minimum": 0, "maximum": units.MAX_BYTES}, _text(units.QUANTITY_PATTERN)]
}
_SOME_BYTES: Final[JsonSchemaValue] = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": units.MAX_BYTES},
        _text(units.QUANTITY_PATTERN.replace("^", "^(?=[0.]*[1-9])", 1)),
    ]
}
_EXPRESSION: Final[JsonSchemaValue] = {"type": "string", "minLength": 1, "maxLength": MAX_PATTERN}

CHECKS: Final[dict[Callable[..., Any], JsonSchemaValue]] = {
    units.parse_duration: _text(units.DURATION_PATTERN),
    units.parse_quantity: _QUANTITY,
    units.parse_percent: {
        "anyOf": [{"const": 0}, {"type": "number", "minimum": 1, "maximum": 100}, _text(units.PERCENT_PATTERN)]
    },
    units.parse_change: _text(units.CHANGE_PATTERN),
    v.name: _whole(v.NAME),
    v.uid: _whole(v.UID),
    v.label_name: _whole(v.LABEL),
    v.header_name: _text(f"^{_INTERNAL}{_TOKEN}$"),
    v.target: _text(f"^{_INTERNAL}(?!(?:{_OBEYED})$){_TOKEN}$"),
    v.stripped_header: _text(f"^{_INTERNAL}(?!{_any_case('x-envoy-')})(?!(?:{_KEPT})$){_TOKEN}$"),
    v.cookie_name: _text(f"^{_TOKEN}$"),
    v.claim: {"type": "string", "minLength": 1, "maxLength": 256},
    v.single_value: _text(r"^[!-+\--~]{1,256}$"),
    v.host_pattern: _text(r"^(?!.*\.\.)(?:\*\.)?[a-zA-Z0-9_](?:[-a-zA-Z0-9_.]*[a-zA-Z0-9_])?\.?$", maxLength=254),
    v.url_path: _text(r'^/[!"$->@-~]{0,1023}$'),
    v.pattern: _EXPRESSION,
    v.path_pattern: _EXPRESSION,
    v.parameter_name: _whole(v.PARAMETER),
    v.parameter_value: _whole(v.PARAMETER_VALUE),
    v.match_method: {"enum": [*v.MATCH_METHODS]},
    v.key_method: {"enum": ["GET", "HEAD"]},
    v.glob: _text(r"^(?:[^*]{1,256}|[^*]{0,255}\*)$"),
    v.amount: {"type": "number", "minimum": 0, "maximum": v.MOST_MONEY},
    v.currency: _whole(v.CURRENCY),
    v.via: _text(f"^(?!.*://)(?:{v.CLUSTER.pattern})$"),
    v.network: {"type": "string"},
    v.listen_address: _whole(v.LISTEN),
    v.warm_url: _text(r"^(?:lmdb|rediss?://.+)$"),
    v.webhook_url: _text(r"^https?://\S+$"),
    v.cold_url: {"type": "string", "minLength": 1},
}
"""What the checks that stand before a field's type accept; of those that are not here the type tells."""

_WORDS: Final[dict[type[BaseModel], tuple[str, ...]]] = {one: one.words for one in (m.Partition, TrustSource)}
"""Models in whose place a word may stand."""

_ONE_OF: Final[dict[type[BaseModel], tuple[str, ...]]] = {
    m.PathMatch: ("exact", "prefix", "regex"),
    m.HeaderMatch: ("exact", "regex"),
    m.QueryMatch: ("exact", "regex"),
    NamedBy: ("jwtClaim", "mtlsPeer"),
    SessionBy: ("jwtClaim", "cookie"),
    Unit: ("header", "cookie"),
    Bound: ("relative", "absolute"),
    GuardrailModel: ("maxIncrease", "maxDecrease"),
}
"""Models of which exactly one of these fields is given."""


class _Generator(GenerateJsonSchema):
    """As pydantic's, but for what stands in a document before it is parsed; no null, which no document may hold."""

    schema_dialect = DIALECT

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        known = CHECKS.get(cast("Callable[..., Any]", schema["function"]["function"]))
        return deepcopy(known) if known is not None else super().function_before_schema(schema)

    def function_wrap_schema(self, schema: core_schema.WrapValidatorFunctionSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        words = _WORDS.get(getattr(schema["function"]["function"], "__self__", BaseModel))
        return {"anyOf": [{"enum": [*words]}, inner]} if words else inner

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        names = _ONE_OF.get(schema["cls"])
        if names:
            made["oneOf"] = [{"required": [name]} for name in names]
        return made

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        # Defaults are values after parsing; the descriptions tell them as they are written.
        return self.generate_inner(schema["schema"])

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - none is
        return False


def document_schema(kind: str | None = None) -> dict[str, Any]:
    """The schema of one kind of document, or of a document of any kind."""
    if kind is not None:
        return {"$schema": DIALECT, **_of_kind(kind)}
    definitions: dict[str, Any] = {}
    for name in m.KINDS:
        made = _of_kind(name)
        definitions |= made.pop("$defs", {})
        definitions[name] = made
    return {
        "$schema": DIALECT,
        "title": "A policy document of meshcache",
        "type": "object",
        "properties": {"kind": {"enum": [*m.KINDS], "description": "What the document says."}},
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": name}}, "required": ["kind"]},
                "then": {"$ref": f"#/$defs/{name}"},
            }
            for name in m.KINDS
        ],
        "$defs": definitions,
    }


def _of_kind(kind: str) -> dict[str, Any]:
    model = m.KINDS[kind]
    mode: JsonSchemaMode = "validation"
    made = model.model_json_schema(by_alias=True, mode=mode, schema_generator=_Generator)
    _tidy(made)
    definitions = made.get("$defs", {})
    told: dict[tuple[str, str], set[str]] = defaultdict(set)
    spec = next(_models(model.model_fields["spec"].annotation))
    for holder, alias, path in _paths(spec):
        told[(holder.__name__, alias)].add(descriptions(kind).get(path, ""))
    for (holder_name, alias), texts in told.items():
        # What several places share has the description of its model only.
        if len(texts) == 1 and (text := texts.pop()):
            holder_schema = definitions[holder_name]
            # In place of some models a word may stand.
            mapping = next((one for one in holder_schema.get("anyOf", ()) if "properties" in one), holder_schema)
            mapping["properties"][alias]["description"] = text
    return made


def _tidy(node: Any) -> None:
    """Leave titles out, and say in the terms of JSON Schema that a quantity has to be above 0."""
    if isinstance(node, list):
        for inner in node:
            _tidy(inner)
    if not isinstance(node, dict):
        return
    if node.pop("gt", None) == 0 and node.get("anyOf") == _QUANTITY["anyOf"]:
        node["anyOf"] = deepcopy(_SOME_BYTES["anyOf"])
    if isinstance(node.get("title"), str):
        del node["title"]
    for inner in node.values():
        _tidy(inner)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in a field's type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _is_list(annotation: Any) -> bool:
    return getattr(annotation, "__origin__", None) is list or any(map(_is_list, get_args(annotation)))


def _paths(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[type[BaseModel], str, str]]:
    """Every field below `model`: the model that holds it, its name there, and its path as the documentation has it."""
    for key, field in model.model_fields.items():
        alias = field.alias or key
        path = f"{prefix}{alias}"
        yield model, alias, path
        for inner in _models(field.annotation):
            yield from _paths(inner, f"{path}[]." if _is_list(field.annotation) else f"{path}.")
