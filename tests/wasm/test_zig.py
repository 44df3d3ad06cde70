"""The filter's own tests, in Zig: those of its parts that call nothing of Envoy run on this machine as they are."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest

WASM = Path(__file__).resolve().parents[2] / "wasm"
_TEST = re.compile(r"^test \"", re.MULTILINE)


def with_tests() -> list[Path]:
    found = [path for path in sorted(WASM.rglob("*.zig")) if _TEST.search(path.read_text())]
    # What Envoy provides is not there.
    return [path for path in found if '@import("abi.zig")' not in path.read_text()]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_zig_test(tmp_path: Path) -> None:
    files = with_tests()
    assert files
    # A test may import whatever is below the folder of the file that is named to the compiler.
    root = WASM / ".tests.zig"
    imports = "".join(f'    _ = @import("{path.relative_to(WASM).as_posix()}");\n' for path in files)
    root.write_text(f"test {{\n{imports}}}\n")
    spec = importlib.util.find_spec("ziglang")
    assert spec is not None
    assert spec.origin is not None
    zig = Path(spec.origin).with_name("zig")
    caches = {name: str(tmp_path / "zig") for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
    try:
        done = subprocess.run(
            [zig, "test", root], env={**caches, **os.environ}, capture_output=True, text=True, check=False
        )
    finally:
        root.unlink()
    assert done.returncode == 0, done.stderr
    assert re.search(r"All [1-9]\d* tests passed", done.stderr), done.stderr
