"""The bootstrap as a document, and what Envoy's own validation says of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from envoy_data_plane.envoy.config.cluster.v3 import Cluster, OutlierDetection
from envoy_data_plane.envoy.config.core.v3 import Metadata
from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import ExternalProcessor
from envoy_data_plane.google.protobuf import Duration, Struct

from filter_module import built_filter
from meshcache.envoy.binary import find_envoy, validate_config
from meshcache.envoy.bootstrap import DirectResponse, Origin, build_bootstrap
from meshcache.envoy.clusters import pipe
from meshcache.envoy.render import pack, to_json, to_plain, to_yaml
from meshcache.envoy.timeouts import message_timeout
from meshcache.policy.values import MOST_WAIT
from meshcache.process import MAX_UNIX_PATH_BYTES
from meshcache.wasm import module

VARIANTS = {
    "plain": {},
    "two workers, two threads": {"worker_sockets": (Path("/tmp/a.sock"), Path("/tmp/b.sock")), "concurrency": 2},
    "origin by name": {"origin": Origin("origin.example", 80)},
    "origin over TLS": {"origin": Origin("origin.example", 443, tls=True, host_header="origin.example")},
    "origin over TLS by address": {"origin": Origin("192.0.2.1", 443, tls=True)},
    "origin over IPv6": {"origin": Origin("::1", 8080)},
    "listening on IPv6": {"listen": ("::1", 8080)},
    "without the cache": {"cache": False, "direct_responses": (DirectResponse("/direct", 200, "x"),)},
    "with the filter": {"wasm": module.MODULE, "concurrency": 2},
    "admin over TCP": {"admin": ("127.0.0.1", 0)},
}


@pytest.fixture(autouse=True, scope="module")
def _with_the_filter():
    built_filter()


@pytest.mark.e2e
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
async def test_envoy_accepts_it(options, changes):
    assert await validate_config(to_json(to_plain(build_bootstrap(replace(options, **changes))))) is None


@pytest.mark.e2e
@pytest.mark.parametrize("origin", [Origin("192.0.2.1", 80), Origin("origin.example", 443, tls=True)])
async def test_it_uses_nothing_deprecated_or_unfinished(options, origin, tmp_path):
    config = tmp_path / "envoy.json"
    config.write_text(to_json(to_plain(build_bootstrap(replace(options, origin=origin)))))
    envoy = await asyncio.create_subprocess_exec(
        find_envoy(),
        *("--mode", "validate", "--config-path", config, "--log-level", "warning"),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    _, said = await envoy.communicate()
    assert said == b""


@pytest.mark.e2e
async def test_what_envoy_says_against_a_configuration_is_handed_on(options):
    plain = to_plain(build_bootstrap(options))
    plain["static_resources"]["clusters"][0]["no_such_field"] = 1
    assert "no_such_field" in await validate_config(to_json(plain))


def test_the_cache_stands_directly_in_front_of_the_router(options):
    filters = _manager(options)["http_filters"]
    assert [item["name"] for item in filters] == [
        "meshcache.strip.client",
        "envoy.filters.http.ext_proc",
        "envoy.filters.http.router",
    ]


def test_nothing_but_request_headers_is_sent_unasked(options):
    ext_proc = _manager(options)["http_filters"][1]["typed_config"]
    # NONE and false are zero values, which JSON leaves out.
    assert ext_proc["processing_mode"] == {
        "request_header_mode": "SEND",
        "response_header_mode": "SKIP",
        "request_trailer_mode": "SKIP",
        "response_trailer_mode": "SKIP",
    }
    assert ext_proc["failure_mode_allow"] is True
    assert ext_proc["allow_mode_override"] is True
    assert "timeout" not in ext_proc["grpc_service"]
    assert "retry_policy" not in ext_proc["grpc_service"]["envoy_grpc"]
    assert ext_proc["grpc_service"]["envoy_grpc"]["authority"]


def test_the_message_timeout_is_the_given_one(options):
    ext_proc = _manager(replace(options, message_timeout=0.325))["http_filters"][1]["typed_config"]
    assert ext_proc["message_timeout"] == "0.325s"
    # The sidecar may ask for more, for a request that waits for another's answer and then looks it up.
    longest = MOST_WAIT + message_timeout(3 * 10.0, MOST_WAIT)
    assert float(ext_proc["max_message_timeout"].removesuffix("s")) > longest


def test_an_unlimited_route_timeout_is_written_out(options):
    route = _manager(options)["route_config"]["virtual_hosts"][0]["routes"][-1]["route"]
    assert route["timeout"] == "0s"


def test_without_the_cache_there_is_no_trace_of_the_sidecar(options):
    text = json.dumps(to_plain(build_bootstrap(replace(options, cache=False))))
    assert "ext_proc" not in text
    assert str(options.worker_sockets[0]) not in text


def test_only_the_refresh_listener_marks_envoys_own_answers(options):
    main, refresh = (
        listener["filter_chains"][0]["filters"][0]["typed_config"]
        for listener in to_plain(build_bootstrap(options))["static_resources"]["listeners"]
    )
    assert "local_reply_config" not in main
    (mapper,) = refresh["local_reply_config"]["mappers"]
    assert mapper["headers_to_add"][0]["header"] == {"key": "x-meshcache-local-reply", "value": "1"}


def test_a_socket_path_longer_than_the_kernel_takes_is_refused():
    base = "/tmp/"
    assert pipe(Path(base + "a" * (MAX_UNIX_PATH_BYTES - len(base)))).pipe is not None
    with pytest.raises(ValueError, match="longer than 107 bytes"):
        pipe(Path(base + "a" * (MAX_UNIX_PATH_BYTES - len(base) + 1)))


def test_names_with_digits_survive_rendering():
    plain = to_plain(OutlierDetection(consecutive_5xx=7, enforcing_consecutive_5xx=0))
    assert plain == {"consecutive_5xx": 7, "enforcing_consecutive_5xx": 0}


def test_packed_messages_carry_their_type_and_their_zero_values():
    inner = ExternalProcessor(message_timeout=timedelta(0), failure_mode_allow=True)
    cluster = Cluster(typed_extension_protocol_options={"x": pack(inner)})
    assert to_plain(cluster)["typed_extension_protocol_options"]["x"] == {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
        "failure_mode_allow": True,
        "message_timeout": "0s",
    }


def test_packed_well_known_types_stand_under_value():
    assert to_plain(pack(Duration(seconds=2))) == {
        "@type": "type.googleapis.com/google.protobuf.Duration",
        "value": "2s",
    }


def test_structs_render_as_plain_objects():
    metadata = Metadata(filter_metadata={"a": Struct.from_dict({"b": [1, "c", None, True]})})
    assert to_plain(metadata) == {"filter_metadata": {"a": {"b": [1, "c", None, True]}}}


def test_yaml_is_the_same_document(options):
    plain = to_plain(build_bootstrap(options))
    text = to_yaml(plain)
    assert yaml.safe_load(text) == plain
    assert "&id" not in text


@pytest.mark.parametrize(("budget", "expected"), [(0.0, 0.2), (0.05, 0.2), (0.1, 0.2), (0.125, 0.225), (2.0, 2.1)])
def test_the_timeout_covers_the_deadlines_and_has_a_floor(budget, expected):
    assert message_timeout(budget, 0.0) == pytest.approx(expected)


@pytest.mark.parametrize(("wait", "expected"), [(0.0, 0.225), (0.1, 0.225), (1.0, 1.0), (10.0, 2.0), (60.0, 2.0)])
def test_the_timeout_lets_a_crowd_be_told_to_wait(wait, expected):
    assert message_timeout(0.125, wait) == pytest.approx(expected)
    assert message_timeout(3.0, wait) == pytest.approx(3.1)


def _manager(options):
    listener = to_plain(build_bootstrap(options))["static_resources"]["listeners"][0]
    return listener["filter_chains"][0]["filters"][0]["typed_config"]
