"""What the suite can be pointed at: meshcache, and two whose known results tell whether the runner is right."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.envoys import bootstrap, cache_filter, cluster, forward, listener, running_envoy
from bench.processes import LOOPBACK, free_port, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.envoys import Json

POLICIES = Path(__file__).parent / "policies"
TARGETS = ("meshcache", "envoy-cache", "proxy")


@contextmanager
def target(name: str, origin_port: int, folder: Path) -> Iterator[str]:
    """Run a target in front of the origin for the length of the block; gives its URL, without a slash at the end."""
    port = free_port()
    match name:
        case "meshcache":
            running_target = _meshcache(port, origin_port, folder)
        case "envoy-cache":
            running_target = _plain_envoy(port, origin_port, folder, [cache_filter()])
        case _:
            running_target = _plain_envoy(port, origin_port, folder, [])
    with running_target:
        yield f"http://{LOOPBACK}:{port}"


@contextmanager
def _plain_envoy(port: int, origin_port: int, folder: Path, filters: Sequence[Json]) -> Iterator[None]:
    document = bootstrap([listener("front", port, forward("origin"), filters)], [cluster("origin", origin_port)])
    with running_envoy("envoy", document, folder):
        yield


@contextmanager
def _meshcache(port: int, origin_port: int, folder: Path) -> Iterator[None]:
    command: list[str | Path] = [Path(sys.executable).parent / "meshcache", "up"]
    command += ["--origin", f"http://{LOOPBACK}:{origin_port}", "--listen", f"{LOOPBACK}:{port}"]
    command += ["--policies", POLICIES, "--data", folder / "data", "--metrics-listen", f"{LOOPBACK}:0"]
    with running("meshcache", command, ready=_answers_with_cache_status(port), folder=folder, timeout=60):
        yield


def _answers_with_cache_status(port: int) -> Callable[[], bool]:
    # Envoy listens before the sidecar is in its cluster, and passes requests on without it.
    def check() -> bool:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/", timeout=2) as response:
                headers = response.headers
        except urllib.error.HTTPError as error:
            headers = error.headers
        except OSError:
            return False
        return "cache-status" in headers

    return check
