"""Plain Envoy configuration, as dictionaries written as JSON: the origin of a measurement, and peers to calibrate with.

`listener` and `cluster` make up a `bootstrap`; `running_envoy` runs any bootstrap with a single worker thread.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from bench.processes import LOOPBACK, accepts, running
from meshcache.envoy.binary import find_envoy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

Json: TypeAlias = dict[str, Any]

TYPES = "type.googleapis.com/envoy.extensions"
UNLIMITED = 1_000_000
"""For circuit breakers: Envoy's default of 1024 would cut a measurement short."""
FLUSHED = 1.0
"""Seconds after which what Envoy writes to access logs is in the file."""


def listener(name: str, port: int, route: Json, filters: Sequence[Json] = ()) -> Json:
    """Return an HTTP listener on the loopback address with one route, and filters in front of the router."""
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": f"{TYPES}.filters.http.router.v3.Router"},
    }
    manager = {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "generate_request_id": False,
        "http_filters": [*filters, router],
        "route_config": {"virtual_hosts": [{"name": name, "domains": ["*"], "routes": [route]}]},
    }
    return {
        "name": name,
        "address": _address(port),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }


def forward(to: str) -> Json:
    """Return the route of everything to a cluster."""
    return {"match": {"prefix": "/"}, "route": {"cluster": to, "timeout": "60s"}}


def direct_response(body: str, headers: Mapping[str, str]) -> Json:
    """Return a route by which Envoy answers everything by itself."""
    return {
        "match": {"prefix": "/"},
        "direct_response": {"status": 200, "body": {"inline_string": body}},
        "response_headers_to_add": [
            {"header": {"key": name, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
            for name, value in headers.items()
        ],
    }


def cluster(name: str, port: int) -> Json:
    """Return a cluster of one endpoint on the loopback address."""
    endpoint = {"endpoint": {"address": _address(port)}}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
        "circuit_breakers": {
            "thresholds": [{"max_connections": UNLIMITED, "max_pending_requests": UNLIMITED, "max_requests": UNLIMITED}]
        },
    }


def cache_filter() -> Json:
    """Return Envoy's own cache filter, storing in memory."""
    return {
        "name": "envoy.filters.http.cache",
        "typed_config": {
            "@type": f"{TYPES}.filters.http.cache.v3.CacheConfig",
            "typed_config": {"@type": f"{TYPES}.http.cache.simple_http_cache.v3.SimpleHttpCacheConfig"},
        },
    }


def write_failed(listener: Json, log: Path) -> None:
    """Make Envoy write a line to `log` for each answer of this listener by a status of 400 or above: it, and why.

    The lines are there within `FLUSHED` seconds.
    """
    above = {"comparison": {"op": "GE", "value": {"default_value": 400, "runtime_key": "bench.failed"}}}
    told = {
        "name": "failed",
        "filter": {"status_code_filter": above},
        "typed_config": {
            "@type": f"{TYPES}.access_loggers.file.v3.FileAccessLog",
            "path": str(log),
            "log_format": {"text_format_source": {"inline_string": "%RESPONSE_CODE% %RESPONSE_CODE_DETAILS%\n"}},
        },
    }
    for chain in listener["filter_chains"]:
        for each in chain["filters"]:
            each["typed_config"]["access_log"] = [told]


def bootstrap(listeners: Sequence[Json], clusters: Sequence[Json] = (), *, admin: int | None = None) -> Json:
    """Return a whole configuration, with the admin interface on a loopback port if one is given."""
    document: Json = {"static_resources": {"listeners": list(listeners), "clusters": list(clusters)}}
    if admin is not None:
        document["admin"] = {"address": _address(admin)}
    return document


@contextmanager
def running_envoy(name: str, document: Json, folder: Path) -> Iterator[None]:
    """Run Envoy for the length of the block; raises `MeasurementError` if it does not start."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document, indent=1))
    checks = [accepts(port) for port in _ports(document)]
    command: list[str | Path] = [find_envoy(), "--config-path", path, "--concurrency", "1", "--disable-hot-restart"]
    command += ["--log-level", "error", "--file-flush-interval-msec", str(round(FLUSHED * 1e3 / 2))]
    with running(name, command, ready=lambda: all(check() for check in checks), folder=folder):
        yield


def _ports(document: Json) -> list[int]:
    addresses = [each["address"] for each in document["static_resources"]["listeners"]]
    return [address["socket_address"]["port_value"] for address in addresses if "socket_address" in address]


def _address(port: int) -> Json:
    return {"socket_address": {"address": LOOPBACK, "port_value": port}}
