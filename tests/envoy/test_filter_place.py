"""The filter in Envoy: where it stands, what it can skip, and that its failures are nobody's."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from envoy_data_plane.envoy.config.rbac.v3 import Rbac as Rules
from envoy_data_plane.envoy.config.rbac.v3 import RbacAction
from envoy_data_plane.envoy.extensions.filters.http.rbac.v3 import Rbac
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter

from meshcache.envoy import filters
from meshcache.envoy.bootstrap import build_bootstrap
from meshcache.envoy.render import pack, to_plain
from meshcache.wasm import building

SOURCE = Path(__file__).with_name("marking.zig")


@pytest.fixture(scope="module")
def marking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module that does with each request what its header `mode` says."""
    folder = tmp_path_factory.mktemp("marking")
    shutil.copy(SOURCE, folder / "main.zig")
    (folder / "version.zig").write_text('pub const text = "1";\n')
    building.build(folder, folder / "marking.wasm")
    return folder / "marking.wasm"


def plain_chain(options):
    plain = to_plain(build_bootstrap(options))
    manager = plain["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    return manager["http_filters"], [cluster["name"] for cluster in plain["static_resources"]["clusters"]]


def test_it_stands_behind_what_refuses_and_right_before_ext_proc(options):
    rbac = HttpFilter(name="rbac", typed_config=pack(Rbac(rules=Rules(action=RbacAction.DENY))))
    chain, clusters = plain_chain(replace(options, wasm=Path("/m.wasm"), filters_before=(rbac,)))
    assert [item["name"] for item in chain] == [
        "meshcache.strip.client",
        "rbac",
        filters.WASM,
        filters.BEHIND_WASM,
        filters.ROUTER,
    ]
    assert clusters == ["meshcache", "origin", "meshcache-filter"]


def test_it_asks_for_verified_tokens_where_a_filter_in_front_may_verify_them(options):
    rbac = HttpFilter(name="rbac", typed_config=pack(Rbac(rules=Rules(action=RbacAction.DENY))))
    for more, asks in (({}, False), ({"filters_before": (rbac,)}, True), ({"more_before": True}, True)):
        chain, _ = plain_chain(replace(options, wasm=Path("/m.wasm"), **more))
        (wasm,) = [item for item in chain if item["name"] == filters.WASM]
        assert json.loads(wasm["typed_config"]["config"]["configuration"]["value"])["tokens"] is asks


def test_without_it_nothing_of_it_is_there(options):
    chain, clusters = plain_chain(options)
    assert "wasm" not in json.dumps(chain)
    assert "Matcher" not in json.dumps(chain)
    assert clusters == ["meshcache", "origin"]
    # Nor where there is no cache at all.
    chain, clusters = plain_chain(replace(options, wasm=Path("/m.wasm"), cache=False))
    assert [item["name"] for item in chain] == ["meshcache.strip.client", filters.ROUTER]
    assert clusters == ["origin"]


def test_its_socket_lies_beside_those_of_the_workers(options, short_folder):
    plain = to_plain(build_bootstrap(replace(options, wasm=Path("/m.wasm"))))
    (cluster,) = [each for each in plain["static_resources"]["clusters"] if each["name"] == filters.FILTER_CLUSTER]
    (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert endpoint["endpoint"]["address"] == {"pipe": {"path": str(short_folder / "filter.sock")}}


@pytest.mark.e2e
async def test_what_it_marks_passes_ext_proc_by_and_no_client_can_mark(make_rig, marking):
    rig = await make_rig(wasm=marking)
    assert (await rig.client.get("/")).status_code == 200
    asked = len(rig.sidecar.seen)
    assert asked
    assert (await rig.client.get("/", headers={"mode": "skip"})).text == "ok"
    assert len(rig.sidecar.seen) == asked
    forged = {"x-meshcache-skip": "1", "meshcache.skip": "1", "wasm.meshcache.skip": "1"}
    assert (await rig.client.get("/", headers=forged)).text == "ok"
    assert len(rig.sidecar.seen) > asked


@pytest.mark.e2e
async def test_what_it_asks_reaches_the_sidecar_alone_and_no_client_asks(make_rig, marking):
    rig = await make_rig(wasm=marking)
    assert (await rig.client.get("/", headers={"mode": "ask 1"})).text == "ok"
    assert rig.sidecar.headers()[filters.ASK_HEADER] == "ask 1"
    assert (await rig.client.get("/", headers={"mode": "nothing", filters.ASK_HEADER: "ask 2"})).text == "ok"
    assert filters.ASK_HEADER not in rig.sidecar.headers()
    assert not [head for head in rig.origin.heads if "meshcache" in head]


@pytest.mark.e2e
async def test_a_trap_costs_no_request(make_rig, marking):
    rig = await make_rig(wasm=marking)
    for mode in ("trap", "trap", "skip", "none"):
        before = len(rig.sidecar.seen)
        answer = await rig.client.get("/", headers={"mode": mode})
        assert (answer.status_code, answer.text) == (200, "ok")
        # The filter is gone, not the cache behind it.
        assert len(rig.sidecar.seen) > before
    assert "unreachable" in rig.envoy.log.read_text()
