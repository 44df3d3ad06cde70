"""The command `envoy-config`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from filter_module import built_filter
from meshcache.cli.app import COMMANDS, CommandError, build
from meshcache.cli.envoy_config import envoy_config
from meshcache.envoy.binary import validate_config
from meshcache.envoy.bootstrap import BootstrapOptions, Origin, build_bootstrap
from meshcache.envoy.render import to_json, to_plain
from meshcache.wasm import module


def run(*arguments):
    if "--wasm" not in arguments:
        arguments = (*arguments, "--no-wasm")
    return run_as_given(*arguments)


def run_as_given(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(envoy_config)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_it_is_a_subcommand_of_meshcache():
    app = build(COMMANDS)
    assert "--socket-dir" in CliRunner().invoke(app, ["envoy-config", "--help"]).output


@pytest.mark.e2e
@pytest.mark.parametrize("flags", [(), ("--json",)])
async def test_the_bootstrap_is_one_that_envoy_accepts(flags):
    result = run("--origin", "http://127.0.0.1:9000", "--workers", 3, *flags)
    assert result.exit_code == 0, result.output
    plain = yaml.safe_load(result.output)
    assert len(plain["static_resources"]["clusters"][0]["load_assignment"]["endpoints"][0]["lb_endpoints"]) == 3
    assert await validate_config(json.dumps(plain)) is None


@pytest.mark.e2e
async def test_the_filters_fit_into_an_envoy_of_ones_own(options):
    parts = json.loads(run("--format", "filter", "--json").output)
    assert "layered_runtime" not in parts
    own = to_plain(build_bootstrap(options))
    manager = own["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    manager["http_filters"] = parts["http_filters"]
    own["static_resources"]["clusters"] = [*own["static_resources"]["clusters"][1:], *parts["clusters"]]
    assert await validate_config(to_json(own)) is None


@pytest.mark.e2e
async def test_so_do_those_with_hot_answers(options):
    parts = json.loads(run("--format", "filter", "--json", "--wasm", built_filter()).output)
    own = to_plain(build_bootstrap(options))
    manager = own["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    manager["http_filters"] = parts.pop("http_filters")
    own["static_resources"]["clusters"] = [*own["static_resources"]["clusters"][1:], *parts.pop("clusters")]
    assert await validate_config(to_json({**own, **parts})) is None


@pytest.mark.e2e
async def test_so_does_a_listener_for_refreshes_to_ones_own_clusters(options):
    names = ("outbound|80|v1|shop.default.svc.cluster.local", "outbound|80|v2|shop.default.svc.cluster.local")
    flags = [f"--refresh-cluster={name}" for name in names]
    parts = json.loads(run("--format", "filter", "--json", *flags).output)
    (listener,) = parts["listeners"]
    own = to_plain(build_bootstrap(options))
    resources = own["static_resources"]
    resources["listeners"] = [resources["listeners"][0], listener]
    resources["clusters"] += [{**resources["clusters"][1], "name": name} for name in names]
    assert await validate_config(to_json(own)) is None


@pytest.mark.e2e
async def test_further_places_for_refreshes(options):
    result = run("--json", "--refresh-cluster", "replica=https://replica.test")
    plain = json.loads(result.output)
    assert [cluster["name"] for cluster in plain["static_resources"]["clusters"]] == ["meshcache", "origin", "replica"]
    assert await validate_config(result.output) is None


def test_the_timeout_follows_from_the_policies(tmp_path):
    (tmp_path / "slow.yaml").write_text(
        "apiVersion: meshcache.dev/v1alpha1\nkind: CachePolicy\nmetadata: {name: slow}\n"
        "spec:\n  eviction: lru\n  tiers:\n    warm: {ttl: 1m, maxObjectBytes: 1Mi, deadline: 400ms}\n"
        "  collapse: {maxWait: 100ms}\n"
    )
    filters = json.loads(run("--format", "filter", "--json", "--policies", tmp_path).output)["http_filters"]
    assert filters[1]["typed_config"]["message_timeout"] == "0.605s"
    filters = json.loads(run("--format", "filter", "--json").output)["http_filters"]
    assert filters[1]["typed_config"]["message_timeout"] == "2s"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--origin", "ftp://x"), "--origin"),
        (("--listen", "8080"), "--listen"),
        (("--policies", "/no/such/folder"), "/no/such/folder"),
        (("--socket-dir", "/" + "a" * 120), "longer than 107 bytes"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments, message):
    result = run(*arguments)
    assert isinstance(result.exception, CommandError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_the_bootstrap_is_that_of_up():
    printed = json.loads(run("--json", "--origin", "https://origin.example", "--socket-dir", "/tmp/x").output)
    expected = to_plain(
        build_bootstrap(
            BootstrapOptions(
                listen=("127.0.0.1", 8080),
                origin=Origin("origin.example", 443, tls=True, host_header="origin.example"),
                worker_sockets=(Path("/tmp/x/worker-0.sock"),),
                refresh_socket=Path("/tmp/x/refresh.sock"),
                admin=Path("/tmp/x/envoy-admin.sock"),
                message_timeout=2.0,
            )
        )
    )
    assert printed == expected


FILTER = "/opt/meshcache/meshcache.wasm"


def test_the_filter_is_where_the_envoy_finds_it_that_is_configured():
    parts = json.loads(run("--format", "filter", "--json", "--wasm", FILTER, "--socket-dir", "/run/m").output)
    _, wasm, behind, _ = parts["http_filters"]
    assert wasm["typed_config"]["config"]["vm_config"]["code"] == {"local": {"filename": FILTER}}
    (matcher,) = behind["typed_config"]["matcher"]["matcher_list"]["matchers"]
    inner = matcher["on_match"]["action"]["typed_config"]["filter_chain"]["typed_config"]
    assert [each["name"] for each in inner] == ["meshcache.ask", "envoy.filters.http.ext_proc"]
    assert "/run/m/filter.sock" in json.dumps(parts["clusters"][1])
    # What Envoy needs besides, lest it take requests that are sent at once for a flood.
    (layer,) = parts["layered_runtime"]["layers"]
    assert layer["static_layer"] == {"http": {"max_requests_per_io_cycle": 1}}
    bootstrap = run("--json", "--wasm", FILTER, "--socket-dir", "/run/m").output
    assert FILTER in bootstrap
    assert "/run/m/filter.sock" in bootstrap
    # What is printed may get a filter in front that verifies tokens.
    for told in (json.dumps(parts), bootstrap):
        assert r"\"tokens\": true" in told


def test_without_another_it_is_the_one_that_comes_with_meshcache(monkeypatch):
    ours = built_filter()
    assert str(ours) in run_as_given().output
    assert str(ours) not in run().output
    monkeypatch.setattr(module, "find", lambda: None)
    result = run_as_given()
    assert result.exit_code == 0
    assert result.stdout == run().stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("meshcache: without the filter, which is not built (try: ")
    assert line.endswith("meshcache wasm build)")
