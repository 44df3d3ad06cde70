"""One worker thread of Envoy: its VM, the callbacks into it, its timer."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, cast

import wasmtime

from proxy_wasm.abi import Buffer, Map, Metric, Pairs
from proxy_wasm.imports import Imports

if TYPE_CHECKING:
    from proxy_wasm.envoy import Call, Envoy, Reply
    from proxy_wasm.streams import Stream

ROOT = 1
"""The context id of the plugin itself."""
PAGE = 65536


class Worker:
    """A VM with the module in it. After a trap it is `failed` and nothing of it is called any more.

    So it is with Envoy under FAIL_OPEN; under FAIL_RELOAD it makes a new VM for later streams: `reload`.
    """

    def __init__(self, envoy: Envoy) -> None:
        self.envoy = envoy
        self.failed = False
        self.trap: str = ""
        self.tick_ms = 0
        self.metrics: dict[int, tuple[Metric, bytes]] = {}
        self.streams: dict[int, Stream] = {}
        self.reply: Reply | None = None
        """The answer to a call while the module is told of it."""
        self.imports = Imports(self)
        self.configuring = False
        self.effective = 0
        """The context that the module has chosen to act for, 0 for the one it was called for."""
        self._current = 0
        self._next_id = itertools.count(ROOT + 1)
        self._ticked_ns = envoy.monotonic_ns
        self._load()

    def _load(self) -> None:
        self.store = wasmtime.Store(self.envoy.engine)
        linker = wasmtime.Linker(self.envoy.engine)
        self.imports.define(linker)
        self._instance = linker.instantiate(self.store, self.envoy.module)
        exports = self._instance.exports(self.store)
        self.memory = cast("wasmtime.Memory", exports["memory"])
        self._exports = {
            name: cast("wasmtime.Func", exports[name])
            for name in (export.name for export in self.envoy.module.exports)
            if isinstance(exports[name], wasmtime.Func)
        }
        if "proxy_abi_version_0_2_1" not in self._exports and "proxy_abi_version_0_2_0" not in self._exports:
            raise AssertionError("the module does not say for which ABI it is made")
        self._allocate = self._exports.get("malloc") or self._exports["proxy_on_memory_allocate"]

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """What Envoy calls before the first request."""
        if "_initialize" in self._exports:
            self.call("_initialize")
        self.call("proxy_on_context_create", ROOT, 0)
        if self.call("proxy_on_vm_start", ROOT, 0, default=1) == 0:
            raise AssertionError("proxy_on_vm_start was refused")
        self.configuring = True
        taken = self.call("proxy_on_configure", ROOT, len(self.envoy.configuration), default=1)
        self.configuring = False
        if taken == 0:
            raise AssertionError("proxy_on_configure was refused")

    def reload(self) -> None:
        """A new VM in the place of one that has failed."""
        for call in [call for call in self.envoy.calls if call.worker is self]:
            self.envoy.calls.remove(call)
        self.streams.clear()
        self.metrics.clear()
        self.failed, self.trap, self.tick_ms = False, "", 0
        self._load()
        self.start()

    def call(self, name: str, *arguments: int, default: int = 0) -> int:
        """Call an export, for the context that the first argument names.

        `default` where the module has none of that name, or has trapped now or before.
        """
        function = self._exports.get(name)
        if function is None or self.failed:
            return default
        before = self._current, self.effective
        self._current, self.effective = (arguments[0] if arguments else 0), 0
        try:
            found = function(self.store, *arguments)
        except (wasmtime.Trap, wasmtime.WasmtimeError) as trap:
            self.failed, self.trap = True, str(trap)
            return default
        finally:
            self._current, self.effective = before
        return 0 if found is None else int(found)

    # -- timer and calls -----------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Let the timer go off now."""
        self._ticked_ns = self.envoy.monotonic_ns
        self.call("proxy_on_tick", ROOT)

    def tick_if_due(self) -> None:
        """Let the timer go off if its period is over."""
        if self.tick_ms and self.envoy.monotonic_ns - self._ticked_ns >= self.tick_ms * 1_000_000:
            self.tick()

    def call_ended(self, call: Call, reply: Reply | None) -> None:
        """Tell the module of the answer to a call, or that none came."""
        self.reply = reply
        try:
            fields = len(reply.headers) + 1 if reply else 0
            self.call("proxy_on_http_call_response", ROOT, call.token, fields, len(reply.body) if reply else 0, 0)
        finally:
            self.reply = None

    # -- streams -------------------------------------------------------------------------------------------------------

    def open_stream(self, stream: Stream) -> int:
        """The id of a context for a request."""
        number = next(self._next_id)
        self.streams[number] = stream
        self.call("proxy_on_context_create", number, ROOT)
        return number

    def close_stream(self, number: int) -> None:
        """What Envoy calls when a request is over, however it ended."""
        self.call("proxy_on_log", number)
        self.call("proxy_on_done", number, default=1)
        self.call("proxy_on_delete", number)
        self.streams.pop(number, None)

    # -- memory --------------------------------------------------------------------------------------------------------

    @property
    def memory_bytes(self) -> int:
        """How much memory the VM has taken. It never gives any back."""
        return self.memory.size(self.store) * PAGE

    def read(self, address: int, size: int) -> bytes | None:
        """Bytes of the VM's memory; None where some of them are not there."""
        if address + size > self.memory.data_len(self.store):
            return None
        return bytes(self.memory.read(self.store, address, address + size))

    def write(self, address: int, data: bytes) -> bool:
        """Write to the VM's memory; whether there is that much."""
        if address + len(data) > self.memory.data_len(self.store):
            return False
        if data:
            self.memory.write(self.store, data, address)
        return True

    def allocate(self, data: bytes) -> int | None:
        """Copy `data` to where the module wants it; None where it has no room."""
        address = int(self._allocate(self.store, len(data))) & 0xFFFFFFFF
        return address if address and self.write(address, data) else None

    # -- what host calls ask -------------------------------------------------------------------------------------------

    @property
    def contexts(self) -> set[int]:
        """The ids that the module may name."""
        return {ROOT, *self.streams}

    @property
    def stream(self) -> Stream | None:
        """The request for which the module acts."""
        return self.streams.get(self.effective or self._current)

    def readable_map(self, kind: Map) -> Pairs | None:
        """A header map as the callback that runs may read it; None where it is not there."""
        if kind is Map.CALL_HEADERS:
            return [(b":status", b"%d" % self.reply.status), *self.reply.headers] if self.reply else None
        return None if self.stream is None else self.stream.readable.get(kind, self.stream.writable.get(kind))

    def writable_map(self, kind: int) -> Pairs | None:
        """A header map as the callback that runs may change it; None where it is not there."""
        return None if self.stream is None or kind not in set(Map) else self.stream.writable.get(Map(kind))

    def buffer(self, kind: Buffer) -> bytes | None:
        """A buffer as the callback that runs may see it; None where it is not there."""
        if kind is Buffer.CALL_BODY:
            return self.reply.body if self.reply else None
        if kind is Buffer.PLUGIN_CONFIGURATION:
            return self.envoy.configuration if self.configuring else None
        if kind is Buffer.VM_CONFIGURATION:
            return b""
        return self.stream.buffers.get(kind, b"") if self.stream is not None else None
