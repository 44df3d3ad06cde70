"""Building the filter: its Zig sources become one WebAssembly module, the same bytes from the same sources.

The build of the package loads this file by itself, before there is a package (`hatch_build.py`): it imports nothing but
the standard library.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

ZIG: Final = "0.17.1"
"""The version of `ziglang`, exactly: another compiler gives other bytes."""

MOST_BYTES: Final = 64 * 1024
"""The module stays below: it is fetched, compiled and held once for each of Envoy's workers."""

ROOT: Final = "main.zig"
# No vectors: the library compares with them where there are some, and Zig 0.17 makes that a lane at a time for
# WebAssembly (`std.mem.eql` of 113 bytes: 1.5 us instead of 40 ns).
FLAGS: Final = (
    # Small is as fast here as fast, measured in Envoy: V8 does again what pays of it.
    *("-target", "wasm32-freestanding", "-mcpu=lime1", "-O", "ReleaseSmall", "-fstrip"),
    *("-fno-entry", "-rdynamic", "--stack", "65536"),
)

SECTION: Final = b"meshcache"
"""The custom section in which the module says what it is: a JSON object of `Stamp`. Engines pass over such sections."""

_MAGIC: Final = b"\0asm\1\0\0\0"
_VERSION: Final = re.compile(r'^pub const text = "([0-9A-Za-z.+-]{1,32})";$', re.MULTILINE)

COMPACTION: Final = Path(__file__).with_name("compaction.py")
"""Loaded by its file, as this one is."""


class BuildError(Exception):
    """The module cannot be built: one line that says why, and in `output` what the compiler wrote."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class Stamp(NamedTuple):
    """What a built module says of itself."""

    version: str
    """As the filter tells the sidecar: `wasm/src/version.zig`."""
    sources: str
    """SHA-256, in hex, of the sources, the compiler's version and its flags."""


def build(sources: Path, target: Path) -> None:
    """Compile the folder `sources` to the file `target`, which is replaced at once and only by a whole module.

    Zig's caches are where `ZIG_GLOBAL_CACHE_DIR` and `ZIG_LOCAL_CACHE_DIR` say, else in a folder that is removed
    again. Raises `BuildError`; `OSError` where files cannot be read or written.
    """
    if not target.parent.is_dir():
        raise BuildError(f"there is no folder {target.parent} for {target.name}")
    zig = _zig()
    made = Stamp(version(sources), digest(sources))
    with tempfile.TemporaryDirectory(prefix="meshcache-") as folder:
        built = Path(folder) / "module.wasm"
        caches = {name: str(Path(folder) / name) for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
        done = subprocess.run(  # noqa: S603 - the compiler of the pinned wheel, with fixed flags
            # By a name that is the same wherever the sources lie.
            [zig, "build-exe", ROOT, *FLAGS, f"-femit-bin={built}"],
            cwd=sources,
            env={**caches, **os.environ},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            raise BuildError(f"zig {ZIG} does not compile {sources / ROOT}", done.stderr)
        module = built.read_bytes()
    if not module.startswith(_MAGIC):
        raise BuildError(f"zig {ZIG} made something else than a WebAssembly module of {sources / ROOT}")
    try:
        module = _compaction().compacted(module)
    except ValueError as error:
        raise BuildError(f"the module has something in it that is not known here: {error}") from error
    module += _section(json.dumps(made._asdict(), separators=(",", ":")).encode())
    if len(module) >= MOST_BYTES:
        raise BuildError(f"the module has {len(module)} bytes; it has to stay below {MOST_BYTES}")
    _replace(target, module)


def _compaction() -> ModuleType:
    spec = importlib.util.spec_from_file_location("meshcache_compaction", COMPACTION)
    if spec is None or spec.loader is None:
        raise BuildError(f"{COMPACTION} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def digest(sources: Path) -> str:
    """Of everything that decides the module's bytes. Raises `BuildError` when there are no sources."""
    files = sorted(path for path in sources.rglob("*.zig") if not path.stem.endswith("_test"))
    if sources / ROOT not in files:
        raise BuildError(f"there are no sources in {sources}")
    told = hashlib.sha256(json.dumps([ZIG, *FLAGS]).encode() + COMPACTION.read_bytes())
    for path in files:
        content = path.read_bytes()
        told.update(f"\n{path.relative_to(sources).as_posix()} {len(content)}\n".encode())
        told.update(content)
    return told.hexdigest()


def is_current(module: Path, sources: Path) -> bool:
    """Whether `module` is there and built from these sources. Raises `BuildError` when there are none."""
    try:
        told = stamp(module.read_bytes())
    except FileNotFoundError:
        return False
    return told is not None and told.sources == digest(sources)


def version(sources: Path) -> str:
    """What the module is going to call itself. Raises `BuildError` when the sources do not say."""
    try:
        found = _VERSION.search((sources / "version.zig").read_text(encoding="utf-8"))
    except OSError:
        found = None
    if found is None:
        raise BuildError(f"{sources / 'version.zig'} does not tell the module's version")
    return found[1]


def stamp(module: bytes) -> Stamp | None:
    """What a built module says of itself; None for one that was not built here, or is none."""
    if not module.startswith(_MAGIC):
        return None
    at = len(_MAGIC)
    try:
        while at < len(module):
            kind = module[at]
            size, start = _number(module, at + 1)
            at = start + size
            if kind == 0:
                length, begin = _number(module, start)
                if module[begin : begin + length] == SECTION:
                    return Stamp(**json.loads(module[begin + length : at]))
    except (IndexError, TypeError, ValueError):
        return None
    return None


def _section(content: bytes) -> bytes:
    named = bytes([len(SECTION)]) + SECTION + content
    return b"\0" + _leb128(len(named)) + named


def _leb128(number: int) -> bytes:
    """Unsigned LEB128, as WebAssembly writes sizes."""
    out = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Read unsigned LEB128: the number and where it ends. Raises IndexError past the end, ValueError if it is long."""
    value = 0
    for shift in range(0, 35, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a size takes more than five bytes")


def _zig() -> Path:
    """The compiler of the `ziglang` wheel. Raises `BuildError` when it is missing, or another version."""
    get = f"{sys.executable} -m pip install ziglang=={ZIG}"
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise BuildError(f"the compiler is not installed: {get}")
    found = importlib.metadata.version("ziglang")
    if found != ZIG:
        raise BuildError(f"ziglang {found} is installed, and {ZIG} is needed: {get}")
    return Path(spec.origin).with_name("zig")


def _replace(target: Path, content: bytes) -> None:
    """Write `target` so that whoever reads it meanwhile has the old file or the new one, whole."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
