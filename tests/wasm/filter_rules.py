"""The rules of the filter as they are built for tests: `wasm/tests/vectors.zig` in wasmtime, without Envoy."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshcache.message import Request

ROOT: Final = Path(__file__).parents[2] / "wasm"
CACHE: Final = ROOT.parent / ".cache"
"""What the compiler keeps, and what it has made: `make clean` removes it."""
MISSING: Final = [name for name in ("ziglang", "wasmtime") if find_spec(name) is None]
needs_rules: Final = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

HANDED_ON, NO_ROUTE, NOT_CACHED, LOOKED_UP, MALFORMED = range(5)
ADDRESS, MTLS, CLUSTER, VERIFIED = 1, 2, 4, 8
"""Properties that were asked for."""


@dataclass(frozen=True)
class Rule:
    """What the filter does with a request."""

    asked: int
    shown: str
    what: int
    tag: bytes = b""
    pool: int = 0
    largest: int = 0
    exposure: tuple[bytes, int, bytes] | None = None
    """Tag, arm and unit."""
    material: bytes = b""
    arm: str = ""
    policy: str = ""


def serialised(fields: Iterable[tuple[str, str]]) -> bytes:
    """Header fields as a host gives them."""
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]
    lengths = b"".join(struct.pack("<II", len(name), len(value)) for name, value in pairs)
    return struct.pack("<I", len(pairs)) + lengths + b"".join(b"%b\0%b\0" % pair for pair in pairs)


def header_list(request: Request) -> bytes:
    """The header list of `request`."""
    pseudo = [
        (":method", request.method),
        (":authority", request.authority),
        (":path", request.path),
        (":scheme", request.scheme),
    ]
    return serialised([*pseudo, *request.headers.fields])


def zig(*arguments: str) -> None:
    """Run the compiler; what it says is in the error."""
    folder = CACHE / "zig"
    folder.mkdir(parents=True, exist_ok=True)
    caches = {"ZIG_GLOBAL_CACHE_DIR": str(folder / "global"), "ZIG_LOCAL_CACHE_DIR": str(folder / "local")}
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", *arguments], env={**caches, **os.environ}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@cache
def built(mode: str = "ReleaseSafe") -> Path:
    """The module; built once for the same sources."""
    sources = sorted((*ROOT.glob("src/*.zig"), *ROOT.glob("tests/*.zig")))
    digest = hashlib.blake2b(mode.encode(), digest_size=8)
    for source in sources:
        digest.update(source.read_bytes())
    path = CACHE / f"vectors-{digest.hexdigest()}.wasm"
    if not path.exists():
        made = path.with_suffix(f".{os.getpid()}.wasm")
        zig(
            *("build-exe", "-target", "wasm32-freestanding", "-mcpu=lime1", "-O", mode, "-fstrip"),
            *("-fno-entry", "-rdynamic"),
            *("--name", "vectors", f"-femit-bin={made}", "--dep", "filter"),
            *(f"-Mroot={ROOT / 'tests' / 'vectors.zig'}", f"-Mfilter={ROOT / 'src' / 'pure_test.zig'}"),
        )
        made.rename(path)
    return path


@cache
def compiled(mode: str = "ReleaseSafe") -> tuple[Any, Any]:
    """Engine and module."""
    import wasmtime

    engine = wasmtime.Engine()
    return engine, wasmtime.Module.from_file(engine, str(built(mode)))


class Rules:
    """One instance of the module. Any trap raises."""

    def __init__(self, mode: str = "ReleaseSafe") -> None:
        import wasmtime

        engine, module = compiled(mode)
        self._store = wasmtime.Store(engine)
        instance = wasmtime.Instance(self._store, module, [])
        self._exports: Any = instance.exports(self._store)
        self._memory = self._exports["memory"]
        self._room = 0
        self._at = 0

    def load(self, plan: bytes) -> bool:
        """Put `plan` into force; false when it is refused."""
        self._put(plan)
        return bool(self._call("load", len(plan)))

    def decide(
        self,
        fields: bytes,
        *,
        address: str | None = None,
        cluster: str | None = None,
        mtls: bool = False,
        verified: bool = False,
    ) -> Rule:
        """What is done with a request of this header list."""
        peer, route = (address or "").encode(), (cluster or "").encode()
        self._put(peer + route + fields)
        bits = (address is not None) | (cluster is not None) << 1 | mtls << 2 | verified << 3
        length = self._call("decided", len(peer), len(route), len(fields), bits)
        return _rule(self._result(length))

    def plain(self, path: bytes) -> bool:
        """Whether the path is one that means nothing else to anybody."""
        self._put(path)
        return bool(self._call("plain", len(path)))

    def normal(self, name: str, value: bytes) -> bytes | None:
        """The normal form of a field; None where the filter makes none."""
        self._put(name.encode() + value)
        length = self._call("normal", len(name), len(value))
        return None if length < 0 else self._result(length)

    def kind(self, name: str) -> int:
        """What it means that a field of this name is there: the number of `fields.Kind`."""
        self._put(name.encode())
        return self._call("kind", len(name))

    def repeat(self, fields: bytes, times: int) -> int:
        """Decide so many times on the same header list; gives the bytes of all material."""
        self._put(fields)
        return self._call("repeat", len(fields), times)

    def _put(self, data: bytes) -> None:
        if len(data) > self._room or not self._at:
            self._room = max(2 * len(data), 1 << 16)
            self._at = self._call("room", self._room)
        self._memory.write(self._store, data, self._at)

    def _result(self, length: int) -> bytes:
        at = self._call("result")
        return bytes(self._memory.read(self._store, at, at + length))

    def _call(self, name: str, *arguments: int) -> int:
        found: int = self._exports[name](self._store, *arguments)
        return found


def _rule(said: bytes) -> Rule:
    asked, shown, what = said[:3]
    rest = said[3:]
    if what not in (NO_ROUTE, NOT_CACHED, LOOKED_UP):
        assert not rest
        return Rule(asked, _SHOWN[shown], what)
    if what != LOOKED_UP:
        return Rule(asked, _SHOWN[shown], what, *_texts(rest))
    pool, largest, counts, arm = struct.unpack_from("<HIBH", rest)
    unit = rest[9:25]
    tag, material, name, policy, experiment = _texts(rest[25:])
    exposure = (experiment, arm, unit) if counts else None
    return Rule(asked, _SHOWN[shown], what, tag, pool, largest, exposure, material, name.decode(), policy.decode())


_SHOWN: Final = ("off", "minimal", "standard", "full")


def _texts(data: bytes) -> list[bytes]:
    found = []
    while data:
        (length,) = struct.unpack_from("<I", data)
        found.append(data[4 : 4 + length])
        data = data[4 + length :]
    return found
