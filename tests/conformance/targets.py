"""What the suite can be pointed at: meshcache, and two whose known results tell whether the runner is right."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from envoy_data_plane.envoy.config.core.v3 import DataSource
from envoy_data_plane.envoy.extensions.filters.http.lua.v3 import Lua
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from prometheus_client.parser import text_string_to_metric_families

from bench.envoys import bootstrap, cache_filter, cluster, forward, listener, running_envoy
from bench.paths import READY_SECONDS, built_filter, running_front, running_sidecar
from bench.processes import LOOPBACK, MeasurementError, free_port
from meshcache.envoy.render import pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.envoys import Json

POLICIES = Path(__file__).parent / "policies"
WITHOUT_FILTER = "meshcache-no-wasm"
TARGETS = ("meshcache", WITHOUT_FILTER, "envoy-cache", "proxy")
_PLACEHOLDERS = """
function envoy_on_request(handle)
  local fields = handle:headers()
  if fields:get("pragma") == "foo" then fields:remove("pragma") end
  if fields:get("cache-control") == "nothing-to-see-here" then fields:remove("cache-control") end
end
"""


@contextmanager
def target(name: str, origin_port: int, folder: Path) -> Iterator[str]:
    """Run a target in front of the origin for the length of the block; gives its URL, without a slash at the end."""
    match name:
        case "meshcache" | "meshcache-no-wasm":
            running_target = _meshcache(name, origin_port, folder)
        case "envoy-cache":
            running_target = _plain_envoy(origin_port, folder, [cache_filter()])
        case _:
            running_target = _plain_envoy(origin_port, folder, [])
    with running_target as base:
        yield base


@contextmanager
def _plain_envoy(origin_port: int, folder: Path, filters: Sequence[Json]) -> Iterator[str]:
    port = free_port()
    document = bootstrap([listener("front", port, forward("origin"), filters)], [cluster("origin", origin_port)])
    with running_envoy("envoy", document, folder):
        yield f"http://{LOOPBACK}:{port}"


@contextmanager
def _meshcache(name: str, origin_port: int, folder: Path) -> Iterator[str]:
    """The sidecar, and Envoy with the bootstrap of `meshcache up`."""
    wasm = None if name == WITHOUT_FILTER else built_filter()
    with (
        running_sidecar(folder, name, POLICIES, data=_data(name)) as worker,
        running_front(folder, name, origin_port, worker, [_without_placeholders()], wasm) as base,
    ):
        _wait(_answers_with_cache_status(base))
        yield base


def _data(name: str) -> str:
    return f"data-{name}"


def _without_placeholders() -> HttpFilter:
    """Takes out of requests what the suite writes lest the client's own library write something that counts.

    The filter of meshcache hands on every request with these fields, whatever they say: it would answer nothing here.
    """
    lua = Lua(default_source_code=DataSource(inline_string=_PLACEHOLDERS))
    return HttpFilter(name="envoy.filters.http.lua", typed_config=pack(lua))


def filter_answers(folder: Path) -> int:
    """How many requests to the target `meshcache` the filter has answered so far."""
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(folder / _data("meshcache") / "run" / "admin.sock"))
    ) as admin:
        address = admin.get("http://meshcache/status").json()["metricsAddress"]
    page = httpx.get(f"http://{address}/metrics", trust_env=False).text
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    name, labels = "meshcache_requests_total", {"tier": "wasm"}
    return int(sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items()))


def _wait(check: Callable[[], bool]) -> None:
    until = time.monotonic() + READY_SECONDS
    while not check():
        if time.monotonic() > until:
            raise MeasurementError("meshcache does not answer")
        time.sleep(0.05)


def _answers_with_cache_status(base: str) -> Callable[[], bool]:
    # Envoy listens before the sidecar is in its cluster, and passes requests on without it.
    def check() -> bool:
        try:
            with urllib.request.urlopen(f"{base}/", timeout=2) as response:
                headers = response.headers
        except urllib.error.HTTPError as error:
            headers = error.headers
        except OSError:
            return False
        return "cache-status" in headers

    return check
