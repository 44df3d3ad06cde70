"""The published schema and the parser say the same of how values are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError, validators

from meshcache.policy import units
from meshcache.policy import values as v
from meshcache.policy.descriptions import read_tables, written
from meshcache.policy.json_schema import CHECKS, DIALECT, document_schema
from meshcache.policy.models import KINDS

ROOT = Path(__file__).parents[2]


def as_python(pattern: str) -> str:
    """An expression of ECMA 262, in which $ is never before a line break at the end."""
    return re.sub(r"\[(?:\\.|[^\]])*\]|\$", lambda found: r"\Z" if found[0] == "$" else found[0], pattern)


def _pattern(_: object, pattern: str, instance: object, __: object) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not re.search(as_python(pattern), instance):
        yield ValidationError(f"{instance!r} does not match {pattern}")


Validator = validators.extend(Draft202012Validator, {"pattern": _pattern})


def accepts(schema: dict[str, Any], value: object) -> bool:
    return not list(Validator(schema).iter_errors(value))


def parses(check: Any, value: object) -> bool:
    try:
        check(value)
    except ValueError:
        return False
    return True


def near(alphabet: str, size: int = 8) -> st.SearchStrategy[str]:
    return st.text(alphabet, max_size=size)


numbers = st.one_of(
    st.integers(-2, 10**16),
    st.floats(-2, 102),
    st.sampled_from([0.0, -0.0, 1e-9, 0.5, 1.0, 100.0000001, 1e16, 99.12345678, float("inf")]),
    st.booleans(),
)
whole = st.one_of(st.integers(-2, 10**16), st.booleans(), st.floats(0, 1, exclude_min=True, exclude_max=True))
"""A number such as 2.0 is whole to JSON Schema, and not to YAML's types."""
TEXTS: dict[Any, st.SearchStrategy[Any]] = {
    units.parse_duration: near("019hms \n.-d", 12),
    units.parse_quantity: st.one_of(near("019.kKMGTi \n-", 10), near("0123456789", 17), whole),
    units.parse_percent: st.one_of(near("0159.% \n-"), numbers),
    units.parse_change: st.one_of(near("0159.% \n-", 10), numbers),
    v.name: near("az09-._A\n", 66),
    v.header_name: st.one_of(near("aZ0-_: \n"), near("aZ0-_: \n").map(lambda text: f"X-MeshCache-{text}")),
    v.cookie_name: near("aZ0=;-\n"),
    v.stripped_header: st.sampled_from(
        [*v.NEVER_STRIPPED, "Range", "x-envoy-a", "X-Envoy-", "x-a", "rang", "ranges", "vias"]
    ),
    v.url_path: near("/a?#%\n é"),
    v.glob: near("a*_\n"),
    v.single_value: near("a,~! \n-+"),
    v.parameter_name: near("a=&# \né;"),
    v.parameter_value: near("a=&# \né;"),
    v.match_method: st.sampled_from(["GET", "get", "PATCH", "LINK", "", "GET\n", 1]),
    v.amount: numbers,
    v.currency: near("AUz1\n", 4),
    v.host_pattern: near("aA*.-_: \n", 8),
    v.via: near("aA:/-.|\n "),
    v.label_name: near("aA_-/.\n "),
}


@pytest.mark.parametrize("check", TEXTS, ids=lambda check: check.__name__)
@given(data=st.data())
@settings(max_examples=20)
def test_the_schema_accepts_what_the_parser_accepts(check: Any, data: st.DataObject) -> None:
    schema = CHECKS[check]
    patterns = [one["pattern"] for one in schema.get("anyOf", [schema]) if "pattern" in one]
    written_well = [st.from_regex(re.compile(as_python(one), re.ASCII)) for one in patterns]
    value = data.draw(st.one_of(TEXTS[check], *written_well))
    assert accepts(schema, value) is parses(check, value), value


def test_every_check_before_a_type_is_known_to_the_schema() -> None:
    found = set()

    def visit(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("type") == "function-before":
                found.add(node["function"]["function"])
            for inner in node.values():
                visit(inner)
        elif isinstance(node, list | tuple):
            for inner in node:
                visit(inner)

    for model in KINDS.values():
        visit(model.__pydantic_core_schema__)
    unknown = {check.__qualname__ for check in found - CHECKS.keys()}
    # `later` tells what is to come from what is a mistake; the type behind it says what there is.
    assert unknown == {"later.<locals>.check"}


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_it_is_a_schema(kind: str | None) -> None:
    schema = document_schema(kind)
    assert schema["$schema"] == DIALECT
    Draft202012Validator.check_schema(schema)

    def visit(node: Any) -> None:
        if isinstance(node, dict):
            assert node.get("type") != "null"
            assert not {"gt", "ge", "title", "default"} & (node.keys() - {"title"} if node is schema else node.keys())
            if node.get("type") == "object" and node is not schema:
                assert node["additionalProperties"] is False
            for inner in node.values():
                visit(inner)
        elif isinstance(node, list):
            for inner in node:
                visit(inner)

    visit(schema)


def test_what_ships_and_what_is_documented_is_accepted() -> None:
    schema = document_schema()
    texts = [path.read_text() for path in sorted((ROOT / "policies").glob("*.yaml"))]
    texts += re.findall(
        r"^```yaml\n(apiVersion: meshcache.*?)^```",
        (ROOT / "docs" / "policies.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    documents = [document for text in texts for document in yaml.safe_load_all(text)]
    assert len(documents) > 15
    for document in documents:
        assert [error.message for error in Validator(schema).iter_errors(document)] == [], document


HEAD = {"apiVersion": "meshcache.dev/v1alpha1", "metadata": {"name": "x"}}


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("CachePolicy", {"freshness": {"maxTtl": 60}}),
        ("CachePolicy", {"freshness": {"maxttl": "60s"}}),
        ("CachePolicy", {"semantic": {}}),
        ("CachePolicy", {"eviction": "lru-k"}),
        ("CachePolicy", {"key": {"partition": ["tenants"]}}),
        ("CachePolicy", {"freshness": {"defaultTtl": None}}),
        ("CacheRoute", {}),
        ("CacheRoute", {"match": []}),
        ("CacheRoute", {"match": [{"path": {"exact": "/a", "regex": "/a"}}]}),
        ("CacheRoute", {"match": [{"path": {}}]}),
        ("CacheRoute", {"match": [{"query": [{"name": "a"}]}]}),
        ("CacheConfig", {"budgets": {"hot": "0Mi"}}),
        ("CacheConfig", {"trust": {"canaryHeader": {"from": ["meshy"]}}}),
        ("CacheConfig", {"identity": {"subject": {}}}),
        ("CacheExperiment", {"routeRef": {"name": "r"}, "unit": [{"header": "a"}], "arms": []}),
        ("CachePolice", {}),
    ],
)
def test_mistakes_that_an_editor_shows(kind: str, spec: dict[str, Any]) -> None:
    assert not accepts(document_schema(), HEAD | {"kind": kind, "spec": spec})
    if kind in KINDS:
        assert not accepts(document_schema(kind), HEAD | {"kind": kind, "spec": spec})


def test_fields_are_described() -> None:
    definitions = document_schema("CachePolicy")["$defs"]
    told = definitions["FreshnessSpec"]["properties"]["staleIfError"]["description"]
    assert told.startswith("So long past its lifetime an answer is given when the origin fails.")
    assert told.endswith("Default: `0s`.")
    assert accepts(
        document_schema("CachePolicy"), HEAD | {"kind": "CachePolicy", "spec": {"placement": {"hotAt": "70%"}}}
    )


def test_descriptions_are_those_of_the_documentation() -> None:
    made = written(read_tables((ROOT / "docs" / "policies.md").read_text()))
    there = (ROOT / "sidecar" / "meshcache" / "policy" / "descriptions.json").read_text()
    assert there == made, "make it anew: python -m meshcache.policy.descriptions docs/policies.md"
