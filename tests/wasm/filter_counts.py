"""The filter's counts as they are built for tests: `wasm/tests/counts.zig` in wasmtime, without Envoy."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from filter_rules import compiled

from meshcache.wasm.tags import encode_experiment, encode_plain

if TYPE_CHECKING:
    from filter_batches import Hit

_plain = lru_cache(encode_plain)
_experiment = lru_cache(encode_experiment)

_TAGS = 64
"""Where tags begin in the input, behind the unit and the plan's id."""


class FilterWorker:
    """One worker's counts. Any trap raises."""

    def __init__(self, worker: int, seed: int = 1) -> None:
        import wasmtime

        engine, module = compiled()
        self._store = wasmtime.Store(engine)
        instance = wasmtime.Instance(self._store, module, [])
        self._exports: Any = instance.exports(self._store)
        self._memory = self._exports["memory"]
        self._input = self._call("begin", _signed(worker), seed)
        self._tags: dict[tuple[bytes, bytes], int] = {}
        self._end = _TAGS

    def bin_of(self, latency_us: int) -> int:
        """The bin of a latency."""
        return self._call("bin", latency_us)

    def plan(self, plan_id: bytes) -> None:
        """A new plan is in force: its tags lie where those of the last one lay."""
        self._put(plan_id, 0)
        self._call("plan")
        self._tags, self._end = {}, _TAGS

    def passed(self, route: str) -> bool:
        """A request was sent past the sidecar; False when it is handed on."""
        plain = _plain(route, "", "")
        return bool(self._call("passed", self._at(plain, b""), len(plain)))

    def hit(self, hit: Hit, *, not_modified: bool = False) -> bool:
        """A hit; False when it is handed on."""
        named = hit.counted.arms[hit.arm] if hit.unit else ""
        plain = _plain(hit.route, named, "policy")
        counted = _experiment(hit.counted, hit.cost) if hit.unit else b""
        at = self._at(plain, counted)
        self._put(hit.unit or b"", 0)
        arguments = (hit.arm, hit.stale, not_modified, hit.size, hit.latency_us, hit.age_ms)
        return bool(self._call("hit", at, len(plain), len(counted), *arguments))

    def fill(self, hit: Hit, units: int) -> int:
        """Hits like this one of so many units, until one is handed on; how many were counted."""
        plain, counted = _plain(hit.route, "", "policy"), _experiment(hit.counted, hit.cost)
        return self._call("fill", self._at(plain, counted), len(plain), len(counted), units)

    def tick(self, now_ms: int) -> bytes | None:
        """The batch to send, if there is any."""
        length = self._call("tick", now_ms)
        at = self._call("batch")
        return bytes(self._memory.read(self._store, at, at + length)) if length else None

    def taken(self, batch: bytes) -> None:
        """The sidecar has said 204."""
        self._call("taken", struct.unpack_from("<Q", batch, 14)[0])

    def failed(self, now_ms: int) -> None:
        """It has not."""
        self._call("failed", now_ms)

    def _at(self, plain: bytes, counted: bytes) -> int:
        at = self._tags.get((plain, counted))
        if at is None:
            at = self._tags[plain, counted] = self._end
            self._put(plain + counted, at)
            self._end += len(plain) + len(counted)
        return at

    def _put(self, data: bytes, at: int) -> None:
        self._memory.write(self._store, data, self._input + at)

    def _call(self, name: str, *arguments: int) -> int:
        found: int = self._exports[f"counts_{name}"](self._store, *(int(each) for each in arguments))
        return found


def _signed(word: int) -> int:
    return struct.unpack("<q", struct.pack("<Q", word))[0]  # type: ignore[no-any-return]
