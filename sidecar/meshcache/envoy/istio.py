"""The manifests for Istio and Envoy Gateway that hold Envoy configuration, from the same builders as the bootstrap.

`python -m meshcache.envoy.istio istio` writes them into the folder `istio`; with `--check` it only compares.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from envoy_data_plane.envoy.extensions.filters.http.router.v3 import Router
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter

from meshcache.envoy import clusters, filters, gateway_api
from meshcache.envoy.bootstrap import HTTP_CONNECTION_MANAGER
from meshcache.envoy.render import pack, to_plain, to_yaml
from meshcache.envoy.timeouts import message_timeout
from meshcache.policy.compile import compile_documents
from meshcache.policy.documents import parse_file
from meshcache.policy.errors import PolicyErrors
from meshcache.policy.sources import read_files
from meshcache.wasm import module

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Context = Literal["SIDECAR_INBOUND", "GATEWAY"]

SOCKET_DIR = Path("/run/meshcache")
"""The volume that istio-proxy and the sidecar share."""

WORKERS = 2
"""Workers in a pod; the injection template starts as many."""

SELECTOR_LABEL = "meshcache.dev/cache"
MODULE_URL = "http://meshcache-filter:9464/wasm/meshcache.wasm"
"""Where the proxies fetch the filter: `base/filter.yaml`, in the namespace of each overlay.

Not from the container beside them, which starts only when istio-proxy is ready, and that waits for the module."""
LAST = -(2**31)
"""The priority by which the filter stands behind all other plugins of Istio: one of them may be what refuses."""
_HEADER = "# Written by `python -m meshcache.envoy.istio istio`: change the builder, not this file.\n"


@dataclass(frozen=True, slots=True)
class IstioOptions:
    """What the manifests depend on."""

    message_timeout: float
    """Seconds; see `timeouts.message_timeout`."""
    workers: int = WORKERS
    module_sha256: str = ""
    """Of the built filter, in hex."""


def role_of(context: Context) -> str:
    """What a pod's `SELECTOR_LABEL` says."""
    return "sidecar" if context == "SIDECAR_INBOUND" else "gateway"


def envoy_filter(context: Context, options: IstioOptions) -> dict[str, Any]:
    """The EnvoyFilter that puts the cache into one kind of proxy, as a Kubernetes object.

    ext_proc is inserted before the router, thus behind every authentication and authorization filter and behind all
    plugins (`wasm_plugin`), which istiod has put there before patches apply.
    """
    sockets = _sockets(options)
    ext_proc = filters.skippable(filters.ext_proc(message_timeout=options.message_timeout))
    # A merge: what istiod has set on its router stays.
    router = HttpFilter(
        name=filters.ROUTER, typed_config=pack(Router(upstream_http_filters=filters.upstream_filters()))
    )
    patches = [
        _patch("CLUSTER", context, "ADD", to_plain(clusters.sidecar_cluster(sockets))),
        _patch("CLUSTER", context, "ADD", to_plain(clusters.filter_cluster(clusters.filter_socket(SOCKET_DIR)))),
        _patch("HTTP_FILTER", context, "INSERT_FIRST", to_plain(filters.outer_strip()), _filter_match()),
        _patch("HTTP_FILTER", context, "INSERT_BEFORE", to_plain(filters.ask()), _filter_match(filters.ROUTER)),
        _patch("HTTP_FILTER", context, "INSERT_BEFORE", to_plain(ext_proc), _filter_match(filters.ROUTER)),
        _patch("HTTP_FILTER", context, "MERGE", to_plain(router), _filter_match(filters.ROUTER)),
    ]
    role = role_of(context)
    return {
        "apiVersion": "networking.istio.io/v1alpha3",
        "kind": "EnvoyFilter",
        "metadata": {"name": f"meshcache-{role}"},
        "spec": {"workloadSelector": {"labels": {SELECTOR_LABEL: role}}, "configPatches": patches},
    }


def _sockets(options: IstioOptions) -> list[Path]:
    return [SOCKET_DIR / f"worker-{index}.sock" for index in range(options.workers)]


def wasm_plugin(context: Context, options: IstioOptions) -> dict[str, Any]:
    """The WasmPlugin that puts the filter into the same proxies, as a Kubernetes object.

    It names no phase: istiod puts such plugins behind its authorization filters and behind all plugins with a phase,
    and the EnvoyFilter puts ext_proc behind them. Without the module a proxy goes on as if there were no plugin.
    """
    role = role_of(context)
    return {
        "apiVersion": "extensions.istio.io/v1alpha1",
        "kind": "WasmPlugin",
        "metadata": {"name": f"meshcache-{role}"},
        "spec": {
            "selector": {"matchLabels": {SELECTOR_LABEL: role}},
            "url": MODULE_URL,
            "sha256": options.module_sha256,
            "pluginName": "meshcache",
            "pluginConfig": filters.PLUGIN_CONFIGURATION,
            "priority": LAST,
            "failStrategy": "FAIL_OPEN",
            "match": [{"mode": "SERVER" if role == "sidecar" else "CLIENT"}],
        },
    }


def _filter_match(before: str = "") -> dict[str, Any]:
    match: dict[str, Any] = {"name": HTTP_CONNECTION_MANAGER}
    if before:
        match["subFilter"] = {"name": before}
    return {"listener": {"filterChain": {"filter": match}}}


def _patch(
    apply_to: str, context: Context, operation: str, value: dict[str, Any], match: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "applyTo": apply_to,
        "match": {"context": context, **(match or {})},
        "patch": {"operation": operation, "value": value},
    }


def manifests(folder: Path, policies: Path) -> dict[Path, str]:
    """The generated files of the folder `istio` and their contents, for the policies in `policies`.

    The policies are copied, as kustomize reads no file from outside its own folder; not so their CacheConfig, for
    which each overlay has its own. Raises `PolicyErrors` when they do not compile, `ValueError` when the CacheConfig
    shares its file with policies, or the filter is not built.
    """
    documents = read_files([policies])
    snapshot = compile_documents(documents, generation=0, secret=b"")
    built = module.find()
    if built is None or module.fault(built) or not built.current:
        raise ValueError("the filter is not built from these sources; try: meshcache wasm build")
    timeout = message_timeout(snapshot.lookup_budget(), snapshot.longest_wait())
    options = IstioOptions(message_timeout=timeout, module_sha256=built.sha256)
    files = {}
    contexts: tuple[Context, ...] = ("SIDECAR_INBOUND", "GATEWAY")
    for context in contexts:
        overlay = folder / "overlays" / role_of(context)
        files[overlay / "envoyfilter.yaml"] = envoy_filter(context, options)
        files[overlay / "wasmplugin.yaml"] = wasm_plugin(context, options)
    texts = {path: _HEADER + to_yaml(document) for path, document in files.items()}
    for_gateway = gateway_api.documents(
        _sockets(options), SOCKET_DIR, message_timeout=timeout, module_sha256=built.sha256
    )
    texts[folder / "envoy-gateway" / "meshcache.yaml"] = _HEADER + "---\n".join(map(to_yaml, for_gateway))
    for name, text in documents.files:
        if _is_policies(name, text):
            texts[folder / "base" / "policies" / Path(name).name] = text
    return texts


def _is_policies(name: str, text: str) -> bool:
    """Whether the file goes into the base; False for one that holds the CacheConfig and nothing else."""
    kinds = {document.data.get("kind") for document in parse_file(name, text)[0]}
    if "CacheConfig" not in kinds:
        return True
    if len(kinds) > 1:
        msg = f"{name}: the CacheConfig must stand in a file of its own, as each overlay has another"
        raise ValueError(msg)
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or compare the manifests; 1 when a comparison finds a difference, 2 for policies that do not do."""
    parser = argparse.ArgumentParser(prog="python -m meshcache.envoy.istio", description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder that holds base/ and overlays/")
    parser.add_argument("--policies", type=Path, default=Path("policies"), help="the policy files to ship")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file would change")
    given = parser.parse_args(arguments)
    try:
        texts = manifests(given.folder, given.policies)
    except (PolicyErrors, ValueError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - so is this
        return 2
    stale = 0
    for path, text in texts.items():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale = 1
        print(path, file=sys.stderr)  # noqa: T201 - this is the command's output
        if not given.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return stale if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
