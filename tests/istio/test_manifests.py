"""The Istio manifests: what is generated is up to date, what is written by hand fits together."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
import yaml

from filter_module import built_filter
from meshcache.cli.app import build
from meshcache.envoy import filters
from meshcache.envoy.binary import validate_config
from meshcache.envoy.istio import SELECTOR_LABEL, SOCKET_DIR, WORKERS, main, manifests
from meshcache.envoy.render import to_plain
from meshcache.policy.compile import compile_documents
from meshcache.policy.sources import read_files
from meshcache.wasm import module

ROOT = Path(__file__).resolve().parents[2]
ISTIO = ROOT / "istio"
OVERLAYS = ("sidecar", "gateway")
FILES = sorted(ISTIO.rglob("*.yaml"))
CONTEXTS = {"sidecar": "SIDECAR_INBOUND", "gateway": "GATEWAY"}


def load(path):
    return yaml.safe_load(path.read_text())


def patches(overlay, apply_to):
    document = load(ISTIO / "overlays" / overlay / "envoyfilter.yaml")
    return [patch for patch in document["spec"]["configPatches"] if patch["applyTo"] == apply_to]


@pytest.fixture(autouse=True, scope="module")
def _with_the_filter():
    built_filter()


def test_the_generated_files_are_what_the_builders_render():
    for path, text in manifests(ISTIO, ROOT / "policies").items():
        assert path.read_text() == text, f"run: python -m meshcache.envoy.istio istio ({path.name})"


def test_the_generator_wants_a_filter_of_these_sources(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(module, "find", lambda: None)
    assert main([str(tmp_path), "--policies", str(ROOT / "policies")]) == 2
    assert capsys.readouterr().err == "the filter is not built from these sources; try: meshcache wasm build\n"


def test_the_generator_writes_and_its_check_notices_a_difference(tmp_path, capsys):
    arguments = [str(tmp_path), "--policies", str(ROOT / "policies")]
    assert main([*arguments, "--check"]) == 1
    assert main(arguments) == 0
    assert main([*arguments, "--check"]) == 0
    written = tmp_path / "overlays" / "sidecar" / "envoyfilter.yaml"
    written.write_text(written.read_text().replace("RETAIN", "CLEAR"))
    capsys.readouterr()
    assert main([*arguments, "--check"]) == 1
    assert capsys.readouterr().err.strip() == str(written)


def _policy_folder(tmp_path, config):
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "plain.yaml").write_text(
        "# Not a\n# kind: CacheConfig\n"
        "apiVersion: meshcache.dev/v1alpha1\nkind: CachePolicy\nmetadata: {name: plain}\nspec: {eviction: lru}\n"
    )
    (folder / "config.yaml").write_text(config)
    return folder


@pytest.mark.parametrize(
    "config",
    [
        "kind: CacheConfig # ours\napiVersion: meshcache.dev/v1alpha1\nmetadata: {name: default}\nspec: {}\n",
        '{"apiVersion": "meshcache.dev/v1alpha1", "kind": "CacheConfig", "metadata": {"name": "default"}, "spec": {}}',
        "---\n---\napiVersion: meshcache.dev/v1alpha1\nkind: 'CacheConfig'\nmetadata: {name: default}\nspec: {}\n",
    ],
)
def test_the_config_is_left_out_by_what_it_is_not_by_how_it_is_written(tmp_path, config):
    copied = [path for path in manifests(ISTIO, _policy_folder(tmp_path, config)) if path.parent.name == "policies"]
    assert [path.name for path in copied] == ["plain.yaml"]


def test_a_config_among_policies_is_refused(tmp_path, capsys):
    head = "apiVersion: meshcache.dev/v1alpha1\nmetadata: {name: other}\n"
    both = f"{head}kind: CacheConfig\nspec: {{}}\n---\n{head}kind: CachePolicy\nspec: {{eviction: lru}}\n"
    folder = _policy_folder(tmp_path, both)
    assert main([str(tmp_path / "istio"), "--policies", str(folder)]) == 2
    assert "config.yaml: the CacheConfig must stand in a file of its own" in capsys.readouterr().err
    assert not (tmp_path / "istio").exists()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ISTIO)))
def test_every_file_parses(path):
    assert all(isinstance(document, dict) for document in yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("path", sorted(ISTIO.rglob("kustomization.yaml")), ids=lambda path: path.parent.name)
def test_kustomizations_name_files_that_exist_and_lie_inside_their_folder(path):
    document = load(path)
    for resource in document["resources"]:
        target = path.parent / resource
        assert target.is_file() or (target / "kustomization.yaml").is_file()
    for generator in document["configMapGenerator"]:
        for name in generator["files"]:
            assert (path.parent / name).is_file()
            assert ".." not in name


def test_every_policy_that_ships_is_in_the_config_map():
    listed = {Path(name).name for name in load(ISTIO / "base" / "kustomization.yaml")["configMapGenerator"][0]["files"]}
    assert listed == {path.name for path in (ISTIO / "base" / "policies").iterdir()}
    # Everything but the CacheConfig, for which each overlay has its own.
    assert listed == {path.name for path in (ROOT / "policies").glob("*.yaml")} - {"config.yaml"}


def test_the_config_map_keeps_its_name_when_its_contents_change():
    generator = load(ISTIO / "base" / "kustomization.yaml")["configMapGenerator"][0]
    assert generator["options"]["disableNameSuffixHash"] is True


@pytest.mark.parametrize(("overlay", "kind"), [("sidecar", "fixed"), ("gateway", "envoyCluster")])
def test_the_policies_of_each_overlay_compile(overlay, kind):
    documents = read_files([ISTIO / "base" / "policies", ISTIO / "overlays" / overlay / "config.yaml"])
    snapshot = compile_documents(documents, generation=0, secret=b"")
    assert set(snapshot.policies) == {"ttl-only", "lru-swr"}
    # Without a pod there is no label to read: the source is then fixed and empty.
    assert snapshot.config.revision.kind == kind


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_envoy_filter_reaches_only_the_pods_that_hold_the_cache(overlay):
    document = load(ISTIO / "overlays" / overlay / "envoyfilter.yaml")
    assert document["spec"]["workloadSelector"] == {"labels": {SELECTOR_LABEL: overlay}}
    for patch in document["spec"]["configPatches"]:
        assert patch["match"]["context"] == CONTEXTS[overlay]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_cache_is_placed_before_the_router_and_the_strip_before_everything(overlay):
    placed = [
        (patch["patch"]["operation"], patch["patch"]["value"]["name"], _before(patch))
        for patch in patches(overlay, "HTTP_FILTER")
    ]
    assert placed == [
        ("INSERT_FIRST", "meshcache.strip.client", None),
        ("INSERT_BEFORE", "meshcache.ask", "envoy.filters.http.router"),
        ("INSERT_BEFORE", "envoy.filters.http.ext_proc", "envoy.filters.http.router"),
        ("MERGE", "envoy.filters.http.router", "envoy.filters.http.router"),
    ]
    ext_proc = ext_proc_of(overlay)
    assert ext_proc["failure_mode_allow"] is True
    assert ext_proc["grpc_service"]["envoy_grpc"]["authority"] == "meshcache"


def ext_proc_of(overlay):
    """Its configuration, out of what lets requests pass it by."""
    wrapped = patches(overlay, "HTTP_FILTER")[2]["patch"]["value"]["typed_config"]
    return wrapped["extension_config"]["typed_config"]


@pytest.mark.parametrize(("overlay", "mode"), [("sidecar", "SERVER"), ("gateway", "CLIENT")])
def test_the_filter_goes_into_the_same_proxies_and_fails_open(overlay, mode):
    plugin = load(ISTIO / "overlays" / overlay / "wasmplugin.yaml")
    filters = load(ISTIO / "overlays" / overlay / "envoyfilter.yaml")
    spec = plugin["spec"]
    assert spec["selector"]["matchLabels"] == filters["spec"]["workloadSelector"]["labels"]
    assert spec["match"] == [{"mode": mode}]
    assert spec["failStrategy"] == "FAIL_OPEN"
    # No phase, and the lowest priority: behind authorization, and behind every other plugin: one of them may refuse.
    assert "phase" not in spec
    assert spec["priority"] == -(2**31)
    cluster = patches(overlay, "CLUSTER")[1]["patch"]["value"]
    assert spec["pluginConfig"] == {"cluster": cluster["name"]}
    (host,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert host["endpoint"]["address"]["pipe"]["path"] == str(SOCKET_DIR / "filter.sock")


def test_the_filter_is_handed_out_where_the_proxies_look_for_it():
    deployment, service = yaml.safe_load_all((ISTIO / "base" / "filter.yaml").read_text())
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    # Agents fetch it without the mesh's certificates, which a proxy in its pod would ask for.
    assert labels["sidecar.istio.io/inject"] == "false"
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (port,) = service["spec"]["ports"]
    assert port["targetPort"] == container["ports"][0]["name"]
    assert f"--listen=0.0.0.0:{container['ports'][0]['containerPort']}" in container["args"]
    for overlay in OVERLAYS:
        url = load(ISTIO / "overlays" / overlay / "wasmplugin.yaml")["spec"]["url"]
        assert url == f"http://{service['metadata']['name']}:{port['port']}/wasm/meshcache.wasm"
    group, command, *arguments = container["args"]
    parser = typer.main.get_command(build([group, "status"])).commands[group].commands[command]
    assert parser.make_context(command, arguments).params == {"listen": "0.0.0.0:9464"}


@pytest.mark.e2e
@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_envoy_accepts_every_typed_config_where_istiod_puts_it(overlay):
    clusters = [patch["patch"]["value"] for patch in patches(overlay, "CLUSTER")]
    bootstrap = {
        "node": {"id": "test", "cluster": "test"},
        "static_resources": {
            "listeners": [_listener(_apply(patches(overlay, "HTTP_FILTER")))],
            "clusters": [*clusters, _plain_cluster("app")],
        },
    }
    text = json.dumps(bootstrap)
    for name in _types(load(ISTIO / "overlays" / overlay / "envoyfilter.yaml")):
        assert name in text
    assert await validate_config(text) is None


def test_the_canary_is_matched_before_the_rest_and_its_subset_exists():
    routes = load(ISTIO / "base" / "virtualservice.yaml")["spec"]["http"]
    assert routes[0]["match"] == [{"headers": {"x-canary": {"exact": "v2"}}}]
    assert [route["route"][0]["destination"]["subset"] for route in routes] == ["canary", "stable"]
    assert "match" not in routes[1]
    rule = load(ISTIO / "base" / "destinationrule.yaml")["spec"]
    assert {subset["name"]: subset["labels"]["version"] for subset in rule["subsets"]} == {
        "stable": "v1",
        "canary": "v2",
    }
    assert {route["route"][0]["destination"]["host"] for route in routes} == {rule["host"]}


@pytest.mark.parametrize("name", ["meshcache", "meshcache-gateway"])
def test_an_injected_container_is_confined_and_finds_what_it_needs(name):
    spec = _template(name)["spec"]
    (container,) = spec["initContainers"]
    assert container["restartPolicy"] == "Always"
    security = container["securityContext"]
    # istio-proxy's own user: each must be able to open the other's sockets.
    assert (security["runAsUser"], security["runAsGroup"]) == (1337, 1337)
    assert security["runAsNonRoot"] is True
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    volumes = {volume["name"] for volume in spec["volumes"]}
    for mount in container["volumeMounts"]:
        assert mount["name"] in volumes
        assert "subPath" not in mount
    assert f"--workers={WORKERS}" in container["args"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": 9464}
    # It would count for the whole pod, and so take the application down with the cache.
    assert "readinessProbe" not in container
    assert "startupProbe" not in container


@pytest.mark.parametrize("name", ["meshcache", "meshcache-gateway"])
def test_the_injected_arguments_are_ones_that_meshcache_takes(name):
    command, *arguments = _template(name)["spec"]["initContainers"][0]["args"]
    parser = typer.main.get_command(build([command, "status"])).commands[command]
    given = parser.make_context(command, arguments).params
    assert given["socket_dir"] == SOCKET_DIR
    assert given["workers"] == WORKERS


def test_the_sidecar_reads_its_pods_labels_and_refreshes_over_loopback():
    spec = _template("meshcache")["spec"]
    (labels,) = (volume for volume in spec["volumes"] if volume["name"] == "meshcache-podinfo")
    assert labels["downwardAPI"]["items"] == [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    assert "--refresh-url=http://127.0.0.1:8080" in spec["initContainers"][0]["args"]


def test_the_gateway_makes_no_refreshes_of_its_own_and_shares_its_sockets():
    spec = _template("meshcache-gateway")["spec"]
    assert not [argument for argument in spec["initContainers"][0]["args"] if argument.startswith("--refresh-url")]
    (proxy,) = spec["containers"]
    assert {"name": "meshcache-run", "mountPath": str(SOCKET_DIR)} in proxy["volumeMounts"]


@pytest.mark.parametrize(("name", "overlay"), [("meshcache", "sidecar"), ("meshcache-gateway", "gateway")])
def test_the_sidecar_knows_how_long_its_envoy_waits(name, overlay):
    ext_proc = ext_proc_of(overlay)
    seconds = float(ext_proc["message_timeout"].removesuffix("s"))
    assert f"--lookup-timeout={seconds:g}" in _template(name)["spec"]["initContainers"][0]["args"]


@pytest.mark.parametrize("name", ["meshcache", "meshcache-gateway"])
def test_pods_can_share_their_signing_keys(name):
    spec = _template(name)["spec"]
    (container,) = spec["initContainers"]
    (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "meshcache-keys")
    assert f"--keys={mount['mountPath']}" in container["args"]
    (volume,) = (volume for volume in spec["volumes"] if volume["name"] == "meshcache-keys")
    assert volume["secret"] == {"secretName": "meshcache-keys", "optional": True}


def _template(name):
    text = load(ISTIO / "injection-values.yaml")["sidecarInjectorWebhook"]["templates"][name]
    # istiod's `annotation` function gives the pod's annotation, or what stands last when there is none.
    return yaml.safe_load(re.sub(r"\{\{ annotation \.ObjectMeta `[^`]+` `([^`]+)` \}\}", r"\1", text))


def _before(patch):
    return patch["match"]["listener"]["filterChain"]["filter"].get("subFilter", {}).get("name")


def _types(node):
    if isinstance(node, dict):
        if "@type" in node:
            yield node["@type"]
        for value in node.values():
            yield from _types(value)
    elif isinstance(node, list):
        for value in node:
            yield from _types(value)


def _apply(http_patches):
    """The filter chain that comes of the patches, as istiod applies them to one with authorization and the plugin."""
    plugin = filters.wasm(module.MODULE)
    plugin.name = "extenstions.istio.io/wasmplugin/default.meshcache"
    authorization = {
        "name": "envoy.filters.http.rbac",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"},
    }
    router = {"name": "envoy.filters.http.router"}
    chain = [authorization, to_plain(plugin), router]
    for patch in http_patches:
        value = patch["patch"]["value"]
        match patch["patch"]["operation"]:
            case "INSERT_FIRST":
                chain.insert(0, value)
            case "INSERT_BEFORE":
                chain.insert([item["name"] for item in chain].index(_before(patch)), value)
            case "MERGE":
                router.update(value)
    return chain


def _listener(chain):
    manager = {
        "@type": (
            "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
        ),
        "stat_prefix": "inbound",
        "route_config": {
            "virtual_hosts": [
                {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "app"}}]}
            ]
        },
        "http_filters": chain,
    }
    return {
        "name": "inbound",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }


def _plain_cluster(name, *, http2=False):
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 9}}
    cluster = {
        "name": name,
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    }
    if http2:
        cluster["typed_extension_protocol_options"] = {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        }
    return cluster
