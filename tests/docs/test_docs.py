"""What the documentation says about fields, metrics, commands and files is so."""

from __future__ import annotations

import re
import shlex
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
import typer
import yaml
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from meshcache.cli.app import COMMANDS, build
from meshcache.decisions import BypassReason, CollapseOutcome, MissReason, NoStoreReason, RefreshOutcome
from meshcache.engine.storing.writer import STORED
from meshcache.observe.metrics import CATALOGUE
from meshcache.policy import units
from meshcache.policy.compile import compile_documents
from meshcache.policy.documents import Documents
from meshcache.policy.models import KINDS
from meshcache.policy.schema import Metadata
from meshcache.tiers.base import Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *DOCS]
POLICIES = ROOT / "docs" / "policies.md"
OPERATIONS = ROOT / "docs" / "operations.md"

FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def section(page: Path, title: str) -> str:
    """The text below a heading of the second level, up to the next one."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{name_of(page)} has no section {title}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows but heads and rulers."""
    lines = [line.strip().strip("|") for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)] for line in lines]
    heads = {index - 1 for index, row in enumerate(cells) if set("".join(row)) <= set("-: ")}
    return [row for index, row in enumerate(cells) if index not in heads and index - 1 not in heads]


# Policy documents


def policy_blocks() -> Iterator[tuple[str, str]]:
    """Every YAML block that is a policy document, by the version that such documents begin with."""
    for page in PAGES:
        for number, block in enumerate(FENCE.finditer(page.read_text())):
            if "apiVersion: meshcache.dev/" in block[3]:
                yield f"{name_of(page)}:{number}", block[3]


@cache
def shipped() -> tuple[dict[str, Any], ...]:
    texts = [path.read_text() for path in sorted((ROOT / "policies").glob("*.yaml"))]
    return tuple(chain.from_iterable(yaml.safe_load_all(text) for text in texts))


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in policy_blocks()])
def test_policy_documents_compile(text: str) -> None:
    own = {(document["kind"], document["metadata"]["name"]) for document in yaml.safe_load_all(text)}
    # An example may refer to the policies and routes that ship.
    others = [
        document
        for document in shipped()
        if document["kind"] in ("CachePolicy", "CacheRoute")
        and (document["kind"], document["metadata"]["name"]) not in own
    ]
    documents = Documents.of([("docs.yaml", text), ("shipped.yaml", yaml.safe_dump_all(others))])
    compile_documents(documents, generation=1, secret=b"")


def test_there_are_examples_of_every_kind() -> None:
    kinds = re.findall(
        r"^kind: (\w+)$", "\n".join(text for name, text in policy_blocks() if "policies.md" in name), re.MULTILINE
    )
    assert set(kinds) == set(KINDS)


# Fields


def inner(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model in a field's type, and whether it stands in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    is_list = getattr(annotation, "__origin__", None) is list
    for argument in get_args(annotation):
        model, nested = inner(argument)
        if model is not None:
            return model, is_list or nested
    return None, is_list


def spec_of(kind: str) -> type[BaseModel]:
    model, _ = inner(KINDS[kind].model_fields["spec"].annotation)
    assert model is not None
    return model


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Path and default of every field that holds a value, a list, or nothing but itself."""
    for key, field in model.model_fields.items():
        path = f"{prefix}{field.alias or key}"
        found, is_list = inner(field.annotation)
        if found is None or is_list or not found.model_fields:
            yield path, field.get_default(call_default_factory=True)
        if found is not None:
            yield from fields(found, f"{path}[]." if is_list else f"{path}.")


def planned(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Path of every field that is refused as not supported yet."""
    for name in getattr(model, "planned", ()):
        yield prefix + name
    for key, field in model.model_fields.items():
        found, is_list = inner(field.annotation)
        if found is not None and found is not Metadata:
            yield from planned(found, f"{prefix}{field.alias or key}{'[]' if is_list else ''}.")


def documented(kind: str) -> dict[str, str]:
    """Field and default by the first table of a kind's section."""
    found = [row for row in rows(section(POLICIES, kind)) if row[0].startswith("`") and row[0][1].islower()]
    return {row[0].strip("`"): row[1].strip("`") for row in found}


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_documented(kind: str) -> None:
    spec = spec_of(kind)
    known = {path for path, _ in fields(spec)}
    # What holds nothing but one list of members is told by its members.
    known -= {path for path in known if path not in documented(kind) and any(p.startswith(f"{path}[].") for p in known)}
    assert set(documented(kind)) == known


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_are_as_documented(kind: str) -> None:
    spec = spec_of(kind)
    for path, default in fields(spec):
        told = documented(kind).get(path)
        if default is PydanticUndefined or default is None or told is None:
            continue
        durations = ("ttl", "Ttl", "deadline", "maxWait", "staleWhileRevalidate", "staleIfError", "staleIfUnreachable")
        durations += (".for", "warmup", "timeout")
        if path.endswith(durations):
            assert units.parse_duration(told) == default, path
        elif path.endswith("Bytes"):
            assert units.parse_quantity(told) == default, path
        elif told.endswith("%") or (path.startswith("placement.") and path.endswith("At")):
            assert units.parse_percent(told) == default, path
        elif told not in ("any", "nobody"):
            assert yaml.safe_load(told) == default, path


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_is_documented(kind: str) -> None:
    told = {row[0]: re.findall(r"`([^`]+)`", row[1]) for row in rows(section(POLICIES, "Not supported yet"))}
    spec = spec_of(kind)
    assert sorted(set(told[kind]) - {"spec", "status"}) == sorted(planned(spec))
    assert {name.removeprefix("metadata.") for name in told["any document"]} == Metadata.planned


# Metrics


def test_the_table_of_metrics_is_the_catalogue() -> None:
    table = [row for row in rows(section(OPERATIONS, "Metrics")) if len(row) == 3]
    told = {row[0].strip("`"): tuple(re.findall(r"`([^`]+)`", row[1])) for row in table}
    assert told == {name: definition.labels for name, definition in CATALOGUE.items()}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_metrics_that_are_named_exist(page: Path) -> None:
    named = set(re.findall(r"\bmeshcache_([a-z][a-z_]*)", page.read_text()))
    # The last one is in Envoy, for the filter's own use.
    known = {*CATALOGUE, "build_info", "filter_drops"}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in named} <= known


@cache
def tiers_source() -> str:
    return "\n".join(path.read_text() for path in sorted((ROOT / "sidecar" / "meshcache" / "tiers").glob("*.py")))


def dropped_writes() -> list[str]:
    """The kinds that stand for writes that were not made, one for each call that reports such a write."""
    return [f"write-{reason}" for reason in re.findall(r'write_dropped\([^")]*"([^"]+)"\)', tiers_source())]


@pytest.mark.parametrize(
    ("title", "values"),
    [
        ("Why a request was not looked up", set(BypassReason)),
        ("Why a request went to the origin", set(MissReason)),
        ("Whether a response was stored", {STORED, *NoStoreReason}),
        ("What became of a request that another one was ahead of", set(CollapseOutcome)),
        ("How a background refresh ended", set(RefreshOutcome)),
        ("What went wrong in a tier", {*Trouble, *dropped_writes()}),
    ],
)
def test_every_reason_is_documented(title: str, values: set[str]) -> None:
    _, _, text = section(OPERATIONS, "Reasons and outcomes").partition(f"### {title}\n")
    table = rows(text.partition("\n### ")[0])
    assert sorted(row[0].strip("`") for row in table) == sorted(str(value) for value in values)
    assert all(len(row) == 3 and all(row) for row in table)


def test_no_dropped_write_is_overlooked() -> None:
    assert len(dropped_writes()) == tiers_source().count("hooks.write_dropped(") > 0


# Links and files


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, made as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name_of(page)}: {target}"
        if anchor:
            assert anchor in anchors(there), f"{name_of(page)}: {target}"


def test_files_of_the_package_that_are_named_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    names = re.findall(r"`((?:[a-z0-9_]+/)+(?:[a-z0-9_]+\.(?:py|zig))?)`", text)
    assert {name.rpartition(".")[2] for name in names} > {"py", "zig"}
    for name in names:
        assert (ROOT / "sidecar" / "meshcache" / name).exists() or (ROOT / name).exists(), name


def test_every_file_of_the_filter_is_told_of() -> None:
    table = section(ROOT / "docs" / "wasm.md", "Where it stands")
    there = {path.stem for path in (ROOT / "wasm" / "src").glob("*.zig") if "test" not in path.stem}
    assert {name for row in rows(table) for name in re.findall(r"`([a-z0-9]+)`", row[1])} == there - {"store_check"}


def test_decisions_are_numbered_without_a_hole_and_listed_by_their_titles() -> None:
    folder = ROOT / "docs" / "decisions"
    pages = sorted(folder.glob("[0-9]*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    titles = [page.read_text().splitlines()[0].removeprefix("# ") for page in pages]
    listed = re.findall(r"^(\d+\. )\[(.+)\]\((.+)\)$", (folder / "README.md").read_text(), re.MULTILINE)
    assert [(number + title, name) for number, title, name in listed] == [
        (title, page.name) for title, page in zip(titles, pages, strict=True)
    ]


# Commands


@cache
def options() -> dict[str, set[str]]:
    """The options of each subcommand, and of the subcommands that it has itself."""

    def of(group: Any, before: str = "") -> Iterator[tuple[str, set[str]]]:
        for name, command in group.commands.items():
            given = chain.from_iterable((*each.opts, *each.secondary_opts) for each in command.params)
            yield f"{before}{name}", {"--help", *given}
            if hasattr(command, "commands"):
                yield from of(command, f"{before}{name} ")

    return dict(of(typer.main.get_command(build(COMMANDS))))


def shown_commands(page: Path) -> Iterator[list[str]]:
    """The words behind `meshcache` wherever a command is shown: in a block's line, or between backticks."""
    text = page.read_text()
    lines = [line.strip().removeprefix("$ ") for block in FENCE.finditer(text) for line in block[3].splitlines()]
    for shown in (*lines, *re.findall(r"`([^`]+)`", FENCE.sub("", text))):
        if shown.startswith("meshcache ") and not re.match(r"meshcache (\d|is )", shown):
            yield shlex.split(shown, comments=True)[1:]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_and_options_that_are_shown_exist(page: Path) -> None:
    for words in shown_commands(page):
        command = words[0]
        if command == "--version":
            continue
        assert command in COMMANDS, f"{name_of(page)}: meshcache {command}"
        given = {word.partition("=")[0] for word in words[1:] if word.startswith("-")}
        own = options().get(" ".join(words[:2]), options()[command])
        assert given <= own, f"{name_of(page)}: {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_in_the_text_exist(page: Path) -> None:
    """An option that stands alone between backticks belongs to some command, of this project or of its own modules."""
    known = set().union(*options().values()) | {"--version", "--check", "--strict"}
    alone = re.findall(r"`(--[a-z][a-z-]*)", FENCE.sub("", page.read_text()))
    assert set(alone) <= known
