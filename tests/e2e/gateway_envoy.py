"""Envoy as Envoy Gateway sets it up from `istio/envoy-gateway/meshcache.yaml`: nothing of ours is behind ext_proc."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from envoy_data_plane.envoy.config.bootstrap.v3 import Bootstrap

from meshcache.envoy import process
from meshcache.envoy.bootstrap import BootstrapOptions
from meshcache.envoy.process import EnvoyProcess
from meshcache.envoy.render import to_plain

MANIFEST = Path(__file__).resolve().parents[2] / "istio" / "envoy-gateway" / "meshcache.yaml"
_TYPES = "type.googleapis.com/envoy"
_OF_POLICY = "envoyextensionpolicy/default/meshcache"
_WASM = f"envoy.filters.http.wasm/{_OF_POLICY}/wasm/0"
_EXT_PROC = f"envoy.filters.http.ext_proc/{_OF_POLICY}/extproc/0"
_ROUTES = f"{_TYPES}.config.route.v3.RouteConfiguration"


@contextlib.asynccontextmanager
async def gateway(options: BootstrapOptions, folder: Path) -> AsyncIterator[str]:
    """The URL of an Envoy with sockets, module and origin of `options`, and all else by the manifest."""

    def as_gateway(bootstrap: Bootstrap) -> dict[str, Any]:
        return _as_gateway(to_plain(bootstrap), options)

    with mock.patch.object(process, "to_plain", as_gateway):
        envoy = EnvoyProcess(options, folder)
        await envoy.start()
    try:
        await envoy.wait_ready()
        yield f"http://127.0.0.1:{await envoy.listen_port()}"
    finally:
        await envoy.stop()


def _as_gateway(plain: dict[str, Any], options: BootstrapOptions) -> dict[str, Any]:
    objects = {each["kind"]: each["spec"] for each in yaml.safe_load_all(MANIFEST.read_text())}
    manager = plain["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": f"{_TYPES}.extensions.filters.http.router.v3.Router", "suppress_envoy_headers": True},
    }
    plain["layered_runtime"] = yaml.safe_load(objects["EnvoyProxy"]["bootstrap"]["value"])["layered_runtime"]
    policy = objects["EnvoyExtensionPolicy"]
    manager["http_filters"] = [_wasm(policy["wasm"][0], options.wasm), _ext_proc(policy["extProc"][0]), router]
    enabled = {"@type": f"{_TYPES}.config.route.v3.FilterConfig", "config": {}}
    for route in manager["route_config"]["virtual_hosts"][0]["routes"]:
        route["typed_per_filter_config"] = {_WASM: enabled, _EXT_PROC: enabled}
    for patch in objects["EnvoyPatchPolicy"]["jsonPatches"]:
        operation = patch["operation"]
        assert operation["op"] == "add"
        if patch["type"] == _ROUTES:
            manager["route_config"][operation["path"].removeprefix("/")] = operation["value"]
        else:
            assert operation["path"].endswith("/http_filters/0")
            manager["http_filters"].insert(0, operation["value"])
    return plain


def _wasm(said: dict[str, Any], module: Path | None) -> dict[str, Any]:
    code = {"local": {"filename": str(module)}}
    plugin = {
        "name": said["name"],
        "root_id": said["rootID"],
        "fail_open": said["failOpen"],
        "configuration": {
            "@type": "type.googleapis.com/google.protobuf.StringValue",
            "value": json.dumps(said["config"], separators=(",", ":"), sort_keys=True),
        },
        "vm_config": {"vm_id": f"{_OF_POLICY}/wasm/0", "runtime": "envoy.wasm.runtime.v8", "code": code},
    }
    config = {"@type": f"{_TYPES}.extensions.filters.http.wasm.v3.Wasm", "config": plugin}
    # Envoy Gateway has its filters disabled, and enables them on the routes for which they are.
    return {"name": _WASM, "disabled": True, "typed_config": config}


def _ext_proc(said: dict[str, Any]) -> dict[str, Any]:
    mode = said["processingMode"]
    sent = {part: "SEND" if part in mode else "SKIP" for part in ("request", "response")}
    config = {
        "@type": f"{_TYPES}.extensions.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "meshcache", "authority": "meshcache"}, "timeout": "10s"},
        "failure_mode_allow": said["failOpen"],
        "allow_mode_override": mode["allowModeOverride"],
        "message_timeout": f"{int(said['messageTimeout'].removesuffix('ms')) / 1000}s",
        "processing_mode": {
            "request_header_mode": sent["request"],
            "response_header_mode": sent["response"],
            "request_trailer_mode": "SKIP",
            "response_trailer_mode": "SKIP",
        },
        "request_attributes": mode["request"]["attributes"],
        "response_attributes": mode["response"]["attributes"],
        "metadata_options": {"forwarding_namespaces": {"untyped": said["metadata"]["accessibleNamespaces"]}},
    }
    return {"name": _EXT_PROC, "disabled": True, "typed_config": config}
