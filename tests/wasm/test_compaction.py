"""Modules that are made smaller do what they did."""

from __future__ import annotations

import pytest
from wasmtime import Engine, Instance, Module, Store, wat2wasm

from meshcache.wasm.compaction import UnknownError, compacted

SUMS = """(module
  (memory (export "memory") 1)
  (func $add (param i64 i64) (result i64) (i64.add (local.get 0) (local.get 1)))
  (func (export "sum") (param $count i32) (result i64) (local $total i64)
    (block $done (loop $again
      (br_if $done (i32.eqz (local.get $count)))
      (local.set $total (call $add (local.get $total) (i64.extend_i32_s (i32.const -70000))))
      (local.set $count (i32.sub (local.get $count) (i32.const 1)))
      (i64.store offset=300 align=8 (i32.const 0) (local.get $total))
      (memory.copy (i32.const 400) (i32.const 300) (i32.const 8))
      (br $again)))
    (if (result i64) (f64.gt (f64.const 1.5) (f64.const 0.5))
      (then (i64.load offset=400 (i32.const 0))) (else (i64.const 128)))))
"""


def padded(module: bytes) -> bytes:
    """`module` with the calls of its code written as a linker leaves them, in five bytes."""
    at = module.index(b"\x10\x00")
    wide = module[:at] + b"\x10\x80\x80\x80\x80\x00" + module[at + 2 :]
    return _grown(wide, at, 4)


def _grown(module: bytes, inside: int, more: int) -> bytes:
    """The sizes of the code section and of the function around `inside`, raised; both are of one byte before."""
    out = bytearray(module)
    at = 8
    while not at < inside < at + 2 + out[at + 1]:
        at += 2 + out[at + 1]
    assert out[at] == 10
    body = at + 3
    while not body < inside < body + 1 + out[body]:
        body += 1 + out[body]
    out[at + 1] += more
    out[body] += more
    assert out[at + 1] < 0x80
    assert out[body] < 0x80
    return bytes(out)


def total(module: bytes) -> int:
    engine = Engine()
    store = Store(engine)
    found: int = Instance(store, Module(engine, module), []).exports(store)["sum"](store, 3)  # type: ignore[operator]
    return found


def test_numbers_are_shortened_and_nothing_else_changes() -> None:
    module = bytes(wat2wasm(SUMS))
    wide = padded(module)
    assert total(wide) == total(module) == -210_000
    assert len(wide) == len(module) + 4
    assert compacted(wide) == module
    assert compacted(module) == module


def test_what_is_not_known_is_not_touched() -> None:
    vectors = bytes(wat2wasm('(module (func (export "f") (result v128) (i32x4.splat (i32.const 1))))'))
    with pytest.raises(UnknownError, match="0xfd"):
        compacted(vectors)
