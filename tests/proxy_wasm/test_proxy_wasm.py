"""The double of Envoy itself, with a module small enough to be read."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import wasmtime

from proxy_wasm import Envoy, Reply, Stream
from proxy_wasm.abi import Map, Metric, Pairs, Status, pack_pairs, unpack_pairs

# Answers a GET with its own header fields, as fields and as body. Lets anything else pass with one field more, unless
# the method begins with `T`: then it traps. Adds a field to every answer, and asks a cluster at each tick.
ECHO = r"""
(module
  (import "env" "proxy_get_header_map_pairs" (func $pairs (param i32 i32 i32) (result i32)))
  (import "env" "proxy_get_header_map_value" (func $value (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_send_local_response" (func $answer (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_set_tick_period_milliseconds" (func $period (param i32) (result i32)))
  (import "env" "proxy_http_call" (func $call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 4)
  (global $top (mut i32) (i32.const 4096))
  (data (i32.const 64) ":method")
  (data (i32.const 80) "x-passed")
  (data (i32.const 96) "sidecar")
  (data (i32.const 112) "\03\00\00\00\05\00\00\00\02\00\00\00\07\00\00\00\03\00\00\00\0a\00\00\00\01\00\00\00"
    ":path\00/n\00:method\00GET\00:authority\00a\00")
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "proxy_on_memory_allocate") (param $size i32) (result i32)
    (global.get $top)
    (global.set $top (i32.add (global.get $top) (local.get $size))))
  (func (export "proxy_on_configure") (param i32 i32) (result i32)
    (drop (call $period (i32.const 100)))
    (i32.const 1))
  (func (export "proxy_on_tick") (param i32)
    (drop (call $call (i32.const 96) (i32.const 7) (i32.const 112) (i32.const 62)
      (i32.const 80) (i32.const 8) (i32.const 0) (i32.const 0) (i32.const 1000) (i32.const 16))))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (drop (call $value (i32.const 0) (i32.const 64) (i32.const 7) (i32.const 0) (i32.const 4)))
    (if (i32.eq (i32.load8_u (i32.load (i32.const 0))) (i32.const 0x54)) (then (unreachable)))
    (if (i32.eq (i32.load8_u (i32.load (i32.const 0))) (i32.const 0x47)) (then
      (drop (call $pairs (i32.const 0) (i32.const 0) (i32.const 4)))
      (drop (call $answer (i32.const 203) (i32.const 0) (i32.const 0)
        (i32.load (i32.const 0)) (i32.load (i32.const 4))
        (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const -1)))))
    (drop (call $add (i32.const 0) (i32.const 80) (i32.const 8) (i32.const 64) (i32.const 1)))
    (i32.const 0))
  (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
    (drop (call $add (i32.const 2) (i32.const 80) (i32.const 8) (i32.const 64) (i32.const 1)))
    (i32.const 0)))
"""

PUT: Pairs = [(b":method", b"PUT"), (b":path", b"/"), (b"x-odd", b"\xff")]


@pytest.fixture
def envoy(tmp_path: Path) -> Envoy:
    module = tmp_path / "echo.wasm"
    module.write_bytes(wasmtime.wat2wasm(ECHO))
    return Envoy(module, clusters=frozenset({"sidecar"}))


def test_a_local_response_goes_out_through_the_module(envoy: Envoy) -> None:
    asked: Pairs = [(b":method", b"GET"), (b"a", b""), (b"a", b"\xff\x80"), (b"", b"x")]
    stream = Stream(envoy.start_worker(), asked)
    assert stream.forwarded is None
    assert stream.reply is not None
    assert unpack_pairs(stream.reply.body) == asked
    assert stream.reply.status == 203
    assert stream.reply.headers == [
        *asked,
        (b"content-length", b"%d" % len(stream.reply.body)),
        (b"content-type", b"text/plain"),
        (b"x-passed", b":"),
    ]
    assert stream.closed


def test_what_passes_is_changed_by_the_module_alone(envoy: Envoy) -> None:
    stream = Stream(envoy.start_worker(), PUT, end_of_stream=False)
    assert stream.forwarded == [*PUT, (b"x-passed", b":")]
    sent = stream.respond(200, [(b"etag", b"1")], [b"body", b""])
    assert sent == [(b":status", b"200"), (b"etag", b"1"), (b"x-passed", b":")]


def test_after_a_trap_everything_passes_until_the_module_is_loaded_anew(envoy: Envoy) -> None:
    worker = envoy.start_worker()
    trap: Pairs = [(b":method", b"TRACE")]
    assert Stream(worker, trap).forwarded == trap
    assert worker.failed
    assert Stream(worker, PUT).forwarded == PUT
    worker.reload()
    assert Stream(worker, PUT).forwarded != PUT


def test_calls_and_their_answers(envoy: Envoy) -> None:
    worker = envoy.start_worker()
    envoy.advance(0.05)
    assert envoy.calls == []
    envoy.advance(0.05)
    (call,) = envoy.calls
    assert (call.get(":path"), call.body, call.timeout_ms) == (b"/n", b"x-passed", 1000)
    call.answer(Reply(204))
    assert envoy.calls == []
    envoy.clusters = frozenset()
    worker.tick()
    assert envoy.calls == []
    assert worker.imports.statuses["http_call", Status.BAD_ARGUMENT] == 1


def test_statuses_for_bad_arguments(envoy: Envoy) -> None:
    imports = envoy.start_worker().imports
    far = 4 * 65536 - 2
    assert imports.get_current_time_nanoseconds(far) is Status.INVALID_MEMORY_ACCESS
    assert imports.get_header_map_value(9, 0, 0, 0, 0) is Status.BAD_ARGUMENT
    assert imports.get_header_map_value(Map.REQUEST_HEADERS, 64, 7, 0, 4) is Status.BAD_ARGUMENT, "outside of a request"
    assert imports.get_header_map_pairs(Map.REQUEST_HEADERS, 0, 4) is Status.OK
    assert imports.get_buffer_bytes(9, 0, 1, 0, 4) is Status.BAD_ARGUMENT
    assert imports.get_metric(4, 0) is Status.NOT_FOUND
    assert imports.get_property(64, 7, 0, 4) is Status.NOT_FOUND
    assert imports.set_effective_context(99) is Status.BAD_ARGUMENT


def test_all_workers_share_data_and_metrics(envoy: Envoy) -> None:
    one, other = envoy.start_worker(), envoy.start_worker()
    one.write(200, b"key+value")
    other.write(200, b"key+other")
    assert one.imports.get_shared_data(200, 3, 0, 4, 8) is Status.NOT_FOUND
    assert one.imports.set_shared_data(200, 3, 204, 5, 7) is Status.OK, "what is not there has no number yet"
    assert other.imports.get_shared_data(200, 3, 0, 4, 8) is Status.OK
    address, size, cas = struct.unpack("<III", other.read(0, 12) or b"")
    assert other.read(address, size) == b"value"
    assert other.imports.set_shared_data(200, 3, 204, 5, cas) is Status.OK
    assert one.imports.set_shared_data(200, 3, 204, 5, cas) is Status.CAS_MISMATCH
    assert one.imports.define_metric(Metric.COUNTER, 200, 3, 16) is Status.OK
    assert other.imports.define_metric(Metric.COUNTER, 200, 3, 16) is Status.OK
    (number,) = struct.unpack("<I", one.read(16, 4) or b"")
    assert one.imports.increment_metric(number, 0) is Status.BAD_ARGUMENT
    assert one.imports.increment_metric(number, 2) is Status.OK
    assert other.imports.get_metric(number, 24) is Status.OK
    assert other.read(24, 8) == struct.pack("<Q", 2)


@pytest.mark.parametrize("data", [b"", b"\1\0\0\0", b"\0\0\0\0x", b"\1\0\0\0\1\0\0\0\0\0\0\0aa\0", b"\xff" * 12])
def test_malformed_pairs_are_none(data: bytes) -> None:
    assert unpack_pairs(data) == []


def test_pairs_there_and_back() -> None:
    pairs: Pairs = [(b"a", b"\0"), (b"", b""), (b"a", b"b")]
    assert unpack_pairs(pack_pairs(pairs)) == pairs
