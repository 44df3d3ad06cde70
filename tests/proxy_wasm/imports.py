"""The functions that a module imports from `env`, with the statuses that Envoy's give for bad arguments.

Only what the ABI 0.2.1 has and a filter of HTTP requests may want; a module that imports anything else is not loaded.
"""

from __future__ import annotations

import inspect
import struct
from collections import Counter
from typing import TYPE_CHECKING

from wasmtime import FuncType, ValType

from proxy_wasm.abi import Buffer, Map, Metric, Status, pack_pairs, unpack_pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from wasmtime import Linker

    from proxy_wasm.worker import Worker

_LOG_LEVELS = 6
_WASI_FAULT, _WASI_NOT_SUPPORTED = 21, 58
_WIDE = {"increment_metric": (1,), "record_metric": (1,)}
"""Parameters of 64 bits, by their position."""


class Imports:
    """The host calls of one worker. `statuses` counts what they returned, by name and status."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.statuses: Counter[tuple[str, Status]] = Counter()

    def define(self, linker: Linker) -> None:
        """Offer all of them to a module."""
        for name, function in inspect.getmembers(self, inspect.ismethod):
            if name.startswith("_") or name == "define":
                continue
            count = len(inspect.signature(function).parameters)
            wide = _WIDE.get(name, ())
            kinds = [ValType.i64() if at in wide else ValType.i32() for at in range(count)]
            linker.define_func("env", f"proxy_{name}", FuncType(kinds, [ValType.i32()]), self._counted(name, function))
        two = FuncType([ValType.i32(), ValType.i32()], [ValType.i32()])
        linker.define_func("wasi_snapshot_preview1", "random_get", two, self._random)
        timed = FuncType([ValType.i32(), ValType.i64(), ValType.i32()], [ValType.i32()])
        linker.define_func("wasi_snapshot_preview1", "clock_time_get", timed, self._clock)

    def _counted(self, name: str, function: Callable[..., Status]) -> Callable[..., int]:
        def called(*arguments: int) -> int:
            wide = _WIDE.get(name, ())
            # wasmtime hands numbers over as if they had a sign.
            status = function(*(value if at in wide else value & 0xFFFFFFFF for at, value in enumerate(arguments)))
            self.statuses[name, status] += 1
            return int(status)

        return called

    def _random(self, at: int, size: int) -> int:
        done = self._worker.write(at & 0xFFFFFFFF, self._worker.envoy.random.randbytes(size & 0xFFFFFFFF))
        return 0 if done else _WASI_FAULT

    def _clock(self, clock: int, _precision: int, at: int) -> int:
        envoy = self._worker.envoy
        found = {0: envoy.now_ns, 1: envoy.monotonic_ns}.get(clock)
        if found is None:
            return _WASI_NOT_SUPPORTED
        return 0 if self._worker.write(at & 0xFFFFFFFF, struct.pack("<Q", found)) else _WASI_FAULT

    # -- memory --------------------------------------------------------------------------------------------------------

    def _word(self, address: int, value: int) -> bool:
        return self._worker.write(address, struct.pack("<I", value))

    def _give(self, data: bytes, address_at: int, size_at: int) -> Status:
        """Copy `data` into memory of the module's own choice, and tell it where."""
        address = 0
        if data:
            found = self._worker.allocate(data)
            if found is None:
                return Status.INVALID_MEMORY_ACCESS
            address = found
        done = self._word(address_at, address) and self._word(size_at, len(data))
        return Status.OK if done else Status.INVALID_MEMORY_ACCESS

    # -- general -------------------------------------------------------------------------------------------------------

    def log(self, level: int, at: int, size: int) -> Status:
        text = self._worker.read(at, size)
        if text is None:
            return Status.INVALID_MEMORY_ACCESS
        assert level < _LOG_LEVELS, "Envoy itself ends at such a level"
        self._worker.envoy.logs.append((level, text.decode("utf-8", "replace")))
        return Status.OK

    def get_log_level(self, level_at: int) -> Status:
        return Status.OK if self._word(level_at, 2) else Status.INVALID_MEMORY_ACCESS

    def get_current_time_nanoseconds(self, at: int) -> Status:
        done = self._worker.write(at, struct.pack("<Q", self._worker.envoy.now_ns))
        return Status.OK if done else Status.INVALID_MEMORY_ACCESS

    def set_tick_period_milliseconds(self, period: int) -> Status:
        self._worker.tick_ms = period
        return Status.OK

    def get_property(self, path_at: int, path_size: int, value_at: int, size_at: int) -> Status:
        path = self._worker.read(path_at, path_size)
        if path is None:
            return Status.INVALID_MEMORY_ACCESS
        stream = self._worker.stream
        value = stream.properties.get(path) if stream is not None else None
        return Status.NOT_FOUND if value is None else self._give(value, value_at, size_at)

    def set_property(self, path_at: int, path_size: int, value_at: int, value_size: int) -> Status:
        path, value = self._worker.read(path_at, path_size), self._worker.read(value_at, value_size)
        if path is None or value is None:
            return Status.INVALID_MEMORY_ACCESS
        if self._worker.stream is None:
            return Status.NOT_FOUND
        self._worker.stream.state[b"wasm." + path] = value
        return Status.OK

    def set_effective_context(self, number: int) -> Status:
        if number not in self._worker.contexts:
            return Status.BAD_ARGUMENT
        self._worker.effective = number
        return Status.OK

    # -- headers -------------------------------------------------------------------------------------------------------

    def get_header_map_pairs(self, kind: int, at: int, size_at: int) -> Status:
        if kind > max(Map):
            return Status.BAD_ARGUMENT
        pairs = self._worker.readable_map(Map(kind))
        # One that is not there reads as an empty one.
        return self._give(pack_pairs(pairs) if pairs else b"", at, size_at)

    def get_header_map_value(self, kind: int, key_at: int, key_size: int, value_at: int, size_at: int) -> Status:
        if kind > max(Map):
            return Status.BAD_ARGUMENT
        key = self._worker.read(key_at, key_size)
        if key is None:
            return Status.INVALID_MEMORY_ACCESS
        pairs = self._worker.readable_map(Map(kind))
        if pairs is None:
            return Status.BAD_ARGUMENT
        # The first of several, as with Envoy.
        value = next((value for name, value in pairs if name == key.lower()), None)
        return Status.NOT_FOUND if value is None else self._give(value, value_at, size_at)

    def get_header_map_size(self, kind: int, at: int) -> Status:
        pairs = self._worker.writable_map(kind)
        if pairs is None:
            return Status.BAD_ARGUMENT
        size = sum(len(name) + len(value) for name, value in pairs)
        return Status.OK if self._word(at, size) else Status.INVALID_MEMORY_ACCESS

    def add_header_map_value(self, kind: int, key_at: int, key_size: int, value_at: int, size: int) -> Status:
        return self._change(kind, key_at, key_size, value_at, size, keep=True)

    def replace_header_map_value(self, kind: int, key_at: int, key_size: int, value_at: int, size: int) -> Status:
        return self._change(kind, key_at, key_size, value_at, size, keep=False)

    def remove_header_map_value(self, kind: int, key_at: int, key_size: int) -> Status:
        key = self._worker.read(key_at, key_size)
        if kind > max(Map):
            return Status.BAD_ARGUMENT
        if key is None:
            return Status.INVALID_MEMORY_ACCESS
        pairs = self._worker.writable_map(kind)
        if pairs is None:
            return Status.BAD_ARGUMENT
        pairs[:] = [(name, value) for name, value in pairs if name != key.lower()]
        return Status.OK

    def set_header_map_pairs(self, kind: int, at: int, size: int) -> Status:
        data = self._worker.read(at, size)
        if kind > max(Map):
            return Status.BAD_ARGUMENT
        if data is None:
            return Status.INVALID_MEMORY_ACCESS
        pairs = self._worker.writable_map(kind)
        if pairs is None:
            return Status.BAD_ARGUMENT
        pairs[:] = [(name.lower(), value) for name, value in unpack_pairs(data)]
        return Status.OK

    def _change(self, kind: int, key_at: int, key_size: int, value_at: int, size: int, *, keep: bool) -> Status:
        if kind > max(Map):
            return Status.BAD_ARGUMENT
        key, value = self._worker.read(key_at, key_size), self._worker.read(value_at, size)
        if key is None or value is None:
            return Status.INVALID_MEMORY_ACCESS
        pairs = self._worker.writable_map(kind)
        if pairs is None:
            return Status.BAD_ARGUMENT
        key = key.lower()
        if not keep:
            pairs[:] = [(name, held) for name, held in pairs if name != key]
        pairs.append((key, value))
        return Status.OK

    # -- bodies --------------------------------------------------------------------------------------------------------

    def get_buffer_bytes(self, kind: int, start: int, length: int, at: int, size_at: int) -> Status:
        if kind > max(Buffer):
            return Status.BAD_ARGUMENT
        data = self._worker.buffer(Buffer(kind))
        if data is None:
            return Status.NOT_FOUND
        return self._give(data[start : start + length], at, size_at)

    def get_buffer_status(self, kind: int, length_at: int, flags_at: int) -> Status:
        if kind > max(Buffer):
            return Status.BAD_ARGUMENT
        data = self._worker.buffer(Buffer(kind))
        if data is None:
            return Status.NOT_FOUND
        done = self._word(length_at, len(data)) and self._word(flags_at, 0)
        return Status.OK if done else Status.INVALID_MEMORY_ACCESS

    # -- replies, calls ------------------------------------------------------------------------------------------------

    def send_local_response(
        self,
        code: int,
        details_at: int,
        details_size: int,
        body_at: int,
        body_size: int,
        headers_at: int,
        headers_size: int,
        _grpc_status: int,
    ) -> Status:
        details = self._worker.read(details_at, details_size)
        body = self._worker.read(body_at, body_size)
        headers = self._worker.read(headers_at, headers_size)
        if details is None or body is None or headers is None:
            return Status.INVALID_MEMORY_ACCESS
        stream = self._worker.stream
        assert stream is not None, "a local response without a request"
        stream.take_local_response(code, unpack_pairs(headers), body)
        return Status.OK

    def http_call(
        self,
        cluster_at: int,
        cluster_size: int,
        headers_at: int,
        headers_size: int,
        body_at: int,
        body_size: int,
        trailers_at: int,
        trailers_size: int,
        timeout: int,
        token_at: int,
    ) -> Status:
        cluster = self._worker.read(cluster_at, cluster_size)
        headers = self._worker.read(headers_at, headers_size)
        body = self._worker.read(body_at, body_size)
        trailers = self._worker.read(trailers_at, trailers_size)
        if cluster is None or headers is None or body is None or trailers is None or not self._word(token_at, 0):
            return Status.INVALID_MEMORY_ACCESS
        if timeout >= 1 << 31:
            return Status.BAD_ARGUMENT
        token = self._worker.envoy.start_call(self._worker, cluster, unpack_pairs(headers), body, timeout)
        if token is None:
            return Status.BAD_ARGUMENT
        self._word(token_at, token)
        return Status.OK

    # -- shared among workers ------------------------------------------------------------------------------------------

    def get_shared_data(self, key_at: int, key_size: int, value_at: int, size_at: int, cas_at: int) -> Status:
        key = self._worker.read(key_at, key_size)
        if key is None:
            return Status.INVALID_MEMORY_ACCESS
        held = self._worker.envoy.get_shared(key)
        if held is None:
            return Status.NOT_FOUND
        status = self._give(held[0], value_at, size_at)
        if status == Status.OK and not self._word(cas_at, held[1]):
            return Status.INVALID_MEMORY_ACCESS
        return status

    def set_shared_data(self, key_at: int, key_size: int, value_at: int, value_size: int, cas: int) -> Status:
        key, value = self._worker.read(key_at, key_size), self._worker.read(value_at, value_size)
        if key is None or value is None:
            return Status.INVALID_MEMORY_ACCESS
        return self._worker.envoy.set_shared(key, value, cas)

    def define_metric(self, kind: int, name_at: int, name_size: int, id_at: int) -> Status:
        name = self._worker.read(name_at, name_size)
        if name is None:
            return Status.INVALID_MEMORY_ACCESS
        if kind > max(Metric):
            return Status.BAD_ARGUMENT
        number = ((len(self._worker.metrics) + 1) << 2) | kind
        self._worker.metrics[number] = Metric(kind), name
        self._worker.envoy.metrics.setdefault((Metric(kind), name), 0)
        return Status.OK if self._word(id_at, number) else Status.INVALID_MEMORY_ACCESS

    def increment_metric(self, number: int, offset: int) -> Status:
        if number & 3 > Metric.GAUGE:
            return Status.BAD_ARGUMENT
        metric = self._worker.metrics.get(number)
        if metric is None:
            return Status.NOT_FOUND
        if metric[0] is Metric.COUNTER and offset <= 0:
            return Status.BAD_ARGUMENT
        if not self._worker.envoy.rejects_stats:
            self._worker.envoy.metrics[metric] = (self._worker.envoy.metrics[metric] + offset) % (1 << 64)
        return Status.OK

    def record_metric(self, number: int, value: int) -> Status:
        metric = self._worker.metrics.get(number)
        if metric is None:
            return Status.NOT_FOUND
        if self._worker.envoy.rejects_stats:
            return Status.OK
        metrics, value = self._worker.envoy.metrics, value % (1 << 64)
        metrics[metric] = (metrics[metric] + value) % (1 << 64) if metric[0] is Metric.COUNTER else value
        return Status.OK

    def get_metric(self, number: int, value_at: int) -> Status:
        if number & 3 > Metric.GAUGE:
            return Status.BAD_ARGUMENT
        metric = self._worker.metrics.get(number)
        if metric is None:
            return Status.NOT_FOUND
        done = self._worker.write(value_at, struct.pack("<Q", self._worker.envoy.metrics[metric]))
        return Status.OK if done else Status.INVALID_MEMORY_ACCESS
