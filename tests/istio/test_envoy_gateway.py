"""The manifest for Envoy Gateway: what it holds fits together, and Envoy takes what of it is for Envoy."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from meshcache.envoy.binary import validate_config
from meshcache.envoy.filters import REQUEST_ATTRIBUTES
from meshcache.envoy.istio import SOCKET_DIR, WORKERS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def objects():
    text = (ROOT / "istio" / "envoy-gateway" / "meshcache.yaml").read_text()
    found = list(yaml.safe_load_all(text))
    return {each["kind"]: each["spec"] for each in found}


def test_the_filter_and_ext_proc_fail_open_and_know_each_other(objects):
    policy = objects["EnvoyExtensionPolicy"]
    (wasm,), (ext_proc,) = policy["wasm"], policy["extProc"]
    assert wasm["failOpen"] is ext_proc["failOpen"] is True
    # Nothing of ours stands between the two that could make a header of what it asks.
    assert wasm["config"] == {"cluster": "meshcache-filter", "header": True}
    assert re.fullmatch(r"[0-9a-f]{64}", wasm["code"]["http"]["sha256"])
    assert ext_proc["processingMode"]["allowModeOverride"] is True
    # What the sidecar stores by: only what came from the origin.
    assert ext_proc["processingMode"]["response"]["attributes"] == ["response.code_details"]
    allowed = re.compile(r"(connection\.|source\.|destination\.|request\.|response\.|upstream\.|xds\.route_)[a-z_1-9]*")
    asked = ext_proc["processingMode"]["request"]["attributes"]
    assert all(allowed.fullmatch(name) for name in asked)
    assert set(REQUEST_ATTRIBUTES) - set(asked) == {"xds.cluster_name"}


def test_both_stand_behind_what_refuses(objects):
    """As Envoy Gateway orders filters: each rule moves its filter right behind the named one, where there is one."""
    chain = ["jwt_authn", "ext_proc", "wasm", "rbac", "local_ratelimit", "ratelimit", "router"]
    for rule in objects["EnvoyProxy"]["filterOrder"]:
        name, after = (rule[part].removeprefix("envoy.filters.http.") for part in ("name", "after"))
        chain.remove(name)
        chain.insert(chain.index(after) + 1, name)
    assert chain == ["jwt_authn", "rbac", "local_ratelimit", "ratelimit", "wasm", "ext_proc", "router"]


def test_the_sockets_are_those_of_the_sidecar_beside_it(objects):
    deployment = objects["EnvoyProxy"]["provider"]["kubernetes"]["envoyDeployment"]
    (container,) = deployment["initContainers"]
    assert f"--socket-dir={SOCKET_DIR}" in container["args"]
    assert f"--workers={WORKERS}" in container["args"]
    (ext_proc,) = objects["EnvoyExtensionPolicy"]["extProc"]
    waits = float(ext_proc["messageTimeout"].removesuffix("ms")) / 1000
    assert f"--lookup-timeout={waits:g}" in container["args"]
    paths = [endpoint["unix"]["path"] for endpoint in objects["Backend"]["endpoints"]]
    assert paths == [f"{SOCKET_DIR}/worker-{index}.sock" for index in range(WORKERS)]
    (mount,) = deployment["container"]["volumeMounts"]
    assert mount in container["volumeMounts"]
    volumes = {volume["name"] for volume in deployment["pod"]["volumes"]}
    assert {each["name"] for each in container["volumeMounts"]} == volumes


@pytest.mark.e2e
async def test_envoy_takes_the_cluster_and_the_filter(objects):
    bootstrap = yaml.safe_load(objects["EnvoyProxy"]["bootstrap"]["value"])
    (cluster,) = bootstrap["static_resources"]["clusters"]
    assert cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"] == {
        "pipe": {"path": f"{SOCKET_DIR}/filter.sock"}
    }
    assert bootstrap["layered_runtime"]["layers"]
    patch, *of_routes = objects["EnvoyPatchPolicy"]["jsonPatches"]
    assert patch["operation"]["path"].endswith("/http_filters/0")
    assert {each["type"].rpartition(".")[2] for each in of_routes} == {"RouteConfiguration"}
    routes = {each["operation"]["path"].removeprefix("/"): each["operation"]["value"] for each in of_routes}
    types = "type.googleapis.com/envoy.extensions.filters"
    router = {"name": "router", "typed_config": {"@type": f"{types}.http.router.v3.Router"}}
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "http",
        "route_config": {"virtual_hosts": [], **routes},
        "http_filters": [patch["operation"]["value"], router],
    }
    listener = {
        "name": "http",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "default_filter_chain": {
            "filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
        },
    }
    bootstrap["static_resources"]["listeners"] = [listener]
    assert await validate_config(json.dumps(bootstrap)) is None
