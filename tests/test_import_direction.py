"""Imports go one way: what a package may import at run time, lowest first. Types alone may come from anywhere."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import meshcache

ROOT = Path(meshcache.__file__).parent

ALLOWED: dict[str, set[str]] = {
    "message": set(),
    "decisions": set(),
    "lookalikes": set(),
    "process": set(),
    "eviction": set(),
    "experiment": set(),
    "observe": set(),
    "rfc": {"message", "decisions"},
    "policy": {"message", "lookalikes", "experiment"},
    "engine": {"message", "decisions", "lookalikes", "rfc", "experiment", "policy"},
    "tiers": {"decisions", "engine", "eviction", "experiment"},
    "wasm": {"message", "decisions", "rfc", "experiment", "policy", "engine"},
    "simulate": {"message", "decisions", "rfc", "eviction", "policy", "engine", "tiers"},
    "envoy": {"policy", "process", "wasm"},
    "rpc": {"process"},
    "admin": {"observe", "process"},
    "demo": {"process"},
    "extproc": {
        *("message", "decisions", "rfc", "experiment", "policy", "engine", "tiers"),
        *("observe", "process", "wasm", "rpc"),
    },
}
"""`cli` is on top and may import everything."""

INSIDE_ENGINE: dict[str, set[str]] = {
    "ranges": set(),
    "collapse": set(),
    "storing": {"ranges"},
    "refresh": {"ranges", "storing"},
    "phases": {"ranges", "storing", "refresh", "collapse"},
    "explain": {"refresh", "collapse"},
}
"""What the packages of `engine`, and `explain`, may import of each other. Its other modules are below them, but for
those that wire."""

WIRING = ("cache", "exchange")

PURE = ("message", "decisions", "lookalikes", "rfc", "engine", "eviction", "experiment", "wasm")
"""No I/O and no protobuf: time, randomness and stores come in as arguments."""

RIM = {ROOT / "wasm" / "building.py", ROOT / "wasm" / "module.py"}
"""What builds and finds the filter's module, which is a file."""

IMPURE = {"asyncio", "socket", "os", "time", "random", "secrets", "pathlib", "threading", "subprocess", "httpx", "grpc"}
IMPURE |= {"envoy", "google", "lmdb", "redis", "starlette", "uvicorn", "structlog", "pydantic", "yaml"}


def files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def package(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else path.stem


def imported(path: Path) -> set[str]:
    """Modules that importing `path`, or calling its functions, imports; not those for type checkers alone."""
    names: set[str] = set()

    class Visitor(ast.NodeVisitor):
        def visit_If(self, node: ast.If) -> None:
            if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
                self.generic_visit(node)

        def visit_Import(self, node: ast.Import) -> None:
            names.update(alias.name for alias in node.names)

        def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
            if node.module == "meshcache":
                names.update(f"meshcache.{alias.name}" for alias in node.names)
            elif node.module:
                names.add(node.module)

    Visitor().visit(ast.parse(path.read_text(encoding="utf-8")))
    return names


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    mine = package(path)
    if mine in ("cli", "__main__", "__init__"):
        return
    targets = {name.split(".")[1] for name in imported(path) if name.startswith("meshcache.")} - {mine, "__version__"}
    assert targets <= ALLOWED[mine], f"{mine} imports {sorted(targets - ALLOWED[mine])}"


@pytest.mark.parametrize(
    "path", [path for path in files() if package(path) == "engine"], ids=lambda path: str(path.relative_to(ROOT))
)
def test_the_parts_of_the_engine_are_in_layers(path: Path) -> None:
    mine = path.relative_to(ROOT / "engine").parts[0].removesuffix(".py")
    if mine in WIRING:
        return
    targets = {name.split(".")[2] for name in imported(path) if name.startswith("meshcache.engine.")} - {mine}
    assert not targets & set(WIRING)
    # What a part may not know is how others write, ask and wait; values and ranges are for all.
    assert targets & set(INSIDE_ENGINE) <= INSIDE_ENGINE.get(mine, {"ranges"})


@pytest.mark.parametrize(
    "path",
    [path for path in files() if package(path) in PURE and path not in RIM],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_the_core_does_no_io(path: Path) -> None:
    outside = {name.split(".")[0] for name in imported(path)} & IMPURE
    assert not outside
