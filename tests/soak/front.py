"""`meshcache up` with real Envoy, in front of the origin of a soak."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.processes import LOOPBACK, MeasurementError, accepts, free_port, running

if TYPE_CHECKING:
    from collections.abc import Iterator


class Front(NamedTuple):
    """What has been started."""

    port: int
    """Where clients ask."""
    envoy: int
    """The pid of Envoy."""


@contextlib.contextmanager
def meshcache(folder: Path, origin_port: int, policies: str, *options: str) -> Iterator[Front]:
    """Runs it with its files in `folder`, under these policies and with more `options`, until the end of the block."""
    (folder / "policies").mkdir()
    (folder / "policies" / "soak.yaml").write_text(policies)
    port = free_port()
    command: list[str | Path] = [Path(sys.executable).parent / "meshcache", "up", "--log-level", "warning"]
    command += ["--origin", f"http://{LOOPBACK}:{origin_port}", "--listen", f"{LOOPBACK}:{port}"]
    command += ["--policies", folder / "policies", "--data", folder / "data", "--drain-timeout", "2", *options]
    with running("meshcache", command, ready=accepts(port), folder=folder, timeout=90) as process:
        yield Front(port, _envoy(process.pid))


def _envoy(parent: int) -> int:
    """The Envoy among the children of `parent`."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # Other processes may end while this looks.
        with contextlib.suppress(OSError, ValueError):
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            if name == "envoy" and int(rest.split()[1]) == parent:
                return int(stat.parent.name)
    raise MeasurementError("there is no Envoy")
