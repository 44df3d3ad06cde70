"""Running an edition of the suite: its origin server and its client."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.processes import MeasurementError, accepts, free_port, running
from conformance.editions import HERE, NODE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.editions import Edition

RUN_SECONDS = 600
_PASSED = ("✅", "Y")


@contextmanager
def origin(edition: Edition, folder: Path) -> Iterator[int]:
    """Run the suite's origin server on the loopback address for the length of the block; gives its port."""
    port = free_port()
    # The server reads its options where `npm run` would put them.
    env = {
        "npm_config_protocol": "http",
        "npm_config_port": str(port),
        "npm_config_pidfile": str(folder / "suite-origin.pid"),
    }
    command: list[str | Path] = [NODE, "--require", HERE / "loopback.cjs", edition.server]
    with running("suite-origin", command, ready=accepts(port), folder=folder, env=env):
        yield port


def catalogue(edition: Edition) -> str:
    """Return the suite's tests as JSON text."""
    return _node(HERE / "catalogue.mjs", edition.folder, timeout=300)


def run(edition: Edition, base: str) -> dict[str, Any]:
    """Run the whole suite against the cache at `base` (no slash at the end); gives results by test id."""
    output = _node("--no-warnings", edition.client, timeout=RUN_SECONDS, env=_client_options(base, ""))
    try:
        # Before the results stand lines about requests that failed, each on a line of its own.
        results: dict[str, Any] = json.loads(output[output.index("{\n") :])
    except ValueError as error:
        raise MeasurementError(f"the suite's client printed no results:\n{output[-2000:]}") from error
    return results


def run_one(edition: Edition, base: str, test_id: str) -> str:
    """Run one test; gives the client's protocol of what was sent and received, and the outcome."""
    return _node("--no-warnings", edition.client, timeout=RUN_SECONDS, env=_client_options(base, test_id))


def passes_alone(edition: Edition, base: str, test_id: str) -> bool:
    """Whether a test passes when nothing else runs."""
    last = run_one(edition, base, test_id).rstrip().rpartition("\n")[2]
    return last.startswith(_PASSED)


def _client_options(base: str, test_id: str) -> dict[str, str]:
    return {"npm_config_base": base, "npm_config_id": test_id, "npm_package_config_id": test_id}


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
