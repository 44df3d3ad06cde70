"""The filter is built from its sources: the same bytes anywhere, small, and with a plain word when it cannot be."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from wasmtime import Engine, Module

import meshcache
from meshcache.wasm import building, module
from meshcache.wasm.building import BuildError, Stamp

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "wasm" / "src"


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all builds here but the one that is to be without: half of a build is Zig's own library."""
    return tmp_path_factory.mktemp("zig")


@pytest.fixture
def cached(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        monkeypatch.setenv(name, os.environ.get(name, str(caches)))


@pytest.mark.slow
def test_the_same_sources_give_the_same_bytes_wherever_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: None
) -> None:
    first = tmp_path / "first.wasm"
    building.build(SOURCES, first)
    elsewhere = tmp_path / "quite" / "elsewhere"
    shutil.copytree(SOURCES, elsewhere)
    # Nothing of an earlier build either.
    monkeypatch.delenv("ZIG_GLOBAL_CACHE_DIR")
    monkeypatch.delenv("ZIG_LOCAL_CACHE_DIR")
    second = tmp_path / "out" / "second.wasm"
    second.parent.mkdir()
    building.build(elsewhere, second)
    assert first.read_bytes() == second.read_bytes()
    assert second.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in second.parent.iterdir()] == ["second.wasm"]
    assert not list(elsewhere.rglob("*.wasm"))


def test_the_module_is_small_and_says_what_it_is(tmp_path: Path, cached: None) -> None:
    target = tmp_path / "m.wasm"
    building.build(SOURCES, target)
    found = module.find(target)
    assert found is not None
    assert len(found.content) < 64 * 1024
    assert found.version == meshcache.__version__
    assert found.current
    assert building.is_current(target, SOURCES)
    # An engine takes it, with the section that says so.
    exports = {export.name for export in Module(Engine(), found.content).exports}
    assert {"proxy_abi_version_0_2_1", "proxy_on_memory_allocate"} <= exports


def test_other_sources_make_it_old(tmp_path: Path, cached: None) -> None:
    sources, target = tmp_path / "src", tmp_path / "m.wasm"
    sources.mkdir()
    (sources / "main.zig").write_text("export fn nothing() void {}\n")
    (sources / "version.zig").write_text('pub const text = "1.2";\n')
    assert not building.is_current(target, sources)
    building.build(sources, target)
    assert building.stamp(target.read_bytes()) == Stamp("1.2", building.digest(sources))
    assert building.is_current(target, sources)
    (sources / "main_test.zig").write_text('test "of something" {}\n')
    assert building.is_current(target, sources)
    (sources / "part.zig").write_text("")
    assert not building.is_current(target, sources)
    # It is one of other sources than those beside the package.
    assert not module.find(target).current


def test_what_does_not_compile_is_said_and_leaves_the_old_module(tmp_path: Path, cached: None) -> None:
    sources, target = tmp_path / "src", tmp_path / "m.wasm"
    sources.mkdir()
    (sources / "main.zig").write_text("export fn nothing() void { return 1; }\n")
    (sources / "version.zig").write_text('pub const text = "1";\n')
    target.write_bytes(b"old")
    with pytest.raises(BuildError, match=r"^zig 0\.17\.1 does not compile .*/src/main\.zig$") as failed:
        building.build(sources, target)
    assert "main.zig:1:" in failed.value.output
    assert target.read_bytes() == b"old"


def test_too_large_a_module_is_refused(tmp_path: Path, cached: None) -> None:
    (tmp_path / "main.zig").write_text("export const bytes: [65536]u8 = @splat(1);\n")
    (tmp_path / "version.zig").write_text('pub const text = "1";\n')
    with pytest.raises(BuildError, match="has to stay below 65536"):
        building.build(tmp_path, tmp_path / "m.wasm")
    assert not (tmp_path / "m.wasm").exists()


def test_sources_have_to_be_there_and_tell_their_version(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="there are no sources in"):
        building.digest(tmp_path)
    with pytest.raises(BuildError, match=r"version\.zig does not tell"):
        building.version(tmp_path)
    (tmp_path / "version.zig").write_text('pub const text = "no\\"";\n')
    with pytest.raises(BuildError, match=r"version\.zig does not tell"):
        building.version(tmp_path)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (None, "the compiler is not installed: "),
        ("0.15.2", "ziglang 0.15.2 is installed, and 0.17.1 is needed: "),
    ],
)
def test_without_the_right_compiler_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str | None, told: str
) -> None:
    if found is None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    else:
        monkeypatch.setattr(building.importlib.metadata, "version", lambda _name: found)
    with pytest.raises(BuildError) as failed:
        building.build(SOURCES, tmp_path / "m.wasm")
    assert str(failed.value) == f"{told}{sys.executable} -m pip install ziglang==0.17.1"


def section(content: bytes) -> bytes:
    named = b"\x09meshcache" + content
    return b"\0asm\1\0\0\0" + b"\0" + bytes([len(named)]) + named


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"meshcache",
        b"\0asm\1\0\0\0",
        b"\0asm\1\0\0\0\0",
        b"\0asm\1\0\0\0\0\xff\xff\xff\xff\xff\xff",
        b"\0asm\1\0\0\0\0\x7f\x09meshcache",
        section(b""),
        section(b"[]"),
        section(b'{"version": "1"}'),
        section(b"\xff\xfe"),
    ],
)
def test_what_is_not_our_module_says_nothing(content: bytes, tmp_path: Path) -> None:
    assert building.stamp(content) is None
    (tmp_path / "m.wasm").write_bytes(content)
    found = module.find(tmp_path / "m.wasm")
    assert found is not None
    assert found.version == ""


def test_a_stamp_is_read_behind_other_sections() -> None:
    told = Stamp("1.0", "00")
    ours = section(json.dumps(told._asdict()).encode())
    before = b"\1\x02\0\0" + b"\0\x05\4name"
    assert building.stamp(ours[:8] + before + ours[8:]) == told


def test_no_module_is_none(tmp_path: Path) -> None:
    assert module.find(tmp_path / "absent.wasm") is None
