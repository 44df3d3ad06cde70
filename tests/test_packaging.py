"""What pyproject.toml declares is what the code uses, and the version has one home."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import meshcache
from filter_module import built_filter
from meshcache.wasm import building

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]

USED_BY_OTHERS = {"hiredis"}
"""Declared and imported by no module here: redis uses it when it is there."""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(requirements: list[str]) -> set[str]:
    return {normal(re.match(r"[A-Za-z0-9._-]+", line)[0]) for line in requirements}


def imported(*folders: str) -> set[str]:
    """Top-level modules from outside the standard library and outside this repository."""
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    # Tests import their helpers by the bare name; inside the package, names are full.
    own = {"meshcache", "bench"} | {path.stem for path in files if "sidecar" not in path.parts}
    own |= {path.parent.name for path in files if path.name == "__init__.py" and "sidecar" not in path.parts}
    names: set[str] = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module)
    roots = {name.partition(".")[0] for name in names}
    return roots - sys.stdlib_module_names - own


PROVIDERS = importlib.metadata.packages_distributions()


def distributions(module: str) -> set[str]:
    """The distributions that provide a module; several may share a namespace."""
    return {normal(name) for name in PROVIDERS.get(module, ())}


def test_what_the_package_imports_is_declared():
    found = {module: distributions(module) for module in imported("sidecar")}
    assert {"grpc", "msgspec", "yaml"} <= set(found)
    missing = {module for module, names in found.items() if not names & declared(PROJECT["dependencies"])}
    assert not missing


def test_what_is_declared_is_imported():
    used = set().union(*(distributions(module) for module in imported("sidecar")))
    assert declared(PROJECT["dependencies"]) - used == USED_BY_OTHERS


def test_what_tests_and_bench_import_is_declared():
    given = declared([*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]])
    missing = {module for module in imported("tests", "bench") if not distributions(module) & given}
    assert not missing


@pytest.mark.parametrize("line", [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]])
def test_every_requirement_has_a_lower_bound(line):
    # The compiler is pinned to one version: another gives other bytes.
    assert ">=" in line or line.startswith("ziglang==")


def test_constraints_pin_what_is_declared():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = declared([line for line in lines if line and not line.startswith("#")])
    extras = PROJECT["optional-dependencies"]
    everything = [*PROJECT["dependencies"], *PYPROJECT["build-system"]["requires"]]
    everything += [line for extra in extras.values() for line in extra]
    assert declared(everything) <= pinned


def test_the_compiler_is_one_and_the_same_everywhere():
    line = f"ziglang=={building.ZIG}"
    assert line in PYPROJECT["build-system"]["requires"]
    assert line in PROJECT["optional-dependencies"]["dev"]
    assert line in (ROOT / "constraints.txt").read_text().splitlines()
    assert f"'{line}'" in (ROOT / "Makefile").read_text()


def test_the_version_is_the_packages_own():
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    assert importlib.metadata.version("meshcache") == meshcache.__version__


@pytest.mark.parametrize(
    "name",
    [
        "Dockerfile",
        "istio/injection-values.yaml",
        "istio/base/filter.yaml",
        "istio/envoy-gateway/meshcache.yaml",
        "docs/istio.md",
    ],
)
def test_images_are_named_by_that_version(name):
    found = set(re.findall(r"\bmeshcache(?:-filter)?:([0-9][\w.-]*)", (ROOT / name).read_text()))
    assert found == {meshcache.__version__}


def hatch(folder: Path, target: str) -> Path:
    """Build `target` of the sources in `folder`, as pip would; the file."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder / "out")]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (folder / "out").iterdir()
    return built


def copied(folder: Path) -> Path:
    """The sources as git has them, in so far as they are the package's."""
    for name in ("sidecar", "wasm", "policies"):
        unbuilt = shutil.ignore_patterns("*.wasm", "__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=unbuilt)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore"):
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.mark.slow
def test_the_filter_is_in_a_wheel_of_a_source_distribution_of_the_sources(tmp_path):
    sdist = hatch(copied(tmp_path / "clone"), "sdist")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        assert {"wasm/src/main.zig", "hatch_build.py"} <= names
        assert not [name for name in names if name.endswith(".wasm")]
        archive.extractall(tmp_path, filter="data")
    wheel = hatch(tmp_path / sdist.name.removesuffix(".tar.gz"), "wheel")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        module = archive.read("meshcache/wasm/meshcache.wasm")
        assert archive.read("meshcache/wasm/src/main.zig") == (ROOT / "wasm" / "src" / "main.zig").read_bytes()
    assert module == built_filter().read_bytes()


@pytest.mark.slow
def test_a_build_that_fails_says_so_in_a_line(tmp_path):
    folder = copied(tmp_path / "clone")
    (folder / "wasm" / "src" / "main.zig").write_text("nonsense")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "main.zig:1:1: error" in done.stderr
    assert done.stderr.splitlines()[-1] == f"meshcache: zig 0.17.1 does not compile {folder}/wasm/src/main.zig"
