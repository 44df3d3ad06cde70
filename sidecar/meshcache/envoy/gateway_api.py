"""Manifests for Envoy Gateway, of the same parts as those for Istio: an EnvoyExtensionPolicy and what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from meshcache import __version__
from meshcache.envoy import clusters, filters
from meshcache.envoy.bootstrap import PIPELINED
from meshcache.envoy.render import to_plain, to_yaml
from meshcache.wasm import marks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAMESPACE: Final = "envoy-gateway-system"
"""Where Envoy Gateway runs its proxies, and so where their containers are from."""
MODULE_URL: Final = f"http://meshcache-filter.{NAMESPACE}:9464/wasm/meshcache.wasm"
"""Where Envoy Gateway fetches the filter, which it then hands out to its proxies."""
NAME: Final = "meshcache"
_GROUP: Final = "gateway.envoyproxy.io"
_VERSION: Final = f"{_GROUP}/v1alpha1"
_HTTP: Final = "envoy.filters.http."
_REFUSING: Final = ("rbac", "local_ratelimit", "ratelimit")
"""What Envoy Gateway would put behind its extensions: a hit must not come before them."""
_ATTRIBUTES: Final = ("connection.", "source.")
"""Of the attributes that ext_proc is given elsewhere, those that Envoy Gateway lets through."""


def documents(
    sockets: Sequence[Path], socket_dir: Path, *, message_timeout: float, module_sha256: str
) -> list[dict[str, Any]]:
    """The Kubernetes objects. `message_timeout` in seconds; `module_sha256` of the built filter, in hex."""
    return [
        _proxy(socket_dir, message_timeout),
        _object("Backend", {"endpoints": [{"unix": {"path": str(socket)}} for socket in sockets]}),
        _extension_policy(message_timeout, module_sha256),
        _patch_policy(),
    ]


def _proxy(socket_dir: Path, message_timeout: float) -> dict[str, Any]:
    """The order of filters, the filter's cluster, what pipelining needs, the volume that proxy and sidecar share."""
    wasm, ext_proc = f"{_HTTP}wasm", f"{_HTTP}ext_proc"
    order = [{"name": wasm, "after": f"{_HTTP}{name}"} for name in _REFUSING]
    order.append({"name": ext_proc, "after": wasm})
    cluster = to_plain(clusters.filter_cluster(clusters.filter_socket(socket_dir)))
    bootstrap = {"static_resources": {"clusters": [cluster]}, "layered_runtime": to_plain(PIPELINED)}
    volume = {"name": "meshcache-run", "mountPath": str(socket_dir)}
    spec = {
        "filterOrder": order,
        "bootstrap": {"type": "Merge", "value": to_yaml(bootstrap)},
        "provider": {
            "type": "Kubernetes",
            "kubernetes": {
                "envoyDeployment": {
                    "container": {"volumeMounts": [volume]},
                    "pod": {
                        "volumes": [
                            {"name": "meshcache-run", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
                            {"name": "meshcache-data", "emptyDir": {"sizeLimit": "4Gi"}},
                            {"name": "meshcache-policies", "configMap": {"name": "meshcache-policies"}},
                        ]
                    },
                    "initContainers": [_sidecar(volume, message_timeout)],
                }
            },
        },
    }
    return _object("EnvoyProxy", spec)


def _sidecar(volume: dict[str, str], message_timeout: float) -> dict[str, Any]:
    """The container, a native sidecar, with the limits that `istio/injection-values.yaml` gives it."""
    return {
        "name": "meshcache",
        "image": f"meshcache:{__version__}",
        "restartPolicy": "Always",
        "args": [
            "serve",
            "--policies=/etc/meshcache/policies",
            "--data=/var/lib/meshcache",
            f"--socket-dir={volume['mountPath']}",
            "--workers=2",
            "--metrics-listen=0.0.0.0:9464",
            # As the EnvoyExtensionPolicy has it, which no edit of the policies changes.
            f"--lookup-timeout={message_timeout:g}",
        ],
        "ports": [{"name": "meshcache-prom", "containerPort": 9464, "protocol": "TCP"}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 9464}, "periodSeconds": 10, "timeoutSeconds": 3},
        "resources": {"requests": {"cpu": "100m", "memory": "400Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            # The user of Envoy Gateway's proxies: each may open the other's sockets.
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            volume,
            {"name": "meshcache-data", "mountPath": "/var/lib/meshcache"},
            {"name": "meshcache-policies", "mountPath": "/etc/meshcache/policies", "readOnly": True},
        ],
    }


def _extension_policy(message_timeout: float, module_sha256: str) -> dict[str, Any]:
    """The filter and ext_proc, each failing open.

    There is no place for the filters around ext_proc that `filters.cache_filters` has. So the filter adds the header by
    itself by which it asks (`header`), and marks nothing that ext_proc should pass over.
    """
    attributes = [name for name in filters.REQUEST_ATTRIBUTES if name.startswith(_ATTRIBUTES)]
    ext_proc = {
        "backendRefs": [{"group": _GROUP, "kind": "Backend", "name": NAME}],
        "failOpen": True,
        "messageTimeout": f"{round(message_timeout * 1000)}ms",
        "processingMode": {
            "allowModeOverride": True,
            "request": {"attributes": attributes},
            "response": {"attributes": list(filters.RESPONSE_ATTRIBUTES)},
        },
        "metadata": {"accessibleNamespaces": [filters.JWT_METADATA]},
    }
    wasm = {
        "name": NAME,
        "rootID": NAME,
        "code": {"type": "HTTP", "http": {"url": MODULE_URL, "sha256": module_sha256}},
        "config": {**filters.PLUGIN_CONFIGURATION, "header": True},
        "failOpen": True,
    }
    return _object("EnvoyExtensionPolicy", {"targetRefs": [_gateway()], "wasm": [wasm], "extProc": [ext_proc]})


def _patch_policy() -> dict[str, Any]:
    """Keeps internal headers inside, as `filters.outer_strip` and `filters.upstream_filters` do elsewhere.

    Before all filters they are stripped from what clients send and from what goes out. The router, which has no
    filters of its own here, takes off what the filter asks where no sidecar has done it, and what an origin might have
    forged. That leaves alone what the sidecar says in replies of its own: Envoy adds that later.
    """
    strip = _patch(
        "listener.v3.Listener",
        "/default_filter_chain/filters/0/typed_config/http_filters/0",
        to_plain(filters.outer_strip()),
    )
    routes = "route.v3.RouteConfiguration"
    asked = _patch(routes, "/request_headers_to_remove", [marks.ASK])
    forged = _patch(routes, "/response_headers_to_remove", [marks.KEEP, marks.DROP])
    return _object(
        "EnvoyPatchPolicy", {"targetRef": _gateway(), "type": "JSONPatch", "jsonPatches": [strip, asked, forged]}
    )


def _patch(kind: str, path: str, value: object) -> dict[str, Any]:
    return {
        "type": f"type.googleapis.com/envoy.config.{kind}",
        "name": "default/eg/http",
        "operation": {"op": "add", "path": path, "value": value},
    }


def _gateway() -> dict[str, str]:
    return {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "eg"}


def _object(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": NAME}
    if kind == "EnvoyProxy":
        metadata["namespace"] = NAMESPACE
    return {"apiVersion": _VERSION, "kind": kind, "metadata": metadata, "spec": spec}
